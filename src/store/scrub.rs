//! The scrub: a slow full check at low priority, piece by piece, which resumes after an interruption.

use super::check::{Suspects, compare};
use super::error::Problem;
use super::{Result, Store};
use crate::bundle::manifest::Entry;
use crate::digest::Digest;
use crate::os::clock;
use crate::saved;
use crate::version::Release;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const RECORD_NAME: &str = "scrub";
const FILE_MODE: u32 = 0o644;
const RECORD_LENGTH_MAXIMUM: u64 = 64 * 1024;
/// Entries of one piece: an interruption repeats at most as many.
const PIECE_ENTRIES: usize = 256;
/// An older interrupted scrub begins anew: its results are too old.
const STALE_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Most problems in the text of a record: the rest is counted.
const PROBLEMS_MAXIMUM: usize = 10;

/// The progress and the result of a release's last scrub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbed {
    schema: u32,
    /// The digest of the compressed manifest.
    manifest: Digest,
    /// When it began.
    pub begun_at: Timestamp,
    /// When it ended; None: it runs, or was interrupted.
    pub ended_at: Option<Timestamp>,
    /// Checked entries.
    pub done: usize,
    /// All entries.
    pub all: usize,
    /// Number of problems.
    pub found: usize,
    /// The first problems, in words.
    pub problems: Vec<String>,
}

impl Store {
    /// The record of a release's last scrub.
    pub fn scrubbed(&self, release: &Release) -> Result<Option<Scrubbed>> {
        let bytes = self.receipt(release)?.read_if_exists(RECORD_NAME, RECORD_LENGTH_MAXIMUM)?;
        // After an unreadable record the next scrub begins at the beginning.
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Hashes a release, at most `bytes_per_second`, from the end of an interrupted scrub on. `progress` gets the hashed bytes and all of them.
    /// Returns the record and the problems of this call; a repair finds the problems of the part before.
    pub fn scrub(
        &self,
        release: &Release,
        bytes_per_second: u64,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(Scrubbed, Vec<Problem>)> {
        let _lease = self.lease(release)?;
        let (tree, manifest) = (self.tree(release)?, self.manifest(release)?);
        let digest = self.manifest_digest(release)?;
        let index = self.index(release).ok().map(|(index, _)| index).filter(|index| index.is_of(&digest));
        let (all, now) = (manifest.entries.len(), clock::now());
        let goes_on = |record: &Scrubbed| {
            let is_fresh = now.duration_since(record.begun_at).abs() < STALE_AFTER;
            record.ended_at.is_none() && record.manifest == digest && record.done <= all && is_fresh
        };
        let mut record = self.scrubbed(release)?.filter(goes_on).unwrap_or(Scrubbed {
            schema: 1,
            manifest: digest,
            begun_at: now,
            ended_at: None,
            done: 0,
            all,
            found: 0,
            problems: Vec::new(),
        });
        let mut problems = Vec::new();
        while record.ended_at.is_none() {
            let begun = clock::since_boot();
            let piece = record.done..all.min(record.done + PIECE_ENTRIES);
            record.done = piece.end;
            let is_last = record.done == all;
            let bytes = size(&manifest.entries[piece.clone()]);
            let seen = compare(
                &tree,
                &manifest,
                index.as_ref(),
                &Suspects::Some { root: is_last, entries: piece.collect() },
                1,
            );
            record.found += seen.problems.len();
            let room = PROBLEMS_MAXIMUM.saturating_sub(record.problems.len());
            record.problems.extend(seen.problems.iter().take(room).map(ToString::to_string));
            problems.extend(seen.problems);
            record.ended_at = is_last.then(clock::now);
            self.receipt(release)?.write_atomic(RECORD_NAME, &saved::line(&record), FILE_MODE)?;
            progress(size(&manifest.entries[..record.done]), size(&manifest.entries));
            let due = Duration::from_millis(bytes.saturating_mul(1000) / bytes_per_second.max(1));
            if !is_last {
                clock::sleep(due.saturating_sub(clock::since_boot().saturating_sub(begun)));
            }
        }
        Ok((record, problems))
    }
}

fn size(entries: &[Entry]) -> u64 {
    entries.iter().map(Entry::size).sum()
}
