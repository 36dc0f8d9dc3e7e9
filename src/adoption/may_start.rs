//! Units that ask sidle before they start their agent: `sidle may-start`. A second process of the same agent would run each job again.

use super::record::{Adoption, Stage};
use super::running_agent::failed;
use super::{AdoptingInstance, replacement_unit};
use crate::agent::Answers;
use crate::agent::adoption::Adopter;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::supervise::status::SupervisorStatus;
use crate::version::Release;
use std::path::{Path, PathBuf};

/// A unit that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The adopted agent's own, from before the switch until the replacement unit is in its place: a mask until the next boot would let that boot start it.
    Adopted,
    /// That of the same agent from another package: Uyuni's bundle beside the distribution's minion. States that move a host from one package to the
    /// other copy its configuration and start the other unit.
    OtherName,
}

impl Asks {
    fn drop_in(self) -> &'static str {
        match self {
            // Before that of the replacement unit, which empties what this one says.
            Self::Adopted => "zzz-sidle-adopted.conf",
            Self::OtherName => "zzz-sidle-other-name.conf",
        }
    }
}

/// Makes a unit ask `sidle may-start` before it starts. Without sidle the unit starts.
pub(super) fn put(instance: &AdoptingInstance, units: &Dir, unit: &str, asks: Asks) -> Result<(), OsError> {
    let (package, name) = (instance.package(), instance.name());
    let sidle = replacement_unit::program(instance.layout())?;
    // A shell, because a unit fails if its program is missing. `exec`: the exit code is sidle's.
    let text = format!(
        "# {mark}: sidle runs this agent as {package}; this unit does not start it a second time.\n[Service]\n\
         ExecStartPre=/bin/sh -c 'command -v {program} >/dev/null || exit 0; \
         exec {sidle} may-start {unit} {package} --instance {name}'\n",
        mark = replacement_unit::MARK,
        program = sidle.split(' ').next().unwrap_or_default(),
    );
    let directory = units.child_or_create(replacement_unit::drop_ins(unit), 0o755)?;
    directory.write_atomic(asks.drop_in(), text.as_bytes(), 0o644)
}

/// Removes the drop-in.
pub(super) fn remove(units: &Dir, unit: &str, asks: Asks) -> Result<(), OsError> {
    replacement_unit::remove_drop_in(units, unit, asks.drop_in())
}

/// The drop-in's path.
pub(super) fn path(layout: &Layout, unit: &str, asks: Asks) -> PathBuf {
    layout.root().join(replacement_unit::UNITS).join(replacement_unit::drop_ins(unit)).join(asks.drop_in())
}

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
