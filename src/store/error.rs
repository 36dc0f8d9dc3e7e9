//! Why the store refuses or fails.

use super::preflight::Unfit;
use crate::bundle::member::ReleaseId;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::OsError;
use crate::os::lock::{Holder as LockHolder, by};
use crate::version::Release;
use std::fmt;
use std::path::PathBuf;

/// Why an operation on the store was refused or failed. Nothing visible has changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum StoreError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// Another command changes this package now.
    #[error("cannot change {package}: another command is at work on it{}", by(holder.as_ref()))]
    Locked { package: PackageName, holder: Option<LockHolder> },
    /// The removal of a release takes too long.
    #[error("cannot start {release}: another command removes a release{}", by(holder.as_ref()))]
    BeingRemoved { release: Release, holder: Option<LockHolder> },
    /// The release is not installed.
    #[error("cannot find release {release} of {package}: {}", there(installed))]
    NotInstalled { package: PackageName, release: Release, installed: Vec<Release> },
    /// Trees without receipts, or receipts without trees.
    #[error("cannot use {}: it is not there, and {} has releases", missing.display(), there.display())]
    Half { missing: PathBuf, there: PathBuf },
    /// The release's files differ from the signed manifest.
    #[error("cannot use {package} {release}: its files are not what was signed: {}", listed(problems))]
    Damaged { package: PackageName, release: Release, problems: Vec<Problem> },
    /// No file is known to be wrong, but some could not be checked.
    #[error("cannot tell whether {package} {release} is as it was signed: {}", listed(problems))]
    Unchecked { package: PackageName, release: Release, problems: Vec<Problem> },
    /// The release is in use and cannot be removed.
    #[error("cannot remove {release}: {}", listed(holders))]
    InUse { release: Release, holders: Vec<Holder> },
    /// A saved file of the store is not what sidle wrote.
    #[error("cannot understand {}: {reason}", path.display())]
    Corrupt { path: PathBuf, reason: String },
    /// The host cannot run or hold the release.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The bundle, its metadata or its manifest is refused.
    #[error(transparent)]
    Refused(#[from] Report),
    /// The bundle holds no release for this host or request.
    #[error("cannot install from this bundle: {reason}")]
    NothingFits { reason: String },
    /// A manifest that is signed under another release's name.
    #[error("cannot trust the manifest of {listed}: it is signed under that name, but describes {described}")]
    Mislabelled { listed: ReleaseId, described: ReleaseId },
    /// The same release is installed with other content.
    #[error("cannot install {release}: it is installed already, with other content")]
    OtherContent { release: Release },
}

impl StoreError {
    fn advice(&self) -> (Class, Option<String>) {
        let (class, hint) = match self {
            Self::Os(error) => return (error.class(), error.hint()),
            Self::Unfit(unfit) => return (unfit.class(), Some(unfit.hint())),
            Self::Refused(report) => return (report.class, report.hint.clone()),
            Self::Locked { .. } | Self::BeingRemoved { .. } => {
                (Class::Locked, "wait for the other command, then try again".to_owned())
            }
            Self::NotInstalled { package, .. } => (
                Class::Failed,
                format!("`sidle list {package}` shows the installed releases; `sidle install FILE` adds a release"),
            ),
            Self::Half { there, .. } => (
                Class::Failed,
                format!("mount its file system; if it was removed on purpose, remove {} too", there.display()),
            ),
            Self::Damaged { package, release, .. } => (
                Class::Integrity,
                format!(
                    "`sidle repair {package} {release}` repairs the release from other releases, the repository, or a bundle file (`--from FILE`); `sidle verify` lists every file"
                ),
            ),
            Self::Unchecked { package, release, .. } => (
                Class::Failed,
                format!(
                    "check it as root; if the disk fails, `sidle repair {package} {release}` writes the files to other places on it"
                ),
            ),
            Self::InUse { .. } => {
                (Class::Conflict, "first switch away from it, or end the processes that use it".to_owned())
            }
            Self::Corrupt { .. } => {
                (Class::Failed, "restore it from a backup; sidle does not guess its content".to_owned())
            }
            Self::NothingFits { .. } => {
                (Class::Failed, "`sidle inspect FILE` shows the releases in a bundle".to_owned())
            }
            Self::Mislabelled { .. } => (
                Class::NotTrusted,
                "it was signed in this state: ask the repository's owner, who may have been deceived".to_owned(),
            ),
            Self::OtherContent { .. } => (
                Class::Conflict,
                "a rebuild of the same version needs a higher revision: pack it with --revision".to_owned(),
            ),
        };
        (class, Some(hint))
    }

    /// The kind of failure.
    pub fn class(&self) -> Class {
        self.advice().0
    }

    /// The remedy.
    pub fn hint(&self) -> Option<String> {
        self.advice().1
    }
}

/// An entry of a tree that differs from the signed manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {defect}", path.display())]
pub struct Problem {
    /// Path relative to the tree; that of a foreign entry need not be text.
    pub path: PathBuf,
    /// The difference.
    pub defect: Defect,
}

impl Problem {
    /// Whether the check of this entry failed, so that it may be good or bad.
    pub fn is_not_known(&self) -> bool {
        matches!(self.defect, Defect::Unreadable(_))
    }
}

/// How an entry differs from the signed manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// No entry of this name.
    #[error("is missing")]
    Missing,
    /// A file, directory or link in place of another kind.
    #[error("is of another kind")]
    Kind,
    /// Other permission bits.
    #[error("has mode {0:04o}")]
    Mode(u32),
    /// Another user or group.
    #[error("belongs to user {0}, group {1}")]
    Owner(u32, u32),
    /// Other content, or another target of the link.
    #[error("has other content")]
    Content,
    /// Not signed, and a program may load it in place of a signed file.
    #[error("does not belong there")]
    Foreign,
    /// Not signed, but no program loads it: a core dump, the leftover of an editor or of NFS. It keeps no release from starting.
    #[error("does not belong there, but harms nothing")]
    Stray,
    /// The check failed: neither bad nor known to be good.
    #[error("cannot be checked: {0}")]
    Unreadable(String),
}

/// What keeps a release from being removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum Holder {
    /// A process with the leased descriptor.
    #[error("{0} holds its lease")]
    Lease(LockHolder),
    /// An unknown process with the leased descriptor.
    #[error("a process that can't be seen from here holds its lease")]
    UnknownLease,
    /// A process that uses a file of the tree; `how`: `exe`, `cwd`, `root` or `maps`.
    #[error("process {pid} ({title}) uses {} ({how})", path.display())]
    Process { pid: u32, title: String, how: &'static str, path: PathBuf },
    /// A second mount of the tree or of a part of it.
    #[error("it, or something in it, is mounted at {}", .0.display())]
    Mount(PathBuf),
    /// An instance needs the release: it is current or previous, or a switch goes to it.
    #[error("it is {0}")]
    Wanted(String),
    /// Whether the release is in use could not be found out.
    #[error("cannot tell whether the release is in use: {0}")]
    Unknown(String),
}

/// One message lists at most this many problems.
const PROBLEMS_SHOWN_MAXIMUM: usize = 5;

fn listed<T: fmt::Display>(items: &[T]) -> String {
    let mut shown: Vec<String> = items.iter().take(PROBLEMS_SHOWN_MAXIMUM).map(T::to_string).collect();
    if items.len() > PROBLEMS_SHOWN_MAXIMUM {
        shown.push(format!("and {} more", items.len() - PROBLEMS_SHOWN_MAXIMUM));
    }
    shown.join("; ")
}

fn there(installed: &[Release]) -> String {
    if installed.is_empty() {
        "no release of it is installed".to_owned()
    } else {
        format!("the installed releases are {}", listed(installed))
    }
}

crate::reports!(StoreError);
