//! Why the store refuses or fails.

use super::check::Problem;
use super::lease::Holder;
use crate::bundle::member::ReleaseId;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::OsError;
use crate::os::lock::{Holder as Holding, by};
use crate::version::Release;
use std::fmt;
use std::io;

/// Why an operation on the store was refused or failed. Nothing visible has changed where one is returned.
#[derive(Debug)]
pub enum StoreError {
    /// The system refused.
    Os(OsError),
    /// Another command changes this package now.
    Locked {
        /// The package.
        package: PackageName,
        /// Who holds the lock, where it could be seen.
        holder: Option<Holding>,
    },
    /// The release is being removed, and that takes too long.
    BeingRemoved {
        /// The release.
        release: Release,
        /// Who removes it, where it could be seen.
        holder: Option<Holding>,
    },
    /// The release isn't installed.
    NotInstalled {
        /// The package.
        package: PackageName,
        /// What was asked for.
        release: Release,
        /// What there is.
        installed: Vec<Release>,
    },
    /// The release's files aren't what the signed manifest says.
    Damaged {
        /// The package.
        package: PackageName,
        /// The release.
        release: Release,
        /// All that is wrong.
        problems: Vec<Problem>,
    },
    /// Nothing is known to be wrong with the release's files, but some of them could not be looked at.
    NotLooked {
        /// The package.
        package: PackageName,
        /// The release.
        release: Release,
        /// What could not be looked at, and why.
        problems: Vec<Problem>,
    },
    /// The release is in use and can't be changed.
    InUse {
        /// The release.
        release: Release,
        /// Who uses it.
        holders: Vec<Holder>,
    },
    /// A saved file of the store is not what sidle wrote.
    Corrupt {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The host can't run or hold the release.
    Unfit(super::preflight::Unfit),
    /// The bundle, its metadata or its manifest is refused.
    Refused(Report),
    /// The bundle holds nothing for this host or request.
    NothingFits {
        /// What was looked for and what there was.
        reason: String,
    },
    /// A manifest that is signed under another release's name.
    Mislabelled {
        /// The release that it is listed as.
        listed: ReleaseId,
        /// The release that it describes.
        described: ReleaseId,
    },
    /// The same release is installed with other content.
    OtherContent {
        /// The release.
        release: Release,
    },
}

impl StoreError {
    pub(super) fn lock(path: &std::path::Path, source: io::Error) -> Self {
        Self::Os(OsError::new("lock", path, source))
    }

    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Locked { .. } | Self::BeingRemoved { .. } => Class::Locked,
            Self::NotInstalled { .. } | Self::Corrupt { .. } | Self::NothingFits { .. } | Self::NotLooked { .. } => {
                Class::Failed
            }
            Self::Damaged { .. } => Class::Integrity,
            Self::Mislabelled { .. } => Class::NotTrusted,
            Self::InUse { .. } | Self::OtherContent { .. } => Class::Conflict,
            Self::Unfit(unfit) => unfit.class(),
            Self::Refused(report) => report.class,
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Locked { .. } | Self::BeingRemoved { .. } => Some("wait for it to finish, then try again".to_owned()),
            Self::NotInstalled { package, .. } => {
                Some(format!("`sidle list {package}` shows what is installed; `sidle install FILE` adds a release"))
            }
            Self::Damaged { package, release, .. } => Some(format!(
                "`sidle repair {package} {release}` mends it from other releases, the repository, or a bundle file (`--from FILE`); `sidle verify` lists every file"
            )),
            Self::NotLooked { package, release, .. } => Some(format!(
                "look at it as root; where the disk itself fails, `sidle repair {package} {release}` writes the files anew elsewhere on it"
            )),
            Self::InUse { .. } => Some("switch away from it, or end what uses it, first".to_owned()),
            Self::Corrupt { .. } => Some("restore it from a backup; sidle does not guess what it said".to_owned()),
            Self::Unfit(unfit) => unfit.hint(),
            Self::Refused(report) => report.hint.clone(),
            Self::NothingFits { .. } => Some("`sidle inspect FILE` shows what a bundle holds".to_owned()),
            Self::Mislabelled { .. } => {
                Some("it was signed in this state: ask the repository's owner, who may have been deceived".to_owned())
            }
            Self::OtherContent { .. } => {
                Some("a rebuild of the same version needs a higher revision: pack it with --revision".to_owned())
            }
        }
    }
}

/// At most this many problems are told in one message.
const PROBLEMS_SHOWN_MAXIMUM: usize = 5;

fn listed<T: fmt::Display>(items: &[T]) -> String {
    let mut shown: Vec<String> = items.iter().take(PROBLEMS_SHOWN_MAXIMUM).map(T::to_string).collect();
    if items.len() > PROBLEMS_SHOWN_MAXIMUM {
        shown.push(format!("and {} more", items.len() - PROBLEMS_SHOWN_MAXIMUM));
    }
    shown.join("; ")
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => error.fmt(formatter),
            Self::Locked { package, holder } => {
                write!(formatter, "cannot change {package}: another command is at work on it{}", by(holder.as_ref()))
            }
            Self::BeingRemoved { release, holder } => {
                write!(formatter, "cannot start {release}: another command removes a release{}", by(holder.as_ref()))
            }
            Self::NotInstalled { package, release, installed } if installed.is_empty() => {
                write!(formatter, "cannot find release {release} of {package}: no release of it is installed")
            }
            Self::NotInstalled { package, release, installed } => {
                write!(formatter, "cannot find release {release} of {package}: installed are {}", listed(installed))
            }
            Self::Damaged { package, release, problems } => {
                write!(
                    formatter,
                    "cannot use {package} {release}: its files are not what was signed: {}",
                    listed(problems)
                )
            }
            Self::NotLooked { package, release, problems } => {
                write!(formatter, "cannot tell whether {package} {release} is as it was signed: {}", listed(problems))
            }
            Self::InUse { release, holders } => write!(formatter, "cannot take {release} away: {}", listed(holders)),
            Self::Corrupt { path, reason } => write!(formatter, "cannot understand {}: {reason}", path.display()),
            Self::Unfit(unfit) => unfit.fmt(formatter),
            Self::Refused(report) => report.fmt(formatter),
            Self::NothingFits { reason } => write!(formatter, "cannot install from this bundle: {reason}"),
            Self::Mislabelled { listed, described } => {
                write!(
                    formatter,
                    "cannot trust the manifest of {listed}: it is signed as that, and describes {described}"
                )
            }
            Self::OtherContent { release } => {
                write!(formatter, "cannot install {release}: it is installed already, with other content")
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl From<OsError> for StoreError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

impl From<Report> for StoreError {
    fn from(report: Report) -> Self {
        Self::Refused(report)
    }
}

crate::reports!(StoreError);
