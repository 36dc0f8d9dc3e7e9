//! When a switch begins: in its window, and some random part of a splay later.

pub mod windows;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The requested beginning of a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct When {
    /// The opening of the window to wait for; None: begin now.
    pub opens: Option<Timestamp>,
    /// The end of the window in which the stop of the old process has to begin; None: no window.
    pub closes: Option<Timestamp>,
    /// The longest random delay, so that a fleet does not begin at once.
    pub splay_seconds: u64,
}

/// The schedule of a switch. The journal keeps it, so that the delay is drawn only once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The beginning.
    pub begins: Timestamp,
    /// The opening of the window that it waits for, if any.
    pub opens: Option<Timestamp>,
    /// The end of that window, or of the present window.
    pub closes: Option<Timestamp>,
    /// The drawn delay.
    pub splay_seconds: u64,
}

/// A splay leaves so much of a window, or half of what is left of it: a switch that has stopped and started nothing when its window closes expires.
const LEFT_SECONDS: u64 = 300;

impl When {
    /// The longest splay that leaves the switch time inside the window.
    fn splay_limit(&self, now: Timestamp) -> u64 {
        let base = self.opens.map_or(now, |opens| opens.max(now));
        let room = self.closes.map(|closes| u64::try_from(closes.duration_since(base).as_secs()).unwrap_or(0));
        room.map_or(self.splay_seconds, |room| self.splay_seconds.min(room - LEFT_SECONDS.min(room.div_ceil(2))))
    }

    /// Draws the schedule of a switch that is requested at `now`; None: it begins at once, and no window ends it. `draw(n)` returns a random number
    /// from 0 to n.
    pub fn drawn<E>(&self, now: Timestamp, draw: impl FnOnce(u64) -> Result<u64, E>) -> Result<Option<Schedule>, E> {
        let limit = self.splay_limit(now);
        let splay_seconds = if limit == 0 { 0 } else { draw(limit)? };
        let base = self.opens.map_or(now, |opens| opens.max(now));
        let schedule =
            Schedule { begins: later(base, splay_seconds), opens: self.opens, closes: self.closes, splay_seconds };
        let plain = schedule.begins == now && schedule.closes.is_none();
        Ok((!plain).then_some(schedule))
    }
}

impl Schedule {
    /// The latest time for the stop of the old process, if the switch may wait `wait_seconds` for running jobs.
    pub fn deadline(&self, wait_seconds: u64) -> Timestamp {
        let asked = later(self.begins, wait_seconds);
        self.closes.map_or(asked, |closes| closes.min(asked))
    }
}

/// `seconds` after `time`, at most the last possible time.
pub fn later(time: Timestamp, seconds: u64) -> Timestamp {
    let duration = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// Says what it waits for: `its window to open at …, and 213 s of splay, until …`.
impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORM: &str = "%Y-%m-%dT%H:%M:%SZ";
        match (self.opens, self.splay_seconds) {
            (Some(opens), 0) => write!(formatter, "its window to open at {}", opens.strftime(FORM)),
            (Some(opens), splay) => write!(
                formatter,
                "its window to open at {}, and {splay} s of splay, until {}",
                opens.strftime(FORM),
                self.begins.strftime(FORM)
            ),
            (None, splay) => write!(formatter, "{splay} s of splay, until {}", self.begins.strftime(FORM)),
        }
    }
}
