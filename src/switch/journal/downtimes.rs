//! When an agent could not hear its peers: the downtimes of switches, which the history has, and all others, which are kept here.

use crate::os::process::Identity;
use crate::saved::Saved;
use crate::switch::journal::history::Entry;
use crate::switch::journal::story::StoryStep;
use crate::switch::machine::phase::Phase;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

/// Downtimes kept: a host that loses its network every hour has those of a week.
const ENTRIES_MAXIMUM: usize = 200;

/// Longest detail kept, in characters: a text of the agent's.
const DETAIL_LENGTH_MAXIMUM: usize = 300;

/// Why an agent could not hear, outside of switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DowntimeCause {
    /// The host was off, or started again.
    Boot,
    /// The service was stopped.
    Stopped,
    /// The agent ended by itself.
    Ended,
    /// The agent ran, and did not reach its peers.
    Disconnected,
    /// The agent was given back to its package.
    Unadopted,
}

impl DowntimeCause {
    /// The cause, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Boot => "the host was off, or was started again",
            Self::Stopped => "the service was stopped",
            Self::Ended => "the agent ended by itself",
            Self::Disconnected => "the agent did not reach its peers",
            Self::Unadopted => "the agent was given back to its package",
        }
    }
}

/// A time in which the agent could not hear. It is not longer than this: it begins with the last check that found the agent healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downtime {
    /// Heard for certain until then.
    pub from: Timestamp,
    /// Heard for certain since then.
    pub until: Timestamp,
    /// The cause.
    pub cause: DowntimeCause,
    /// More about it, for people; may be empty.
    pub detail: String,
}

/// The last check that found an agent healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// When.
    pub at: Timestamp,
    /// The agent's first process.
    pub leader: Identity,
}

/// All downtimes outside of switches, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downtimes {
    schema: u32,
    /// None: the agent was never healthy under sidle, or is not sidle's any more.
    pub heard: Option<Heard>,
    /// What the agent lacks since then; None: nothing.
    pub lacks: Option<String>,
    entries: Vec<Downtime>,
}

impl Default for Downtimes {
    fn default() -> Self {
        Self { schema: Self::SCHEMA, heard: None, lacks: None, entries: Vec::new() }
    }
}

impl Saved for Downtimes {
    const NAME: &'static str = "downtimes";
    // Every entry with a text of the greatest length, in characters of four bytes.
    const LENGTH_MAXIMUM: u64 = 1024 * 1024;
    const REMEDY: &'static str =
        "move the file away: sidle then forgets when the agent could not hear, outside of switches";
}

impl Downtimes {
    /// The entries, oldest first.
    pub fn entries(&self) -> &[Downtime] {
        &self.entries
    }

    /// Adds a downtime; drops the oldest beyond the maximum.
    #[must_use]
    pub fn with(mut self, mut downtime: Downtime) -> Self {
        downtime.detail = downtime.detail.chars().take(DETAIL_LENGTH_MAXIMUM).collect();
        self.entries.push(downtime);
        let surplus = self.entries.len().saturating_sub(ENTRIES_MAXIMUM);
        self.entries.drain(..surplus);
        self
    }

    /// Sets the last healthy check.
    #[must_use]
    pub fn heard(mut self, heard: Option<Heard>, lacks: Option<&str>) -> Self {
        self.heard = heard;
        self.lacks = lacks.map(|lacks| lacks.chars().take(DETAIL_LENGTH_MAXIMUM).collect());
        self
    }
}

/// When no process heard jobs in a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchDowntime {
    /// Its beginning.
    pub down: Timestamp,
    /// Its end.
    pub up: Timestamp,
}

impl SwitchDowntime {
    /// Of a switch that ended; None: it had none.
    pub fn of(entry: &Entry) -> Option<Self> {
        if entry.downtime_milliseconds == 0 {
            return None;
        }
        let first = |phases: &[Phase]| {
            let reached = |step: &&StoryStep| phases.contains(&step.to);
            entry.story.steps().iter().find(reached).map(|step| step.at)
        };
        let stopped = first(&[Phase::Stopping]);
        let down = stopped.unwrap_or(entry.requested_at);
        let length = i64::try_from(entry.downtime_milliseconds).unwrap_or(i64::MAX);
        let up = down.checked_add(length.milliseconds()).unwrap_or(Timestamp::MAX);
        // A process that came up counts from when it was proven.
        let proven = stopped.and_then(|_| first(&[Phase::Probation, Phase::RolledBack, Phase::Committed]));
        Some(Self { down, up: proven.map_or(up, |proven| proven.max(up)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_downtimes_are_kept_and_read_again() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut all = Downtimes::default();
        for second in 0..210 {
            let detail = "x".repeat(1000);
            let (from, until) = (at(second), at(second + 1));
            all = all.with(Downtime { from, until, cause: DowntimeCause::Boot, detail });
        }
        assert_eq!((all.entries().len(), all.entries()[0].from), (ENTRIES_MAXIMUM, at(10)));
        assert_eq!(all.entries()[0].detail.len(), DETAIL_LENGTH_MAXIMUM);
        assert_eq!(Downtimes::parse(&all.to_bytes()).unwrap(), all);
        assert!(all.to_bytes().len() as u64 * 4 < Downtimes::LENGTH_MAXIMUM);
    }
}
