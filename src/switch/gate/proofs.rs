//! The round trips to its peers that a process is asked for.

use crate::os::clock::Moment;
use std::time::Duration;

/// How long a round trip may take: longer than a guard's own limit, and than a guard that hangs is waited for.
pub const PROOF_WAIT: Duration = Duration::from_secs(12);
/// How often a process on trial is asked for a round trip: thousands of hosts may switch at once, and share their peers.
const PROOF_INTERVAL: Duration = Duration::from_secs(30);
/// The same while it has not yet made one.
const PROOF_INTERVAL_SOON: Duration = Duration::from_secs(1);

/// Which round trip counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// One that was asked for since the phase was entered.
    OfThisPhase,
    /// The last one or the one before: one lost request is no reason.
    OfLate,
}

/// The round trips that were asked for in a phase; numbers are milliseconds since boot, so that they grow whoever asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// The newest number; 0: none was asked for in this phase.
    pub number: u64,
    /// When that was, since boot.
    pub at: Duration,
    /// The first number of this phase.
    pub first: u64,
    /// The number before the newest.
    pub before: u64,
}

impl Asked {
    /// The first one.
    pub fn at(now: Moment) -> Self {
        let number = u64::try_from(now.since_boot.as_millis()).unwrap_or(u64::MAX);
        Self { number, at: now.since_boot, first: number, before: 0 }
    }

    /// Another one.
    #[must_use]
    pub fn again(self, now: Moment) -> Self {
        let new = Self::at(now);
        if self.number == 0 { new } else { Self { first: self.first, before: self.number, ..new } }
    }

    /// What an answer has to be to count for the running process: to the last question or the one before, since a busy process answers late.
    pub fn floor(&self) -> u64 {
        if self.before == 0 { self.number } else { self.before }
    }

    /// Whether it is time for another one. `answered`: the newest one was, or failed.
    pub fn is_due(&self, now: Moment, answered: bool, proof: Proof) -> bool {
        let interval = match (answered, proof) {
            (false, _) => PROOF_WAIT,
            (true, Proof::OfThisPhase) => PROOF_INTERVAL_SOON,
            (true, Proof::OfLate) => PROOF_INTERVAL,
        };
        self.number == 0 || now.since_boot.saturating_sub(self.at) >= interval
    }
}
