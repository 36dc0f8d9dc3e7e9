//! systemd, by `systemctl`: units are taken over from it and given back.

use super::process::Program;
use super::{OsError, Result};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time limit for an answer of systemd.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

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

fn tell(words: &[&str]) -> Result<()> {
    let program = words.iter().fold(Program::new("systemctl"), Program::argument);
    if program.output()?.0 {
        return Ok(());
    }
    let refused = io::Error::other(format!("`systemctl {}` failed", words.join(" ")));
    Err(OsError::new("ask", Path::new("systemd"), refused))
}
