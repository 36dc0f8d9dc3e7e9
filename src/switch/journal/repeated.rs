//! The results of rehearsals that were repeated because the host had changed since the release was proven.

use crate::rehearsal::Rehearsal;
use crate::saved::Saved;
use crate::store::host_fingerprint::HostFingerprint;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Results kept: a host is upgraded now and then, and keeps a few releases.
const ENTRIES_MAXIMUM: usize = 50;
/// Findings of each kind that a result keeps; the rest is dropped.
const FINDINGS_MAXIMUM: usize = 12;

/// The result of a repeated rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsed {
    /// The release.
    pub release: Release,
    /// When the rehearsal ended.
    pub at: Timestamp,
    /// The fingerprint of the host at that time.
    pub fingerprint: HostFingerprint,
    /// The changes of the host since the release was proven, for people.
    pub changes: Vec<String>,
    /// What the release needs and the host lacks, for people.
    pub lacks: Vec<String>,
    /// Why the release would not come up, for people; empty: it would.
    pub blocking: Vec<String>,
    /// Other notes for people.
    pub notes: Vec<String>,
    /// Why nobody can tell whether it would come up, for people; empty: it was rehearsed.
    #[serde(default)]
    pub unknown: Vec<String>,
}

impl Rehearsed {
    /// Makes the result of a rehearsal on a host with `fingerprint`, which has changed by `changes` since the release was proven.
    pub fn new(
        release: Release,
        at: Timestamp,
        fingerprint: HostFingerprint,
        changes: Vec<String>,
        lacks: Vec<String>,
        came: Rehearsal,
    ) -> Self {
        let (mut blocking, mut notes, mut unknown) = (came.blocking, came.notes, came.unknown);
        for findings in [&mut blocking, &mut notes, &mut unknown] {
            findings.truncate(FINDINGS_MAXIMUM);
        }
        Self { release, at, fingerprint, changes, lacks, blocking, notes, unknown }
    }

    /// True if the release is known to come up.
    pub fn loads(&self) -> bool {
        self.blocking.is_empty() && self.unknown.is_empty()
    }

    /// True if the release is known not to come up.
    pub fn fails(&self) -> bool {
        !self.blocking.is_empty()
    }
}

impl fmt::Display for Rehearsed {
    /// `loads`, or what would fail; then what is missing.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.blocking.split_first(), self.unknown.first()) {
            (None, None) => formatter.write_str("loads")?,
            (None, Some(why)) => write!(formatter, "not known to load: {why}")?,
            (Some((first, [])), _) => write!(formatter, "would fail now: {first}")?,
            (Some((first, more)), _) => write!(formatter, "would fail now: {first} (and {} more)", more.len())?,
        }
        self.lacks.iter().chain(&self.notes).try_for_each(|text| write!(formatter, "; {text}"))
    }
}

/// All results, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedAgain {
    schema: u32,
    entries: Vec<Rehearsed>,
}

impl Default for RehearsedAgain {
    fn default() -> Self {
        Self { schema: Self::SCHEMA, entries: Vec::new() }
    }
}

impl Saved for RehearsedAgain {
    const NAME: &'static str = "rehearsed-again";
    // every entry with texts of the greatest length, in characters of four bytes.
    const LENGTH_MAXIMUM: u64 = 8 * 1024 * 1024;
    const REMEDY: &'static str = "move the file away: sidle then repeats those rehearsals";
}

impl RehearsedAgain {
    /// The entries, oldest first.
    pub fn entries(&self) -> &[Rehearsed] {
        &self.entries
    }

    /// The last result of a release with exactly this fingerprint.
    pub fn of(&self, release: &Release, fingerprint: &HostFingerprint) -> Option<&Rehearsed> {
        self.entries.iter().rev().find(|entry| entry.release == *release && entry.fingerprint == *fingerprint)
    }

    /// Adds a result; drops the oldest beyond the maximum.
    #[must_use]
    pub fn with(mut self, entry: Rehearsed) -> Self {
        self.entries.push(entry);
        let surplus = self.entries.len().saturating_sub(ENTRIES_MAXIMUM);
        self.entries.drain(..surplus);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ground_is_known_by_all_that_is_of_it_and_the_oldest_entries_go() {
        let fingerprint = |libc: u32| HostFingerprint { libc: Some(format!("2.{libc}")), ..HostFingerprint::default() };
        let release: Release = "1.0-1".parse().unwrap();
        let entry = |libc: u32, blocking: &[&str]| {
            let blocking = blocking.iter().map(ToString::to_string).collect();
            let came = Rehearsal { blocking, ..Rehearsal::default() };
            Rehearsed::new(release.clone(), Timestamp::UNIX_EPOCH, fingerprint(libc), Vec::new(), Vec::new(), came)
        };
        let mut again = RehearsedAgain::default();
        for libc in 0..60 {
            again = again.with(entry(libc, &[]));
        }
        assert_eq!(again.entries().len(), ENTRIES_MAXIMUM);
        assert!(again.of(&release, &fingerprint(9)).is_none() && again.of(&release, &fingerprint(59)).is_some());
        assert!(again.of(&"1.0-2".parse().unwrap(), &fingerprint(59)).is_none());
        again = again.with(entry(59, &["no libssl", "x", "y"]));
        let last = again.of(&release, &fingerprint(59)).unwrap();
        assert_eq!((last.loads(), last.to_string().as_str()), (false, "would fail now: no libssl (and 2 more)"));
        let blind = Rehearsal::not_done("no program".to_owned());
        let blind = Rehearsed::new(release, Timestamp::UNIX_EPOCH, fingerprint(60), Vec::new(), Vec::new(), blind);
        assert_eq!((blind.loads(), blind.fails()), (false, false), "it is neither known to load nor to fail");
        assert_eq!(blind.to_string(), "not known to load: no program");
        again = again.with(blind);
        assert_eq!(RehearsedAgain::parse(&again.to_bytes()).unwrap(), again);
        assert!(RehearsedAgain::parse(b"{\"schema\":2,\"entries\":[]}").unwrap_err().to_string().contains("form 2"));
    }
}
