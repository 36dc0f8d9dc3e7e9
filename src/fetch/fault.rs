//! What one mirror did instead of giving a file. An error of the whole fetch (`error`) is made of these.

use std::time::Duration;

/// Why a mirror didn't give what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It says that there is no such file.
    NotFound,
    /// It says that we may not have it (403), which is how some object stores say that there is none.
    Forbidden,
    /// It may work the next time.
    Temporary {
        /// What happened.
        reason: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// It won't serve us in this run.
    Refused {
        /// Why.
        reason: String,
    },
    /// It answered what no mirror may answer.
    WrongAnswer {
        /// What.
        reason: String,
    },
    /// It gave other bytes than were signed.
    WrongBytes {
        /// Which.
        reason: String,
    },
    /// Its metadata is not trusted.
    Untrusted {
        /// Why.
        reason: String,
    },
    /// The time for all of it is over; not the mirror's fault.
    OutOfTime,
}

impl Fault {
    pub(super) fn temporary(reason: impl Into<String>) -> Self {
        Self::Temporary { reason: reason.into(), retry_after: None }
    }

    pub(super) fn wrong(reason: impl Into<String>) -> Self {
        Self::WrongAnswer { reason: reason.into() }
    }

    /// What it did, in words.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::NotFound => "it has no such file",
            Self::Forbidden => "it doesn't let us in (HTTP 403)",
            Self::OutOfTime => "there is no time left",
            Self::Temporary { reason, .. }
            | Self::Refused { reason }
            | Self::WrongAnswer { reason }
            | Self::WrongBytes { reason }
            | Self::Untrusted { reason } => reason,
        }
    }
}
