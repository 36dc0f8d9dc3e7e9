//! The errors of the driver.

use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::store::StoreError;
use crate::switch::RequestError;
use crate::switch::journal::files::FilesError;
use crate::version::Release;

/// An error of the driver. The journal has the phase; the next try continues there.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// An instance's file can't be used.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The journal refuses the request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The release failed on this host before.
    #[error("cannot switch to {release}: it failed on this host: {reason}")]
    Verdict {
        /// The release.
        release: Release,
        /// How it failed.
        reason: String,
    },
    /// A person holds the instance.
    #[error("{0}")]
    Held(Report),
    /// The journal can't be read, so no switch can begin.
    #[error("{0}")]
    Unreadable(Report),
    /// The release is not installed or not whole.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DriveError {
    /// The class of the failure.
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

    /// The hint for people.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Files(error) => error.hint(),
            Self::Os(error) => error.hint(),
            Self::Request(error) => error.hint(),
            Self::Verdict { .. } => Some("to try the release again, add --force".to_owned()),
            Self::Held(report) | Self::Unreadable(report) => report.hint.clone(),
            Self::Store(error) => error.hint(),
        }
    }
}
