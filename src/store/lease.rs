//! Leases: a shared lock on the version directory's own descriptor, inherited by the agent and all that it starts. What is leased, run
//! from, stood in, mapped or mounted elsewhere is in use, and what can't be known is in use, too.

use super::{Result, Store, StoreError};
use crate::os::dir::{Dir, FileKind};
use crate::os::lock::{self, Attempt, Lock};
use crate::os::proc_fs::{self, FileIdentity};
use crate::os::{file, mounts, walk};
use crate::version::Release;
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// Who or what keeps a release from being taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A process with the leased descriptor.
    Lease {
        /// Process number.
        pid: u32,
        /// Its command line.
        title: String,
    },
    /// Somebody leases it, and it could not be seen who.
    UnknownLease,
    /// A process that runs from, stands in or has mapped a file of the tree.
    Process {
        /// Process number.
        pid: u32,
        /// Its command line.
        title: String,
        /// `exe`, `cwd`, `root` or `maps`.
        how: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The tree or a part of it is mounted here, too.
    Mount(PathBuf),
    /// An instance wants it: as its current or previous release, or for a live switch.
    Wanted(String),
    /// It could not be found out, because of this.
    Unknown(String),
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease { pid, title } => write!(formatter, "process {pid} ({title}) holds its lease"),
            Self::UnknownLease => formatter.write_str("a process that can't be seen from here holds its lease"),
            Self::Process { pid, title, how, path } => {
                write!(formatter, "process {pid} ({title}) uses {} ({how})", path.display())
            }
            Self::Mount(point) => write!(formatter, "it is mounted at {}", point.display()),
            Self::Wanted(reason) => write!(formatter, "it is {reason}"),
            Self::Unknown(reason) => write!(formatter, "it can't be known whether it is in use: {reason}"),
        }
    }
}

/// A release that can't be taken away while this value, or a process that inherited it, lives.
#[derive(Debug)]
pub struct Lease {
    lock: Lock,
}

impl Lease {
    /// Lets the program that this process becomes, and all that it starts, go on holding the lease.
    pub fn keep_across_exec(&self) -> Result<()> {
        let failed =
            |source| StoreError::Os(crate::os::OsError::new("keep the lease in", "the new program".as_ref(), source));
        self.lock.keep_across_exec().map_err(failed)
    }
}

impl Store {
    /// Leases an installed release. Fails while it is being taken away.
    pub fn lease(&self, release: &Release) -> Result<Lease> {
        let tree = self.tree(release)?;
        match lock::try_shared(tree.lock_fd()?).map_err(|source| StoreError::lock(&tree, source))? {
            Attempt::Held(lock) => {
                // It may have been moved away between opening and locking; what is at its place now must be what was locked.
                let (held, there) = (tree.stat_self()?, self.tree(release)?.stat_self()?);
                if (held.device, held.inode) == (there.device, there.inode) {
                    Ok(Lease { lock })
                } else {
                    Err(StoreError::InUse { release: release.clone(), holders: vec![Holder::UnknownLease] })
                }
            }
            Attempt::Busy => Err(StoreError::InUse {
                release: release.clone(),
                holders: vec![Holder::Unknown("it is being taken away".to_owned())],
            }),
            Attempt::Unsupported(source) => Err(StoreError::lock(&tree, source)),
        }
    }
}

/// What came of asking for a release alone.
#[derive(Debug)]
pub enum Claim {
    /// Nobody uses it, and nobody can begin to while the lock is held.
    Free(Lock),
    /// These use it.
    InUse(Vec<Holder>),
}

/// Claims a tree for its removal: the exclusive lock without waiting, and then no process and no mount on it.
pub fn claim(tree: &Dir) -> Result<Claim> {
    let lock = match lock::try_exclusive(tree.lock_fd()?).map_err(|source| StoreError::lock(tree, source))? {
        Attempt::Held(lock) => lock,
        Attempt::Busy => return Ok(Claim::InUse(lease_holders(tree)?)),
        Attempt::Unsupported(source) => {
            let reason = format!("the file system of {} can't lock: {source}", tree.path().display());
            return Ok(Claim::InUse(vec![Holder::Unknown(reason)]));
        }
    };
    let holders = users(tree)?;
    Ok(if holders.is_empty() { Claim::Free(lock) } else { Claim::InUse(holders) })
}

fn lease_holders(tree: &Dir) -> Result<Vec<Holder>> {
    let stat = tree.stat_self()?;
    let own = std::process::id();
    let found = proc_fs::holders((stat.device, stat.inode))?;
    let found: Vec<Holder> =
        found.into_iter().filter(|(pid, _)| *pid != own).map(|(pid, title)| Holder::Lease { pid, title }).collect();
    Ok(if found.is_empty() { vec![Holder::UnknownLease] } else { found })
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
