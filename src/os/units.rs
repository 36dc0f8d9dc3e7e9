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
/// The number of the first process of a host or a container.
const FIRST_PROCESS: u32 = 1;

/// Whether systemd runs this host (`sd_booted(3)`).
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The main process of a unit; None: it has none.
pub fn main_process(unit: &str) -> Result<Option<u32>> {
    let program = Program::new("systemctl").argument("show").argument("--property=MainPID").argument("--value");
    let (_, output) = program.argument(unit).output()?;
    let number = String::from_utf8_lossy(&output).trim().parse().unwrap_or(0);
    Ok((number > 0).then_some(number))
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
    // Old versions of systemd have no `--value`.
    let program = Program::new("systemctl").argument("show").argument("--property=MainPID");
    let Ok(Some(said)) = program.argument(&unit).answer_within(ANSWER_WAIT) else {
        warn!(
            "cannot tell whether {unit} started this process: systemd does not answer; the agent gets only the usual variables"
        );
        return false;
    };
    said.output.trim() == format!("MainPID={}", process::own_number())
}

/// The state of a unit: `active`, `failed`, `inactive`, …; None: systemd did not answer.
pub fn activity(unit: &str) -> Option<String> {
    let program = Program::new("systemctl").argument("show").argument("--property=ActiveState").argument("--value");
    let said = program.argument(unit).answer_within(ANSWER_WAIT).ok()??;
    Some(said.output.trim().to_owned()).filter(|word| said.success && !word.is_empty())
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
