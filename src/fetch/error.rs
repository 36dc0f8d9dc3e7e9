//! Why a file cannot be fetched, mirror by mirror.

use super::fault::Fault;
use super::location::STANDARD_INPUT;
use crate::bundle::unpack::SourceError;
use crate::failure::{Class, Reason, moment};
use crate::os::OsError;
use jiff::Timestamp;
use std::path::PathBuf;
use std::time::Duration;

/// Why a file cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum FetchError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// A setting, or a file that a setting names, cannot be used.
    #[error("cannot use {subject}: {reason}")]
    Settings { subject: String, reason: String, hint: Option<String> },
    /// The settings name no mirror.
    #[error("cannot fetch anything: the settings name no repository")]
    NoMirror,
    /// A signed name that leads out of a repository.
    #[error("cannot fetch {name:?}: its name leads out of the repository")]
    UnsafeName { name: String },
    /// A target that is too large to be fetched into memory.
    #[error("cannot fetch {name}: it is signed as larger than {limit_bytes} bytes")]
    TooLarge { name: String, limit_bytes: u64 },
    /// Signed content of another form.
    #[error("cannot use {name}: {reason}")]
    Content { name: String, reason: String },
    /// This host's own trusted metadata is unusable.
    #[error("{0}")]
    Floor(crate::trust::TrustError),
    /// No reachable mirror has the file.
    #[error("cannot fetch {name}: no mirror has it")]
    NotFound { name: String },
    /// Every mirror failed.
    #[error("cannot fetch {wanted}{}", listed(failures))]
    Mirrors {
        wanted: String,
        failures: Vec<MirrorFailure>,
        #[source]
        reason: Option<Reason>,
    },
    /// The mark file of a mirrored copy has another form.
    #[error("cannot use {}: {reason}", path.display())]
    Mark { path: PathBuf, reason: String },
    /// No mirror had the signed bytes; there is a pause before the next attempt.
    #[error("cannot fetch {name}: no mirror had the bytes that were signed; not tried again before {}", moment(*until))]
    Broken { name: String, until: Timestamp },
    /// The time limit of the whole run is over.
    #[error("cannot fetch {wanted}: the time limit of {} s for the whole run is over", total.as_secs())]
    OutOfTime { wanted: String, total: Duration },
}

/// The failure of one mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub struct MirrorFailure {
    pub mirror: String,
    pub reason: String,
    pub blame: Blame,
}

/// What a failure proves about a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Unreachable, without the file, or refusing this host.
    Unavailable,
    /// Its metadata is untrusted.
    Untrusted,
    /// Its bytes are not the signed ones.
    WrongBytes,
    /// Its answer breaks the protocol.
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
    /// Every mirror failed.
    pub(super) fn of_mirrors(wanted: &str, failures: Vec<MirrorFailure>) -> Self {
        let is_stdio = failures.iter().any(|failure| failure.mirror == STANDARD_INPUT);
        Self::Mirrors { wanted: wanted.to_owned(), failures, reason: is_stdio.then_some(Reason::StandardInput) }
    }

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
                match (is(Blame::Untrusted), is(Blame::WrongBytes)) {
                    (true, _) => Class::NotTrusted,
                    (false, true) => Class::Integrity,
                    (false, false) => Class::Failed,
                }
            }
        }
    }

    /// The remedy.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Os(error) => return error.hint(),
            Self::Floor(error) => return error.hint(),
            Self::Settings { hint, .. } => return hint.clone(),
            Self::NoMirror => "name the repository in /etc/sidle/sidle.toml: `[repository]`, `url = \"https://…\"`",
            Self::UnsafeName { .. } | Self::TooLarge { .. } | Self::Content { .. } => {
                "it was signed in this state: ask the repository's owner"
            }
            Self::NotFound { .. } => "the mirrors may be behind: try again later, or ask the repository's owner",
            Self::Mark { path, .. } => {
                return Some(format!(
                    "remove {}: the next run writes a new one; files of earlier releases then stay until you remove them",
                    path.display()
                ));
            }
            Self::Broken { .. } => "ask the repository's owner; `--refetch` fetches it before that time",
            Self::OutOfTime { .. } => {
                "run it again: fetched files are kept; `total_timeout` in `[repository]` gives more time"
            }
            Self::Mirrors { failures, .. } => match self.class() {
                Class::NotTrusted => "`sidle trust show` shows what this host trusts; ask the repository's owner",
                Class::Integrity => "tell the owners of these mirrors; a proxy may change files, too",
                _ if failures.iter().all(|failure| failure.mirror.starts_with("file:")) => {
                    "check the path, and that the stick or share is mounted: a repository's directory has metadata/timestamp.json"
                }
                _ if failures.iter().all(|failure| failure.mirror == STANDARD_INPUT) => {
                    "look at the program that started sidle and answers it, then run it again: fetched files are kept"
                }
                _ if failures.iter().all(|failure| failure.blame == Blame::WrongAnswer) => {
                    "check the URL: a repository has metadata/timestamp.json below it; a proxy may answer for it"
                }
                _ => {
                    "check `[repository]` in the settings, the network and the proxy, then run it again: fetched files are kept"
                }
            },
        };
        Some(hint.to_owned())
    }
}

fn listed(failures: &[MirrorFailure]) -> String {
    let each = failures.iter().map(|failure| format!("{}: {}", failure.mirror, failure.reason));
    let all: Vec<String> = each.collect();
    if all.is_empty() { String::new() } else { format!(": {}", all.join("; ")) }
}

impl From<FetchError> for SourceError {
    fn from(error: FetchError) -> Self {
        Self { class: error.class(), error: Box::new(error) }
    }
}
