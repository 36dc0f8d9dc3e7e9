//! `sidle switch --dry-run --rehearse`, `sidle adopt --dry-run --rehearse`: the rehearsal of a switch, by this command itself, beside the running
//! agent.

use crate::cli::{Context, agents};
use crate::config::Settings;
use crate::failure::{Class, Reason, Report};
use crate::os::process::Identity;
use crate::os::{clock, signals};
use crate::rehearsal::extras::Mending;
use crate::rehearsal::states::{self, Asked};
use crate::rehearsal::uses::Use;
use crate::rehearsal::{ExtrasPolicy, Rehearsal, Scene};
use crate::store::Store;
use crate::store::check::{Defect, Depth};
use crate::switch::driver::Policy;
use crate::switch::driver::rehearsing::{former, scene};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::room::Room;
use crate::switch::uses;
use crate::version::Release;
use std::ffi::OsString;
use std::time::Duration;

/// How often the programs are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What runs before the switch.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum Before<'a> {
    /// A release; None: nothing.
    Release(Option<&'a Release>),
    /// A packaged agent, by its first process; and variables of the host that the release will have.
    Packaged(&'a Identity, &'a [(OsString, OsString)]),
}

/// The result of a rehearsal.
#[derive(Debug)]
pub(in crate::cli) struct Rehearsed {
    /// False: nothing was rehearsed, and a note says why.
    pub was_done: bool,
    /// The findings, for people.
    pub notes: Vec<String>,
    /// The comparison of what both releases would apply; None: nothing was asked.
    pub states: Option<states::Compared>,
}

/// A rehearsal, before the settings weigh what it found.
pub(in crate::cli) enum Came {
    /// Nothing was started, because of this.
    Skipped(String),
    /// It could not be done; a switch would refuse, too.
    NotDone(String),
    /// It was done.
    Found(Box<Rehearsal>),
}

/// Rehearses a switch to the release `to`. An error: the switch would be refused.
pub(in crate::cli) fn rehearse(
    context: &Context,
    files: &InstanceFiles,
    to: &Release,
    from: Before<'_>,
) -> Result<Rehearsed, Report> {
    let settings = Settings::read(&context.layout)?;
    let skipped =
        |why: String| Ok(Rehearsed { was_done: false, notes: vec![format!("not rehearsed: {why}")], states: None });
    if settings.rehearsal == Policy::Off {
        return skipped("rehearsals are off (rehearsal = \"off\")".to_owned());
    }
    let (found, was_done) = match perform(context, &settings, files, to, from, settings.highstate)? {
        Came::Skipped(why) => return skipped(why),
        Came::Found(found) => (*found, true),
        // The switch would refuse as well.
        Came::NotDone(reason) => (Rehearsal::not_done(reason), false),
    };
    let mending = found.vanishing.as_ref().and_then(|vanishing| vanishing.mending(settings.extras));
    let extras = if mending.is_some() { ExtrasPolicy::Report } else { settings.extras };
    let states = found.states.clone();
    let store = Store::new(&context.layout, files.package());
    let found = match (from, agents::parts(&store.head(to)?.agent)?.rehearser) {
        (Before::Release(Some(from)), Some(rehearser)) if was_done => {
            uses::weighed(found, &store, files.instance(), rehearser, [from, to])?
        }
        _ => found,
    };
    let mut notes = weighed(to, found, settings.rehearsal, extras)?;
    notes.extend(mending.map(words_of_mending));
    Ok(Rehearsed { was_done, notes, states })
}

/// What the switch would do about extras.
pub(super) fn words_of_mending(mending: Mending) -> String {
    format!("the switch would {} the extra packages for the new release first", mending.words().0)
}

/// Rehearses the release `to`, whatever the settings say of rehearsals.
pub(in crate::cli) fn perform(
    context: &Context,
    settings: &Settings,
    files: &InstanceFiles,
    to: &Release,
    from: Before<'_>,
    states: states::Depth,
) -> Result<Came, Report> {
    let store = Store::new(&context.layout, files.package());
    let left = if let Before::Release(release) = from { release } else { None };
    let both: Vec<&Release> = std::iter::once(to).chain(left).collect();
    let leases = both.iter().copied().map(|release| store.lease(release)).collect::<Result<Vec<_>, _>>()?;
    for release in both {
        let (_, problems) = store.check_without_index(release, Depth::Quick)?;
        if problems.iter().any(|problem| problem.defect != Defect::Stray) {
            return Ok(Came::Skipped(format!("{release} is damaged; a switch repairs it first")));
        }
    }
    let manifest = store.head(to)?;
    let Some(rehearser) = agents::parts(&manifest.agent)?.rehearser else {
        return Ok(Came::Skipped(format!("agents of the kind {} have no rehearsal", manifest.agent.as_str())));
    };
    let (_, named) = settings.instance(&context.layout, files.instance())?;
    let directory = named.unwrap_or_else(|| context.layout.on_host(manifest.service.config.as_ref()));
    let former = match from {
        Before::Release(release) => former(&store, release, &directory)?,
        Before::Packaged(leader, _) => rehearser.packaged(leader),
    };
    let mut scene = Scene {
        states: Asked::new(states, settings.limits().rehearsal)?,
        ..scene(&store, former, &manifest, directory, settings.passed(files.instance()))?
    };
    if let Before::Packaged(_, variables) = from {
        scene.trial.environment.retain(|(name, _)| variables.iter().all(|(other, _)| other != name));
        scene.trial.environment.extend_from_slice(variables);
    }
    let room = Room::take(&context.layout.run(files.instance()))?;
    signals::hold()?;
    let longest = settings.limits().rehearsal;
    let begun = Rehearsing::start(rehearser, scene, Question::Worse, room.path(), longest, clock::since_boot());
    let came = begun.map(finish);
    drop((room, leases));
    // A signal that came meanwhile ends this command now.
    signals::admit()?;
    Ok(came?.map_or_else(Came::NotDone, |found| Came::Found(Box::new(found))))
}

/// Waits for the end, or for a signal that asks this command to end.
fn finish(mut rehearsing: Rehearsing) -> Result<Rehearsal, String> {
    loop {
        if let Some(came) = rehearsing.poll(clock::since_boot()) {
            return came;
        }
        if signals::are_waiting() {
            return Err("the rehearsal was cancelled".to_owned());
        }
        clock::sleep(LOOK_INTERVAL);
    }
}

fn weighed(to: &Release, found: Rehearsal, policy: Policy, extras: ExtrasPolicy) -> Result<Vec<String>, Report> {
    let found = found.weighed(extras);
    if let Some(reason) = found.refusal().filter(|_| policy == Policy::Refuse) {
        let report = Report::of(Class::Failed, format!("cannot switch to {to}: {reason}"))
            .hint("the rehearsal found this on the host as it is; nothing was changed");
        let is_of_states = found.states.as_ref().is_some_and(|states| states.refuses);
        let (lines, used) = (found.blocking.clone(), found.used.iter().map(Use::line).collect::<Vec<_>>());
        let is_of_peers = found.blocking.is_empty() && found.unknown.is_empty();
        return Err(match (is_of_states, is_of_peers) {
            (true, _) => Report { lines, ..report.reason(Reason::Highstate) },
            (false, true) => report.reason(Reason::Peers),
            (false, false) if !used.is_empty() => Report { lines: used, ..report.reason(Reason::Used) },
            (false, false) => report,
        });
    }
    Ok(found.told(policy == Policy::Refuse))
}
