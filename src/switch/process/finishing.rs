//! Old processes that belong to no switch any more: each finishes the jobs that it has, takes none, and is ended then.

use crate::agent::Job;
use crate::agent::gate::{GateRole, GuardReport, Origin};
use crate::os::OsError;
use crate::os::process::SignalNumber;
use crate::switch::journal::kind::ProcessKind;
use crate::switch::process::Processes;
use crate::switch::process::running::{Frozen, Look, Running};
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tracing::info;

/// How long such a process may say nothing before only what is below it counts: a main loop can be blocked for long.
const SILENCE_MAXIMUM_SECONDS: f64 = 60.0;

/// An old process that finishes its last jobs, as status tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finishing {
    /// Its first process.
    pub pid: u32,
    /// What it runs; None: nothing of sidle's.
    pub release: Option<Release>,
    /// The jobs that it still has.
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
    /// It finishes what it has, and nobody counts on it.
    pub(in crate::switch) fn is_finishing(&self) -> bool {
        self.record.finishing && !self.record.being_ended && self.leads()
    }
}

impl Processes {
    /// From now on a process belongs to no switch: it finishes what it has.
    pub fn leave(&mut self, which: ProcessKind<'_>) -> Result<(), OsError> {
        let Some(running) = self.usable_mut(which) else { return Ok(()) };
        running.record.finishing = true;
        self.save()
    }

    /// The processes that finish what they have, as the roles name them.
    pub fn draining(&self) -> impl Iterator<Item = (u32, Origin)> {
        let finishing = self.running.iter().filter(|running| running.is_finishing() && running.guarded);
        finishing.map(|running| (running.record.leader.pid, running.record.origin))
    }

    /// The same, for people.
    pub fn finishing(&self) -> Vec<Finishing> {
        let shown = |running: &Running| Finishing {
            pid: running.record.leader.pid,
            release: running.record.release.clone(),
            jobs: self.gate.report(running.record.leader.pid).map_or_else(Vec::new, |report| report.jobs),
        };
        self.running.iter().filter(|running| running.is_finishing()).map(shown).collect()
    }

    /// Ends those of them that have nothing left. One whose guard says nothing is ended once nothing is below it.
    pub fn end_finished(&mut self, now: Duration) -> Result<(), OsError> {
        let mut news = false;
        for running in self.running.iter_mut().filter(|running| running.is_finishing()) {
            let pid = running.record.leader.pid;
            let report = self.gate.report(pid);
            let age = report.as_ref().map_or(f64::MAX, |report| now.as_secs_f64() - report.updated);
            let report = report.filter(|report| report.is_fresh(now.as_secs_f64()));
            let done = match &report {
                None if age < SILENCE_MAXIMUM_SECONDS => false,
                Some(report) => report.role == GateRole::Closed && report.unfinished().is_none(),
                None => running.below()? == 0 && !running.observer().is_ok_and(crate::agent::Agent::runs_jobs_inside),
            };
            if !done || running.unreported(report.as_ref()).is_some() {
                continue;
            }
            if report.is_some() {
                running.halt(report.as_ref())?;
                // What it wrote before it stood still counts.
                let report: Option<GuardReport> = self.gate.report(pid);
                if running.judge(report.as_ref(), Look::Beside)? != Frozen::Idle {
                    continue;
                }
            }
            running.record.being_ended = true;
            news = true;
            info!(process = pid, "the old process has finished its jobs, and is ended");
        }
        if !news {
            return Ok(());
        }
        self.save()?;
        for running in self.running.iter().filter(|running| running.record.finishing && running.record.being_ended) {
            for identity in running.record.all() {
                identity.signal(SignalNumber::KILL)?;
            }
        }
        Ok(())
    }
}
