//! `sidle may-start`: whether a unit that asks may start its agent.

use super::AdoptingInstance;
use super::record::{Adoption, Stage};
use super::running_agent::failed;
use crate::agent::Answers;
use crate::agent::adoption::Adopter;
use crate::failure::{Class, Report};
use crate::supervise::status::SupervisorStatus;
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

/// Until the switch has stopped the former process, and on the way back to it, the package's agent is the one that serves.
fn refuse_adopted(instance: &AdoptingInstance, adoption: &Adoption) -> Result<(), Report> {
    let journal = instance.files.journal()?;
    let serves = match (&journal.live, journal.proven) {
        (Some(live), _) if live.phase.is_committed() => Some(live.request.to.clone()),
        // A trial that a boot has cut off is undone, as soon as a supervisor sees it.
        (Some(live), None) if live.phase.is_trial() => {
            SupervisorStatus::read(instance.layout(), instance.name())?.map(|_| live.request.to.clone())
        }
        (_, proven) => proven,
    };
    let Some(release) = serves else { return Ok(()) };
    let (package, unit) = (instance.package(), &adoption.unit);
    let hint = match adoption.stage {
        Stage::Begun => format!("`sidle adopt {package}` completes the adoption, which was cut off"),
        Stage::Held => {
            format!("there is nothing to do: the agent runs; to hand it over to {unit}: `sidle unadopt {package}`")
        }
    };
    Err(runs_already(instance, unit, "its agent", &release).hint(hint))
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
