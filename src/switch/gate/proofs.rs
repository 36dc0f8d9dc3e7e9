//! Proofs: the round trips to its peers that the driver asks a process for.

use crate::os::clock::Moment;
use std::time::Duration;

/// How long a round trip may take: longer than a guard's own limit, and longer than the wait for a guard that hangs.
pub const PROOF_WAIT: Duration = Duration::from_secs(12);
/// The pause between round trips on probation: thousands of hosts may switch at the same time, and share their peers.
const PROOF_INTERVAL: Duration = Duration::from_secs(30);
/// The pause until the first round trip has succeeded, and after one that failed.
const PROOF_INTERVAL_SOON: Duration = Duration::from_secs(1);

/// Which round trips count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Those asked for in this phase.
    OfThisPhase,
    /// The last two that are over: one lost request is no reason to fail.
    OfLate,
}

/// The round trips that were asked for in a phase. Numbers are milliseconds since boot, so that they also grow from one driver to the next.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// The newest number; 0: no round trip in this phase yet.
    pub number: u64,
    /// When it was asked for, since boot.
    pub at: Duration,
    /// The first number of this phase.
    pub first: u64,
    /// The number before the newest.
    pub before: u64,
    /// The number before that.
    pub earlier: u64,
}

/// The result of the newest round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trip {
    /// It is under way.
    Pending,
    /// It is over: it succeeded, or it is not the first that failed.
    Over,
    /// It failed, after one that succeeded.
    FailedOnce,
}

impl Asked {
    /// Asks for the first round trip of a phase.
    pub fn at(now: Moment) -> Self {
        let number = u64::try_from(now.since_boot.as_millis()).unwrap_or(u64::MAX);
        Self { number, at: now.since_boot, first: number, before: 0, earlier: 0 }
    }

    /// Asks for another round trip.
    #[must_use]
    pub fn again(self, now: Moment) -> Self {
        let new = Self::at(now);
        if self.number == 0 {
            new
        } else {
            Self { first: self.first, before: self.number, earlier: self.before, ..new }
        }
    }

    /// The lowest number that counts for the running process: one of the last two, since a busy process answers late.
    pub fn floor(&self) -> u64 {
        if self.before == 0 { self.number } else { self.before }
    }

    /// The lowest number that counts. `finished`: the last round trip that is over.
    pub fn counts_from(&self, proof: Proof, finished: u64) -> u64 {
        match proof {
            Proof::OfThisPhase => self.first,
            Proof::OfLate if finished >= self.number => self.before,
            Proof::OfLate => self.earlier,
        }
    }

    /// True if another round trip is due.
    pub fn is_due(&self, now: Moment, newest: Trip, proof: Proof) -> bool {
        let interval = match (newest, proof) {
            (Trip::Pending, _) => PROOF_WAIT,
            (Trip::FailedOnce, _) | (Trip::Over, Proof::OfThisPhase) => PROOF_INTERVAL_SOON,
            (Trip::Over, Proof::OfLate) => PROOF_INTERVAL,
        };
        self.number == 0 || now.since_boot.saturating_sub(self.at) >= interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { wall: jiff::Timestamp::UNIX_EPOCH, since_boot: Duration::from_secs(seconds) }
    }

    #[test]
    fn on_probation_one_lost_round_trip_does_not_count_and_two_do() {
        let first = Asked::at(at(100));
        let second = first.again(at(130));
        assert_eq!(
            second.counts_from(Proof::OfLate, first.number),
            0,
            "while the second is under way, the first may be lost"
        );
        assert_eq!(
            second.counts_from(Proof::OfLate, second.number),
            first.number,
            "the second was lost: the first counts"
        );
        let third = second.again(at(131));
        assert_eq!(third.counts_from(Proof::OfLate, second.number), first.number, "the third is under way");
        assert_eq!(third.counts_from(Proof::OfLate, third.number), second.number, "two in a row were lost");
        assert_eq!(third.counts_from(Proof::OfThisPhase, third.number), first.number);
    }

    #[test]
    fn a_lost_round_trip_is_followed_by_another_at_once_and_a_good_one_after_a_pause() {
        let asked = Asked::at(at(100));
        assert!(
            !asked.is_due(at(101), Trip::Pending, Proof::OfLate) && asked.is_due(at(112), Trip::Pending, Proof::OfLate)
        );
        assert!(!asked.is_due(at(120), Trip::Over, Proof::OfLate) && asked.is_due(at(130), Trip::Over, Proof::OfLate));
        assert!(asked.is_due(at(101), Trip::FailedOnce, Proof::OfLate));
    }
}
