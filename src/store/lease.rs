//! Leases: a shared lock on a file that only root can open, inherited by the agent and its children. A release is in use if it is leased, mounted
//! elsewhere, or if a process runs from it, stands in it or has mapped a file of it; in doubt it is in use. A lock of their own keeps a start
//! and a removal apart.

use super::error::Holder;
use super::{Result, Store, StoreError};
use crate::layout;
use crate::os::dir::{Dir, FileKind};
use crate::os::lock::{self, Lock, LockFile};
use crate::os::place::Effect;
use crate::os::proc_fs::{self, FileIdentity};
use crate::os::{OsError, account, file, mounts, process, walk};
use crate::version::Release;
use std::collections::HashSet;
use std::time::Duration;

/// A release that can't be taken away while this value, or a process that inherited it, lives.
#[derive(Debug)]
pub struct Lease {
    /// None: this user may not open the lease's file. Root finds a process that runs from the tree without it.
    lease: Option<Lock>,
    /// The lock on the tree's own directory, for systemd-tmpfiles, which skips locked directories. Any user can take it: sidle never asks for
    /// it.
    sign: Option<Lock>,
}

impl Lease {
    /// Lets the next program of this process, and its children, hold the lease, too.
    pub fn keep_across_exec(&self) -> Result<()> {
        let failed =
            |source| StoreError::Os(crate::os::OsError::new("keep the lease in", "the new program".as_ref(), source));
        let both = self.lease.iter().chain(&self.sign);
        both.into_iter().try_for_each(|lock| lock.keep_across_exec().map_err(failed))
    }
}

/// How long a start waits for a removal, which checks all processes and renames one directory.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);

impl Store {
    /// Leases an installed release. Waits for a running removal; fails if that takes too long.
    pub fn lease(&self, release: &Release) -> Result<Lease> {
        let receipts = self.receipts()?;
        // No release is removed while its lease is taken.
        let start = match &receipts {
            Some(receipts) => share_starts(receipts, release)?,
            None => None,
        };
        let tree = self.tree(release)?;
        let lease = match receipts.filter(|_| start.is_some()) {
            Some(receipts) => leased(&receipts, release)?,
            None => None,
        };
        let sign = lock::try_shared(tree.lock_fd()?).ok().flatten();
        Ok(Lease { lease, sign })
    }
}

impl Store {
    /// True if sidle started a process from a release. It then holds the release's lease, whose file only root can open. On a full disk it has none:
    /// then it has to belong to root or to this user, and to run a program of the release.
    pub fn is_started_from(&self, release: &Release, pid: u32) -> Result<bool> {
        let leases = self.receipts()?.map_or(Ok(None), |receipts| receipts.child_if_exists(layout::LEASES))?;
        let lease = leases.map_or(Ok(None), |leases| LockFile::new(&leases, release.to_string()).identity())?;
        if let Some(lease) = lease {
            if proc_fs::holds_descriptor(pid, lease)? {
                return Ok(true);
            }
        }
        let is_trusted = proc_fs::real_user(pid)?.is_some_and(|user| [account::ROOT, process::user()].contains(&user));
        let tree = self.layout.versions(&self.package).join(release.to_string());
        Ok(is_trusted && proc_fs::runs_from(pid, &file::canonical(&tree)?)?)
    }
}

/// None if this user may not, as another user who runs a release's program.
fn share_starts(receipts: &Dir, release: &Release) -> Result<Option<Lock>> {
    let file = LockFile::new(receipts, layout::STARTS);
    match lock::wait(REMOVAL_WAIT, || file.try_shared()) {
        Ok(None) => Err(StoreError::BeingRemoved { release: release.clone(), holder: file.holder() }),
        Ok(held) => Ok(held),
        Err(error) if cannot_be_leased(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a lease's file cannot be made for a reason that must not keep an agent from starting: another user's store, or a full or read-only
/// disk. A process that runs from the tree is also found by its open files.
fn cannot_be_leased(error: &OsError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

fn leased(receipts: &Dir, release: &Release) -> Result<Option<Lock>> {
    let attempt = receipts
        .child_or_create(layout::LEASES, super::OPEN_DIRECTORY)
        .and_then(|leases| LockFile::new(&leases, release.to_string()).try_shared());
    match attempt {
        // None: an agent's user has made the inherited lock exclusive. The release is in use, too.
        Ok(held) => Ok(held),
        Err(error) if cannot_be_leased(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub enum Claim {
    /// Unused, and no start can begin while this is held.
    Free(Claimed),
    /// In use.
    InUse(Vec<Holder>),
}

/// An unused release that no start can begin to use.
#[derive(Debug)]
pub struct Claimed {
    leases: Option<Dir>,
    release: Release,
    _starts: Option<Lock>,
    _lease: Option<Lock>,
}

impl Claimed {
    /// Removes the lease's file of a removed release.
    pub(super) fn forget(&self) -> Result<()> {
        match &self.leases {
            Some(leases) => Ok(leases.remove_file(self.release.to_string())?),
            None => Ok(()),
        }
    }
}

/// Claims a release's tree for its removal: no start, no lease, no process and no mount uses it. Never waits.
pub(super) fn claim(receipts: &Dir, release: &Release, tree: &Dir, effect: Effect) -> Result<Claim> {
    let starts = match asked(&LockFile::new(receipts, layout::STARTS), effect)? {
        Asked::Free(lock) => lock,
        Asked::HeldBy(holders) => return Ok(Claim::InUse(holders)),
    };
    let leases = receipts.child_if_exists(layout::LEASES)?;
    let file = leases.as_ref().map(|leases| LockFile::new(leases, release.to_string()));
    let lease = match file {
        Some(file) if file.identity()?.is_some() => match asked(&file, effect)? {
            Asked::Free(lock) => {
                // An heir of the lease could unlock it: its open descriptor counts.
                let holders = leaseholders(&file)?;
                if !holders.is_empty() {
                    return Ok(Claim::InUse(holders));
                }
                lock
            }
            Asked::HeldBy(holders) => return Ok(Claim::InUse(holders)),
        },
        Some(_) | None => None,
    };
    let holders = users(tree)?;
    if !holders.is_empty() {
        return Ok(Claim::InUse(holders));
    }
    Ok(Claim::Free(Claimed { leases, release: release.clone(), _starts: starts, _lease: lease }))
}

/// The answer to the question for a lock.
enum Asked {
    /// It is held from now on; a dry run holds nothing where there is no file yet.
    Free(Option<Lock>),
    /// Others hold it.
    HeldBy(Vec<Holder>),
}

/// Asks for a lock. A dry run neither makes nor changes the file.
fn asked(file: &LockFile<'_>, effect: Effect) -> Result<Asked> {
    let attempt = match effect {
        Effect::Apply => file.try_exclusive().map(|lock| lock.map(Some)),
        Effect::DryRun => file.look(),
    };
    match attempt {
        Ok(Some(lock)) => Ok(Asked::Free(lock)),
        Ok(None) => {
            let found = leaseholders(file)?;
            Ok(Asked::HeldBy(if found.is_empty() { vec![Holder::UnknownLease] } else { found }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Ok(Asked::HeldBy(vec![Holder::Unknown(error.to_string())]))
        }
        Err(error) => Err(error.into()),
    }
}

fn leaseholders(file: &LockFile<'_>) -> Result<Vec<Holder>> {
    Ok(file.holders()?.into_iter().map(Holder::Lease).collect())
}

/// Processes and mounts that use the tree without a lease: started by hand, left over, or from inside a container.
fn users(tree: &Dir) -> Result<Vec<Holder>> {
    let directory = file::canonical(tree.path())?;
    let files = identities(tree)?;
    let own = std::process::id();
    let mut holders = Vec::new();
    for process in proc_fs::all()?.into_iter().filter(|process| process.pid != own && process.is_alive()) {
        match proc_fs::uses_tree(process.pid, &directory, &files) {
            Ok(None) => {}
            Ok(Some(found)) => holders.push(Holder::Process {
                pid: process.pid,
                title: proc_fs::title(process.pid),
                how: found.how,
                path: found.path,
            }),
            // Without rights to see another user's process only its lease counts. On a host only root collects, and root sees all.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => holders.push(Holder::Unknown(error.to_string())),
        }
    }
    holders.extend(mounts::holding(&directory)?.into_iter().map(Holder::Mount));
    Ok(holders)
}

fn identities(tree: &Dir) -> Result<HashSet<FileIdentity>> {
    let own = tree.stat_self()?;
    let walked = walk::walk(tree)?;
    let inner = walked.iter().filter(|entry| matches!(entry.stat.kind, FileKind::File | FileKind::Directory));
    Ok(inner.map(|entry| (entry.stat.device, entry.stat.inode)).chain([(own.device, own.inode)]).collect())
}
