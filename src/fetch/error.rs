//! Why something can't be fetched, mirror by mirror.

use super::fault::Fault;
use crate::bundle::unpack::SourceError;
use crate::failure::{Class, moment};
use crate::os::OsError;
use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// Why something can't be fetched.
#[derive(Debug)]
pub enum FetchError {
    /// The system refused.
    Os(OsError),
    /// A setting, or a file that it names, can't be used.
    Settings {
        /// Which.
        subject: String,
        /// Why.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// No mirror is named.
    NoMirror,
    /// A signed name that leads out of a repository.
    UnsafeName {
        /// The name.
        name: String,
    },
    /// A target that is too large to be fetched into memory.
    TooLarge {
        /// Its name.
        name: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// Signed content that can't be understood.
    Content {
        /// The target.
        name: String,
        /// Why not.
        reason: String,
    },
    /// What the host trusts can't be used to judge anything with.
    Floor(crate::trust::TrustError),
    /// Every mirror that could be asked says that there is no such file.
    NotFound {
        /// The file.
        name: String,
    },
    /// No mirror gave it.
    Mirrors {
        /// What was wanted.
        wanted: String,
        /// What each of them did.
        failures: Vec<MirrorFailure>,
    },
    /// What a copy of a repository noted of itself can't be understood.
    Mark {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No mirror had the signed bytes, and they are not tried again for a while.
    Broken {
        /// The target.
        name: String,
        /// When it is tried again.
        until: Timestamp,
    },
    /// The time for all that one run fetches is over.
    OutOfTime {
        /// What was still wanted.
        wanted: String,
        /// That time.
        total: Duration,
    },
}

/// What one mirror did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorFailure {
    /// Which.
    pub mirror: String,
    /// What it did.
    pub reason: String,
    /// What that says of it.
    pub blame: Blame,
}

/// What a failure says of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// It could not be reached, has no such file, or doesn't serve us.
    Unavailable,
    /// It gave metadata that is not trusted.
    Untrusted,
    /// It gave other bytes than were signed.
    WrongBytes,
    /// It answered what no mirror may answer.
    WrongAnswer,
}

impl MirrorFailure {
    pub(super) fn new(mirror: &str, fault: &Fault) -> Self {
        let blame = match fault {
            Fault::NotFound | Fault::Forbidden | Fault::Temporary { .. } | Fault::Refused { .. } | Fault::OutOfTime => {
                Blame::Unavailable
            }
            Fault::WrongAnswer { .. } => Blame::WrongAnswer,
            Fault::WrongBytes { .. } => Blame::WrongBytes,
            Fault::Untrusted { .. } => Blame::Untrusted,
        };
        Self { mirror: mirror.to_owned(), reason: fault.reason().to_owned(), blame }
    }
}

impl FetchError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Floor(error) => error.class(),
            Self::Settings { .. } | Self::NoMirror => Class::Usage,
            Self::UnsafeName { .. } | Self::TooLarge { .. } | Self::Content { .. } => Class::NotTrusted,
            Self::NotFound { .. } | Self::OutOfTime { .. } => Class::Failed,
            Self::Broken { .. } | Self::Mark { .. } => Class::Integrity,
            Self::Mirrors { failures, .. } => {
                let is = |blame| failures.iter().any(|failure| failure.blame == blame);
                if is(Blame::Untrusted) {
                    Class::NotTrusted
                } else if is(Blame::WrongBytes) {
                    Class::Integrity
                } else {
                    Class::Failed
                }
            }
        }
    }

    /// What an operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Floor(error) => error.hint(),
            Self::Settings { hint, .. } => hint.clone(),
            Self::NoMirror => {
                Some("name the repository in /etc/sidle/sidle.toml: `[repository]`, `url = \"https://…\"`".to_owned())
            }
            Self::UnsafeName { .. } | Self::TooLarge { .. } | Self::Content { .. } => Some("it was signed in this state: ask the repository's owner".to_owned()),
            Self::NotFound { .. } => {
                Some("the mirrors may be behind: try again later, or ask the repository's owner".to_owned())
            }
            Self::Mark { path, .. } => Some(format!(
                "remove {}: the next run notes anew what is the copy's; files of earlier releases then stay until you remove them",
                path.display()
            )),
            Self::Broken { .. } => {
                Some("ask the repository's owner; `--refetch` fetches it once more before that".to_owned())
            }
            Self::OutOfTime { .. } => {
                Some("run it again: what was fetched is kept; `total_timeout` in `[repository]` gives more time".to_owned())
            }
            Self::Mirrors { failures, .. } => match self.class() {
                Class::NotTrusted => Some("`sidle trust show` tells what this host trusts; ask the repository's owner".to_owned()),
                Class::Integrity => Some("tell the owners of the mirrors named; a proxy on the way may change files, too".to_owned()),
                _ if failures.iter().all(|failure| failure.mirror.starts_with("file:")) => Some(
                    "check the path, and that the stick or share is mounted: a repository's directory has metadata/timestamp.json".to_owned(),
                ),
                _ if failures.iter().all(|failure| failure.blame == Blame::WrongAnswer) => Some(
                    "check the URL: a repository has metadata/timestamp.json below it; a proxy on the way may answer for it".to_owned(),
                ),
                _ => Some("check `[repository]` in the settings, the network and the proxy, then run it again: what was fetched is kept".to_owned()),
            },
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => error.fmt(out),
            Self::Floor(error) => error.fmt(out),
            Self::Settings { subject, reason, .. } => write!(out, "cannot use {subject}: {reason}"),
            Self::NoMirror => out.write_str("cannot fetch anything: the settings name no repository"),
            Self::UnsafeName { name } => write!(out, "cannot fetch {name:?}: its name leads out of the repository"),
            Self::Content { name, reason } => write!(out, "cannot use {name}: {reason}"),
            Self::TooLarge { name, limit_bytes } => {
                write!(out, "cannot fetch {name}: it is signed as larger than {limit_bytes} bytes")
            }
            Self::NotFound { name } => write!(out, "cannot fetch {name}: no mirror has it"),
            Self::Mirrors { wanted, failures } => {
                write!(out, "cannot fetch {wanted}")?;
                let each = |(index, failure): (usize, &MirrorFailure)| {
                    let before = if index == 0 { ": " } else { "; " };
                    write!(out, "{before}{}: {}", failure.mirror, failure.reason)
                };
                failures.iter().enumerate().try_for_each(each)
            }
            Self::Mark { path, reason } => write!(out, "cannot use {}: {reason}", path.display()),
            Self::Broken { name, until } => {
                write!(
                    out,
                    "cannot fetch {name}: no mirror had the bytes that were signed; not tried again before {}",
                    moment(*until)
                )
            }
            Self::OutOfTime { wanted, total } => {
                write!(out, "cannot fetch {wanted}: the {} s for all of it are over", total.as_secs())
            }
        }
    }
}

impl std::error::Error for FetchError {}

impl From<OsError> for FetchError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

impl From<FetchError> for SourceError {
    fn from(error: FetchError) -> Self {
        Self { class: error.class(), error: Box::new(error) }
    }
}
