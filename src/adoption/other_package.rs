//! The same agent from another package: Uyuni's bundle beside the distribution's minion. States that move a host from one package to the other
//! copy its configuration and start the other unit: that would be a second agent, which runs each job again.

use super::running_agent::failed;
use super::{AdoptingInstance, replacement_unit};
use crate::agent::Answers;
use crate::agent::adoption::Adopter;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::OsError;
use crate::os::dir::Dir;
use std::path::{Path, PathBuf};

const DROP_IN_NAME: &str = "zzz-sidle-other-name.conf";

/// Makes a unit ask `sidle may-start` before it starts. Without sidle the unit starts.
pub(super) fn put(instance: &AdoptingInstance, units: &Dir, unit: &str) -> Result<(), OsError> {
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
    directory.write_atomic(DROP_IN_NAME, text.as_bytes(), 0o644)
}

/// Removes the drop-in.
pub(super) fn remove(units: &Dir, unit: &str) -> Result<(), OsError> {
    replacement_unit::remove_drop_in(units, unit, DROP_IN_NAME)
}

/// The drop-in's path.
pub(super) fn path(layout: &Layout, unit: &str) -> PathBuf {
    layout.root().join(replacement_unit::UNITS).join(replacement_unit::drop_ins(unit)).join(DROP_IN_NAME)
}

/// Refuses the start of `unit` if its agent is the agent that sidle adopted from `adopted_unit`.
pub fn refuse(
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
    Err(Report::of(Class::Conflict, format!("cannot start {unit}: sidle runs {same} already, as {package} {release}"))
        .because(format!("{theirs} names the same agent as {ours}: both would run each job"))
        .hint(format!(
            "there is nothing to do: the agent runs; to hand it over to {unit}: `sidle unadopt {package}`, then start {unit} and \
             disable {adopted_unit}"
        )))
}
