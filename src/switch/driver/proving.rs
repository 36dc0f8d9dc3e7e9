//! The proof of a new process: it has to reach the peers that the running process reached before the switch (the baseline).

use crate::agent::gate::GuardReport;
use crate::agent::{Answers, Health, Peer};
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::error::DriveError;
use crate::switch::gate::proofs::{Asked, PROOF_WAIT, Proof, Trip};
use crate::switch::process::{ProcessKind, Processes};
use crate::switch::{Former, Mode, Outcome, Purpose, Side, Switch};
use std::time::Duration;

/// How long a restart waits for a running process that reports no connection to any peer.
const DEAF_WAIT: Duration = Duration::from_secs(2);

/// How long a new process without a baseline may take to reach the rest of its peers, once it reaches one: Salt tries a silent master again
/// after 10 s at the earliest.
const OTHERS_WAIT: Duration = Duration::from_secs(30);

/// How long a process on trial in overlap may send no report: longer than a refresh of modules blocks its main loop.
const SILENCE_MAXIMUM: Duration = Duration::from_secs(24);

/// What a process lacks to be healthy.
pub(in crate::switch) enum Lack {
    /// Nothing.
    Nothing,
    /// This, for a cause of its own.
    Own(String),
    /// This, and the old process lacks it as well.
    Shared(String),
}

/// An unhealthy process, as it was measured.
struct Measured<'a> {
    health: &'a Health,
    /// The peers that it lacks, in words.
    missing: String,
    /// The oldest round trip that counts; None: the process has no guard.
    floor: Option<u64>,
    proof: Proof,
}

/// The state of a running process that reaches none of the peers that a new process would need.
enum Without {
    /// It reaches these peers, which the configuration no longer names.
    Others(String),
    /// It reaches no peer.
    Deaf,
    /// It reaches peers, but a new process could not find its own.
    Unfindable,
}

impl Driver {
    /// Verifies the files of both releases, and records the peers of the running process as the baseline.
    pub(in crate::switch) fn check(
        &mut self,
        live: &Switch,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        if self.in_phase.asked.number == 0 {
            // Days may have passed since the request.
            match self.repair_if_damaged(&live.request.to) {
                Err(error) => return Ok(Outcome::Failed(error.to_string())),
                Ok(repaired) => {
                    self.write_journal(self.journal.noted(&repaired), now)?;
                }
            }
            // A damaged running release is a reason to leave it: its process continues, and the switch may still go back to it.
            if let Some(Err(error)) = live.from.as_ref().map(|from| self.store.verify(from)) {
                let journal = self.journal.noted(&[format!("there may be no way back: {error}")]);
                self.write_journal(journal, now)?;
            }
            // With a configuration that the new release can't load, no process of it would come up.
            let manifest = self.store.head(&live.request.to)?;
            if let Err(error) = processes.loads_configuration(&manifest, Answers::Kept) {
                return Ok(Outcome::Failed(error.to_string()));
            }
            self.in_phase.asked = Asked::at(now);
            self.assign(processes)?;
        }
        let report = live.which(Side::Former).and_then(|former| processes.report(former));
        let answered = report.as_ref().is_none_or(|report| report.prove >= self.in_phase.asked.number);
        let waited = now.since_boot.saturating_sub(self.in_phase.asked.at);
        // A process without any connection gets no answer.
        let alone = report.as_ref().is_some_and(|report| report.peers.iter().all(|peer| peer.address.is_none()));
        let hopeless = live.request.purpose == Purpose::Restart && alone && waited >= DEAF_WAIT;
        if !answered && !hopeless && waited < PROOF_WAIT {
            let known = live.waiting_for.clone().filter(|_| self.in_phase.asked.before > 0);
            return Ok(Outcome::NotYet(
                known.unwrap_or_else(|| "the running process has not reached its peers once more yet".to_owned()),
            ));
        }
        let unfindable = live.which(Side::Former).map_or_else(Vec::new, |former| processes.unfindable(former));
        let lacks = self.measure(live, processes, &unfindable, now)?;
        let Some(why) = self.unprovable(live, processes, lacks) else { return Ok(Outcome::Done) };
        if live.request.purpose == Purpose::Restart {
            match self.without(report.as_ref(), &unfindable) {
                Without::Unfindable => {}
                Without::Others(reached) => {
                    let note = format!(
                        "the running process reaches {reached}, which the configuration no longer names: the new process has to reach its \
                         peers by itself"
                    );
                    self.write_journal(self.journal.noted(&[note]), now)?;
                    return Ok(Outcome::Done);
                }
                Without::Deaf => {
                    let note = format!("{why}: the restart goes on without a proof, since there is nothing to lose");
                    self.write_journal(self.journal.noted(&[note]), now)?;
                    return Ok(Outcome::Done);
                }
            }
        }
        let remedy = match live.request.purpose {
            Purpose::Restart => "repair that first, or restart without a proof: `--mode now`",
            Purpose::Switch | Purpose::Rollback => "try `sidle restart` first, or switch without a proof: `--mode now`",
        };
        let why = format!("{why}, so no release could be proven here now: {remedy}");
        // The process or a peer may have started just now.
        if now.since_boot.saturating_sub(self.in_phase.entered) >= self.limits.start {
            return Ok(Outcome::Failed(why));
        }
        let newest = if answered { Trip::Over } else { Trip::Pending };
        if self.in_phase.asked.is_due(now, newest, Proof::OfThisPhase) {
            self.in_phase.asked = self.in_phase.asked.again(now);
        }
        Ok(Outcome::NotYet(why))
    }

    /// Why no release could be proven now. The mode `now` needs no proof.
    fn unprovable(&self, live: &Switch, processes: &Processes, lacks: Option<String>) -> Option<String> {
        let running = live.which(Side::Former).filter(|former| processes.of(*former).is_some())?;
        let baseline = &self.journal.live.as_ref()?.baseline;
        let lost = baseline.is_empty() && live.mode != Mode::Now;
        let lacks = lacks.map_or_else(String::new, |lacks| format!(" ({lacks})"));
        lost.then(|| format!("{running} reaches none of its peers{lacks}"))
    }

    /// The state of a running process that reaches none of the peers that a new process needs.
    fn without(&self, report: Option<&GuardReport>, unfindable: &[Peer]) -> Without {
        let answers = |number: u64| number >= self.in_phase.asked.floor();
        let reached =
            report.into_iter().flat_map(|report| &report.peers).filter(|peer| peer.proven.is_some_and(answers));
        let reached: Vec<&str> = reached.map(|peer| peer.name.as_str()).collect();
        match (reached.is_empty(), unfindable.is_empty()) {
            (true, _) => Without::Deaf,
            (false, true) => Without::Others(reached.join(", ")),
            (false, false) => Without::Unfindable,
        }
    }

    /// Records the peers that the running process reaches, without those that a new process could not find; returns what it lacks, for people.
    pub(in crate::switch) fn measure(
        &mut self,
        live: &Switch,
        processes: &mut Processes,
        unfindable: &[Peer],
        now: Moment,
    ) -> Result<Option<String>, DriveError> {
        let former = live.which(Side::Former);
        // A connection may outlive a peer that hangs, so only an answer counts.
        let asked = Some(self.in_phase.asked.floor()).filter(|number| *number > 0);
        let asked = former.and_then(|former| processes.guarded(former)).and(asked);
        let Some(health) = former.and_then(|former| processes.health(former, asked)) else { return Ok(None) };
        let health = health.without(unfindable);
        let journal = self.journal.measured(health.proven());
        self.write_journal(journal, now)?;
        Ok(health.lacks(&[]))
    }

    /// Waits until both processes follow the roles of this phase. A new process that never does, while the old process does, has failed. If only
    /// the old process hangs, the switch goes on: the new process serves already, and `finishing-old` waits for the old process's jobs.
    pub(in crate::switch) fn hand_over(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let report = |side| live.which(side).and_then(|which| processes.report(which));
        let follows = |report: &Option<GuardReport>| report.as_ref().is_some_and(|report| report.serial >= self.serial);
        let (former, trial) = (report(Side::Former), report(Side::Trial));
        let is_over = now.since_boot.saturating_sub(self.in_phase.entered) >= self.limits.start;
        let hangs = former.as_ref().is_none_or(|report| !report.is_fresh(now.since_boot.as_secs_f64()));
        Ok(match (follows(&former), follows(&trial)) {
            (true, true) => Outcome::Done,
            (true, false) if is_over => Outcome::Failed("the new process has not taken the jobs over".to_owned()),
            (true, false) => Outcome::NotYet("the new process has not taken the jobs over yet".to_owned()),
            (false, true) if is_over || hangs => {
                let note = "the old process hangs: it has not handed its jobs over; the new process goes on without it";
                self.write_journal(self.journal.noted(&[note.to_owned()]), now)?;
                Outcome::Done
            }
            (false, true) => Outcome::NotYet("the old process has not handed its jobs over yet".to_owned()),
            (false, false) => Outcome::NotYet("neither process has followed the hand-over yet".to_owned()),
        })
    }

    /// What the process of a side lacks to be healthy, and the cause.
    pub(in crate::switch) fn lacks(
        &mut self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        now: Moment,
        proof: Proof,
    ) -> Result<Lack, DriveError> {
        let Some(which) = live.which(side) else { return Ok(Lack::Nothing) };
        let report = processes.report(which);
        let newest = self.newest_trip(live, which, processes);
        if self.in_phase.asked.is_due(now, newest, proof) {
            self.in_phase.asked = self.in_phase.asked.again(now);
        }
        let finished = report.as_ref().map_or(self.in_phase.asked.number, |report| report.prove);
        // Without a guard only the connections count.
        let floor = processes.guarded(which).map(|_| self.in_phase.asked.counts_from(proof, finished));
        let Some(health) = processes.health(which, floor) else {
            return Ok(Lack::Own("its process is not running".to_owned()));
        };
        if let (Some(report), Proof::OfLate, Former::Beside) = (&report, proof, live.former()) {
            // In overlap a guard reports every second, without a round trip.
            let silent = now.since_boot.as_secs_f64() - report.updated;
            if silent > SILENCE_MAXIMUM.as_secs_f64() {
                return Ok(Lack::Own(format!("its guard has sent no report for {silent:.0} s")));
            }
        }
        let Some(missing) = health.lacks(&live.baseline) else {
            self.note_other_peers(live, side, proof, &health.proven(), now)?;
            return Ok(Lack::Nothing);
        };
        if proof == Proof::OfThisPhase && self.is_served_enough(live, &health, &missing, now)? {
            return Ok(Lack::Nothing);
        }
        let lack = match processes.no_room().filter(|_| report.is_none() && floor.is_some()) {
            // The full file system is the cause: the process can write neither its pid file nor a report.
            Some(full) => {
                Lack::Shared(format!("{full}, so that the new process cannot report its health: make room there"))
            }
            None => self.compared(live, side, processes, Measured { health: &health, missing, floor, proof }, now),
        };
        let down = matches!(lack, Lack::Shared(_));
        self.write_journal(self.journal.with_peers_down(down), now)?;
        Ok(lack)
    }

    /// The result of the newest round trip of a process.
    fn newest_trip(&self, live: &Switch, which: ProcessKind<'_>, processes: &mut Processes) -> Trip {
        let Some(report) = processes.report(which) else { return Trip::Over };
        if report.prove < self.in_phase.asked.number {
            return Trip::Pending;
        }
        let failed_once = Self::reaches(live, which, processes, self.in_phase.asked.before)
            && !Self::reaches(live, which, processes, self.in_phase.asked.number);
        if failed_once { Trip::FailedOnce } else { Trip::Over }
    }

    /// True if a process has reached its peers in round trip `number` or later.
    pub(in crate::switch) fn reaches(
        live: &Switch,
        which: ProcessKind<'_>,
        processes: &mut Processes,
        number: u64,
    ) -> bool {
        processes.health(which, Some(number)).is_some_and(|health| health.lacks(&live.baseline).is_none())
    }

    /// Notes that the new process reaches another peer than the old process did, if the agent needs only one of several: jobs now come from it.
    fn note_other_peers(
        &mut self,
        live: &Switch,
        side: Side,
        proof: Proof,
        reached: &[String],
        now: Moment,
    ) -> Result<(), DriveError> {
        let moves = !live.baseline.is_empty() && !reached.iter().any(|name| live.baseline.contains(name));
        if moves && side == Side::Trial && proof == Proof::OfThisPhase {
            let (new, old) = (reached.join(", "), live.baseline.join(", "));
            let note = format!("the new process reaches {new}; the old process reached {old}");
            self.write_journal(self.journal.noted(&[note]), now)?;
        }
        Ok(())
    }

    /// True if there is no baseline, the new process reaches some peers, and the time for the rest is over: a peer that is down must not keep
    /// the release from its proof. The reached peers become the baseline.
    fn is_served_enough(
        &mut self,
        live: &Switch,
        health: &Health,
        missing: &str,
        now: Moment,
    ) -> Result<bool, DriveError> {
        let waited = now.since_boot.saturating_sub(self.in_phase.entered);
        let reached = health.proven();
        if !live.baseline.is_empty() || reached.is_empty() || waited < OTHERS_WAIT.min(self.limits.start / 4) {
            return Ok(false);
        }
        let note = format!("the switch continues with {} alone: {missing}", reached.join(", "));
        self.write_journal(self.journal.needing(reached).noted(&[note]), now)?;
        Ok(true)
    }

    /// In overlap: ignores the peers that the old process has lost as well.
    fn compared(
        &self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        measured: Measured<'_>,
        now: Moment,
    ) -> Lack {
        let Measured { health, missing, floor, proof } = measured;
        let beside = live.former() == Former::Beside && side == Side::Trial && !live.baseline.is_empty();
        let Some(former) = live.which(Side::Former).filter(|_| beside) else { return Lack::Own(missing) };
        // Until its round trip ends, its connections count.
        let answered = processes.report(former).is_none_or(|report| Some(report.prove) >= floor);
        let patient = now.since_boot.saturating_sub(self.in_phase.asked.at) < PROOF_WAIT;
        // On probation it makes no round trips.
        let floor = floor.filter(|_| proof == Proof::OfThisPhase && (answered || !patient));
        let Some(former) = processes.health(former, floor) else { return Lack::Own(missing) };
        let reached = former.proven();
        let needed: Vec<String> = live.baseline.iter().filter(|name| reached.contains(name)).cloned().collect();
        if needed.is_empty() {
            return Lack::Shared(format!("the old process reaches none of its peers either: {missing}"));
        }
        health.lacks(&needed).map_or(Lack::Nothing, Lack::Own)
    }
}
