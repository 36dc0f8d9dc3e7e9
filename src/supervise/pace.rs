//! How long the supervisor rests: everything that it waits for wakes it early, and what it can't be told of it looks at again.

use crate::os::clock::Moment;
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
    // The wall clock may be set meanwhile.
    let left = live
        .schedule
        .as_ref()
        .filter(|_| live.phase == Phase::Scheduled)
        .map(|schedule| schedule.begins.duration_since(now.wall));
    let Some(left) = left else { return live.phase.interval() };
    Duration::try_from(left).unwrap_or_default().clamp(SCHEDULE_INTERVAL_MINIMUM, HEALTH_INTERVAL)
}
