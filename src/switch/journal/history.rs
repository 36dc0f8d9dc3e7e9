//! The history: one line of JSON for each switch that ended.

use crate::saved::{self, SavedError};
use crate::switch::journal::head::Head;
use crate::switch::journal::record::Switch;
use crate::switch::journal::story::Story;
use crate::switch::machine::phase::Phase;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// The history's file name in the instance's state directory.
pub const HISTORY_NAME: &str = "history";

const SCHEMA: u32 = 1;

/// Entries kept. The file is written whole, so that no crash leaves half a line; it must stay small.
pub const HISTORY_ENTRIES_MAXIMUM: usize = 500;

/// Newest entries that keep their story. Every `sidle status` reads the whole file.
pub const STORIES_MAXIMUM: usize = 100;

/// Longest history read and written: far more than real histories, and short enough to be read at once.
pub const HISTORY_LENGTH_MAXIMUM: u64 = 16 * 1024 * 1024;

/// A switch that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    schema: u32,
    /// The switch.
    #[serde(flatten)]
    pub head: Head,
    /// The phase in which it ended.
    pub result: Phase,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl Deref for Entry {
    type Target = Head;
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Entry {
    /// Returns the entry of an ended switch; None while it is under way.
    pub fn of(switch: &Switch) -> Option<Self> {
        switch.phase.is_ended().then(|| Self {
            schema: SCHEMA,
            head: switch.head.clone(),
            result: switch.phase,
            ended_at: switch.phase_since,
        })
    }
}

/// The switches that ended, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    entries: Vec<Entry>,
}

impl History {
    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of the switch with this number.
    pub fn find(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    /// The highest number of a switch; 0: the history is empty.
    pub fn last_id(&self) -> u64 {
        self.entries.iter().map(|entry| entry.id).max().unwrap_or(0)
    }

    /// Adds `entry`, unless the history has it already: an act may happen twice. Drops the oldest entries beyond the limits on number and length:
    /// an unreadable history would keep every switch from ending.
    #[must_use]
    pub fn with(mut self, entry: Entry) -> Self {
        if self.find(entry.id).is_none() {
            self.entries.push(entry);
        }
        let surplus = self.entries.len().saturating_sub(HISTORY_ENTRIES_MAXIMUM);
        self.entries.drain(..surplus);
        let without_story = self.entries.len().saturating_sub(STORIES_MAXIMUM);
        self.entries.iter_mut().take(without_story).for_each(|entry| entry.head.story = Story::default());
        let length = |entry: &Entry| saved::line(entry).len() as u64;
        let mut length_all: u64 = self.entries.iter().map(length).sum();
        while length_all > HISTORY_LENGTH_MAXIMUM && self.entries.len() > 1 {
            length_all -= length(&self.entries.remove(0));
        }
        self
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.entries.iter().flat_map(saved::line).collect()
    }

    /// Reads the file's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, HistoryError> {
        let lines = bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        let entries = lines
            .map(|(index, line)| saved::parse(line, SCHEMA).map_err(|source| HistoryError { line: index + 1, source }));
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }
}

/// Why a history can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read line {line} of the history of switches: {source}")]
pub struct HistoryError {
    line: usize,
    source: SavedError,
}

impl HistoryError {
    /// The hint for people.
    pub fn hint(&self) -> Option<String> {
        self.source.hint("move the file away: switches work without it, and the next switch begins a new file")
    }
}
