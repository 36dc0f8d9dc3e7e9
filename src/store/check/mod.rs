//! The check of a tree against its signed manifest. The quick check compares the stat index and hashes the entries that differ; the full check
//! hashes every entry. Both return all problems.

mod compare;
mod quick;

pub use compare::{Checked, compare};
pub use quick::{Suspects, suspects};

pub use super::error::{Defect, Problem};
use super::index::{Index, Indexed};
use super::{Result, Store, StoreError};
use crate::bundle::manifest::{Entry, Manifest};
use crate::bundle::parallel;
use crate::digest::Digest;
use crate::os::dir::Dir;
use crate::os::host;
use crate::version::Release;
use tracing::debug;

/// Entries that one thread looks at before it takes more.
const INDEXED_AT_ONCE: usize = 512;

/// How thoroughly to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Stat every entry; hash the entries whose stat differs from the index.
    Quick,
    /// Hash every file.
    Full,
}

impl Store {
    /// Checks a release quickly. Fails with `Damaged` and every problem, or with `Unchecked` if some entries could not be checked and no problem
    /// was found. Strays are no problem.
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

    /// Checks a release and writes nothing, not even the index. Returns its manifest and all problems.
    pub fn check_without_index(&self, release: &Release, depth: Depth) -> Result<(Manifest, Vec<Problem>)> {
        Ok(match self.compare(release, depth)? {
            Some(seen) => (seen.manifest, seen.checked.problems),
            None => (self.manifest(release)?, Vec::new()),
        })
    }

    /// Checks a release; returns all problems, in the order of its manifest.
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
        // Without a usable index everything is hashed.
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
        // The index of another manifest is useless.
        let suspects = if index.is_some() { suspects } else { Suspects::All };
        let checked = compare::compare(&tree, &manifest, index.as_ref(), &suspects, host::parallelism());
        Ok(Some(Comparison { manifest, digest, index, checked }))
    }
}

/// The result of a comparison.
struct Comparison {
    manifest: Manifest,
    digest: Digest,
    index: Option<Index>,
    checked: Checked,
}

/// The stat index of a just verified tree; `digest` is that of its compressed manifest.
pub fn index_of(tree: &Dir, manifest: &Manifest, digest: Digest) -> Result<Index> {
    let parts: Vec<&[Entry]> = manifest.entries.chunks(INDEXED_AT_ONCE).collect();
    let look = |part: usize| -> Result<Vec<Indexed>> { parts[part].iter().map(|entry| indexed(tree, entry)).collect() };
    let mut stats = Vec::with_capacity(manifest.entries.len());
    parallel::ordered(host::parallelism(), parts.len(), look, |_, found| {
        stats.extend(found);
        Ok(())
    })?;
    Ok(Index::new(manifest, digest, Indexed::of(&tree.stat_self()?), |number| stats[number]))
}

fn indexed(tree: &Dir, entry: &Entry) -> Result<Indexed> {
    let stat = tree.stat_path(entry.path.as_path())?.filter(|stat| stat.kind == compare::kind_of(&entry.kind));
    let stat = stat.ok_or_else(|| StoreError::Corrupt {
        path: tree.path().join(entry.path.as_path()),
        reason: "it changed while it was being installed".to_owned(),
    })?;
    Ok(Indexed::of(&stat))
}
