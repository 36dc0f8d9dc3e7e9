//! Leases: a shared lock on a file that only root can open, inherited by the agent and all that it starts. What is leased, run from, stood in,
//! mapped or mounted elsewhere is in use, and what can't be known is in use, too. A start and a removal exclude each other by a lock of their own.

use super::error::Holder;
use super::{Result, Store, StoreError};
use crate::layout;
use crate::os::dir::{Dir, FileKind};
use crate::os::lock::{self, Lock, LockFile};
use crate::os::proc_fs::{self, FileIdentity};
use crate::os::{OsError, file, mounts, walk};
use crate::version::Release;
use std::collections::HashSet;
use std::time::Duration;

/// A release that can't be taken away while this value, or a process that inherited it, lives.
#[derive(Debug)]
pub struct Lease {
    /// None: this user may not open the lease's file. A process that runs from the tree is found by root without it.
    lease: Option<Lock>,
    /// The sign on the tree's own directory, for systemd-tmpfiles, which leaves alone what is locked. Any user can lock that directory, too:
    /// nothing here asks for it.
    sign: Option<Lock>,
}

impl Lease {
    /// Lets the program that this process becomes, and all that it starts, go on holding the lease.
    pub fn keep_across_exec(&self) -> Result<()> {
        let failed =
            |source| StoreError::Os(crate::os::OsError::new("keep the lease in", "the new program".as_ref(), source));
        let both = self.lease.iter().chain(&self.sign);
        both.into_iter().try_for_each(|lock| lock.keep_across_exec().map_err(failed))
    }
}

/// How long a start waits for a removal, which looks at all processes and renames one directory.
const REMOVAL_WAIT: Duration = Duration::from_secs(10);

impl Store {
    /// Leases an installed release. Waits for a removal under way, and fails when that takes too long.
    pub fn lease(&self, release: &Release) -> Result<Lease> {
        let receipts = self.receipts()?;
        // No release is moved away while its lease is taken.
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

/// None where this user may not: a stranger who runs a release's program.
fn share_starts(receipts: &Dir, release: &Release) -> Result<Option<Lock>> {
    let file = LockFile::new(receipts, layout::STARTS);
    match lock::wait(REMOVAL_WAIT, || file.try_shared()) {
        Ok(None) => Err(StoreError::BeingRemoved { release: release.clone(), holder: file.holder() }),
        Ok(held) => Ok(held),
        Err(error) if cannot_be_leased(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What keeps a process from making a lease's file, and must not keep an agent from being started: another user's store, a disk that is full or
/// was made read-only. What runs from the tree is found by what it has open, too.
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

/// What came of asking for a release alone.
#[derive(Debug)]
pub enum Claim {
    /// Nobody uses it, and nobody can begin to while this is held.
    Free(Claimed),
    /// These use it.
    InUse(Vec<Holder>),
}

/// A release that nobody uses, and that nobody can begin to use.
#[derive(Debug)]
pub struct Claimed {
    leases: Option<Dir>,
    release: Release,
    _starts: Lock,
    _lease: Option<Lock>,
}

impl Claimed {
    /// Forgets the lease of a release that is there no more.
    pub(super) fn forget(&self) -> Result<()> {
        match &self.leases {
            Some(leases) => Ok(leases.remove_file(self.release.to_string())?),
            None => Ok(()),
        }
    }
}

/// Claims a release's tree for its removal: no start under way, no lease, no process and no mount on it. Never waits.
pub(super) fn claim(receipts: &Dir, release: &Release, tree: &Dir) -> Result<Claim> {
    let starts = match asked(&LockFile::new(receipts, layout::STARTS))? {
        Ok(lock) => lock,
        Err(holders) => return Ok(Claim::InUse(holders)),
    };
    let leases = receipts.child_if_exists(layout::LEASES)?;
    let file = leases.as_ref().map(|leases| LockFile::new(leases, release.to_string()));
    let lease = match file {
        Some(file) if file.identity()?.is_some() => match asked(&file)? {
            Ok(lock) => {
                // Who inherited the lease could unlock it; that it is open is what counts.
                let holders = leaseholders(&file)?;
                if !holders.is_empty() {
                    return Ok(Claim::InUse(holders));
                }
                Some(lock)
            }
            Err(holders) => return Ok(Claim::InUse(holders)),
        },
        Some(_) | None => None,
    };
    let holders = users(tree)?;
    if !holders.is_empty() {
        return Ok(Claim::InUse(holders));
    }
    Ok(Claim::Free(Claimed { leases, release: release.clone(), _starts: starts, _lease: lease }))
}

/// The lock, or who keeps it.
fn asked(file: &LockFile<'_>) -> Result<std::result::Result<Lock, Vec<Holder>>> {
    match file.try_exclusive() {
        Ok(Some(lock)) => Ok(Ok(lock)),
        Ok(None) => {
            let found = leaseholders(file)?;
            Ok(Err(if found.is_empty() { vec![Holder::UnknownLease] } else { found }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Ok(Err(vec![Holder::Unknown(error.to_string())]))
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
            // Without rights to look into other users' processes the lease alone must speak: they could not run files of a
            // tree that they could not open, but they may be root's. Only root collects on a host, and root sees all.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(error) => holders.push(Holder::Unknown(error.to_string())),
        }
    }
    holders.extend(mounts::mounted_elsewhere(&directory)?.into_iter().map(Holder::Mount));
    Ok(holders)
}

fn identities(tree: &Dir) -> Result<HashSet<FileIdentity>> {
    let own = tree.stat_self()?;
    let walked = walk::walk(tree)?;
    let inner = walked.iter().filter(|entry| matches!(entry.stat.kind, FileKind::File | FileKind::Directory));
    Ok(inner.map(|entry| (entry.stat.device, entry.stat.inode)).chain([(own.device, own.inode)]).collect())
}
