//! One switch in the journal: its request, phase, failure and downtime.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::switch::journal::head::{Cause, Failure, Head};
use crate::switch::journal::kind::ProcessKind;
use crate::switch::journal::request::{Adopted, Purpose, shortened};
use crate::switch::journal::story::Ending;
use crate::switch::machine::limits::Limits;
use crate::switch::machine::phase::Phase;
use crate::switch::machine::{self, Course, Former, Mode, Outcome, Side, Survivors};
use crate::switch::schedule::Schedule;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::time::Duration;

/// Most notes kept of one switch: the journal is written at every step.
const NOTES_MAXIMUM: usize = 16;

/// A switch. Only [`crate::switch::Journal`] makes and moves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Switch {
    /// The part that the history keeps.
    #[serde(flatten)]
    pub head: Head,
    /// The process before, if sidle did not start it.
    #[serde(default)]
    pub adopted: Option<Adopted>,
    /// Its phase.
    pub phase: Phase,
    /// When the phase began. For people only: the monotonic clock measures limits.
    pub phase_since: Timestamp,
    /// The latest time at which the stop of the old process may begin; later the switch expires and changes nothing.
    pub deadline: Timestamp,
    /// The id of the boot in which the switch was requested or resumed last: a resume detects a reboot by it, even if the first resume after
    /// the reboot was interrupted.
    pub boot: String,
    /// When it begins and when its window closes; None: it began at once, and no window ends it.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// In `overlap`: the old process was lost during the switch, and the new process runs alone.
    #[serde(default)]
    pub parted: bool,
    /// The new process lacks only peers that the old process has lost as well: a failure now is not the release's fault.
    #[serde(default)]
    pub peers_down: bool,
    /// The peers that the old process had reached at the last check.
    pub baseline: Vec<String>,
    /// Transitions so far.
    pub steps: u32,
    /// How often the trial was repeated.
    pub setbacks: u32,
    /// How often the switch has stranded.
    pub strandings: u32,
    /// What the phase waits for, or its last problem.
    pub waiting_for: Option<String>,
    /// The beginning of the present downtime; None: a process serves.
    pub downtime_since: Option<Timestamp>,
}

impl Deref for Switch {
    type Target = Head;
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Switch {
    /// The release of a side.
    pub fn release(&self, side: Side) -> Option<&Release> {
        match side {
            Side::Former => self.from.as_ref(),
            Side::Trial => Some(&self.request.to),
        }
    }

    /// The present part of the old process in the switch.
    pub fn former(&self) -> Former {
        match (self.from.is_some() || self.adopted.is_some(), self.mode) {
            (false, _) => Former::None,
            (true, Mode::Overlap) if !self.parted => Former::Beside,
            (true, Mode::Overlap | Mode::Idle | Mode::Now) => Former::Apart,
        }
    }

    /// The side that has to serve in the present phase; None: neither side.
    pub fn serves(&self) -> Option<Side> {
        self.phase.serves(self.former())
    }

    /// The process of a side.
    pub fn which(&self, side: Side) -> Option<ProcessKind<'_>> {
        if side == Side::Former && self.adopted.is_some() {
            return Some(ProcessKind::Foreign);
        }
        let release = self.release(side)?;
        Some(match side {
            Side::Former => ProcessKind::Incumbent { release, switch: Some(self.id) },
            Side::Trial => ProcessKind::Trial { release, switch: self.id },
        })
    }

    /// The process of the other side, if the present phase allows it.
    pub fn others_allowed(&self, side: Side) -> Vec<ProcessKind<'_>> {
        let other = if side == Side::Trial { Side::Former } else { Side::Trial };
        let allowed = self.former() == Former::Beside && self.phase.allows(other, self.former());
        self.which(other).filter(|_| allowed).into_iter().collect()
    }

    /// The processes that the present phase allows.
    pub fn allowed(&self) -> Vec<ProcessKind<'_>> {
        let sides = [Side::Former, Side::Trial].into_iter();
        sides.filter(|side| self.phase.allows(*side, self.former())).filter_map(|side| self.which(side)).collect()
    }

    /// The downtime up to `now`.
    pub fn downtime(&self, now: Timestamp) -> Duration {
        let open = self.downtime_since.map_or(0, |since| milliseconds(since, now));
        Duration::from_millis(self.downtime_milliseconds.saturating_add(open))
    }

    /// The release to be marked as bad after a switch that was rolled back because of that release. A restart marks nothing: its release has
    /// worked, so the configuration is the suspect.
    pub fn condemned(&self) -> Option<&Release> {
        let came_back = matches!(self.phase, Phase::RolledBack | Phase::Abandoned);
        let own_fault = self.failure.as_ref().is_some_and(|failure| failure.cause == Cause::Release);
        (came_back && own_fault && self.request.purpose != Purpose::Restart).then_some(&self.request.to)
    }

    /// The release that did not come up in time, after the end of the switch: the host may be the cause once, but hardly twice.
    pub fn late(&self) -> Option<&Release> {
        let is_late = |failure: &Failure| {
            let comes_up = matches!(failure.phase, Phase::Starting | Phase::Proving);
            comes_up && failure.cause == Cause::Host && failure.timed_out
        };
        let late = self.phase == Phase::RolledBack && self.failure.as_ref().is_some_and(is_late);
        (late && !self.peers_down && self.request.purpose != Purpose::Restart).then_some(&self.request.to)
    }

    /// The release to be marked as declined, after the end of the switch: a person left it by a rollback.
    pub fn declined(&self) -> Option<&Release> {
        let left = self.phase == Phase::Committed && self.request.purpose == Purpose::Rollback;
        self.from.as_ref().filter(|_| left)
    }

    /// Applies the limits to `outcome` after `waited` in this phase (monotonic, since it was entered or resumed): an act that is not done at the
    /// limit or the deadline has expired; a healthy process on probation is not done before the probation ends.
    pub fn in_time(&self, outcome: Outcome, waited: Duration, now: Timestamp, limits: &Limits) -> Outcome {
        let limit = limits.of(self.phase, self.strandings);
        let over = limit.is_some_and(|limit| waited >= limit) || (self.phase.is_before_stop() && now >= self.deadline);
        match outcome {
            Outcome::Done if self.phase == Phase::Probation && !over => {
                Outcome::NotYet("its probation has not ended yet".to_owned())
            }
            Outcome::NotYet(_) if over => Outcome::Expired,
            // A host that was suspended during its window must not begin after it.
            Outcome::Done if self.phase == Phase::Scheduled && over => Outcome::Expired,
            Outcome::Done
            | Outcome::NotYet(_)
            | Outcome::Failed(_)
            | Outcome::Lost(..)
            | Outcome::Expired
            | Outcome::Cancelled => outcome,
        }
    }

    fn course(&self) -> Course {
        Course { mode: self.mode, former: self.former(), steps: self.steps, setbacks: self.setbacks }
    }

    /// Moves on after `outcome`. An equal switch need not be written: the act is due again later.
    pub(in crate::switch) fn advanced(&self, outcome: &Outcome, now: Timestamp) -> Self {
        let next = machine::next(self.phase, outcome, self.course());
        let mut switch = self.clone();
        if self.phase.is_ended() {
            return switch;
        }
        if let Outcome::Lost(Side::Former, text) = outcome {
            switch.part(self.phase, text);
        }
        switch.waiting_for = match outcome {
            Outcome::NotYet(text) | Outcome::Failed(text) | Outcome::Lost(_, text) => Some(shortened(text)),
            Outcome::Expired if next.is_back() => self.waiting_for.clone(),
            Outcome::Done | Outcome::Expired | Outcome::Cancelled => None,
        };
        if next == Phase::Committed {
            switch.waiting_for = None;
        }
        // The new process is ended now, with what it still runs.
        if let (Phase::DrainingNew, Outcome::Expired, Some(text)) = (self.phase, outcome, &self.waiting_for) {
            let lost = "the master may get no return of it";
            switch.note(&format!("drain_timeout was over while the new process waited for {text}; {lost}"));
        }
        if next == self.phase {
            // A cancellation that comes too late must not replace the text of `waiting_for`.
            if *outcome == Outcome::Cancelled {
                switch.waiting_for.clone_from(&self.waiting_for);
            }
            if switch.parted != self.parted {
                switch.keep_time(now);
            }
            return switch;
        }
        if self.phase == Phase::Probation && next == Phase::Proving {
            switch.setbacks += 1;
        }
        let goes_back = self.phase.is_forth() && (next.is_back() || next.is_ended());
        if goes_back {
            switch.fail(self.cause(outcome), *outcome == Outcome::Expired, &self.account(outcome));
        }
        let why = match outcome {
            Outcome::Cancelled => None,
            Outcome::Done if !goes_back => None,
            Outcome::NotYet(text) if !goes_back => Some(text.clone()),
            Outcome::Done | Outcome::NotYet(_) | Outcome::Failed(_) | Outcome::Lost(..) | Outcome::Expired => {
                Some(self.account(outcome))
            }
        };
        switch.add_step(next, Ending::from(outcome), why.as_deref(), now);
        switch.enter(next, now);
        switch
    }

    /// Moves on after an absence of the supervisor.
    pub(in crate::switch) fn resumed(&self, boot: &str, former: bool, trial: bool, now: Timestamp) -> Self {
        let found = if boot == self.boot { Survivors::Alive { former, trial } } else { Survivors::Rebooted };
        let next = machine::resumed(self.phase, found, self.course());
        let mut switch = self.clone();
        boot.clone_into(&mut switch.boot);
        if found.former(self.former()) != self.former() {
            switch.part(self.phase, "it was gone when the supervisor restarted");
        }
        let mut text = match found {
            Survivors::Alive { .. } => "the supervisor restarted",
            Survivors::Rebooted => "the host was rebooted",
        };
        if self.phase.is_trial() {
            switch.setbacks += 1;
            if next.is_back() {
                text = match found {
                    Survivors::Alive { trial: true, .. } => "the supervisor was interrupted too often",
                    Survivors::Alive { trial: false, .. } => "the new process was gone when the supervisor restarted",
                    Survivors::Rebooted => "the host went down during the switch",
                };
                switch.fail(Cause::Interruption, false, text);
            }
        }
        if !self.phase.is_ended() && (next != self.phase || switch != *self) {
            switch.add_step(next, Ending::Interrupted, Some(text), now);
        }
        if next == self.phase {
            switch.keep_time(now);
        } else {
            switch.enter(next, now);
        }
        switch
    }

    /// Records the early loss of the old process, in a phase in which both processes run.
    fn part(&mut self, phase: Phase, text: &str) {
        if self.former() == Former::Beside && phase.is_beside() && phase != Phase::FinishingOld {
            self.parted = true;
            self.note(&format!("the old process was lost while {phase}: {text}"));
        }
    }

    /// Adds a note, up to the maximum.
    pub(in crate::switch) fn note(&mut self, text: &str) {
        if self.notes.len() < NOTES_MAXIMUM {
            self.head.notes.push(shortened(text));
        }
    }

    /// Begins or ends a downtime, as the phase requires.
    fn keep_time(&mut self, now: Timestamp) {
        if self.phase.is_down(self.former()) {
            self.downtime_since = self.downtime_since.or(Some(now));
        } else if let Some(since) = self.downtime_since.take() {
            self.head.downtime_milliseconds = self.downtime_milliseconds.saturating_add(milliseconds(since, now));
        }
    }

    fn enter(&mut self, next: Phase, now: Timestamp) {
        if next == Phase::Stranded {
            self.strandings = self.strandings.saturating_add(1);
        }
        self.steps = self.steps.saturating_add(1);
        self.phase = next;
        self.phase_since = now;
        self.keep_time(now);
    }

    /// Adds the end of the present phase to the story, before the next phase begins.
    fn add_step(&mut self, next: Phase, ending: Ending, why: Option<&str>, now: Timestamp) {
        let took = milliseconds(self.phase_since, now);
        self.head.story.add(self.phase, next, ending, why, now, took);
    }

    fn fail(&mut self, cause: Cause, timed_out: bool, text: &str) {
        let failure = Failure { phase: self.phase, cause, timed_out, text: shortened(text) };
        self.head.failure = self.head.failure.take().or(Some(failure));
    }

    fn cause(&self, outcome: &Outcome) -> Cause {
        let under_proof = matches!(self.phase, Phase::Starting | Phase::Proving | Phase::Probation);
        let handing = self.phase == Phase::Handing;
        match outcome {
            Outcome::Cancelled => Cause::Person,
            Outcome::Lost(Side::Trial, _) if under_proof || handing => Cause::Release,
            // If it expires instead, the old process or both processes do not follow the gate.
            Outcome::Failed(_) if handing => Cause::Release,
            Outcome::Failed(_) | Outcome::Expired if under_proof && self.peers_down => Cause::Host,
            // No program of the release has run yet: `sidle run` could not be started, or the release could not be read.
            Outcome::Failed(_) if self.phase == Phase::Starting => Cause::Host,
            Outcome::Failed(_) if under_proof || self.phase == Phase::Rehearsing => Cause::Release,
            // A slow start is not the release's fault: a cold disk, a delay in the configuration, a network that is just coming up. A process
            // that was healthy and is no longer healthy is the release's fault.
            Outcome::Expired if under_proof && self.setbacks > 0 => Cause::Release,
            // Done and NotYet: the switch ran out of steps, because jobs always began at the wrong moment or the supervisor died too often.
            Outcome::Failed(_) | Outcome::Lost(..) | Outcome::Expired | Outcome::Done | Outcome::NotYet(_) => {
                Cause::Host
            }
        }
    }

    fn account(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Failed(text) | Outcome::Lost(_, text) => text.clone(),
            Outcome::Cancelled => "cancelled".to_owned(),
            Outcome::Expired => match &self.waiting_for {
                Some(text) => format!("not in time: {text}"),
                None => "not in time".to_owned(),
            },
            Outcome::Done | Outcome::NotYet(_) => format!("gave up after {} steps", self.steps),
        }
    }
}

/// The time from `since` to `now`; 0 if the clock was set back meanwhile.
fn milliseconds(since: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.duration_since(since).as_millis()).unwrap_or(0)
}
