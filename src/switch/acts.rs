//! The driver's acts: what each phase of a switch does, and what it comes to.

use super::asked::{Asked, PROOF_WAIT, Proof};
use super::drive::{Driver, Moment};
use super::error::DriveError;
use super::processes::{Frozen, Look, Processes, Which, described};
use super::roles;
use super::{Act, Entry, Former, Mode, Outcome, Phase, Side, Switch};
use crate::agent::Health;
use crate::agent::gate::{Origin, Report};
use crate::bundle::manifest::Manifest;
use crate::crash_point;
use crate::store::StoreError;

/// What a process lacks to be healthy.
enum Lack {
    /// Nothing.
    Nothing,
    /// This, and it is its own affair.
    Own(String),
    /// This, and the old process beside it lacks it, too.
    Shared(String),
}

impl Driver {
    /// Performs an act once.
    pub(super) fn perform(
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
                Ok(false) => Outcome::NotYet("the process to be gone".to_owned()),
                Err(error) => Outcome::NotYet(error.to_string()),
            }),
            Act::Start(side) => {
                if let Some(why) = self.configuration_for(live, side, processes, now)? {
                    return Ok(Outcome::Failed(why));
                }
                Ok(self.start(live, side, processes))
            }
            Act::Prove(_) | Act::HandOver | Act::Watch if unguardable(live, processes).is_some() => {
                Ok(Outcome::Failed(unguardable(live, processes).unwrap_or_default()))
            }
            Act::Prove(side) => Ok({
                match self.lacks(live, side, processes, now, Proof::OfThisPhase)? {
                    Lack::Nothing => Outcome::Done,
                    Lack::Own(missing) | Lack::Shared(missing) => Outcome::NotYet(missing),
                }
            }),
            Act::HandOver => Ok(self.hand_over(live, processes, now)),
            Act::Watch => Ok(match self.lacks(live, Side::Trial, processes, now, Proof::OfLate)? {
                Lack::Nothing => Outcome::Done,
                Lack::Own(missing) => Outcome::Failed(missing),
                Lack::Shared(missing) => Outcome::NotYet(missing),
            }),
            Act::Flip => Ok(self.flip()),
            Act::Drain(side) => self.drain(live, side, processes, now),
            Act::Pause => Ok(Outcome::NotYet(live.waiting_for.clone().unwrap_or_else(|| "another try".to_owned()))),
            Act::Settle => self.settle(live, processes, now),
        }
    }

    /// It is time, and nobody has held the instance meanwhile.
    fn await_beginning(&self, live: &Switch, now: Moment) -> Result<Outcome, DriveError> {
        if let Some(schedule) = live.schedule.as_ref().filter(|schedule| now.wall < schedule.begins) {
            return Ok(Outcome::NotYet(schedule.to_string()));
        }
        Ok(self.held(live.purpose, now.wall)?.map_or(Outcome::Done, |refusal| Outcome::Failed(refusal.message)))
    }

    /// The files of the new release are what was signed, and it is known whether those of the former one are; the peers of the running process
    /// are the baseline.
    fn check(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        if self.asked.number == 0 {
            // Since it was asked for, days may have passed.
            match self.mended(&live.to) {
                Err(error) => return Ok(Outcome::Failed(error.to_string())),
                Ok(mended) => {
                    self.believe(self.journal.noted(&mended), now)?;
                }
            }
            // A damaged release is a reason to leave it, not to stay: a process of it that runs goes on, and may still be gone back to.
            if let Some(Err(error)) = live.from.as_ref().map(|from| self.store.verify(from)) {
                let journal = self.journal.noted(&[format!("there may be no way back: {error}")]);
                self.believe(journal, now)?;
            }
            if let Some(refusal) = self.keep_configuration(live, processes, now)? {
                return Ok(Outcome::Failed(refusal));
            }
            self.asked = Asked::at(now);
            self.assign(processes)?;
        }
        let report = live.which(Side::Former).and_then(|former| processes.report(former));
        let answered = report.is_none_or(|report| report.prove >= self.asked.number);
        if !answered && now.since_boot.saturating_sub(self.asked.at) < PROOF_WAIT {
            let known = live.waiting_for.clone().filter(|_| self.asked.before > 0);
            return Ok(Outcome::NotYet(
                known.unwrap_or_else(|| "the running process to reach its peers once more".to_owned()),
            ));
        }
        let lacks = self.measure(live, processes, now)?;
        let Some(why) = self.unprovable(live, processes, lacks) else { return Ok(Outcome::Done) };
        // It may have been started just now, or a peer.
        if now.since_boot.saturating_sub(self.entered) >= self.limits.start {
            return Ok(Outcome::Failed(why));
        }
        if self.asked.is_due(now, answered, Proof::OfThisPhase) {
            self.asked = self.asked.again(now);
        }
        Ok(Outcome::NotYet(why))
    }

    /// Why no release could be proven now. Whoever says `now` takes what comes.
    fn unprovable(&self, live: &Switch, processes: &Processes, lacks: Option<String>) -> Option<String> {
        let running = live.which(Side::Former).filter(|former| processes.of(*former).is_some())?;
        let baseline = &self.journal.live.as_ref()?.baseline;
        let lost = baseline.is_empty() && live.mode != Mode::Now;
        let lacks = lacks.map_or_else(String::new, |lacks| format!(" ({lacks})"));
        lost.then(|| {
            format!(
                "{running} reaches none of its peers{lacks}, so no release could be proven here now: see to that first, or take \
                 what comes with `--mode now`"
            )
        })
    }

    /// Takes what the running process reaches for the baseline; gives what it lacks, in words.
    fn measure(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Option<String>, DriveError> {
        let former = live.which(Side::Former);
        // Connections outlive a peer that hangs; an answer doesn't lie.
        let asked = Some(self.asked.number).filter(|number| *number > 0);
        let asked = former.and_then(|former| processes.guarded(former)).and(asked);
        let Some(health) = former.and_then(|former| processes.health(former, asked)) else { return Ok(None) };
        let journal = self.journal.measured(health.proven());
        self.believe(journal, now)?;
        Ok(health.lacks(&[]))
    }

    fn await_idle(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        let Some(former) = live.which(Side::Former) else { return Ok(Outcome::Done) };
        if let Err(error) = processes.thaw(former) {
            return Ok(Outcome::NotYet(error.to_string()));
        }
        self.measure(live, processes, now)?;
        Ok(match processes.activity(former).as_ref().and_then(described) {
            None => Outcome::Done,
            Some(work) => Outcome::NotYet(work),
        })
    }

    fn start(&self, live: &Switch, side: Side, processes: &mut Processes) -> Outcome {
        let Some(which) = live.which(side) else {
            return Outcome::Failed("there is no release to start".to_owned());
        };
        // What else runs would hold the agent's own locks against the new process.
        let mut allowed = live.others_allowed(side);
        allowed.push(which);
        match processes.end_all_but(&allowed) {
            Ok(true) => {}
            Ok(false) => return Outcome::NotYet("the old process to be gone".to_owned()),
            Err(error) => return Outcome::NotYet(error.to_string()),
        }
        let Some(release) = which.release() else {
            let Some(adopted) = &live.adopted else { return Outcome::Failed("there is nothing to start".to_owned()) };
            return match self.store.manifest(&live.to).map(|manifest| processes.configuration(&manifest)) {
                Err(error) => Outcome::Failed(error.to_string()),
                Ok(configuration) => match processes.start_foreign(adopted, &configuration) {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Failed(error.to_string()),
                },
            };
        };
        let manifest: Result<Manifest, StoreError> =
            self.store.verify(release).and_then(|()| self.store.manifest(release));
        let first_role = roles::first_role(Some(live), side);
        // A first switch is what starting a service is: what belongs to a start happens.
        let origin = if live.former() == Former::None { Origin::Boot } else { Origin::Switch };
        match manifest {
            Err(error) => Outcome::Failed(error.to_string()),
            Ok(manifest) => match processes.start(which, &manifest, origin, first_role) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.to_string()),
            },
        }
    }

    /// Both processes follow the roles of this phase. A new one that does not in all its time, while the old one does, hangs.
    fn hand_over(&self, live: &Switch, processes: &Processes, now: Moment) -> Outcome {
        let follows = |side| {
            let report = live.which(side).and_then(|which| processes.report(which));
            report.is_some_and(|report| report.serial >= self.serial)
        };
        let is_over = now.since_boot.saturating_sub(self.entered) >= self.limits.start;
        match (follows(Side::Former), follows(Side::Trial)) {
            (true, true) => Outcome::Done,
            (true, false) if is_over => Outcome::Failed("the new process does not follow the gate".to_owned()),
            (true, false) => Outcome::NotYet("the new process to follow the gate".to_owned()),
            (false, true) => Outcome::NotYet("the old process to follow the gate".to_owned()),
            (false, false) => Outcome::NotYet("both processes to follow the gate".to_owned()),
        }
    }

    /// What the process of a side lacks to be healthy, and whose doing that is.
    fn lacks(
        &mut self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        now: Moment,
        proof: Proof,
    ) -> Result<Lack, DriveError> {
        let Some(which) = live.which(side) else { return Ok(Lack::Nothing) };
        let report = processes.report(which);
        let answered = report.as_ref().is_none_or(|report| report.prove >= self.asked.number);
        if self.asked.is_due(now, answered, proof) {
            self.asked = self.asked.again(now);
        }
        let floor = match proof {
            Proof::OfThisPhase => self.asked.first,
            Proof::OfLate => self.asked.before,
        };
        // Without a guard the connections have to do.
        let floor = processes.guarded(which).map(|_| floor);
        let Some(health) = processes.health(which, floor) else {
            return Ok(Lack::Own("its process is not running".to_owned()));
        };
        let Some(missing) = health.lacks(&live.baseline) else { return Ok(Lack::Nothing) };
        let lack = self.compared(live, side, processes, floor, now, (&health, missing));
        let down = matches!(lack, Lack::Shared(_));
        self.believe(self.journal.with_peers_down(down), now)?;
        Ok(lack)
    }

    /// A peer that the old process beside has lost, too, says nothing of the new one.
    fn compared(
        &self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        floor: Option<u64>,
        now: Moment,
        (health, missing): (&Health, String),
    ) -> Lack {
        let beside = live.former() == Former::Beside && side == Side::Trial && !live.baseline.is_empty();
        let Some(former) = live.which(Side::Former).filter(|_| beside) else { return Lack::Own(missing) };
        // While it still asks its peers, its connections speak for it.
        let answered = processes.report(former).is_none_or(|report| Some(report.prove) >= floor);
        let patient = now.since_boot.saturating_sub(self.asked.at) < PROOF_WAIT;
        let floor = floor.filter(|_| answered || !patient);
        let Some(former) = processes.health(former, floor) else { return Lack::Own(missing) };
        let reached = former.proven();
        let needed: Vec<String> = live.baseline.iter().filter(|name| reached.contains(name)).cloned().collect();
        if needed.is_empty() {
            return Lack::Shared(format!("the old process reaches none of its peers either: {missing}"));
        }
        health.lacks(&needed).map_or(Lack::Nothing, Lack::Own)
    }

    fn flip(&self) -> Outcome {
        let Some(proven) = &self.journal.proven else { return Outcome::Done };
        let moved = self.store.lock().and_then(|lock| self.store.flip(&lock, self.files.instance(), proven));
        match moved {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::NotYet(error.to_string()),
        }
    }

    fn settle(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        processes.thaw_all()?;
        self.settle_configuration(live, processes, now)?;
        let noted = self.journal.live.clone();
        let live = noted.as_ref().unwrap_or(live);
        if let Some(entry) = Entry::of(live) {
            self.files.write_history(&self.lock, &self.files.history()?.with(entry))?;
            crash_point!("settle.history");
            self.files.write_verdicts(&self.lock, &self.files.verdicts()?.after(live))?;
            crash_point!("settle.verdicts");
            if live.phase == Phase::Committed {
                // What a status note rests on is no reason to leave a switch unfinished.
                let _ = self.record_ground(&live.to);
            }
        }
        if live.adopted.is_some() {
            processes.forget_foreign()?;
        }
        Ok(Outcome::Done)
    }
}

/// `Lost`, where the phase counts on a process that is gone.
pub(super) fn gone(live: &Switch, processes: &mut Processes) -> Option<Outcome> {
    if live.adopted.is_some() && live.phase.is_before_stop() && processes.of(Which::Foreign).is_none() {
        // Whoever started it starts it again, and without a guard.
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

/// Why the process on trial must not be beside another one: its guard says so, or is not there while the agent works. It would take every job a
/// second time.
fn unguardable(live: &Switch, processes: &mut Processes) -> Option<String> {
    let trial = live.which(Side::Trial).filter(|_| live.former() == Former::Beside)?;
    if let Some(report) = processes.report(trial) {
        return report.forbids_overlap();
    }
    let reached = processes.health(trial, None)?.proven();
    (!reached.is_empty()).then(|| {
        format!(
            "it is connected to {} while its guard says nothing: it would do every job a second time",
            reached.join(", ")
        )
    })
}

/// A report that is not too old to be believed.
pub(super) trait FreshReport {
    fn fresh(self, now: Moment) -> Option<Report>;
}

impl FreshReport for Option<Report> {
    fn fresh(self, now: Moment) -> Option<Report> {
        self.filter(|report| report.is_fresh(now.since_boot.as_secs_f64()))
    }
}
