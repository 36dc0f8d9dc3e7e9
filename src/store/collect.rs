//! Takes old releases away: never the current, the previous, one named by a live switch, or one in use.

use super::error::Holder;
use super::lease::{Claim, Claimed, claim};
use super::{PackageLock, Result, Store, StoreError};
use crate::crash_point;
use crate::layout;
use crate::os::dir::Dir;
use crate::version::Release;
use std::collections::BTreeMap;

/// Why a release stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeepReason {
    /// Current, previous, on trial, …: the reason in the operator's words.
    Wanted(String),
    /// Kept in reserve: the newest of the others.
    Reserve,
    /// In use by these.
    InUse(Vec<Holder>),
}

/// What a collection did, or would do.
#[derive(Debug, Default)]
pub struct Collected {
    /// Gone (or, in a rehearsal, to go), with the bytes that its files had.
    pub removed: Vec<(Release, u64)>,
    /// Still there, and why.
    pub kept: Vec<(Release, KeepReason)>,
}

/// What to collect.
#[derive(Debug)]
pub struct CollectRequest<'a> {
    /// Releases that must stay, with the reason in the operator's words.
    pub wanted: &'a BTreeMap<Release, String>,
    /// How many of the others stay in reserve, newest first.
    pub reserve: usize,
    /// Whether to do it or only to tell.
    pub effect: Effect,
}

/// Whether to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Do it.
    Apply,
    /// Tell what would be done.
    DryRun,
}

impl Store {
    /// Takes away every installed release that nobody wants and nobody uses.
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
        match self.claim_installed(&release, &tree)? {
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

    /// Takes one release away, whatever its place in the order; gives its bytes. `wanted` as in [`CollectRequest`].
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
        match self.claim_installed(release, &tree)? {
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

    fn claim_installed(&self, release: &Release, tree: &Dir) -> Result<Claim> {
        // A release that is installed has a receipt.
        let receipts = Dir::open(&self.layout().receipts(self.package()))?;
        claim(&receipts, release, tree)
    }

    /// The tree leaves `versions/` by one rename; from then on recovery finishes what a crash interrupts, and others may be started again.
    fn take_away(&self, lock: &PackageLock, release: &Release, claimed: Claimed) -> Result<()> {
        let (Some(directory), Some(versions)) = (self.directory()?, self.versions()?) else { return Ok(()) };
        let name = release.to_string();
        crash_point!("collect.claimed");
        let staging = directory.child(layout::STAGING)?;
        staging.remove_tree(&name)?;
        versions.rename(&name, &staging, &name)?;
        versions.sync()?;
        claimed.forget()?;
        drop(claimed);
        crash_point!("collect.moved");
        if let Some(receipts) = self.receipts()? {
            receipts.remove_tree(&name)?;
        }
        crash_point!("collect.receipt");
        self.empty_staging(lock)
    }
}
