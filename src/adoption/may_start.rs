//! `sidle may-start`: whether a unit that asks may start its agent.

use super::AdoptingInstance;
use super::record::{Adoption, Stage};
use super::running_agent::failed;
use crate::agent::Answers;
use crate::agent::adoption::Adopter;
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::switch::Phase;
use crate::version::Release;
use std::path::Path;

/// Refuses the start of `unit` if sidle runs its agent: the agent that it has adopted, from that unit or from another package's.
pub fn refuse(instance: &AdoptingInstance, adoption: &Adoption, unit: &str) -> Result<(), Report> {
    if unit == adoption.unit {
        return refuse_adopted(instance, adoption);
    }
    match instance.adopter(&adoption.agent)? {
        Some(adopter) => refuse_other_name(instance, adopter, &adoption.unit, unit),
        None => Ok(()),
    }
}

/// Refuses the start of the adopted agent's own unit while a release serves.
fn refuse_adopted(instance: &AdoptingInstance, adoption: &Adoption) -> Result<(), Report> {
    let journal = instance.files.journal()?;
    let boot = clock::boot_id()?;
    let live = journal.live.as_ref().map(|live| (live.phase, &live.request.to, live.boot == boot));
    let Some(release) = serving(live, journal.proven.as_ref()) else { return Ok(()) };
    let (package, unit) = (instance.package(), &adoption.unit);
    let hint = match adoption.stage {
        Stage::Begun => format!("`sidle adopt {package}` completes the adoption, which is under way or was cut off"),
        Stage::Held => {
            format!("there is nothing to do: the agent runs; to hand it over to {unit}: `sidle unadopt {package}`")
        }
    };
    Err(runs_already(instance, unit, "its agent", release).hint(hint))
}

/// The release that serves instead of the package's agent; None: that one serves, before the switch stops it and from the way back on. `live`: the phase of
/// the live switch, its new release, and whether the switch was begun or resumed since the last boot.
fn serving<'a>(live: Option<(Phase, &'a Release, bool)>, proven: Option<&'a Release>) -> Option<&'a Release> {
    match live {
        Some((phase, to, _)) if phase.is_committed() => Some(to),
        // A trial that a boot has cut off is undone, as soon as a supervisor sees it.
        Some((phase, to, true)) if phase.is_trial() => Some(to),
        Some(_) | None => proven,
    }
}

/// Refuses the start of `unit` if its agent is the agent that sidle adopted from `adopted_unit`.
fn refuse_other_name(
    instance: &AdoptingInstance,
    adopter: &dyn Adopter,
    adopted_unit: &str,
    unit: &str,
) -> Result<(), Report> {
    let others = adopter.other_names(adopted_unit);
    let Some((_, theirs)) = others.into_iter().find(|(name, _)| *name == unit) else { return Ok(()) };
    let Some(release) = instance.files.journal()?.proven else { return Ok(()) };
    let settings = instance.agent(&instance.store().head(&release)?, Answers::Read)?;
    let theirs = instance.layout().on_host(Path::new(theirs));
    let Some(same) = adopter.is_same(&settings, &settings.about(theirs.clone(), None)).map_err(failed)? else {
        return Ok(());
    };
    let package = instance.package();
    let (ours, theirs) = (settings.config_directory.display(), theirs.display());
    Err(runs_already(instance, unit, &same, &release)
        .because(format!("{theirs} names the same agent as {ours}: both would run each job"))
        .hint(format!(
            "there is nothing to do: the agent runs; to hand it over to {unit}: `sidle unadopt {package}`, then start {unit} and \
             disable {adopted_unit}"
        )))
}

fn runs_already(instance: &AdoptingInstance, unit: &str, agent: &str, release: &Release) -> Report {
    let message = format!("cannot start {unit}: sidle runs {agent} already, as {} {release}", instance.package());
    Report::of(Class::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_unit_may_start_unless_a_release_serves() {
        let (to, before) = ("2.0-1".parse().unwrap(), "1.0-1".parse().unwrap());
        for phase in Phase::ALL {
            let after_a_boot = serving(Some((phase, &to, false)), None);
            assert_eq!(after_a_boot, phase.is_committed().then_some(&to), "{phase}");
            let before_one = serving(Some((phase, &to, true)), None);
            assert_eq!(before_one, (phase.is_committed() || phase.is_trial()).then_some(&to), "{phase}");
        }
        assert_eq!((serving(None, None), serving(None, Some(&before))), (None, Some(&before)));
    }
}
