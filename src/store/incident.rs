//! What was found broken in a package's trees, and what came of it: one line of JSON each, so that months later somebody can tell when it began.

use super::error::Problem;
use super::{PackageLock, Result, Store, StoreError};
use crate::failure::Report;
use crate::os::clock;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

const INCIDENTS_NAME: &str = "incidents";
const FILE_MODE: u32 = 0o644;
/// How many are remembered. The file is written whole, so that no crash leaves half a line; it must stay small.
const INCIDENTS_MAXIMUM: usize = 200;
/// How many problems of one incident are remembered: the rest is counted.
const PROBLEMS_MAXIMUM: usize = 10;
/// Longest file read: every incident with the longest paths.
const LENGTH_MAXIMUM: u64 = 8 * 1024 * 1024;

/// What a repair came to.
#[derive(Debug, Default)]
pub struct Repaired {
    /// What was wrong at first.
    pub found: Vec<Problem>,
    /// What was mended, relative to the tree.
    pub mended: Vec<String>,
    /// What was set aside, and where it is now.
    pub aside: Vec<(String, PathBuf)>,
    /// What is still wrong.
    pub left: Vec<Problem>,
    /// Why frames could not be had.
    pub unreachable: Option<Report>,
}

impl Repaired {
    /// Whether anything was done.
    pub fn changed(&self) -> bool {
        !self.mended.is_empty() || !self.aside.is_empty()
    }

    /// In a few words, for people: `3 entries of 3007.17-1 were damaged, and mended before the start`.
    pub fn told(&self, release: &Release) -> String {
        let count = self.mended.len() + self.aside.len();
        let (entries, were) = if count == 1 { ("entry", "was") } else { ("entries", "were") };
        format!("{count} {entries} of {release} {were} damaged, and mended before the start")
    }
}

/// What led to a look at a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Occasion {
    /// The release was about to be started.
    Start,
    /// The watch on the running release saw a change.
    Watch,
    /// The slow full check.
    Scrub,
    /// Somebody asked for it.
    Request,
}

impl fmt::Display for Occasion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Start => "before a start",
            Self::Watch => "by the watch",
            Self::Scrub => "by a scrub",
            Self::Request => "by request",
        })
    }
}

/// A tree was not as it was signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    schema: u32,
    /// When it was seen.
    pub at: Timestamp,
    /// In which release.
    pub release: Release,
    /// What led to the look.
    pub occasion: Occasion,
    /// How many problems there were.
    pub found: usize,
    /// The first of them, in words.
    pub problems: Vec<String>,
    /// How many entries were mended.
    pub mended: usize,
    /// How many entries did not belong there, and were set aside.
    pub aside: usize,
    /// How many problems there still are.
    pub left: usize,
}

impl Incident {
    /// What `repaired` came to.
    pub(super) fn of(release: &Release, occasion: Occasion, repaired: &Repaired) -> Self {
        Self {
            schema: 1,
            at: clock::now(),
            release: release.clone(),
            occasion,
            found: repaired.found.len(),
            problems: repaired.found.iter().take(PROBLEMS_MAXIMUM).map(ToString::to_string).collect(),
            mended: repaired.mended.len(),
            aside: repaired.aside.len(),
            left: repaired.left.len(),
        }
    }
}

impl Incident {
    /// Whether it is about what `before` has left: the same damage, looked at once more.
    fn goes_on_from(&self, before: &Self) -> bool {
        let same = (&self.release, &self.occasion) == (&before.release, &before.occasion);
        same && before.left > 0 && self.found == before.left
    }

    /// Both as one.
    fn after(self, before: Self) -> Self {
        Self { mended: before.mended + self.mended, aside: before.aside + self.aside, left: self.left, ..before }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { release, occasion, found, mended, aside, left, .. } = self;
        let problems = if *found == 1 { "problem" } else { "problems" };
        write!(
            formatter,
            "{release} had {found} {problems}, seen {occasion}: {mended} mended, {aside} set aside, {left} left"
        )?;
        match self.problems.split_first() {
            None => Ok(()),
            Some((first, [])) => write!(formatter, " ({first})"),
            Some((first, _)) => write!(formatter, " ({first}; …)"),
        }
    }
}

impl Store {
    /// What was found broken, oldest first.
    pub fn incidents(&self) -> Result<Vec<Incident>> {
        let Some(receipts) = self.receipts()? else { return Ok(Vec::new()) };
        let bytes = receipts.read_if_exists(INCIDENTS_NAME, LENGTH_MAXIMUM)?.unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let corrupt = |error: serde_json::Error| StoreError::Corrupt {
            path: receipts.path().join(INCIDENTS_NAME),
            reason: error.to_string(),
        };
        lines.map(|line| serde_json::from_slice(line).map_err(corrupt)).collect()
    }

    /// Remembers an incident; what an earlier one left, and is found again on such an occasion, is no new one. Beyond the maximum the oldest ones go. Where it can't be written (a full disk), or what is there can't be read,
    /// nothing is lost but this memory: a repair does not fail for it.
    pub(super) fn remember(&self, _lock: &PackageLock, incident: Incident) {
        let mut all = self.incidents().unwrap_or_default();
        let goes_on = all.last().is_some_and(|last| incident.goes_on_from(last));
        let before = if goes_on { all.pop() } else { None };
        all.push(match before {
            Some(before) => incident.after(before),
            None => incident,
        });
        all.drain(..all.len().saturating_sub(INCIDENTS_MAXIMUM));
        let mut bytes = Vec::new();
        for incident in &all {
            bytes.extend(serde_json::to_vec(incident).expect("an incident has no map keys but strings"));
            bytes.push(b'\n');
        }
        let receipts = self.receipts().ok().flatten();
        let _ = receipts.map(|receipts| receipts.write_atomic(INCIDENTS_NAME, &bytes, FILE_MODE));
    }
}
