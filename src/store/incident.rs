//! The damage found in a package's trees, and its repair: a line of JSON each, so that months later an operator sees when it began.

use super::error::Problem;
use super::{PackageLock, Result, Store, StoreError};
use crate::failure::Report;
use crate::os::clock;
use crate::saved;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name of the record of damage, beside the receipts.
pub const INCIDENTS_NAME: &str = "incidents";
const FILE_MODE: u32 = 0o644;
/// Most incidents in the file, which is written whole, so that no crash leaves half a line.
const INCIDENTS_MAXIMUM: usize = 200;
/// Most problems in the text of one incident: the rest is counted.
const PROBLEMS_MAXIMUM: usize = 10;
/// Longest file read: every incident with the longest paths.
const LENGTH_MAXIMUM: u64 = 8 * 1024 * 1024;

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// The problems before the repair.
    pub found: Vec<Problem>,
    /// Mended paths, relative to the tree.
    pub mended: Vec<String>,
    /// Paths that were set aside, and their new places.
    pub aside: Vec<(String, PathBuf)>,
    /// Paths that could not be set aside, and why: they, and what belongs below them, stay as they are.
    pub stuck: Vec<(PathBuf, String)>,
    /// The problems after the repair.
    pub left: Vec<Problem>,
    /// Why frames could not be fetched.
    pub unreachable: Option<Report>,
}

impl Repaired {
    /// True for a path that could not be set aside, and for all paths below one.
    pub(super) fn is_stuck(&self, path: &Path) -> bool {
        self.stuck.iter().any(|(stuck, _)| path.starts_with(stuck))
    }

    /// For people: why entries could not be set aside.
    pub fn stuck_words(&self) -> impl Iterator<Item = String> {
        self.stuck.iter().map(|(path, reason)| format!("{} cannot be set aside: {reason}", path.display()))
    }

    /// Whether anything changed.
    pub fn changed(&self) -> bool {
        !self.mended.is_empty() || !self.aside.is_empty()
    }

    /// For people: `3 entries of 3007.17-1 were damaged, and repaired before the start`.
    pub fn told(&self, release: &Release) -> String {
        let count = self.mended.len() + self.aside.len();
        let (entries, were) = if count == 1 { ("entry", "was") } else { ("entries", "were") };
        format!("{count} {entries} of {release} {were} damaged, and repaired before the start")
    }
}

/// Why a tree was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Occasion {
    /// The release was about to be started.
    Start,
    /// The watch on the running release saw a change.
    Watch,
    /// The slow full check.
    Scrub,
    /// A command.
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

/// A tree that differed from the signed manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    schema: u32,
    /// When it was found.
    pub at: Timestamp,
    /// The release.
    pub release: Release,
    /// Why the tree was checked.
    pub occasion: Occasion,
    /// Number of problems.
    pub found: usize,
    /// The first problems, in words.
    pub problems: Vec<String>,
    /// Number of mended entries.
    pub mended: usize,
    /// Number of foreign entries that were set aside.
    pub aside: usize,
    /// Number of remaining problems.
    pub left: usize,
}

impl Incident {
    /// The incident of a repair.
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

    /// Whether this is the damage that `before` has left.
    fn goes_on_from(&self, before: &Self) -> bool {
        let same = (&self.release, &self.occasion) == (&before.release, &before.occasion);
        same && before.left > 0 && self.found == before.left
    }

    /// Both as one incident.
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
            "{release} had {found} {problems}, found {occasion}: {mended} repaired, {aside} set aside, {left} left"
        )?;
        match self.problems.split_first() {
            None => Ok(()),
            Some((first, [])) => write!(formatter, " ({first})"),
            Some((first, _)) => write!(formatter, " ({first}; …)"),
        }
    }
}

impl Store {
    /// The incidents, oldest first.
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

    /// Remembers an incident; damage that an earlier incident left is no new incident. The oldest go beyond the maximum. A failure (a full disk,
    /// an unreadable file) loses only this memory: a repair does not fail for it.
    pub(super) fn remember(&self, _lock: &PackageLock, incident: Incident) {
        let mut all = self.incidents().unwrap_or_default();
        let goes_on = all.last().is_some_and(|last| incident.goes_on_from(last));
        let before = if goes_on { all.pop() } else { None };
        all.push(match before {
            Some(before) => incident.after(before),
            None => incident,
        });
        all.drain(..all.len().saturating_sub(INCIDENTS_MAXIMUM));
        let bytes: Vec<u8> = all.iter().flat_map(saved::line).collect();
        let receipts = self.receipts().ok().flatten();
        let _ = receipts.map(|receipts| receipts.write_atomic(INCIDENTS_NAME, &bytes, FILE_MODE));
    }
}
