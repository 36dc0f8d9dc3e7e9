//! The same agent under another package's name: Uyuni's bundle beside the distribution's minion. States that change a host from one to the
//! other copy its configuration and start the other unit; beside what sidle runs that would be a second agent that does every job again.

use super::beside;
use super::record::Adoption;
use super::stand_in;
use crate::cli::{Context, Ended, agents};
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::store::Store;
use crate::switch::files::InstanceFiles;
use clap::Args;
use std::path::Path;

const DROP_IN_NAME: &str = "zzz-sidle-other-name.conf";

/// `sidle may-start UNIT PACKAGE`: asked by a unit before it starts its agent.
#[derive(Debug, Args)]
pub struct MayStartArguments {
    /// The unit that is about to start
    unit: String,
    /// The package whose agent sidle runs
    package: PackageName,
    /// The instance
    #[arg(long)]
    instance: InstanceName,
}

/// Lets a unit ask first. One without an answer (sidle is gone) starts.
pub fn put(
    layout: &Layout,
    (package, instance): (&PackageName, &InstanceName),
    units: &Dir,
    unit: &str,
) -> Result<(), OsError> {
    let sidle = stand_in::program(layout)?;
    // A shell, as a unit fails whose program isn't there. `exec`: the exit code is sidle's.
    let text = format!(
        "# {mark}: the same agent runs as {package} by sidle, and not a second time under this name.\n[Service]\n\
         ExecStartPre=/bin/sh -c 'command -v {program} >/dev/null || exit 0; \
         exec {sidle} may-start {unit} {package} --instance {instance}'\n",
        mark = stand_in::MARK,
        program = sidle.split(' ').next().unwrap_or_default(),
    );
    let directory = units.child_or_create(stand_in::drop_ins(unit), 0o755)?;
    directory.write_atomic(DROP_IN_NAME, text.as_bytes(), 0o644)
}

/// Takes it back.
pub fn remove(units: &Dir, unit: &str) -> Result<(), OsError> {
    stand_in::remove_drop_in(units, unit, DROP_IN_NAME)
}

/// Where it lies.
pub fn place(layout: &Layout, unit: &str) -> std::path::PathBuf {
    layout.root().join(stand_in::UNITS).join(stand_in::drop_ins(unit)).join(DROP_IN_NAME)
}

/// Refuses the start of a unit whose agent is the one that sidle runs already.
pub fn may_start(context: &Context, arguments: &MayStartArguments) -> Result<Ended, Report> {
    let MayStartArguments { unit, package, instance } = arguments;
    let Some(adoption) = Adoption::read(&context.layout, instance)? else { return Ok(Ended::Well) };
    let Some(adopter) = agents::parts(&adoption.agent)?.adopter else { return Ok(Ended::Well) };
    let Some((_, theirs)) = adopter.other_names(&adoption.unit).into_iter().find(|(name, _)| name == unit) else {
        return Ok(Ended::Well);
    };
    let files = InstanceFiles::new(&context.layout, instance, package);
    let Some(release) = files.journal()?.proven else { return Ok(Ended::Well) };
    let manifest = Store::new(&context.layout, package).manifest(&release)?;
    let ours = beside::configuration(context, &files, &manifest)?;
    let theirs = context.layout.on_host(Path::new(theirs));
    let same = adopter.is_same(&ours, &theirs).map_err(|error| Report::new(Class::Failed, &error, None))?;
    let Some(same) = same else { return Ok(Ended::Well) };
    Err(Report {
        class: Class::Conflict,
        message: format!("cannot start {unit}: sidle runs {same} already, as {package} {release}"),
        causes: vec![format!(
            "{} names the same one as {}: two would do every job twice",
            theirs.display(),
            ours.display()
        )],
        hint: Some(format!(
            "nothing is to be done for it to run; to give it to {unit} instead: `sidle unadopt {package}`, then start {unit} \
             and disable {}",
            adoption.unit
        )),
    })
}
