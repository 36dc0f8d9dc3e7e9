//! An agent that sidle did not start and that runs with an instance's configuration: what `adopt` takes over, and what nothing may be
//! started beside, since both would do every job.

use crate::agent::adoption::{Adopter, RunningAgent};
use crate::bundle::manifest::Manifest;
use crate::cli::{Context, agents};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::{OsError, file, proc_fs, process, units};
use crate::store::Store;
use crate::supervise::status::SupervisorStatus;
use crate::switch::files::InstanceFiles;
use crate::switch::processes::LEADER_VARIABLE;
use crate::version::Release;
use std::path::{Path, PathBuf};

/// Where the agent of an instance has its configuration.
pub fn configuration(context: &Context, files: &InstanceFiles, manifest: &Manifest) -> Result<PathBuf, Report> {
    let (_, named) = Settings::read(&context.layout)?.instance(&context.layout, files.instance())?;
    Ok(named.unwrap_or_else(|| context.layout.on_host(Path::new(&manifest.service.config))))
}

/// The agent that runs with a configuration, whoever started it, and whether a service manager did, as `unit`.
pub fn running(
    context: &Context,
    adopter: &dyn Adopter,
    configuration: &Path,
    unit: &str,
) -> Result<Option<(RunningAgent, bool)>, Report> {
    let leader = if is_own_host(&context.layout) { units::main_process(unit)? } else { None };
    let found = adopter.find(configuration, leader).map_err(|error| Report::new(Class::Failed, &error, None))?;
    Ok(found.map(|found| (found, leader.is_some())))
}

/// Whether this host's systemd runs what lies below the root.
pub fn is_own_host(layout: &Layout) -> bool {
    layout.root() == Path::new("/") && units::is_running()
}

/// The user whom it works as and the one whom a process of sidle's would work as, where these differ: its unit says so then, not its
/// configuration.
pub fn other_user(found: &RunningAgent) -> Result<Option<(String, String)>, OsError> {
    let is = Dir::open(&Path::new("/proc").join(found.main.pid.to_string()))?.stat_self()?.uid;
    let meant = found.user.as_deref().map_or(Some(process::user()), process::user_number);
    let told = || found.user.clone().unwrap_or_else(|| process::user_name(process::user()));
    Ok((meant != Some(is)).then(|| (process::user_name(is), told())))
}

/// Whether sidle started it: what a job of sidle's agent started has another process's number there.
pub fn is_own(found: &RunningAgent) -> Result<bool, OsError> {
    let leader = proc_fs::environment_variable(found.leader.pid, LEADER_VARIABLE)?;
    Ok(leader.is_some_and(|leader| leader == found.leader.pid.to_string().as_str()))
}

/// Whether it has this configuration, by whatever name.
pub fn shares(found: &RunningAgent, configuration: &Path) -> Result<bool, OsError> {
    let theirs = file::canonical(&found.configuration).unwrap_or_else(|_| found.configuration.clone());
    Ok(theirs == file::canonical(configuration)?)
}

/// Refuses to start `to` beside an agent that sidle did not start. No wish lifts that: every job would be done twice.
pub fn refuse(context: &Context, files: &InstanceFiles, to: &Release) -> Result<(), Report> {
    let status = SupervisorStatus::read(&context.layout, files.instance())?;
    if files.journal()?.live.is_some() || status.is_some_and(|status| status.agent.is_some()) {
        return Ok(());
    }
    let store = Store::new(&context.layout, files.package());
    // That there is no such release is told by whoever is asked for it.
    let Ok(manifest) = store.manifest(to) else { return Ok(()) };
    let Some(adopter) = agents::parts(&manifest.agent)?.adopter else { return Ok(()) };
    let configuration = configuration(context, files, &manifest)?;
    let unit = adopter.unit(files.package().as_str());
    let Some((found, managed)) = running(context, adopter, &configuration, &unit)? else { return Ok(()) };
    if is_own(&found)? || !shares(&found, &configuration)? {
        return Ok(());
    }
    let package = files.package();
    let end = if managed { format!("`systemctl stop {unit}`") } else { format!("`kill {}`", found.leader.pid) };
    Err(Report {
        class: Class::Conflict,
        message: format!(
            "cannot start {to}: process {} runs with the configuration in {} already, and both would do every job",
            found.leader.pid,
            configuration.display()
        ),
        causes: vec![format!("it is {}, which sidle did not start", found.command.join(" "))],
        hint: Some(format!(
            "`sidle adopt {package} {to}` takes it over without losing a job; or end it first ({end}); --force changes nothing here"
        )),
    })
}
