//! The service manager: when it restarts the service, the supervisor leaves its running agent to the next supervisor.

use super::intent::{Intent, OwnSwitch};
use super::{END_INTERVAL, Supervisor};
use crate::failure::Report;
use crate::os::clock::Moment;
use crate::os::dir::Dir;
use crate::os::environment;
use crate::os::notify::NOTIFY_SOCKET;
use crate::os::process::{Program, Said};
use crate::os::{OsError, process, units};
use crate::switch::journal::kind::ProcessKind;
use crate::switch::{Former, Side};
use std::time::Duration;

/// How long the service manager may take to answer; without an answer the stop counts as final.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The mark of a supervisor that was ended by a restart of the service.
const RESTART_NAME: &str = "restart";

/// True if a restart of the service ended the previous supervisor.
pub(super) fn is_marked(directory: &Dir) -> Result<bool, OsError> {
    Ok(directory.stat(RESTART_NAME)?.is_some())
}

impl Supervisor {
    /// True if a restart of the service ends this supervisor: it marks that, and leaves the agent to the next supervisor.
    pub(super) fn leaves_to_a_successor(&mut self) -> bool {
        let left = restarts() && self.directory.write_atomic(RESTART_NAME, b"", 0o644).is_ok();
        self.restarting |= left;
        self.over |= left;
        left
    }

    /// Asks every process to end, since the service is stopped. A process on trial that has never served is killed: it has nothing to finish, and
    /// would only delay the service manager.
    pub(super) fn ask_to_end(&mut self) -> Result<(), OsError> {
        let journal = self.driver.journal().clone();
        let live = journal.live.as_ref().filter(|live| live.former() == Former::Beside);
        let serving = live.filter(|live| live.serves() == Some(Side::Former)).and_then(|live| live.which(Side::Former));
        if let Some(serving) = serving {
            self.processes.end_all_but(&[serving])?;
        }
        self.processes.ask_to_end()
    }

    /// Ends the agent, since the service is stopped, once its time to end by itself is over.
    pub(super) fn end(&mut self, since: Duration, now: Moment) -> Result<Duration, Report> {
        let patient = now.since_boot.saturating_sub(since) < self.settings.host.limits().stop;
        // An agent under adoption still belongs to the host, and runs on alone.
        let own = self.processes.records().any(|record| record.foreign.is_none());
        self.over = !own || (!patient && self.processes.end_all_but(&[ProcessKind::Foreign])?);
        if self.processes.of(ProcessKind::Foreign).is_some() {
            self.driver.assign(&mut self.processes).map_err(Report::from)?;
        }
        Ok(END_INTERVAL)
    }

    /// Restarts the agent after a restart of the service, without the loss of a job if possible.
    pub(super) fn restart_after_service_restart(&mut self, now: Moment) {
        if !self.restarting {
            return;
        }
        let journal = self.driver.journal();
        let running = journal.serving_process().filter(|which| self.processes.of(*which).is_some());
        // Without a process, or during a switch, a new process starts anyhow.
        if let (Some(release), None) = (running.and_then(ProcessKind::release), &journal.live) {
            let own = OwnSwitch::restart(release.clone(), "the service was restarted");
            self.carry_out([Intent::Begin(own)], now);
        }
        self.restarting = self.directory.remove_file(RESTART_NAME).is_err();
    }
}

/// True if systemd stops this supervisor as the first half of `systemctl restart`. An unknown cause counts as a stop.
fn restarts() -> bool {
    if environment::variable(NOTIFY_SOCKET).is_none() {
        return false;
    }
    let Some(unit) = units::own() else { return false };
    let main = systemctl(&["show", "--property=MainPID", &unit]).unwrap_or_default();
    if main.trim() != format!("MainPID={}", process::own_number()) {
        return false;
    }
    systemctl(&["list-jobs", "--no-legend", "--no-pager", "--full"]).is_some_and(|jobs| is_restarted(&jobs, &unit))
}

fn systemctl(arguments: &[&str]) -> Option<String> {
    let program = arguments.iter().fold(Program::new("systemctl"), Program::argument);
    match program.answer_within(ANSWER_WAIT) {
        Ok(Some(Said { success: true, output, .. })) => Some(output),
        Ok(_) | Err(_) => None,
    }
}

/// True if the table of jobs (`number unit type state`) has a restart of the unit.
fn is_restarted(jobs: &str, unit: &str) -> bool {
    let mut jobs = jobs.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    jobs.any(|job| matches!(job.as_slice(), [_, name, "restart", ..] if *name == unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_restart_of_the_unit_itself_is_one() {
        let jobs =
            "  7 other.service restart waiting\n123 sidle@a.service restart running\n9 sidle@b.service stop running\n";
        assert!(is_restarted(jobs, "sidle@a.service"));
        assert!(!is_restarted(jobs, "sidle@b.service"));
        assert!(!is_restarted("No jobs running.\n", "sidle@a.service"));
    }
}
