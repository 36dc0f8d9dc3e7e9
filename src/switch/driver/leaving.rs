//! The leaving process: how it is closed, then ended or left to finish alone.

use crate::agent::gate::{GateRole, GuardReport};
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::acts::FreshReport as _;
use crate::switch::driver::error::DriveError;
use crate::switch::gate::proofs::{Asked, PROOF_WAIT, Proof, Trip};
use crate::switch::gate::roles::Backlog;
use crate::switch::process::{Frozen, Look, ProcessKind, Processes};
use crate::switch::{Former, Outcome, Phase, Side, Switch};
use std::time::Duration;

/// How long an old process with unfinished work in its last report may send no report: a main loop can be blocked for long.
const SILENCE_MAXIMUM: Duration = Duration::from_secs(60);

/// The remedy for a release that must not run at the same time as another process.
const ALONE: &str = "`--mode idle` never has two processes";

/// How long a switch waits for returns that reach no peer: as long as Salt waits for an answer to a return.
const RETURN_WAIT: Duration = Duration::from_secs(60);

/// The state of a process in its guard's last report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastSeen {
    /// It had no work left.
    Done,
    /// It had work left, or never sent a report.
    AtWork,
}

impl Driver {
    /// Closes the process of `side` once it has read the jobs that only it receives; once it has no work left, the act is done, and an old process
    /// is ended.
    pub(in crate::switch) fn drain(
        &mut self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let Some(leaving) = live.which(side) else { return Ok(Outcome::Done) };
        processes.thaw(leaving)?;
        let report = processes.report(leaving);
        // A guard that never came up has accepted no job.
        if report.is_none() && side == Side::Trial {
            return Ok(Outcome::Done);
        }
        let last = if report.as_ref().is_some_and(|report| report.unfinished().is_none()) {
            LastSeen::Done
        } else {
            LastSeen::AtWork
        };
        let Some(report) = report.fresh(now) else { return self.drain_in_silence(live, side, last, processes, now) };
        self.in_phase.silent_since = None;
        let behind = self.close_when_read(live, side, &report, processes, now);
        let open = report.role != GateRole::Closed || report.serial < self.serial;
        let waited = now.since_boot.saturating_sub(self.in_phase.entered);
        if !open && side == Side::Former && report.returns_nowhere() && waited >= RETURN_WAIT {
            // Its peers may be back, so it is asked for one more round trip.
            if self.in_phase.asked.at < self.in_phase.entered.saturating_add(RETURN_WAIT) {
                self.in_phase.asked = self.in_phase.asked.again(now);
            } else if report.prove >= self.in_phase.asked.number {
                let note = format!("cannot deliver {}: the old process reaches none of its peers", report.returning());
                self.note(&note, now)?;
                return Self::finish(side, live, processes);
            }
        }
        let work = if open {
            let behind = behind.map(|names| format!("the old process to read what {names} published"));
            Some(behind.unwrap_or_else(|| "the leaving process to accept no more jobs".to_owned()))
        } else {
            report.unfinished().or_else(|| processes.unreported(leaving))
        };
        let work = match work {
            Some(work) => work,
            None => match processes.freeze(leaving, Look::Beside)? {
                Frozen::Idle => return Self::finish(side, live, processes),
                Frozen::Busy(work) => work,
            },
        };
        if !open && side == Side::Former && self.is_left_alone(live, now) {
            return self.leave(leaving, &work, processes, now);
        }
        Ok(Outcome::NotYet(work))
    }

    /// Drains a process whose guard hangs or is gone: its child processes are the remaining jobs. After a suspend of the host, reports are stale
    /// for a moment.
    fn drain_in_silence(
        &mut self,
        live: &Switch,
        side: Side,
        last: LastSeen,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let Some(leaving) = live.which(side) else { return Ok(Outcome::Done) };
        let since = *self.in_phase.silent_since.get_or_insert(now.since_boot);
        let Some(staying) = live.which(side.other()).filter(|which| processes.of(*which).is_some()) else {
            // No other process serves yet, so its silence does not count.
            self.in_phase.silent_since = None;
            return Ok(Outcome::NotYet("the new process to start again".to_owned()));
        };
        let taken =
            processes.guarded(staying).is_some_and(|it| self.in_phase.backlog == Backlog::Taken { by: it.leader });
        let patience = if last == LastSeen::Done && taken { PROOF_WAIT } else { SILENCE_MAXIMUM };
        let silent = now.since_boot.saturating_sub(since) > patience;
        let work = match processes.below(leaving)? {
            0 if processes.runs_jobs_inside(leaving) => {
                Some("a report from its guard: its jobs are threads, and cannot be seen from outside".to_owned())
            }
            0 => processes.unreported(leaving),
            count => Some(format!("{count} processes of its jobs, while its guard sends no report")),
        };
        match work {
            None if silent => Self::finish(side, live, processes),
            None => Ok(Outcome::NotYet("its guard has not reported yet".to_owned())),
            Some(work) if silent && side == Side::Former && self.is_left_alone(live, now) => {
                self.leave(leaving, &work, processes, now)
            }
            Some(work) => Ok(Outcome::NotYet(work)),
        }
    }

    /// Closes the process once it has read all jobs that only it receives; returns the peers with unread jobs. A round trip first shows which
    /// peers are up: a peer that is down sends nothing.
    fn close_when_read(
        &mut self,
        live: &Switch,
        side: Side,
        report: &GuardReport,
        processes: &Processes,
        now: Moment,
    ) -> Option<String> {
        let other = live.which(side.other())?;
        let taken = Backlog::Taken { by: processes.guarded(other)?.leader };
        if self.in_phase.backlog == taken {
            return None;
        }
        if self.in_phase.backlog != Backlog::Possible {
            // The process that received everything is gone; the one in its place subscribes anew.
            (self.in_phase.backlog, self.in_phase.asked) = (Backlog::Possible, Asked::default());
        }
        let newest = if report.prove >= self.in_phase.asked.number { Trip::Over } else { Trip::Pending };
        if self.in_phase.asked.is_due(now, newest, Proof::OfLate) {
            self.in_phase.asked =
                if self.in_phase.asked.number == 0 { Asked::at(now) } else { self.in_phase.asked.again(now) };
        }
        // What it says of an earlier process is no answer.
        let staying = processes.report(other).fresh(now).filter(|_| report.serial >= self.serial)?;
        let asked = if now.since_boot.saturating_sub(self.in_phase.entered) < PROOF_WAIT {
            self.in_phase.asked.first
        } else {
            // A peer without an answer in all that time is down.
            self.in_phase.asked.first.min(report.prove)
        };
        let behind = report.behind(&staying, asked);
        // However late: a process that has just been started again receives nothing yet.
        let receives = staying.peers.iter().all(|peer| peer.address.is_none() || peer.proven.is_some())
            && staying.peers.iter().any(|peer| peer.proven.is_some());
        let is_over = side == Side::Former && receives && self.is_left_alone(live, now);
        if behind.is_empty() || is_over {
            self.in_phase.backlog = taken;
            return None;
        }
        Some(behind.join(", "))
    }

    /// True if the time of an old process is over. An adopted process belongs to its service and is never left to itself.
    fn is_left_alone(&self, live: &Switch, now: Moment) -> bool {
        live.adopted.is_none() && now.since_boot.saturating_sub(self.in_phase.entered) >= self.limits.retire
    }

    /// Ends the act; the old process finishes its jobs by itself.
    fn leave(
        &mut self,
        leaving: ProcessKind<'_>,
        work: &str,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let pid = processes.of(leaving).map_or(0, |record| record.leader.pid);
        self.note(&format!("the old process {pid} goes on until it has finished: {work}"), now)?;
        processes.leave(leaving)?;
        Ok(Outcome::Done)
    }

    /// Makes room for another switch, if the present switch only waits for the last jobs of the old process: they continue without it.
    pub fn make_room(&mut self, processes: &mut Processes, now: Moment) -> Result<(), DriveError> {
        let Some(live) = self.journal.live.clone().filter(|live| live.phase == Phase::FinishingOld) else {
            return Ok(());
        };
        let Some(leaving) = live.which(Side::Former).filter(|_| live.adopted.is_none()) else { return Ok(()) };
        let report = processes.report(leaving).fresh(now);
        let closed = report.filter(|report| report.role == GateRole::Closed && report.serial >= self.serial);
        let Some(report) = closed else { return Ok(()) };
        let work = report.unfinished().unwrap_or_else(|| "its last steps".to_owned());
        let done = self.leave(leaving, &work, processes, now)?;
        self.write_journal(self.journal.advanced(&done, now.wall), now)?;
        // The journal is committed; only the history line is left to write.
        self.step(processes, now)?;
        Ok(())
    }

    /// Ends the old process. The next phase ends a process on trial.
    fn finish(side: Side, live: &Switch, processes: &mut Processes) -> Result<Outcome, DriveError> {
        if side == Side::Trial {
            return Ok(Outcome::Done);
        }
        let kept: Vec<ProcessKind<'_>> = live.which(Side::Trial).into_iter().collect();
        let gone = processes.end_all_but(&kept)?;
        Ok(if gone { Outcome::Done } else { Outcome::NotYet("the old process has not ended yet".to_owned()) })
    }

    /// Fails a process on trial that must not run at the same time as another: its guard says so, or the agent works while its guard has never
    /// reported, so it would run every job a second time. None: no failure.
    pub(in crate::switch) fn bypasses_gate(
        &mut self,
        live: &Switch,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Option<Outcome>, DriveError> {
        let serves_soon = matches!(live.phase, Phase::Proving | Phase::Handing | Phase::Probation);
        let beside = serves_soon && live.former() == Former::Beside;
        let Some(trial) = live.which(Side::Trial).filter(|_| beside) else { return Ok(None) };
        let leader = processes.of(trial).map(|record| record.leader.pid);
        if let Some(report) = processes.report(trial) {
            self.reported = leader;
            return Ok(report.forbids_overlap().map(|why| Outcome::Failed(format!("{why}; {ALONE}"))));
        }
        if self.reported == leader {
            return Ok(None);
        }
        let reached = processes.connected(trial).join(", ");
        if reached.is_empty() {
            return Ok(None);
        }
        let silent = format!(
            "it is connected to {reached} while its guard sends no report: it would run every job a second time"
        );
        Ok(Some(Outcome::Failed(match processes.no_room() {
            // If the guard can't write, the cause is the host, not the release.
            Some(full) => {
                self.write_journal(self.journal.with_peers_down(true), now)?;
                format!("{silent}; {full}: make room there")
            }
            None => format!("{silent}; {ALONE}"),
        })))
    }
}
