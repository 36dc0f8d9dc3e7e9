//! An agent that runs with an instance's configuration, and that sidle did not start: `adopt` takes it over, a first switch is refused beside it.

use super::replacement_unit::{UNITS, UnitState, unit_state};
use super::{AdoptingInstance, is_own_host};
use crate::agent::adoption::{Adopter, RunningAgent};
use crate::agent::{AgentError, AgentSettings, Answers};
use crate::bundle::manifest::Head;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::{OsError, file, proc_fs, process, units};
use crate::supervise::status::SupervisorStatus;
use crate::switch::process::LEADER_VARIABLE;
use crate::version::Release;
use std::path::Path;

/// The report of what an agent's own code could not do.
#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
pub(super) fn failed(error: AgentError) -> Report {
    Report::new(Class::Failed, &error, None)
}

/// Finds the agent that runs with a configuration, and whether systemd runs it as `unit`.
pub(super) fn find(
    instance: &AdoptingInstance,
    adopter: &dyn Adopter,
    settings: &AgentSettings,
    unit: &str,
) -> Result<Option<(RunningAgent, bool)>, Report> {
    let leader = if is_own_host(instance.layout()) { units::main_process(unit)? } else { None };
    let found = adopter.find(settings, leader).map_err(failed)?;
    Ok(found.map(|found| (found, leader.is_some())))
}

/// The user of the running process and the user of a process that sidle would start, where they differ: then only its unit names the user.
pub(super) fn other_user(found: &RunningAgent) -> Result<Option<(String, String)>, OsError> {
    let is = Dir::open(&Path::new("/proc").join(found.main.pid.to_string()))?.stat_self()?.uid;
    let meant = found.user.as_deref().map_or(Some(process::user()), process::user_number);
    let name = || found.user.clone().unwrap_or_else(|| process::user_name(process::user()));
    Ok((meant != Some(is)).then(|| (process::user_name(is), name())))
}

/// True if sidle started it. A process that a job of sidle's agent started inherits the variable, with another process's number.
pub(super) fn is_own(found: &RunningAgent) -> Result<bool, OsError> {
    let leader = proc_fs::environment_variable(found.leader.pid, LEADER_VARIABLE)?;
    Ok(leader.is_some_and(|leader| leader == found.leader.pid.to_string().as_str()))
}

/// True if it uses this configuration directory, by whatever path.
pub(super) fn shares(found: &RunningAgent, configuration: &Path) -> Result<bool, OsError> {
    let theirs = file::canonical(&found.configuration).unwrap_or_else(|_| found.configuration.clone());
    Ok(theirs == file::canonical(configuration)?)
}

/// Refuses to start `to` beside an agent that sidle did not start, also with --force: both would run each job.
pub fn refuse(instance: &AdoptingInstance, to: &Release) -> Result<(), Report> {
    let status = SupervisorStatus::read(instance.layout(), instance.name())?;
    if instance.files.journal()?.live.is_some() || status.is_some_and(|status| status.agent.is_some()) {
        return Ok(());
    }
    // The switch itself reports a release that is not installed.
    let Ok(manifest) = instance.store().head(to) else { return Ok(()) };
    let Some(adopter) = instance.adopter(&manifest.agent)? else { return Ok(()) };
    let configuration = instance.configuration(&manifest)?;
    let package = instance.package();
    let unit = adopter.unit(package.as_str());
    let settings = instance.agent(&manifest, Answers::Read)?;
    let Some((found, managed)) = find(instance, adopter, &settings, &unit)? else {
        return refuse_enabled(instance.layout(), &manifest, &configuration, &unit);
    };
    if is_own(&found)? || !shares(&found, &configuration)? {
        return Ok(());
    }
    let (pid, configuration) = (found.leader.pid, configuration.display());
    let end = if managed { format!("`systemctl disable --now {unit}`") } else { format!("`kill {pid}`") };
    let message = format!(
        "cannot start {to}: process {pid} runs with the configuration in {configuration}, and both would run each job"
    );
    Err(Report::of(Class::Conflict, message)
        .because(format!("sidle did not start {}", found.start.command.join(" ")))
        .hint(format!(
            "`sidle adopt {package} {to}` takes it over without losing a job; or end it first ({end}); --force does not help"
        )))
}

/// Refuses an agent whose package's unit a boot starts with the same configuration: it would run each job beside sidle's. An adoption replaces that unit,
/// and an instance with a configuration of its own is another agent.
pub fn refuse_enabled(layout: &Layout, manifest: &Head, configuration: &Path, unit: &str) -> Result<(), Report> {
    let package = &manifest.package;
    let is_packages = configuration == layout.on_host(Path::new(&manifest.service.config));
    if !is_packages || !is_own_host(layout) || !units::is_running() || !units::is_enabled(unit) {
        return Ok(());
    }
    let units = Dir::open_if_exists(&layout.root().join(UNITS))?;
    if units.is_some_and(|units| unit_state(&units, unit).is_ok_and(|state| state == UnitState::Replacement)) {
        return Ok(());
    }
    let message = format!("cannot start {package}: the next boot would start {unit}, too, and both would run each job");
    Err(Report::of(Class::Conflict, message).hint(format!(
        "`systemctl disable --now {unit}` keeps it from that; or start it, and `sidle adopt {package}` takes it over without losing a job"
    )))
}
