//! How long the supervisor rests: everything that it waits for wakes it early, and what it can't be told of it looks at again.

use crate::switch::driver::Moment;
use crate::switch::{Phase, Switch};
use std::time::Duration;

/// How often the agent's health is looked at while nothing happens.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(15);
/// The same while it is not healthy.
pub const HEALTH_INTERVAL_SHORT: Duration = Duration::from_secs(2);
/// How often an old process is looked at that finishes its last jobs.
pub const FINISHED_INTERVAL: Duration = Duration::from_secs(1);
/// How often an ending process is looked at.
pub const END_INTERVAL: Duration = Duration::from_millis(50);

/// How soon a scheduled switch is looked at again at the soonest.
const SCHEDULE_INTERVAL_MINIMUM: Duration = Duration::from_millis(50);

/// How long until an act that is not done yet is performed again.
pub fn of_step(live: &Switch, now: Moment) -> Duration {
    match live.phase {
        // The wall clock may be set meanwhile.
        Phase::Scheduled => {
            let left = live.schedule.as_ref().map(|schedule| schedule.begins.duration_since(now.wall));
            let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
            left.clamp(SCHEDULE_INTERVAL_MINIMUM, HEALTH_INTERVAL)
        }
        Phase::Stopping
        | Phase::Retreating
        | Phase::Freezing
        | Phase::Starting
        | Phase::Handing
        | Phase::Returning
        | Phase::Restarting => Duration::from_millis(50),
        Phase::Waiting | Phase::Probation | Phase::Flipping => Duration::from_secs(1),
        Phase::Stranded => Duration::from_secs(2),
        Phase::Rehearsing | Phase::Retiring => Duration::from_millis(100),
        Phase::Proving
        | Phase::Reproving
        | Phase::Checking
        | Phase::Committed
        | Phase::RolledBack
        | Phase::Refused
        | Phase::Cancelled
        | Phase::Expired
        | Phase::Abandoned => Duration::from_millis(250),
    }
}
