//! The only floor that touches files, processes, clocks and sockets. Everything above takes a `Dir`, an `Identity` or a time.

#![expect(clippy::disallowed_methods, reason = "this is the floor that the lint fences: raw effects are made here")]

pub mod attributes;
pub mod children;
pub mod clock;
pub mod crash;
pub mod dir;
pub mod effects;
pub mod environment;
pub mod file;
mod file_stat;
pub mod filter;
pub mod host;
pub mod lock;
pub mod memory;
pub mod mounts;
pub mod net;
pub mod notify;
pub mod proc_fs;
pub mod process;
pub mod random;
pub mod signals;
pub mod socket;
pub mod space;
pub mod standard_error;
pub mod thread;
pub mod units;
pub mod walk;
pub mod watch;

use crate::failure::Class;
use std::fmt;
use std::io;
use std::path::Path;

/// An operation on the system that failed: what was attempted on what, and why the system refused.
#[derive(Debug)]
pub struct OsError {
    /// What was attempted on what: `cannot open /opt/sidle`.
    pub attempted: String,
    /// The system's answer.
    pub source: io::Error,
}

impl OsError {
    /// An error of `verb` on `path`: "cannot VERB PATH".
    pub fn new(verb: &str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { attempted: format!("cannot {verb} {}", path.display()), source: source.into() }
    }

    /// The kind of the system's answer.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// True when bytes, inodes or quota ran out.
    pub fn is_no_space(&self) -> bool {
        is_no_space(&self.source)
    }

    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        if self.is_no_space() { Class::NoSpace } else { Class::Failed }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self.kind() {
            io::ErrorKind::PermissionDenied => {
                Some("run it as the owner of the root directory (root for /), or name another with --root".to_owned())
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                Some("the file system is mounted read-only: remount it, or name another --root".to_owned())
            }
            io::ErrorKind::NotADirectory if self.source.get_ref().is_some() => Some(
                "replace the link by a directory: sidle follows none there; what it leads to can be mounted in its place (`mount --bind`)"
                    .to_owned(),
            ),
            io::ErrorKind::AlreadyExists => {
                Some("look at what lies there, and move it away or remove it".to_owned())
            }
            io::ErrorKind::NotADirectory => {
                Some("a part of the path is a file, not a directory: check it, or name another --root".to_owned())
            }
            _ if self.is_no_space() => {
                Some("free space or inodes there; `sidle collect` removes old releases".to_owned())
            }
            _ => None,
        }
    }
}

/// Why a directory of sidle's own isn't used where a link lies in its place.
fn not_a_link() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "it is a link, not a directory")
}

/// True when an IO error means that bytes, inodes or quota ran out.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for OsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.attempted, plain(&self.source))
    }
}

/// The system's words without Rust's "(os error 2)".
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

impl std::error::Error for OsError {}

/// A result of this floor.
pub type Result<T> = std::result::Result<T, OsError>;

crate::reports!(OsError);
