//! The time limits of the phases.

#![deny(clippy::wildcard_enum_match_arm)]

use super::phase::{Limit, Phase};
use std::time::Duration;

/// The time limits of the phases of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a process to end.
    pub stop: Duration,
    /// For a release to start, and again for its process to reach its peers.
    pub start: Duration,
    /// For a rehearsal: a module that waits must not delay a switch for ever.
    pub rehearsal: Duration,
    /// For the rebuild of extras for a new release, or their copy; zero: neither is done.
    pub rebuild: Duration,
    /// For the jobs of a process on trial, when the switch goes back.
    pub drain: Duration,
    /// For the last jobs of the old process; after that the switch ends, and the old process finishes them by itself.
    pub retire: Duration,
    /// How long a new process has to stay healthy.
    pub probation: Duration,
    /// The first pause of a stranded switch; each further one is twice as long.
    pub pause_minimum: Duration,
    /// The longest pause of a stranded switch.
    pub pause_maximum: Duration,
}

impl Limits {
    /// The limit of `phase`, after which its outcome is [`crate::switch::Outcome::Expired`]; None: no limit (before the stop the deadline of the
    /// switch applies). `strandings`: how often the switch has stranded, which doubles the pause.
    pub fn of(&self, phase: Phase, strandings: u32) -> Option<Duration> {
        match phase.limit() {
            Limit::Unlimited => None,
            Limit::Stop => Some(self.stop),
            Limit::Start => Some(self.start),
            Limit::Rehearsal if self.rebuild.is_zero() => Some(self.rehearsal),
            // After a rebuild the release is rehearsed again.
            Limit::Rehearsal => Some(self.rehearsal.saturating_mul(2).saturating_add(self.rebuild)),
            Limit::Drain => Some(self.drain),
            Limit::Probation => Some(self.probation),
            Limit::Pause => {
                let doubled = 1_u32.checked_shl(strandings.saturating_sub(1)).unwrap_or(u32::MAX);
                Some(self.pause_minimum.saturating_mul(doubled).min(self.pause_maximum))
            }
        }
    }
}
