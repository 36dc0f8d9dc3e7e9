//! What a switch is measured by: which peers the running process reaches before it, and what a process lacks beside that afterwards.

use crate::agent::gate::GuardReport;
use crate::agent::{Health, Peer};
use crate::os::clock::Moment;
use crate::switch::driver::Driver;
use crate::switch::driver::error::DriveError;
use crate::switch::gate::proofs::{Asked, PROOF_WAIT, Proof};
use crate::switch::process::Processes;
use crate::switch::{Former, Mode, Outcome, Purpose, Side, Switch};
use std::time::Duration;

/// How long a running process that says itself that it is connected to none of its peers is waited for before a restart goes on without.
const DEAF_WAIT: Duration = Duration::from_secs(2);

/// How long a new process without anything to be measured by may take for the rest of its peers, once it reaches one: Salt tries a master that
/// does not answer again after 10 s at the soonest.
const OTHERS_WAIT: Duration = Duration::from_secs(30);

/// How long a process on trial beside another one may say nothing: longer than what a refresh of modules takes its main loop.
const SILENCE_MAXIMUM: Duration = Duration::from_secs(24);

/// What a process lacks to be healthy.
pub(in crate::switch) enum Lack {
    /// Nothing.
    Nothing,
    /// This, and it is its own affair.
    Own(String),
    /// This, and the old process beside it lacks it, too.
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

/// What the running process is like, where it reaches none of the peers that a new one would need.
enum Without {
    /// It is well, with peers that the configuration no longer names.
    Others(String),
    /// It reaches nobody.
    Deaf,
    /// It is well, but a new process could not even look for what it needs.
    Unfindable,
}

impl Driver {
    /// The files of the new release are what was signed, and it is known whether those of the former one are; the peers of the running process
    /// are the baseline.
    pub(in crate::switch) fn check(
        &mut self,
        live: &Switch,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        if self.asked.number == 0 {
            // Since it was asked for, days may have passed.
            match self.mended(&live.request.to) {
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
        let answered = report.as_ref().is_none_or(|report| report.prove >= self.asked.number);
        let waited = now.since_boot.saturating_sub(self.asked.at);
        // Who is connected to nobody has nobody to wait for.
        let alone = report.as_ref().is_some_and(|report| report.peers.iter().all(|peer| peer.address.is_none()));
        let hopeless = live.request.purpose == Purpose::Restart && alone && waited >= DEAF_WAIT;
        if !answered && !hopeless && waited < PROOF_WAIT {
            let known = live.waiting_for.clone().filter(|_| self.asked.before > 0);
            return Ok(Outcome::NotYet(
                known.unwrap_or_else(|| "the running process to reach its peers once more".to_owned()),
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
                        "the running process reaches {reached}, which the configuration no longer names: the new one has to reach its peers \
                         by itself"
                    );
                    self.believe(self.journal.noted(&[note]), now)?;
                    return Ok(Outcome::Done);
                }
                Without::Deaf => {
                    let note = format!("{why}: a restart has nothing to lose, and goes on without");
                    self.believe(self.journal.noted(&[note]), now)?;
                    return Ok(Outcome::Done);
                }
            }
        }
        let remedy = match live.request.purpose {
            Purpose::Restart => "see to that first, or take what comes with `--mode now`",
            Purpose::Switch | Purpose::Rollback => "try `sidle restart` first, or take what comes with `--mode now`",
        };
        let why = format!("{why}, so no release could be proven here now: {remedy}");
        // It may have been started just now, or a peer.
        if now.since_boot.saturating_sub(self.entered) >= self.limits.start {
            return Ok(Outcome::Failed(why));
        }
        if self.asked.is_due(now, answered, Proof::OfThisPhase) {
            self.asked = self.asked.again(now);
        }
        Ok(Outcome::NotYet(why))
    }

    /// Why no release could be measured now. Whoever says `now` takes what comes.
    fn unprovable(&self, live: &Switch, processes: &Processes, lacks: Option<String>) -> Option<String> {
        let running = live.which(Side::Former).filter(|former| processes.of(*former).is_some())?;
        let baseline = &self.journal.live.as_ref()?.baseline;
        let lost = baseline.is_empty() && live.mode != Mode::Now;
        let lacks = lacks.map_or_else(String::new, |lacks| format!(" ({lacks})"));
        lost.then(|| format!("{running} reaches none of its peers{lacks}"))
    }

    /// How the running process is that reaches none of the peers that a new one needs.
    fn without(&self, report: Option<&GuardReport>, unfindable: &[Peer]) -> Without {
        let answers = |number: u64| number >= self.asked.floor();
        let reached =
            report.into_iter().flat_map(|report| &report.peers).filter(|peer| peer.proven.is_some_and(answers));
        let reached: Vec<&str> = reached.map(|peer| peer.name.as_str()).collect();
        match (reached.is_empty(), unfindable.is_empty()) {
            (true, _) => Without::Deaf,
            (false, true) => Without::Others(reached.join(", ")),
            (false, false) => Without::Unfindable,
        }
    }

    /// Takes what the running process reaches for the baseline, but what a new one could not find; gives what it lacks, in words.
    pub(in crate::switch) fn measure(
        &mut self,
        live: &Switch,
        processes: &mut Processes,
        unfindable: &[Peer],
        now: Moment,
    ) -> Result<Option<String>, DriveError> {
        let former = live.which(Side::Former);
        // Connections outlive a peer that hangs; an answer doesn't lie.
        let asked = Some(self.asked.floor()).filter(|number| *number > 0);
        let asked = former.and_then(|former| processes.guarded(former)).and(asked);
        let Some(health) = former.and_then(|former| processes.health(former, asked)) else { return Ok(None) };
        let health = health.without(unfindable);
        let journal = self.journal.measured(health.proven());
        self.believe(journal, now)?;
        Ok(health.lacks(&[]))
    }

    /// Both processes follow the roles of this phase. A new one that does not in all its time, while the old one does, hangs. Where it is the old
    /// one that hangs, the new one goes on: it serves already, and what the old one has begun is waited for at its end.
    pub(in crate::switch) fn hand_over(
        &mut self,
        live: &Switch,
        processes: &Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let report = |side| live.which(side).and_then(|which| processes.report(which));
        let follows = |report: &Option<GuardReport>| report.as_ref().is_some_and(|report| report.serial >= self.serial);
        let (former, trial) = (report(Side::Former), report(Side::Trial));
        let is_over = now.since_boot.saturating_sub(self.entered) >= self.limits.start;
        let hangs = former.as_ref().is_none_or(|report| !report.is_fresh(now.since_boot.as_secs_f64()));
        Ok(match (follows(&former), follows(&trial)) {
            (true, true) => Outcome::Done,
            (true, false) if is_over => Outcome::Failed("the new process does not follow the gate".to_owned()),
            (true, false) => Outcome::NotYet("the new process to follow the gate".to_owned()),
            (false, true) if is_over || hangs => {
                let note = "the old process hangs: it does not follow the gate; the new one goes on without it";
                self.believe(self.journal.noted(&[note.to_owned()]), now)?;
                Outcome::Done
            }
            (false, true) => Outcome::NotYet("the old process to follow the gate".to_owned()),
            (false, false) => Outcome::NotYet("both processes to follow the gate".to_owned()),
        })
    }

    /// What the process of a side lacks to be healthy, and whose doing that is.
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
        if let (Some(report), Proof::OfLate, Former::Beside) = (&report, proof, live.former()) {
            // With company it says something every second: that costs no peer an answer.
            let silent = now.since_boot.as_secs_f64() - report.updated;
            if silent > SILENCE_MAXIMUM.as_secs_f64() {
                return Ok(Lack::Own(format!("its guard has said nothing for {silent:.0} s")));
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
            // Neither pid files nor reports can be written: that is the host's affair, and nothing that anybody could be asked for.
            Some(full) => {
                Lack::Shared(format!("{full}, so that the new process cannot say how it is: make room there"))
            }
            None => self.compared(live, side, processes, Measured { health: &health, missing, floor, proof }, now),
        };
        let down = matches!(lack, Lack::Shared(_));
        self.believe(self.journal.with_peers_down(down), now)?;
        Ok(lack)
    }

    /// An agent that needs one of several peers may come up with another one than the process before it: jobs come from there from now on.
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
            let note = format!("it moves: the new process has come to {new}, the one before was with {old}");
            self.believe(self.journal.noted(&[note]), now)?;
        }
        Ok(())
    }

    /// Nobody has shown which peers can be reached, and the others had their time: one that is down is no reason to reach none. From now on
    /// those are needed that are reached.
    fn is_served_enough(
        &mut self,
        live: &Switch,
        health: &Health,
        missing: &str,
        now: Moment,
    ) -> Result<bool, DriveError> {
        let waited = now.since_boot.saturating_sub(self.entered);
        let reached = health.proven();
        if !live.baseline.is_empty() || reached.is_empty() || waited < OTHERS_WAIT.min(self.limits.start / 4) {
            return Ok(false);
        }
        let note = format!("it goes on with {} alone: {missing}", reached.join(", "));
        self.believe(self.journal.needing(reached).noted(&[note]), now)?;
        Ok(true)
    }

    /// A peer that the old process beside has lost, too, says nothing of the new one.
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
        // While it still asks its peers, its connections speak for it.
        let answered = processes.report(former).is_none_or(|report| Some(report.prove) >= floor);
        let patient = now.since_boot.saturating_sub(self.asked.at) < PROOF_WAIT;
        // On probation it is not asked.
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
