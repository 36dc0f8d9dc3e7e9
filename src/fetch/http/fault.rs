//! The failure of one mirror. The error of the whole fetch (`error`) is made of these.

use std::time::Duration;

/// Why a mirror didn't give a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fetch) enum Fault {
    /// The mirror has no such file.
    NotFound,
    /// HTTP 403, which some object stores send for a file that does not exist.
    Forbidden,
    /// The next attempt may succeed; `retry_after` is the mirror's own wish.
    Temporary { reason: String, retry_after: Option<Duration> },
    /// The mirror will not serve this host in this run.
    Refused { reason: String },
    /// The answer breaks the protocol.
    WrongAnswer { reason: String },
    /// The bytes are not the signed ones.
    WrongBytes { reason: String },
    /// The metadata is untrusted.
    Untrusted { reason: String },
    /// The run's time limit is over: not the mirror's fault.
    OutOfTime,
}

impl Fault {
    pub(in crate::fetch) fn temporary(reason: impl Into<String>) -> Self {
        Self::Temporary { reason: reason.into(), retry_after: None }
    }

    pub(in crate::fetch) fn wrong(reason: impl Into<String>) -> Self {
        Self::WrongAnswer { reason: reason.into() }
    }

    /// The failure in words.
    pub(in crate::fetch) fn reason(&self) -> &str {
        match self {
            Self::NotFound => "it has no such file",
            Self::Forbidden => "it refuses access (HTTP 403)",
            Self::OutOfTime => "there is no time left",
            Self::Temporary { reason, .. }
            | Self::Refused { reason }
            | Self::WrongAnswer { reason }
            | Self::WrongBytes { reason }
            | Self::Untrusted { reason } => reason,
        }
    }
}
