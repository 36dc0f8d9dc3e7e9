//! Preparing a switch: a rehearsal; where it finds extras that would vanish and they are to be rebuilt, that, and another rehearsal with
//! them in place.

use crate::os::OsError;
use crate::rehearsal::extras::Vanishing;
use crate::rehearsal::{ExtrasPolicy, Rehearsal, Rehearser, Scene};
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::rebuild::{Rebuilding, Workshop};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What comes of extras, and where they are rebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extras {
    /// What comes of them.
    pub policy: ExtrasPolicy,
    /// Where they are rebuilt.
    pub workshop: Workshop,
}

/// A switch that is being prepared. Dropped before its end, it ends what it started.
pub struct Preparing {
    stage: Stage,
    then: Option<Then>,
}

/// What a first rehearsal may lead to.
struct Then {
    rehearser: &'static dyn Rehearser,
    scene: Scene,
    run: PathBuf,
    longest: Duration,
    extras: Extras,
}

enum Stage {
    First(Rehearsing),
    Rebuilding(Rebuilding, Rehearsal),
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

    /// A rehearsal and nothing else.
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

    /// What is waited for, in words.
    pub fn waits_for(&self) -> &'static str {
        match &self.stage {
            Stage::First(_) | Stage::Second(..) => "the rehearsal",
            Stage::Rebuilding(..) => "the packages laid over the running release to be installed for the new one",
        }
    }

    /// Looks how far it is; never waits. None: not over yet. What is found is weighed already. An error is one of this host (no space, no
    /// rights), in words: the release has neither passed nor failed. After the first answer that is not None it is over.
    pub fn poll(&mut self, now: Duration) -> Option<Result<Rehearsal, String>> {
        match &mut self.stage {
            Stage::First(rehearsing) => {
                let found = match rehearsing.poll(now)? {
                    Ok(found) => found,
                    Err(reason) => return Some(Err(reason)),
                };
                let Some(then) = &self.then else { return Some(Ok(found)) };
                if then.extras.policy != ExtrasPolicy::Rebuild || found.extras.is_empty() {
                    return Some(Ok(found.weighed(then.extras.policy)));
                }
                match then.rebuilding(&found, now) {
                    Ok(rebuilding) => {
                        self.stage = Stage::Rebuilding(rebuilding, found);
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
                        let mut notes = vec![rebuilt_note(found.vanishing.as_ref(), &rebuilt.into)];
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
        let cannot = || "nobody knows how to install them for the new release".to_owned();
        let (builder, vanishing) = (self.rehearser.builder().ok_or_else(cannot)?, found.vanishing.clone());
        Rebuilding::start(builder, &self.scene, vanishing.ok_or_else(cannot)?, &self.extras.workshop, now)
    }

    /// What refuses the switch: which packages, why, and what helps.
    fn not_rebuilt(&self, mut found: Rehearsal, reason: &str) -> Rehearsal {
        // An agent that knows no more says what would vanish, and what helps.
        if let (Some(vanishing), Some(builder)) = (&found.vanishing, self.rehearser.builder()) {
            let remedy = builder.remedy(self.extras.workshop.wheels.as_deref());
            found.extras = vec![format!("cannot rebuild {}: {reason}; {remedy}", names(vanishing))];
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

fn rebuilt_note(vanishing: Option<&Vanishing>, into: &Path) -> String {
    let packages = vanishing.map(names).unwrap_or_default();
    format!("rebuilt for the new release in {}: {packages}", into.display())
}
