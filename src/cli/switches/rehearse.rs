//! `sidle switch --dry-run --rehearse`: the rehearsal of a switch, by this command itself, beside the running agent.

use crate::cli::{Context, agents};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::os::{clock, signals};
use crate::rehearsal::{ExtrasPolicy, Rehearsal};
use crate::store::Store;
use crate::store::check::{Defect, Depth};
use crate::switch::driver::Policy;
use crate::switch::driver::foresee::Foreseen;
use crate::switch::driver::rehearsing::scene;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::rehearsal::performance::{Question, Rehearsing};
use crate::switch::rehearsal::room::Room;
use crate::version::Release;
use std::time::Duration;

/// How often the programs are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Rehearses the foreseen switch, and adds what was found to its notes. False: nothing was rehearsed, and a note says why. An error: the switch
/// would be refused.
pub(super) fn rehearse(context: &Context, files: &InstanceFiles, foreseen: &mut Foreseen) -> Result<bool, Report> {
    let settings = Settings::read(&context.layout)?;
    let mut skipped = |why: String| {
        foreseen.notes.push(format!("not rehearsed: {why}"));
        Ok(false)
    };
    if settings.rehearsal == Policy::Off {
        return skipped("rehearsals are off (rehearsal = \"off\")".to_owned());
    }
    let store = Store::new(&context.layout, files.package());
    let both: Vec<Release> = std::iter::once(&foreseen.to).chain(&foreseen.from).cloned().collect();
    let leases = both.iter().map(|release| store.lease(release)).collect::<Result<Vec<_>, _>>()?;
    for release in &both {
        let (_, problems) = store.check_without_index(release, Depth::Quick)?;
        if problems.iter().any(|problem| problem.defect != Defect::Stray) {
            return skipped(format!("{release} is damaged; a switch repairs it first"));
        }
    }
    let manifest = store.head(&foreseen.to)?;
    let Some(rehearser) = agents::parts(&manifest.agent)?.rehearser else {
        return skipped(format!("agents of the kind {} have no rehearsal", manifest.agent.as_str()));
    };
    let (_, named) = settings.instance(&context.layout, files.instance())?;
    let directory = named.unwrap_or_else(|| context.layout.on_host(manifest.service.config.as_ref()));
    let scene = scene(&store, foreseen.from.as_ref(), &manifest, directory, settings.passed(files.instance()))?;
    let room = Room::take(&context.layout.run(files.instance()))?;
    signals::hold()?;
    let longest = settings.limits.rehearsal;
    let begun = Rehearsing::start(rehearser, scene, Question::Worse, room.path(), longest, clock::since_boot());
    let came = begun.map(finish);
    drop((room, leases));
    // A signal that came meanwhile ends this command now.
    signals::admit()?;
    let (found, was_rehearsed) = match came? {
        Ok(found) => (found, true),
        // The switch would refuse as well.
        Err(reason) => (Rehearsal::not_done(reason), false),
    };
    let wants_rebuild = settings.extras == ExtrasPolicy::Rebuild && !found.extras.is_empty();
    weigh(foreseen, found, settings.rehearsal, if wants_rebuild { ExtrasPolicy::Report } else { settings.extras })?;
    if wants_rebuild {
        foreseen.notes.push("the switch would rebuild the extra packages for the new release first".to_owned());
    }
    Ok(was_rehearsed)
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

fn weigh(foreseen: &mut Foreseen, found: Rehearsal, policy: Policy, extras: ExtrasPolicy) -> Result<(), Report> {
    let found = found.weighed(extras);
    if let Some(reason) = found.refusal().filter(|_| policy == Policy::Refuse) {
        return Err(Report::of(Class::Failed, format!("cannot switch to {}: {reason}", foreseen.to))
            .hint("the rehearsal found this on the host as it is; nothing was changed"));
    }
    foreseen.notes.extend(found.told(policy == Policy::Refuse));
    Ok(())
}
