//! systemd, by `systemctl`: units are taken over from it and given back.

use super::process::{self, Program};
use super::{OsError, Result, file};
use std::io;
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// Time limit for an answer of systemd.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Longest list of control groups: one line for each hierarchy.
const CONTROL_GROUPS_BYTES_MAXIMUM: u64 = 64 * 1024;
/// The properties of a unit that are asked for.
const MAIN_PROCESS: &str = "MainPID";
const ACTIVE_STATE: &str = "ActiveState";
/// The number of the first process of a host or a container.
const FIRST_PROCESS: u32 = 1;

/// Whether systemd runs this host (`sd_booted(3)`).
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The main process of a unit; None: it has none.
pub fn main_process(unit: &str) -> Result<Option<u32>> {
    let (_, output) = shown(MAIN_PROCESS, unit).output()?;
    let number = value(&String::from_utf8_lossy(&output), MAIN_PROCESS).and_then(|number| number.parse().ok());
    Ok(number.filter(|number| *number > 0))
}

/// The service whose control group this process is in; None: it is in that of a session, or in none.
pub fn own() -> Option<String> {
    let path = Path::new("/proc/self/cgroup");
    let groups = file::read_if_exists(path, CONTROL_GROUPS_BYTES_MAXIMUM).ok().flatten().unwrap_or_default();
    service(&String::from_utf8_lossy(&groups))
}

/// True if the service manager started this process: systemd as the main process of a unit, or a container as its first process. Then root has
/// set its environment.
pub fn is_service() -> bool {
    if process::own_number() == FIRST_PROCESS {
        return true;
    }
    let Some(unit) = own() else { return false };
    let Ok(Some(said)) = shown(MAIN_PROCESS, &unit).answer_within(ANSWER_WAIT) else {
        warn!(
            "cannot tell whether {unit} started this process: systemd does not answer; the agent gets only the usual variables"
        );
        return false;
    };
    value(&said.output, MAIN_PROCESS) == Some(process::own_number().to_string())
}

/// A question for a property of a unit. systemd before 230 has no `--value`.
fn shown(property: &str, unit: &str) -> Program {
    Program::new("systemctl").argument("show").argument(format!("--property={property}")).argument(unit)
}

/// The answer to [`shown`]; None: there is none.
fn value(output: &str, property: &str) -> Option<String> {
    let found = output.lines().find_map(|line| line.trim().strip_prefix(property)?.strip_prefix('='));
    found.filter(|value| !value.is_empty()).map(str::to_owned)
}

/// The state of a unit: `active`, `failed`, `inactive`, …; None: systemd did not answer.
pub fn activity(unit: &str) -> Option<String> {
    let said = shown(ACTIVE_STATE, unit).answer_within(ANSWER_WAIT).ok()??;
    value(&said.output, ACTIVE_STATE).filter(|_| said.success)
}

/// The text of a unit and its drop-ins, in the order in which they count; None: there is no such unit.
pub fn text(unit: &str) -> Result<Option<String>> {
    let (success, output) = Program::new("systemctl").argument("--no-pager").argument("cat").argument(unit).output()?;
    Ok(success.then(|| String::from_utf8_lossy(&output).into_owned()))
}

/// Prevents starts of a unit until the next boot; its processes run on.
pub fn mask_until_boot(unit: &str) -> Result<()> {
    tell(&["mask", "--runtime", unit])
}

/// Allows starts of the unit again.
pub fn unmask_until_boot(unit: &str) -> Result<()> {
    tell(&["unmask", "--runtime", unit])
}

/// Makes systemd read its files again, after links of units were made or removed.
pub fn reload() -> Result<()> {
    tell(&["daemon-reload"])
}

/// Starts a unit and waits until it has started.
pub fn start(unit: &str) -> Result<()> {
    // A unit that was ended from outside counts as failed.
    let _ = tell(&["reset-failed", unit]);
    tell(&["start", unit])
}

/// Stops a unit and waits until it has stopped.
pub fn stop(unit: &str) -> Result<()> {
    tell(&["stop", unit])
}

/// Whether a boot starts a unit.
pub fn is_enabled(unit: &str) -> bool {
    tell(&["is-enabled", unit]).is_ok()
}

/// Makes the links anew that let a boot start a unit.
pub fn enable_again(unit: &str) -> Result<()> {
    tell(&["reenable", unit])
}

/// Stops a unit and starts it again; waits until it has started.
pub fn restart(unit: &str) -> Result<()> {
    tell(&["restart", unit])
}

/// Finds the service of a process in its control groups: the last part of a path that is the name of a service.
fn service(groups: &str) -> Option<String> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut names = paths.flat_map(|path| path.rsplit('/')).filter(|name| name.ends_with(".service"));
    names.next().map(str::to_owned)
}

fn tell(words: &[&str]) -> Result<()> {
    let program = words.iter().fold(Program::new("systemctl"), Program::argument);
    if program.output()?.0 {
        return Ok(());
    }
    let refused = io::Error::other(format!("`systemctl {}` failed", words.join(" ")));
    Err(OsError::new("ask", Path::new("systemd"), refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// systemd 219 and 228 answer nothing to `--value`: no packaged minion had a main process there.
    #[test]
    fn a_property_is_read_as_every_systemd_prints_it() {
        assert_eq!(value("MainPID=812\n", MAIN_PROCESS).as_deref(), Some("812"));
        assert_eq!(value("ActiveState=active\n", ACTIVE_STATE).as_deref(), Some("active"));
        for nothing in ["", "MainPID=\n", "show: unrecognized option\n"] {
            assert_eq!(value(nothing, MAIN_PROCESS), None, "{nothing}");
        }
    }

    #[test]
    fn the_unit_is_found_in_every_layout_of_control_groups() {
        let unified = "0::/system.slice/system-sidle.slice/sidle@salt-minion.service\n";
        let legacy =
            "3:cpu,cpuacct:/\n1:name=systemd:/system.slice/system-sidle.slice/sidle@salt-minion.service\n0::/\n";
        for groups in [unified, legacy] {
            assert_eq!(service(groups).as_deref(), Some("sidle@salt-minion.service"));
        }
        assert_eq!(service("0::/user.slice/session-1.scope\n"), None);
    }
}
