//! Proofs: the round trips to its peers that the driver asks a process for.

use crate::os::clock::Moment;
use std::time::Duration;

/// How long a round trip may take: longer than a guard's own limit, and longer than the wait for a guard that hangs.
pub const PROOF_WAIT: Duration = Duration::from_secs(12);
/// The pause between round trips on probation: thousands of hosts may switch at the same time, and share their peers.
const PROOF_INTERVAL: Duration = Duration::from_secs(30);
/// The pause before the first successful round trip.
const PROOF_INTERVAL_SOON: Duration = Duration::from_secs(1);

/// Which round trips count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Those asked for in this phase.
    OfThisPhase,
    /// The last two: one lost request is no reason to fail.
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
}

impl Asked {
    /// Asks for the first round trip of a phase.
    pub fn at(now: Moment) -> Self {
        let number = u64::try_from(now.since_boot.as_millis()).unwrap_or(u64::MAX);
        Self { number, at: now.since_boot, first: number, before: 0 }
    }

    /// Asks for another round trip.
    #[must_use]
    pub fn again(self, now: Moment) -> Self {
        let new = Self::at(now);
        if self.number == 0 { new } else { Self { first: self.first, before: self.number, ..new } }
    }

    /// The lowest number that counts for the running process: one of the last two, since a busy process answers late.
    pub fn floor(&self) -> u64 {
        if self.before == 0 { self.number } else { self.before }
    }

    /// True if another round trip is due. `answered`: the newest round trip has succeeded or failed.
    pub fn is_due(&self, now: Moment, answered: bool, proof: Proof) -> bool {
        let interval = match (answered, proof) {
            (false, _) => PROOF_WAIT,
            (true, Proof::OfThisPhase) => PROOF_INTERVAL_SOON,
            (true, Proof::OfLate) => PROOF_INTERVAL,
        };
        self.number == 0 || now.since_boot.saturating_sub(self.at) >= interval
    }
}
