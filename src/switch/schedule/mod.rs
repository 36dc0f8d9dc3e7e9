//! When a switch begins: in its window, and some random part of a splay later.

pub mod windows;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// When whoever asks wants a switch to begin, as it travels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct When {
    /// The opening of the window that it is to wait for; None: now.
    pub opens: Option<Timestamp>,
    /// The end of the window in which it has to stop the old process, if it does; None: there is no window.
    pub closes: Option<Timestamp>,
    /// Up to how much later it begins, so that a fleet doesn't at once.
    pub splay_seconds: u64,
}

/// When a switch begins. Journalled with it: what was drawn once stays drawn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Not before this.
    pub begins: Timestamp,
    /// The opening of the window that it waits for; None: it waits for none.
    pub opens: Option<Timestamp>,
    /// The end of that window, or of the one that is open.
    pub closes: Option<Timestamp>,
    /// The part of the splay that was drawn.
    pub splay_seconds: u64,
}

impl When {
    /// The longest splay that leaves the beginning inside the window.
    fn splay_limit(&self, now: Timestamp) -> u64 {
        let base = self.opens.map_or(now, |opens| opens.max(now));
        let room = self.closes.map(|closes| closes.duration_since(base).as_secs().saturating_sub(1));
        room.map_or(self.splay_seconds, |room| self.splay_seconds.min(u64::try_from(room).unwrap_or(0)))
    }

    /// The schedule of a switch that is asked for at `now`; None: it begins at once, and no window ends it. `draw(n)` is a random number up to
    /// and including n.
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
    /// Until when the old process's stop must have begun, where whoever asks lets it wait so long for running jobs.
    pub fn deadline(&self, wait_seconds: u64) -> Timestamp {
        let asked = later(self.begins, wait_seconds);
        self.closes.map_or(asked, |closes| closes.min(asked))
    }
}

/// `seconds` after `time`, or the end of all times.
pub fn later(time: Timestamp, seconds: u64) -> Timestamp {
    let duration = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// What it waits for: `its window to open at …, and 213 s of splay, until …`.
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
