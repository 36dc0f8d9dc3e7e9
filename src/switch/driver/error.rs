//! Why a driver can't go on.

use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::store::StoreError;
use crate::switch::RequestError;
use crate::switch::journal::files::FilesError;
use crate::version::Release;

/// Why the driver could not go on. The journal tells where it is; the next try goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// An instance's files.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The system.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The request can't be taken.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The release failed here before, or was left by a person.
    #[error("cannot switch to {release}: it failed on this host: {reason}")]
    Verdict {
        /// The release.
        release: Release,
        /// What is held against it.
        reason: String,
    },
    /// A person holds the instance.
    #[error("{0}")]
    Held(Report),
    /// The journal can't be read: nothing is begun.
    #[error("{0}")]
    Unreadable(Report),
    /// The release isn't there or isn't whole.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DriveError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Files(error) => error.class(),
            Self::Os(error) => error.class(),
            Self::Request(error) => error.class(),
            Self::Verdict { .. } => Class::Held,
            Self::Held(report) | Self::Unreadable(report) => report.class,
            Self::Store(error) => error.class(),
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Files(error) => error.hint(),
            Self::Os(error) => error.hint(),
            Self::Request(error) => error.hint(),
            Self::Verdict { .. } => Some("to try it all the same, add --force".to_owned()),
            Self::Held(report) | Self::Unreadable(report) => report.hint.clone(),
            Self::Store(error) => error.hint(),
        }
    }
}
