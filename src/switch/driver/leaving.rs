//! How the process that is on its way out is closed, and ended or left to finish alone; and whether the new one hears what the old one hears.

use crate::agent::gate::{GateRole, GuardReport};
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::acts::FreshReport as _;
use crate::switch::driver::error::DriveError;
use crate::switch::gate::proofs::{Asked, PROOF_WAIT, Proof};
use crate::switch::gate::roles::Backlog;
use crate::switch::process::{Frozen, Look, ProcessKind, Processes};
use crate::switch::{Former, Outcome, Phase, Side, Switch};
use std::time::Duration;

/// How long the new process may take to hear of a job that the old one had to take: longer than a refresh of its modules blocks it.
const HEARING_WAIT: Duration = Duration::from_secs(15);

/// How long an old process may say nothing that had work left when it last spoke, or something to read: a main loop can be blocked for long.
const SILENCE_MAXIMUM: Duration = Duration::from_secs(60);

/// What to do with a release that must not run beside another one.
const ALONE: &str = "`--mode idle` never has two processes";

/// How long returns are waited for that have nobody to go to: as long as Salt waits for an answer to one of them.
const RETURN_WAIT: Duration = Duration::from_secs(60);

/// How long a commit waits for an old process that has minutes of publications to read. One that falls behind for ever has no room for a switch.
const CATCH_UP_MAXIMUM: Duration = Duration::from_secs(10 * 60);

/// How a process was when its guard spoke last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastSeen {
    /// It had nothing left.
    Done,
    /// It had, or it never spoke.
    AtWork,
}

impl Driver {
    /// Closes the process of `side` once it has read what the other one never got, and ends it once it has nothing left. The old one is
    /// ended at once.
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
        // A guard that never came up has let nothing in.
        if report.is_none() && side == Side::Trial {
            return Ok(Outcome::Done);
        }
        let last = if report.as_ref().is_some_and(|report| report.unfinished().is_none()) {
            LastSeen::Done
        } else {
            LastSeen::AtWork
        };
        let Some(report) = report.fresh(now) else { return self.drain_in_silence(live, side, last, processes, now) };
        self.silent_since = None;
        let behind = self.close_when_read(live, side, &report, processes, now);
        let open = report.role != GateRole::Closed || report.serial < self.serial;
        let waited = now.since_boot.saturating_sub(self.entered);
        if !open && side == Side::Former && report.returns_nowhere() && waited >= RETURN_WAIT {
            // Its peers may be back: it is asked once more.
            if self.asked.at < self.entered.saturating_add(RETURN_WAIT) {
                self.asked = self.asked.again(now);
            } else if report.prove >= self.asked.number {
                let note =
                    format!("{} could not be delivered: the old process reaches none of its peers", report.returning());
                self.note(&note, now)?;
                return Self::finish(side, live, processes);
            }
        }
        let work = if open {
            let behind = behind.map(|names| format!("the old process to read what {names} published"));
            Some(behind.unwrap_or_else(|| "the process that leaves to accept no more jobs".to_owned()))
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

    /// Its guard hangs with it, or is not there: what runs below it are the jobs that are left. A machine that slept has stale reports for a moment.
    fn drain_in_silence(
        &mut self,
        live: &Switch,
        side: Side,
        last: LastSeen,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let Some(leaving) = live.which(side) else { return Ok(Outcome::Done) };
        let since = *self.silent_since.get_or_insert(now.since_boot);
        let patience =
            if last == LastSeen::Done && self.backlog == Backlog::Seen { PROOF_WAIT } else { SILENCE_MAXIMUM };
        let silent = now.since_boot.saturating_sub(since) > patience;
        let work = match processes.below(leaving)? {
            0 if processes.runs_jobs_inside(leaving) => {
                Some("a report from its guard: its jobs are threads, and cannot be seen from outside".to_owned())
            }
            0 => processes.unreported(leaving),
            count => Some(format!("{count} processes of its jobs, while its guard says nothing")),
        };
        match work {
            None if silent => Self::finish(side, live, processes),
            None => Ok(Outcome::NotYet("a report from its guard".to_owned())),
            Some(work) if silent && side == Side::Former && self.is_left_alone(live, now) => {
                self.leave(leaving, &work, processes, now)
            }
            Some(work) => Ok(Outcome::NotYet(work)),
        }
    }

    /// Tells the process to take nothing any more, once it has received all that the staying one never gets; gives the peers that it is behind
    /// with. They are asked for a round trip first: of one that is down nothing comes.
    fn close_when_read(
        &mut self,
        live: &Switch,
        side: Side,
        report: &GuardReport,
        processes: &Processes,
        now: Moment,
    ) -> Option<String> {
        if self.backlog == Backlog::Seen {
            return None;
        }
        let answered = report.prove >= self.asked.number;
        if self.asked.is_due(now, answered, Proof::OfLate) {
            self.asked = if self.asked.number == 0 { Asked::at(now) } else { self.asked.again(now) };
        }
        let other = if side == Side::Former { Side::Trial } else { Side::Former };
        let staying = live.which(other).and_then(|which| processes.report(which)).fresh(now)?;
        let asked = if now.since_boot.saturating_sub(self.entered) < PROOF_WAIT {
            self.asked.first
        } else {
            // Who could not answer in all that time is not answered for.
            self.asked.first.min(report.prove)
        };
        let behind = report.behind(&staying, asked);
        if behind.is_empty() || (side == Side::Former && self.is_left_alone(live, now)) {
            self.backlog = Backlog::Seen;
            return None;
        }
        Some(behind.join(", "))
    }

    /// Whether an old process has had its time. One that sidle did not start is its service's, and can't be left.
    fn is_left_alone(&self, live: &Switch, now: Moment) -> bool {
        live.adopted.is_none() && now.since_boot.saturating_sub(self.entered) >= self.limits.retire
    }

    /// The switch is over; the old process finishes by itself what it has.
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

    /// Makes room for another switch, where the present one only waits for the last jobs of the old process: they go on without it.
    pub fn make_room(&mut self, processes: &mut Processes, now: Moment) -> Result<(), DriveError> {
        let Some(live) = self.journal.live.clone().filter(|live| live.phase == Phase::Retiring) else { return Ok(()) };
        let Some(leaving) = live.which(Side::Former).filter(|_| live.adopted.is_none()) else { return Ok(()) };
        let report = processes.report(leaving).fresh(now);
        let closed = report.filter(|report| report.role == GateRole::Closed && report.serial >= self.serial);
        let Some(report) = closed else { return Ok(()) };
        let work = report.unfinished().unwrap_or_else(|| "its last steps".to_owned());
        let done = self.leave(leaving, &work, processes, now)?;
        self.believe(self.journal.advanced(&done, now.wall), now)?;
        // The commit is written down; what is left is its line in the history.
        self.step(processes, now)?;
        Ok(())
    }

    /// Ends the process on trial, which the phase that follows does; or the old one, here.
    fn finish(side: Side, live: &Switch, processes: &mut Processes) -> Result<Outcome, DriveError> {
        if side == Side::Trial {
            return Ok(Outcome::Done);
        }
        let kept: Vec<ProcessKind<'_>> = live.which(Side::Trial).into_iter().collect();
        let gone = processes.end_all_but(&kept)?;
        Ok(if gone { Outcome::Done } else { Outcome::NotYet("the old process to be gone".to_owned()) })
    }

    /// The process on trial must not be beside another one: its guard says so, or has never said anything while the agent works. It would do every job
    /// a second time. None: it may.
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
        let silent =
            format!("it is connected to {reached} while its guard says nothing: it would do every job a second time");
        Ok(Some(Outcome::Failed(match processes.no_room() {
            // A guard that can't write is the host's affair, and no release's.
            Some(full) => {
                self.believe(self.journal.with_peers_down(true), now)?;
                format!("{silent}; {full}: make room there")
            }
            None => format!("{silent}; {ALONE}"),
        })))
    }

    /// What a new process that is healthy lacks still to become the one, however long it was on probation: an answer of this probation, jobs that
    /// the old one hears and it doesn't, and what the old one has still to read. None: nothing.
    pub(in crate::switch) fn not_proven_yet(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Option<Outcome> {
        let unheard = self.misses_jobs(live, processes, now);
        let waits = |why: &str| Some(Outcome::NotYet(why.to_owned()));
        if unheard.is_some() {
            return unheard;
        }
        if self.awaits_first_answer(live, processes, now) {
            return waits("the new process to reach its peers once more");
        }
        let waited = now.since_boot.saturating_sub(self.entered);
        if waited >= self.limits.probation { self.still_unread(live, processes, now) } else { None }
    }

    /// A probation is not over while its own first round trip is on the way: however short it is, a process that hangs once it serves is found out.
    fn awaits_first_answer(&self, live: &Switch, processes: &Processes, now: Moment) -> bool {
        let report = live.which(Side::Trial).and_then(|trial| processes.report(trial));
        let answered = report.is_none_or(|report| report.prove >= self.asked.first);
        self.asked.before == 0 && !answered && now.since_boot.saturating_sub(self.asked.at) < PROOF_WAIT
    }

    /// The new process does not hear what the old one beside it hears: the old one takes a job that nobody took, and tells so. None: it does.
    fn misses_jobs(&mut self, live: &Switch, processes: &Processes, now: Moment) -> Option<Outcome> {
        let deaf_to = live.which(Side::Trial).and_then(|trial| processes.report(trial));
        let deaf_to = deaf_to.map(|report| report.deaf_to().join(", ")).filter(|names| !names.is_empty());
        let Some(names) = deaf_to.filter(|_| live.former() == Former::Beside) else {
            self.deaf_since = None;
            return None;
        };
        let since = *self.deaf_since.get_or_insert(now.since_boot);
        Some(if now.since_boot.saturating_sub(since) < HEARING_WAIT {
            Outcome::NotYet(format!("the new process to hear of jobs from {names} that the old one had to take"))
        } else {
            Outcome::Failed(format!("the new process hears no jobs from {names}: the old one had to take them"))
        })
    }

    /// What the old process has still to read before the new one may become the one: what it is behind with nobody else hears of. None:
    /// nothing, or it has had its time.
    fn still_unread(&self, live: &Switch, processes: &Processes, now: Moment) -> Option<Outcome> {
        let report = |side| live.which(side).and_then(|which| processes.report(which)).fresh(now);
        let (old, new) = (report(Side::Former)?, report(Side::Trial)?);
        let reached: Vec<&str> =
            new.peers.iter().filter(|peer| peer.address.is_some()).map(|peer| peer.name.as_str()).collect();
        let behind: Vec<&str> =
            old.behind(&new, self.asked.first).into_iter().filter(|name| reached.contains(name)).collect();
        if behind.is_empty() || live.former() != Former::Beside {
            return None;
        }
        let names = behind.join(", ");
        let waited = now.since_boot.saturating_sub(self.entered);
        if waited >= self.limits.probation.saturating_add(CATCH_UP_MAXIMUM) {
            return Some(Outcome::Expired);
        }
        Some(Outcome::NotYet(format!("the old process to read what {names} published before the new one listened")))
    }
}
