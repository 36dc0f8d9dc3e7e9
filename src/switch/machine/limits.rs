//! How long the phases of a switch may last.

#![deny(clippy::wildcard_enum_match_arm)]

use super::phase::{Limit, Phase};
use std::time::Duration;

/// How long phases may last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until an ended process has to be gone.
    pub stop: Duration,
    /// Until a release has to run, and then once more until it has to have reached its peers.
    pub start: Duration,
    /// Until a rehearsal has to be over: a module that waits for something must not hold a switch up for ever.
    pub rehearsal: Duration,
    /// How long extras may take to be laid over a new release; zero: they are not.
    pub rebuild: Duration,
    /// How long a process on trial that is being left may take to finish the jobs that it has.
    pub drain: Duration,
    /// How long a switch waits for the last jobs of the old process; then that finishes them by itself.
    pub retire: Duration,
    /// How long a release has to stay healthy before it becomes the one.
    pub probation: Duration,
    /// The first pause of a stranded switch; each further one is twice as long.
    pub pause_minimum: Duration,
    /// The longest pause of a stranded switch.
    pub pause_maximum: Duration,
}

impl Limits {
    /// How long `phase` may last until its outcome is [`Outcome::Expired`]; None: as long as it takes (before the stop the switch's
    /// own deadline bounds it). `strandings` counts how often the switch has stranded before, for the length of the pause.
    pub fn of(&self, phase: Phase, strandings: u32) -> Option<Duration> {
        match phase.limit() {
            Limit::Unlimited => None,
            Limit::Stop => Some(self.stop),
            Limit::Start => Some(self.start),
            Limit::Rehearsal if self.rebuild.is_zero() => Some(self.rehearsal),
            // With what was rebuilt in place it is rehearsed once more.
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
