//! Why a driver can't go on.

use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::store::StoreError;
use crate::switch::RequestError;
use crate::switch::journal::files::FilesError;
use crate::version::Release;
use std::fmt;

/// Why the driver could not go on. The journal tells where it is; the next try goes on from there.
#[derive(Debug)]
pub enum DriveError {
    /// An instance's files.
    Files(FilesError),
    /// The system.
    Os(OsError),
    /// The request can't be taken.
    Request(RequestError),
    /// The release failed here before, or was left by a person.
    Verdict {
        /// The release.
        release: Release,
        /// What is held against it.
        reason: String,
    },
    /// A person holds the instance.
    Held(Report),
    /// The journal can't be read: nothing is begun.
    Unreadable(Report),
    /// The release isn't there or isn't whole.
    Store(StoreError),
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

impl fmt::Display for DriveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(error) => error.fmt(formatter),
            Self::Os(error) => error.fmt(formatter),
            Self::Request(error) => error.fmt(formatter),
            Self::Verdict { release, reason } => {
                write!(formatter, "cannot switch to {release}: it failed on this host: {reason}")
            }
            Self::Held(report) | Self::Unreadable(report) => report.fmt(formatter),
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for DriveError {}

impl From<FilesError> for DriveError {
    fn from(error: FilesError) -> Self {
        Self::Files(error)
    }
}

impl From<OsError> for DriveError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

impl From<StoreError> for DriveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RequestError> for DriveError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}
