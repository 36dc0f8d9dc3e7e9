//! The check: what the signed manifest says is what lies on disk. The quick check compares the stat index and hashes what differs; the full
//! check hashes everything. Both return all problems.

mod compare;
mod quick;

pub use compare::{Checked, compare};
pub use quick::{Suspects, suspects};

use super::index::{Index, Indexed};
use super::{Result, Store, StoreError};
use crate::bundle::manifest::Manifest;
use crate::digest::Digest;
use crate::os::dir::Dir;
use crate::os::host;
use crate::version::Release;
use jiff::{SignedDuration, Timestamp};
use std::fmt;
use tracing::debug;

/// How long ago a change must have been before what was hashed after it is remembered: file systems give changes of one moment the same time,
/// some in steps of two seconds (FAT, ext3 without nanoseconds have one).
const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// The step in which the kernel counts file times: at most a hundredth of a second (`CONFIG_HZ` is 100 or more).
const TICK_NANOSECONDS: u32 = 10_000_000;

/// A time as file systems have it: seconds since 1970, and nanoseconds.
pub type FileTime = (i64, u32);

/// One entry that is not as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, relative to the tree.
    pub path: String,
    /// What is wrong.
    pub defect: Defect,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Defect {
    /// It isn't there.
    Missing,
    /// It is a file, directory or link where another kind was signed.
    Kind,
    /// It has other permission bits.
    Mode(u32),
    /// It belongs to another user or group: these.
    Owner(u32, u32),
    /// It has other content, or points elsewhere.
    Content,
    /// It was not signed, and may be found and loaded in place of what was.
    Foreign,
    /// It was not signed, but nothing loads it: a core dump, what an editor or NFS left. It stands against nothing.
    Stray,
    /// It could not be looked at, because of this: not bad, but not known to be good.
    Unreadable(String),
}

impl Problem {
    /// Whether it is unknown if anything is wrong: it could not be looked at.
    pub fn is_not_known(&self) -> bool {
        matches!(self.defect, Defect::Unreadable(_))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.defect {
            Defect::Missing => write!(formatter, "{} is missing", self.path),
            Defect::Kind => write!(formatter, "{} is of another kind", self.path),
            Defect::Mode(mode) => write!(formatter, "{} has mode {mode:04o}", self.path),
            Defect::Owner(user, group) => write!(formatter, "{} belongs to user {user}, group {group}", self.path),
            Defect::Content => write!(formatter, "{} has other content", self.path),
            Defect::Foreign => write!(formatter, "{} does not belong there", self.path),
            Defect::Stray => write!(formatter, "{} does not belong there, but harms nothing", self.path),
            Defect::Unreadable(reason) => write!(formatter, "{} could not be looked at: {reason}", self.path),
        }
    }
}

/// How thoroughly to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Stat every entry; hash those whose stat differs from the index.
    Quick,
    /// Hash every file.
    Full,
}

impl Store {
    /// Checks a release quickly. `Damaged` with all that stands against a start; `Unchecked` where nothing does, but something could not be
    /// looked at. Strays stand against nothing.
    pub fn verify(&self, release: &Release) -> Result<()> {
        self.verdict(release, self.check(release, Depth::Quick)?)
    }

    pub(super) fn verdict(&self, release: &Release, mut problems: Vec<Problem>) -> Result<()> {
        problems.retain(|problem| problem.defect != Defect::Stray);
        let (package, release) = (self.package.clone(), release.clone());
        if problems.is_empty() {
            Ok(())
        } else if problems.iter().all(Problem::is_not_known) {
            Err(StoreError::Unchecked { package, release, problems })
        } else {
            Err(StoreError::Damaged { package, release, problems })
        }
    }

    /// Checks a release quickly and writes nothing, not even what was learnt. With its manifest: all that is wrong with it.
    pub fn check_without_index(&self, release: &Release) -> Result<(Manifest, Vec<Problem>)> {
        Ok(match self.compare(release, Depth::Quick)? {
            Some(seen) => (seen.manifest, seen.checked.problems),
            None => (self.manifest(release)?, Vec::new()),
        })
    }

    /// Checks a release; all that is wrong with it, in the order of its manifest.
    pub fn check(&self, release: &Release, depth: Depth) -> Result<Vec<Problem>> {
        let Some(mut seen) = self.compare(release, depth)? else { return Ok(Vec::new()) };
        let problems = std::mem::take(&mut seen.checked.problems);
        debug!(package = %self.package, problems = problems.len(), "the files of {release} are compared with what was signed");
        if let Some(index) = seen.checked.renewed(&problems, &seen.manifest, seen.digest, seen.index) {
            self.renew_index(release, &index);
        }
        Ok(problems)
    }

    /// None: nothing is suspected.
    fn compare(&self, release: &Release, depth: Depth) -> Result<Option<Comparison>> {
        let tree = self.tree(release)?;
        // Without a usable index everything is hashed: slower, and as sure.
        let index = self.index(release).ok();
        let suspects = match (depth, &index) {
            (Depth::Quick, Some((index, taken))) => quick::suspects(&tree, index, *taken),
            (Depth::Quick, None) | (Depth::Full, _) => Suspects::All,
        };
        if suspects.is_none() {
            return Ok(None);
        }
        let (manifest, digest) = (self.manifest(release)?, self.manifest_digest(release)?);
        let index = index.map(|(index, _)| index).filter(|index| index.is_of(&digest));
        // The index of another manifest says nothing about this one.
        let suspects = if index.is_some() { suspects } else { Suspects::All };
        let checked = compare::compare(&tree, &manifest, index.as_ref(), &suspects, host::parallelism());
        Ok(Some(Comparison { manifest, digest, index, checked }))
    }
}

/// What a look at suspected entries came to.
struct Comparison {
    manifest: Manifest,
    digest: Digest,
    index: Option<Index>,
    checked: Checked,
}

fn time((seconds, nanoseconds): FileTime) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).ok();
    nanoseconds.and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok()).unwrap_or(Timestamp::MAX)
}

/// The stat index of a tree whose content was verified just now; `digest` is that of its compressed manifest.
pub fn index_of(tree: &Dir, manifest: &Manifest, digest: Digest) -> Result<Index> {
    let mut stats = Vec::with_capacity(manifest.entries.len());
    for entry in &manifest.entries {
        let stat = tree.stat_path(entry.path.as_path())?.filter(|stat| stat.kind == compare::kind_of(&entry.kind));
        let stat = stat.ok_or_else(|| StoreError::Corrupt {
            path: tree.path().join(entry.path.as_path()),
            reason: "it changed while it was being installed".to_owned(),
        })?;
        stats.push(Indexed::of(&stat));
    }
    Ok(Index::new(manifest, digest, Indexed::of(&tree.stat_self()?), |number| stats[number]))
}
