//! The driver's acts: what each phase of a switch does, and its outcome.

use crate::agent::gate::{GuardReport, Origin};
use crate::bundle::manifest::Head;
use crate::crash_point;
use crate::os::clock::Moment;
use crate::store::StoreError;
use crate::switch::driver::Driver;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::proving::Lack;
use crate::switch::gate::proofs::Proof;
use crate::switch::gate::roles;
use crate::switch::process::{Frozen, Look, ProcessKind, Processes, described};
use crate::switch::{Act, Entry, Former, Outcome, Phase, Side, Switch};

impl Driver {
    /// Performs an act once.
    pub(in crate::switch) fn perform(
        &mut self,
        act: Act,
        live: &Switch,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        match act {
            Act::AwaitBeginning => self.await_beginning(live, now),
            Act::Check => self.check(live, processes, now),
            Act::Rehearse => self.rehearse(live, processes, now),
            Act::AwaitIdle => self.await_idle(live, processes, now),
            Act::Freeze => match live.which(Side::Former).map(|former| processes.freeze(former, Look::Alone)) {
                None | Some(Ok(Frozen::Idle)) => Ok(Outcome::Done),
                Some(Ok(Frozen::Busy(work))) => Ok(Outcome::NotYet(work)),
                Some(Err(error)) => Ok(Outcome::NotYet(error.to_string())),
            },
            Act::Stop(_) => Ok(match processes.end_all_but(&live.others_allowed(Side::Trial)) {
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::NotYet("the process has not ended yet".to_owned()),
                Err(error) => Outcome::NotYet(error.to_string()),
            }),
            Act::Start(side) => Ok(self.start(live, side, processes)),
            Act::Prove(side) => Ok(match self.lacks(live, side, processes, now, Proof::OfThisPhase)? {
                Lack::Nothing => Outcome::Done,
                Lack::Own(missing) | Lack::Shared(missing) => Outcome::NotYet(missing),
            }),
            Act::HandOver => self.hand_over(live, processes, now),
            Act::Watch => Ok(match self.lacks(live, Side::Trial, processes, now, Proof::OfLate)? {
                Lack::Nothing => Outcome::Done,
                Lack::Own(missing) => Outcome::Failed(missing),
                Lack::Shared(missing) => Outcome::NotYet(missing),
            }),
            Act::Flip => Ok(self.flip()),
            Act::Drain(side) => self.drain(live, side, processes, now),
            Act::Pause => Ok(Outcome::NotYet(
                live.waiting_for.clone().unwrap_or_else(|| "the next try comes after a pause".to_owned()),
            )),
            Act::Settle => self.settle(live, processes),
        }
    }

    /// Waits for the scheduled time; then fails if a person holds the instance by now.
    fn await_beginning(&self, live: &Switch, now: Moment) -> Result<Outcome, DriveError> {
        if let Some(schedule) = live.schedule.as_ref().filter(|schedule| now.wall < schedule.begins) {
            return Ok(Outcome::NotYet(schedule.to_string()));
        }
        Ok(self.held(live.request.purpose, now.wall)?.map_or(Outcome::Done, |refusal| Outcome::Failed(refusal.message)))
    }

    fn await_idle(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        let Some(former) = live.which(Side::Former) else { return Ok(Outcome::Done) };
        if let Err(error) = processes.thaw(former) {
            return Ok(Outcome::NotYet(error.to_string()));
        }
        let unfindable = processes.unfindable(former);
        self.measure(live, processes, &unfindable, now)?;
        Ok(match processes.activity(former).as_ref().and_then(described) {
            None => Outcome::Done,
            Some(work) => Outcome::NotYet(work),
        })
    }

    fn start(&self, live: &Switch, side: Side, processes: &mut Processes) -> Outcome {
        let Some(which) = live.which(side) else {
            return Outcome::Failed("there is no release to start".to_owned());
        };
        // Another process would hold the agent's own locks, and the new process could not start.
        let mut allowed = live.others_allowed(side);
        allowed.push(which);
        match processes.end_all_but(&allowed) {
            Ok(true) => {}
            Ok(false) => return Outcome::NotYet("the old process has not ended yet".to_owned()),
            Err(error) => return Outcome::NotYet(error.to_string()),
        }
        let Some(release) = which.release() else {
            let Some(adopted) = &live.adopted else { return Outcome::Failed("there is nothing to start".to_owned()) };
            return match self.store.head(&live.request.to).map(|manifest| processes.settings(&manifest)) {
                Err(error) => Outcome::Failed(error.to_string()),
                Ok(settings) => match processes.start_foreign(adopted, settings) {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Failed(error.to_string()),
                },
            };
        };
        let manifest: Result<Head, StoreError> = self.store.verify(release).and_then(|()| self.store.head(release));
        let first_role = roles::first_role(Some(live), side);
        // A first switch is like the start of a service, so the agent also does what belongs to a start.
        let origin = if live.former() == Former::None { Origin::Boot } else { Origin::Switch };
        match manifest {
            Err(error) => Outcome::Failed(error.to_string()),
            Ok(manifest) => match processes.start(which, &manifest, origin, first_role) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.to_string()),
            },
        }
    }

    fn flip(&self) -> Outcome {
        let Some(proven) = &self.journal.proven else { return Outcome::Done };
        let moved = self.store.lock().and_then(|lock| self.store.flip(&lock, self.files.instance(), proven));
        match moved {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::NotYet(error.to_string()),
        }
    }

    fn settle(&mut self, live: &Switch, processes: &mut Processes) -> Result<Outcome, DriveError> {
        processes.thaw_all()?;
        self.put_on_record(live)?;
        if live.adopted.is_some() {
            processes.forget_foreign()?;
        }
        Ok(Outcome::Done)
    }

    /// Writes an ended switch into the history, and its verdict on the release.
    pub(in crate::switch) fn put_on_record(&self, live: &Switch) -> Result<(), DriveError> {
        let Some(entry) = Entry::of(live) else { return Ok(()) };
        self.files.write_history(&self.lock, &self.files.history()?.with(entry))?;
        crash_point!("settle.history");
        self.files.write(&self.lock, &self.files.verdicts()?.after(live))?;
        crash_point!("settle.verdicts");
        if live.phase == Phase::Committed {
            // Only a status note needs the fingerprint, so a failure to write it must not keep the switch from ending.
            let _ = self.record_host_fingerprint(&live.request.to);
        }
        Ok(())
    }
}

/// Returns `Lost` if the phase needs a process that is gone.
pub(in crate::switch) fn gone(live: &Switch, processes: &mut Processes) -> Option<Outcome> {
    if live.adopted.is_some() && live.phase.is_before_stop() && processes.of(ProcessKind::Foreign).is_none() {
        // The service manager starts it again, without a guard.
        return Some(Outcome::Failed("the agent to be adopted is gone".to_owned()));
    }
    let sides: &[Side] = match (live.phase.act(), live.former()) {
        (Act::AwaitIdle | Act::Freeze | Act::Prove(Side::Former), _) => &[Side::Former],
        (Act::Start(Side::Trial) | Act::Flip | Act::Drain(Side::Former) | Act::Stop(Side::Trial), Former::Beside) => {
            &[Side::Former]
        }
        (Act::Prove(Side::Trial) | Act::HandOver | Act::Watch, Former::Beside) | (Act::Drain(Side::Trial), _) => {
            &[Side::Former, Side::Trial]
        }
        (Act::Prove(Side::Trial) | Act::HandOver | Act::Watch, Former::Apart | Former::None) => &[Side::Trial],
        (
            Act::AwaitBeginning
            | Act::Check
            | Act::Rehearse
            | Act::Stop(_)
            | Act::Start(_)
            | Act::Flip
            | Act::Drain(Side::Former)
            | Act::Pause
            | Act::Settle,
            _,
        ) => &[],
    };
    for side in sides {
        let Some(which) = live.which(*side) else { continue };
        if processes.of(which).is_none() {
            let how = processes.how_ended(which).unwrap_or("is not running");
            return Some(Outcome::Lost(*side, format!("the process of {which} {how}")));
        }
    }
    None
}

/// Filters out reports that are too old.
pub(in crate::switch) trait FreshReport {
    fn fresh(self, now: Moment) -> Option<GuardReport>;
}

impl FreshReport for Option<GuardReport> {
    fn fresh(self, now: Moment) -> Option<GuardReport> {
        self.filter(|report| report.is_fresh(now.since_boot.as_secs_f64()))
    }
}
