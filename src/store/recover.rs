//! Removes the leftovers of a crash: staging, trees without a receipt, receipts that were being written or removed. Runs under every package lock.

use super::collect::finish_marked;
use super::lease::{Claim, claim};
use super::protection::fapolicyd;
use super::{PackageLock, Result, Store};
use crate::crash_point;
use crate::layout;
use crate::os::dir::FileKind;
use crate::os::place::Effect;
use crate::version::Release;

impl Store {
    /// Afterwards every tree has a receipt, and staging is empty. Used and linked releases stay, and so does a receipt without a tree: the tree may come
    /// back with its file system.
    pub(super) fn recover(&self, lock: &PackageLock) -> Result<()> {
        let Some(directory) = self.directory()? else { return Ok(()) };
        let (Some(versions), Some(receipts)) = (self.versions()?, self.receipts()?) else { return Ok(()) };
        let linked = self.linked()?;
        finish_marked(&receipts, &linked)?;
        for (name, kind) in versions.entries()? {
            // sidle made only entries that are named like a release.
            let release = name.to_str().and_then(|name| name.parse::<Release>().ok());
            let (Some(release), FileKind::Directory) = (release, kind) else { continue };
            // A receipt that cannot be looked at is no missing one: whole releases would be removed.
            if linked.contains(&release) || receipts.stat(&name)?.is_some() {
                continue;
            }
            if let Claim::Free(claimed) = claim(&receipts, &release, &versions.child(&name)?, Effect::Apply)? {
                let staging = directory.child(layout::STAGING)?;
                staging.remove_tree(&name)?;
                if !versions.rename_directory(&name, &staging, &name)? {
                    versions.remove_tree(&name)?;
                }
                claimed.forget()?;
                crash_point!("recover.unaccounted");
            }
        }
        for (name, _) in receipts.entries()? {
            if name.to_string_lossy().starts_with('.') {
                receipts.remove_tree(&name)?;
                crash_point!("recover.receipt");
            }
        }
        self.tell_fapolicyd()?;
        self.empty_staging(lock)
    }

    /// fapolicyd trusts the files of the installed releases, and no others.
    pub(super) fn tell_fapolicyd(&self) -> Result<()> {
        let manifest = |release: &Release| self.manifest(release).ok();
        Ok(fapolicyd::equalise(&self.layout, &self.package, &self.releases()?, &manifest)?)
    }

    /// Removes everything in staging.
    pub(super) fn empty_staging(&self, _lock: &PackageLock) -> Result<()> {
        let Some(directory) = self.directory()? else { return Ok(()) };
        let Some(staging) = directory.child_if_exists(layout::STAGING)? else { return Ok(()) };
        for name in staging.names()? {
            staging.remove_tree(&name)?;
            crash_point!("recover.staging");
        }
        Ok(())
    }
}
