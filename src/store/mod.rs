//! The store: each release in its own directory, verified file by file, removed only when no process uses it.
//!
//! A release on the host: absent → staged → installed → on trial → current → previous → collectable → gone. An installed release has a tree in
//! `versions/` *and* a receipt. A tree alone is a leftover of a crash, which `recover` removes under the package lock; a receipt alone waits for its tree.

pub mod check;
pub mod collect;
pub mod current;
pub mod error;
pub mod held;
pub mod host_fingerprint;
pub mod incident;
pub mod index;
pub mod install;
pub mod lease;
pub mod own_program;
mod place;
pub mod protection;
pub mod receipt;
pub mod recover;
pub mod repair;
pub mod repair_dry_run;
pub mod scrub;

pub use place::{location, owners, preflight, tmpfiles};

pub use error::StoreError;

use crate::layout::{self, Layout};
use crate::name::PackageName;
use crate::os::dir::{Dir, FileKind};
use crate::os::lock::{self, LOCK, Lock, LockFile};
use crate::os::place::Effect;
use crate::version::Release;
use std::ffi::OsString;
use std::time::Duration;
use tracing::debug;

/// A result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Mode of directories that all users may read.
const OPEN_DIRECTORY: u32 = 0o755;
/// Mode of the staging directory: unverified files are private.
const CLOSED_DIRECTORY: u32 = 0o700;

/// One package's part of the store.
#[derive(Debug, Clone)]
pub struct Store {
    layout: Layout,
    package: PackageName,
}

/// Proof that only this process may change a package's part of the store.
#[derive(Debug)]
pub struct PackageLock {
    /// None: a dry run of a store without a lock file.
    _lock: Option<Lock>,
}

/// How long a command waits for another command; a supervisor holds the lock only for moments.
const LOCK_WAIT: Duration = Duration::from_secs(5);

impl Store {
    /// The store of `package` below a layout's root. No file is touched.
    pub fn new(layout: &Layout, package: &PackageName) -> Self {
        Self { layout: layout.clone(), package: package.clone() }
    }

    /// The package.
    pub fn package(&self) -> &PackageName {
        &self.package
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// `/opt/sidle/PACKAGE`; None before the first install.
    pub fn directory(&self) -> Result<Option<Dir>> {
        Ok(Dir::open_if_exists(&self.layout.package(&self.package))?)
    }

    /// `versions/`; None before the first install.
    pub(crate) fn versions(&self) -> Result<Option<Dir>> {
        Ok(Dir::open_if_exists(&self.layout.versions(&self.package))?)
    }

    /// The directory of receipts; None before the first install.
    pub(crate) fn receipts(&self) -> Result<Option<Dir>> {
        Ok(Dir::open_if_exists(&self.layout.receipts(&self.package))?)
    }

    /// Makes the package's directories, takes its lock, and removes the leftovers of a crash.
    pub fn lock(&self) -> Result<PackageLock> {
        self.refuse_half()?;
        let directory = Dir::open_or_create(&self.layout.package(&self.package), OPEN_DIRECTORY)?;
        directory.child_or_create(layout::VERSIONS, OPEN_DIRECTORY)?;
        directory.child_or_create(layout::STAGING, CLOSED_DIRECTORY)?;
        let receipts = Dir::open_or_create(&self.layout.receipts(&self.package), OPEN_DIRECTORY)?;
        let file = LockFile::new(&receipts, LOCK);
        let Some(lock) = lock::wait(LOCK_WAIT, || file.try_exclusive())? else {
            return Err(StoreError::Locked { package: self.package.clone(), holder: file.holder() });
        };
        debug!(package = %self.package, "the package is locked for this command");
        let lock = PackageLock { _lock: Some(lock) };
        self.recover(&lock)?;
        Ok(lock)
    }

    /// Trees and receipts may be on file systems of their own. What is not mounted is not empty: nothing may be made there, and what belongs to it
    /// nowhere be removed.
    fn refuse_half(&self) -> Result<()> {
        let (versions, receipts) = (self.versions()?, self.receipts()?);
        let (there, missing) = match (&versions, &receipts) {
            (None, Some(receipts)) => (receipts, self.layout.versions(&self.package)),
            (Some(versions), None) => (versions, self.layout.receipts(&self.package)),
            (None, None) | (Some(_), Some(_)) => return Ok(()),
        };
        let is_release = |name: &OsString| name.to_str().is_some_and(|name| name.parse::<Release>().is_ok());
        if !there.entries()?.iter().any(|(name, kind)| *kind == FileKind::Directory && is_release(name)) {
            return Ok(());
        }
        Err(StoreError::Half { missing, there: there.path().to_owned() })
    }

    /// The same; a dry run makes nothing, changes no file, and removes no leftovers.
    pub fn lock_for(&self, effect: Effect) -> Result<PackageLock> {
        if effect == Effect::Apply {
            return self.lock();
        }
        let Some(receipts) = self.receipts()? else { return Ok(PackageLock { _lock: None }) };
        let file = LockFile::new(&receipts, LOCK);
        match lock::wait(LOCK_WAIT, || file.look())? {
            Some(lock) => Ok(PackageLock { _lock: lock }),
            None => Err(StoreError::Locked { package: self.package.clone(), holder: file.holder() }),
        }
    }

    /// The installed releases, oldest first.
    pub fn releases(&self) -> Result<Vec<Release>> {
        let (Some(versions), Some(receipts)) = (self.versions()?, self.receipts()?) else { return Ok(Vec::new()) };
        let mut releases = Vec::new();
        for (name, kind) in versions.entries()? {
            let release = name.to_str().and_then(|name| name.parse::<Release>().ok());
            if let (Some(release), FileKind::Directory) = (release, kind) {
                if receipts.stat(&name)?.is_some_and(|stat| stat.kind == FileKind::Directory) {
                    releases.push(release);
                }
            }
        }
        releases.sort();
        Ok(releases)
    }

    /// Whether `release` has a tree and a receipt.
    pub fn is_installed(&self, release: &Release) -> Result<bool> {
        Ok(self.releases()?.contains(release))
    }

    /// The open tree of an installed release; an error that lists the installed releases otherwise.
    pub fn tree(&self, release: &Release) -> Result<Dir> {
        let installed = self.releases()?;
        let versions = self.versions()?.filter(|_| installed.contains(release));
        match versions {
            Some(versions) => Ok(versions.child(release.to_string())?),
            None => {
                Err(StoreError::NotInstalled { package: self.package.clone(), release: release.clone(), installed })
            }
        }
    }
}

/// The packages that have a directory in the store, sorted.
pub fn packages(layout: &Layout) -> Result<Vec<PackageName>> {
    let Some(directory) = Dir::open_if_exists(&layout.packages())? else { return Ok(Vec::new()) };
    Ok(directory.names()?.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}
