//! How long the supervisor rests between turns: most events wake it early; it polls for the others.

use crate::os::clock::Moment;
use crate::switch::{Phase, Switch};
use std::time::Duration;

/// How often the agent's health is checked while nothing happens.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(15);
/// The same while it is not healthy.
pub const HEALTH_INTERVAL_SHORT: Duration = Duration::from_secs(2);
/// How often an old process that finishes its last jobs is checked.
pub const FINISHED_INTERVAL: Duration = Duration::from_secs(1);
/// How often an ending process is checked.
pub const END_INTERVAL: Duration = Duration::from_millis(50);

/// The shortest pause before a scheduled switch is checked again.
const SCHEDULE_INTERVAL_MINIMUM: Duration = Duration::from_millis(50);

/// The time until an unfinished act is performed again.
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
