//! Old processes that outlive their switch: each takes no new jobs, finishes its jobs, and is then ended.

use crate::agent::Job;
use crate::agent::gate::{GateRole, GuardReport, Origin};
use crate::os::OsError;
use crate::os::process::SignalNumber;
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::switch::journal::kind::ProcessKind;
use crate::switch::process::Processes;
use crate::switch::process::running::{Frozen, Look, Running};
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tracing::info;

/// How long such a process may send no report before only its child processes count: a main loop can be blocked for long.
const SILENCE_MAXIMUM: Duration = Duration::from_secs(60);

/// An old process that finishes its last jobs, for the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finishing {
    /// Its first process.
    pub pid: u32,
    /// Its release; None: sidle did not start it.
    pub release: Option<Release>,
    /// Its unfinished jobs.
    pub jobs: Vec<Job>,
}

impl fmt::Display for Finishing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.release.as_ref().map_or_else(|| "the adopted agent".to_owned(), Release::to_string);
        write!(formatter, "the old process {} of {what} takes no new jobs", self.pid)?;
        let jobs: Vec<String> = self.jobs.iter().map(ToString::to_string).collect();
        if jobs.is_empty() {
            return formatter.write_str(" and is about to end");
        }
        write!(formatter, " and finishes: {}", jobs.join(", "))?;
        match self.jobs.iter().find_map(|job| job.pid) {
            Some(pid) => write!(formatter, "; to end such a job, stop its process: kill {pid}"),
            None => Ok(()),
        }
    }
}

impl Running {
    /// True if it belongs to no switch and finishes its jobs.
    pub(in crate::switch) fn is_finishing(&self) -> bool {
        self.record.finishing && !self.record.being_ended && self.leads()
    }
}

impl Processes {
    /// Takes a process out of its switch: it finishes its jobs.
    pub fn leave(&mut self, which: ProcessKind<'_>) -> Result<(), OsError> {
        let Some(running) = self.usable_mut(which) else { return Ok(()) };
        running.record.finishing = true;
        self.save()
    }

    /// The processes that finish their jobs, for the roles.
    pub fn draining(&self) -> impl Iterator<Item = (u32, Origin)> {
        let finishing = self.running.iter().filter(|running| running.is_finishing() && running.guarded);
        finishing.map(|running| (running.record.leader.pid, running.record.origin))
    }

    /// The processes that finish their jobs, for people.
    pub fn finishing(&self) -> Vec<Finishing> {
        let shown = |running: &Running| Finishing {
            pid: running.record.leader.pid,
            release: running.record.release.clone(),
            jobs: self.gate.report(running.record.leader.pid).map_or_else(Vec::new, |report| report.jobs),
        };
        self.running.iter().filter(|running| running.is_finishing()).map(shown).collect()
    }

    /// Ends the processes that have finished their jobs. A process without reports is ended once it has no child processes.
    pub fn end_finished(&mut self, now: Duration) -> Result<(), OsError> {
        let mut outcome = Ok(());
        let mut news = false;
        for running in self.running.iter_mut().filter(|running| running.is_finishing()) {
            match has_finished(running, &self.gate, now) {
                Ok(true) => {
                    running.record.being_ended = true;
                    news = true;
                    info!(process = running.record.leader.pid, "the old process has finished its jobs, and is ended");
                }
                Ok(false) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        if news {
            outcome = outcome.and(self.save());
        }
        // Also where the record cannot be saved: such a process is paused, and nothing looks at it again.
        for running in self.running.iter().filter(|running| running.record.finishing && running.record.being_ended) {
            for identity in running.record.all() {
                outcome = outcome.and(identity.signal(SignalNumber::KILL).map(drop));
            }
        }
        outcome
    }
}

/// Whether a process has finished its jobs. One whose guard reports is paused then.
fn has_finished(running: &mut Running, gate: &Gatekeeper, now: Duration) -> Result<bool, OsError> {
    let pid = running.record.leader.pid;
    let written = gate.report(pid);
    let has_reported = written.is_some();
    let report = written.filter(|report| report.is_fresh(now.as_secs_f64()));
    // Counted while somebody looks: after a suspend of the host, reports are old for a moment.
    running.silent_since = if report.is_some() { None } else { running.silent_since.or(Some(now)) };
    let silence = running.silent_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
    let done = match &report {
        None if has_reported && silence < SILENCE_MAXIMUM => false,
        Some(report) => report.role == GateRole::Closed && report.unfinished().is_none(),
        None => running.below()? == 0 && !running.observer().is_ok_and(crate::agent::Agent::runs_jobs_inside),
    };
    if !done || running.unreported(report.as_ref()).is_some() {
        return Ok(false);
    }
    if report.is_none() {
        return Ok(true);
    }
    let judged = running.halt(report.as_ref()).and_then(|()| {
        // Its guard may have written a report just before the freeze.
        let report: Option<GuardReport> = gate.report(pid);
        running.judge(report.as_ref(), Look::Beside)
    });
    if judged.is_err() {
        running.thaw()?;
    }
    Ok(judged? == Frozen::Idle)
}
