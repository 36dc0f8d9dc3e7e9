//! Prepares a switch: a rehearsal; if extras would vanish and have to be rebuilt, their rebuild and a second rehearsal with them in place.

use crate::os::OsError;
use crate::rehearsal::extras::{Mending, Vanishing};
use crate::rehearsal::{ExtrasPolicy, Rehearsal, Rehearser, Scene};
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::rebuild::{Rebuilding, Workshop};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to do with extras, and where to rebuild them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extras {
    /// What to do with extras.
    pub policy: ExtrasPolicy,
    /// Where to rebuild extras.
    pub workshop: Workshop,
}

/// A preparation under way. If it is dropped before its end, it ends its programs.
pub struct Preparing {
    stage: Stage,
    then: Option<Then>,
}

/// What the stages after the first rehearsal need.
struct Then {
    rehearser: &'static dyn Rehearser,
    scene: Scene,
    run: PathBuf,
    longest: Duration,
    extras: Extras,
}

enum Stage {
    First(Rehearsing),
    Rebuilding(Box<Rebuilding>, Rehearsal),
    Second(Rehearsing, Vec<String>),
}

impl Preparing {
    /// Begins; for the arguments see [`Rehearsing::start`].
    pub fn start(
        rehearser: &'static dyn Rehearser,
        scene: Scene,
        run: &Path,
        extras: Extras,
        longest: Duration,
        now: Duration,
    ) -> Result<Self, OsError> {
        let then = Then { rehearser, scene, run: run.to_owned(), longest, extras };
        let first = then.rehearsing(now)?;
        Ok(Self { stage: Stage::First(first), then: Some(then) })
    }

    /// A preparation with one rehearsal and no rebuild.
    pub fn of(rehearsing: Rehearsing) -> Self {
        Self { stage: Stage::First(rehearsing), then: None }
    }

    /// The program that runs now.
    pub fn child(&self) -> Option<u32> {
        match &self.stage {
            Stage::First(rehearsing) | Stage::Second(rehearsing, _) => rehearsing.child(),
            Stage::Rebuilding(rebuilding, _) => Some(rebuilding.child()),
        }
    }

    /// What the preparation waits for, for people.
    pub fn waits_for(&self) -> &'static str {
        match &self.stage {
            Stage::First(_) | Stage::Second(..) => "the rehearsal has not ended yet",
            Stage::Rebuilding(..) => "the extra packages are not installed for the new release yet",
        }
    }

    /// Returns the result, already weighed, once the preparation is over; never waits. An error is a fault of the host (no space, no rights): the
    /// release has neither passed nor failed. Do not call it again after a result.
    pub fn poll(&mut self, now: Duration) -> Option<Result<Rehearsal, String>> {
        match &mut self.stage {
            Stage::First(rehearsing) => {
                let found = match rehearsing.poll(now)? {
                    Ok(found) => found,
                    Err(reason) => return Some(Err(reason)),
                };
                let Some(then) = &self.then else { return Some(Ok(found)) };
                if then.mending(&found).is_none() {
                    return Some(Ok(found.weighed(then.extras.policy)));
                }
                match then.rebuilding(&found, now) {
                    Ok(rebuilding) => {
                        self.stage = Stage::Rebuilding(Box::new(rebuilding), found);
                        None
                    }
                    Err(reason) => Some(Ok(then.not_rebuilt(found, &reason))),
                }
            }
            Stage::Rebuilding(rebuilding, found) => {
                let then = self.then.as_ref()?;
                let came = rebuilding.poll(then.rehearser.builder()?, now)?;
                let found = std::mem::take(found);
                match came {
                    Err(reason) => Some(Ok(then.not_rebuilt(found, &reason))),
                    Ok(rebuilt) => {
                        let mut notes = vec![then.mended_note(&found, &rebuilt.into)];
                        notes.extend(rebuilt.notes);
                        match then.rehearsing(now) {
                            Ok(second) => {
                                self.stage = Stage::Second(second, notes);
                                None
                            }
                            Err(error) => Some(Err(format!("cannot rehearse: {error}"))),
                        }
                    }
                }
            }
            Stage::Second(rehearsing, notes) => {
                let found = rehearsing.poll(now)?;
                let notes = std::mem::take(notes);
                Some(found.map(|found| {
                    let mut found = found.weighed(ExtrasPolicy::Rebuild);
                    found.notes.splice(..0, notes).for_each(drop);
                    found
                }))
            }
        }
    }
}

impl Then {
    fn rehearsing(&self, now: Duration) -> Result<Rehearsing, OsError> {
        Rehearsing::start(self.rehearser, self.scene.clone(), Question::Worse, &self.run, self.longest, now)
    }

    fn rebuilding(&self, found: &Rehearsal, now: Duration) -> Result<Rebuilding, String> {
        let cannot = || "sidle does not know how to install them for the new release".to_owned();
        let (builder, vanishing) = (self.rehearser.builder().ok_or_else(cannot)?, found.vanishing.clone());
        Rebuilding::start(builder, &self.scene, vanishing.ok_or_else(cannot)?, &self.extras.workshop, now)
    }

    /// What is done about extras that would vanish; None: nothing.
    fn mending(&self, found: &Rehearsal) -> Option<Mending> {
        if found.extras.is_empty() {
            return None;
        }
        // Without a list there is nothing to copy, and `rebuilding` says so.
        let without = (self.extras.policy == ExtrasPolicy::Rebuild).then_some(Mending::Rebuild);
        found.vanishing.as_ref().map_or(without, |vanishing| vanishing.mending(self.extras.policy))
    }

    fn mended_note(&self, found: &Rehearsal, into: &Path) -> String {
        let (_, done) = self.mending(found).unwrap_or(Mending::Rebuild).words();
        let packages = found.vanishing.as_ref().map(names).unwrap_or_default();
        format!("{done} for the new release in {}: {packages}", into.display())
    }

    /// Adds the refusal: the packages, the reason, the remedy.
    fn not_rebuilt(&self, mut found: Rehearsal, reason: &str) -> Rehearsal {
        // Without a builder the findings of the agent itself are the refusal.
        if let (Some(vanishing), Some(builder)) = (&found.vanishing, self.rehearser.builder()) {
            let remedy = builder.remedy(vanishing, self.extras.workshop.wheels.as_deref());
            let (act, _) = self.mending(&found).unwrap_or(Mending::Rebuild).words();
            found.extras = vec![format!("cannot {act} {}: {reason}; {remedy}", names(vanishing))];
        }
        let extras = std::mem::take(&mut found.extras);
        found.blocking.splice(..0, extras).for_each(drop);
        found
    }
}

fn names(vanishing: &Vanishing) -> String {
    let names: Vec<String> = vanishing.packages.iter().map(ToString::to_string).collect();
    names.join(", ")
}
