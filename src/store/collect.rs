//! Removes old releases: never the current or previous release, a release of a live switch, or a release in use.

use super::error::Holder;
use super::lease::{Claim, Claimed, claim};
use super::{PackageLock, Result, Store, StoreError};
use crate::crash_point;
use crate::layout;
use crate::os::dir::Dir;
pub use crate::os::place::Effect;
use crate::version::Release;
use std::collections::BTreeMap;

/// Why a release stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeepReason {
    /// Current, previous, on trial, …: the reason in words.
    Wanted(String),
    /// Among the newest of the other releases.
    Reserve,
    /// In use.
    InUse(Vec<Holder>),
}

/// The result of a collection or of its dry run.
#[derive(Debug, Default)]
pub struct Collected {
    /// Removed releases, with the bytes of their files.
    pub removed: Vec<(Release, u64)>,
    /// Kept releases, and why.
    pub kept: Vec<(Release, KeepReason)>,
}

/// The releases to collect.
#[derive(Debug)]
pub struct CollectRequest<'a> {
    /// Releases that must stay, and why.
    pub wanted: &'a BTreeMap<Release, String>,
    /// How many of the others stay in reserve, newest first.
    pub reserve: usize,
    /// Whether to write.
    pub effect: Effect,
}

impl Store {
    /// Removes every installed release that is neither wanted nor used.
    pub fn collect(&self, lock: &PackageLock, request: &CollectRequest<'_>) -> Result<Collected> {
        let mut collected = Collected::default();
        let mut reserve = request.reserve;
        let linked = self.linked()?;
        for release in self.releases()?.into_iter().rev() {
            if let Some(reason) = request.wanted.get(&release) {
                collected.kept.push((release, KeepReason::Wanted(reason.clone())));
            } else if linked.contains(&release) {
                collected.kept.push((release, KeepReason::Wanted("current".to_owned())));
            } else if reserve > 0 {
                reserve -= 1;
                collected.kept.push((release, KeepReason::Reserve));
            } else {
                self.collect_one(lock, release, request.effect, &mut collected)?;
            }
        }
        Ok(collected)
    }

    fn collect_one(
        &self,
        lock: &PackageLock,
        release: Release,
        effect: Effect,
        collected: &mut Collected,
    ) -> Result<()> {
        let tree = self.tree(&release)?;
        match self.claim_installed(&release, &tree, effect)? {
            Claim::InUse(holders) => collected.kept.push((release, KeepReason::InUse(holders))),
            Claim::Free(claimed) => {
                let bytes = tree.content_bytes()?;
                if effect == Effect::Apply {
                    self.take_away(lock, &release, claimed)?;
                }
                collected.removed.push((release, bytes));
            }
        }
        Ok(())
    }

    /// Removes one release, however new; returns its bytes. `wanted` as in [`CollectRequest`].
    pub fn remove(
        &self,
        lock: &PackageLock,
        release: &Release,
        wanted: Option<&String>,
        effect: Effect,
    ) -> Result<u64> {
        let in_use = |holders| Err(StoreError::InUse { release: release.clone(), holders });
        let tree = self.tree(release)?;
        if let Some(reason) = wanted {
            return in_use(vec![Holder::Wanted(reason.clone())]);
        }
        if self.linked()?.contains(release) {
            return in_use(vec![Holder::Wanted("current".to_owned())]);
        }
        match self.claim_installed(release, &tree, effect)? {
            Claim::InUse(holders) => in_use(holders),
            Claim::Free(claimed) => {
                let bytes = tree.content_bytes()?;
                if effect == Effect::Apply {
                    self.take_away(lock, release, claimed)?;
                }
                Ok(bytes)
            }
        }
    }

    /// The processes, leases and mounts that use an installed release now.
    pub fn users(&self, release: &Release) -> Result<Vec<Holder>> {
        match self.claim_installed(release, &self.tree(release)?, Effect::DryRun)? {
            Claim::InUse(holders) => Ok(holders),
            Claim::Free(_) => Ok(Vec::new()),
        }
    }

    fn claim_installed(&self, release: &Release, tree: &Dir, effect: Effect) -> Result<Claim> {
        // A release that is installed has a receipt.
        let receipts = Dir::open(&self.layout().receipts(self.package()))?;
        claim(&receipts, release, tree, effect)
    }

    /// The receipt goes first, then the tree leaves `versions/`, each by one rename: `recover` finishes an interrupted removal, and starts may go on. What the
    /// kernel does not rename is removed where it is, after a mark beside the receipt.
    fn take_away(&self, lock: &PackageLock, release: &Release, claimed: Claimed) -> Result<()> {
        let (Some(directory), Some(versions)) = (self.directory()?, self.versions()?) else { return Ok(()) };
        let name = release.to_string();
        crash_point!("collect.claimed");
        let staging = directory.child(layout::STAGING)?;
        staging.remove_tree(&name)?;
        let receipts = Dir::open(&self.layout().receipts(self.package()))?;
        let gone = format!(".{name}.gone");
        receipts.remove_tree(&gone)?;
        let is_moved = receipts.rename_directory(&name, &receipts, &gone)?;
        if !is_moved {
            receipts.make_dir(&gone, 0o755)?;
            receipts.sync()?;
            crash_point!("collect.marked");
            receipts.remove_tree(&name)?;
        }
        receipts.sync()?;
        crash_point!("collect.receipt");
        match versions.rename_directory(&name, &staging, &name) {
            Ok(true) => {}
            // It is not installed any more: what this leaves when it fails, `recover` removes.
            Ok(false) => versions.remove_tree(&name)?,
            Err(error) => {
                // The tree is whole, and stays installed if its receipt is whole, too.
                if is_moved {
                    receipts.rename(&gone, &receipts, &name)?;
                }
                return Err(error.into());
            }
        }
        versions.sync()?;
        claimed.forget()?;
        drop(claimed);
        crash_point!("collect.moved");
        receipts.remove_tree(&gone)?;
        self.tell_fapolicyd()?;
        self.empty_staging(lock)
    }
}

/// Removes the receipts of releases whose removal in place was interrupted: they may be there in part.
pub(super) fn finish_marked(receipts: &Dir, linked: &[Release]) -> Result<()> {
    let marked = |name: &str| name.strip_prefix('.')?.strip_suffix(".gone")?.parse::<Release>().ok();
    for release in receipts.names()?.iter().filter_map(|name| marked(name.to_str()?)) {
        if !linked.contains(&release) {
            receipts.remove_tree(release.to_string())?;
        }
    }
    Ok(())
}
