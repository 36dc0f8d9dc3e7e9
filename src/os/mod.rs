//! The only floor that touches files, processes, clocks and sockets. Everything above takes a `Dir`, an `Identity` or a time.

#![expect(clippy::disallowed_methods, reason = "this is the floor that the lint fences: raw effects are made here")]

pub mod clock;
pub mod crash;
pub mod effects;
mod files;
pub mod host;
pub mod net;
pub mod notify;
mod processes;
pub mod random;
mod sock_diag;
pub mod socket;
pub mod terminal;
pub mod units;

pub use processes::{
    account, again, children, dialogue, environment, filter, memory, proc_fs, process, signals, standard_error,
    standard_streams, tcp, thread,
};

use files::file_stat;
pub use files::{dir, file, ground, labels, lock, mounts, place, space, walk, watch};

use crate::failure::Class;
use std::io;
use std::path::Path;

/// An operation on the system that failed.
#[derive(Debug, thiserror::Error)]
#[error("{attempted}: {}", plain(answer))]
pub struct OsError {
    /// The operation and its subject: `cannot open /opt/sidle`.
    pub attempted: String,
    /// The system's answer. Not named `source`: the message has it already, without Rust's "(os error 2)".
    pub answer: io::Error,
}

impl OsError {
    /// An error of `verb` on `path`: "cannot VERB PATH".
    pub fn new(verb: &str, path: &Path, answer: impl Into<io::Error>) -> Self {
        Self { attempted: format!("cannot {verb} {}", path.display()), answer: answer.into() }
    }

    /// The kind of the system's answer.
    pub fn kind(&self) -> io::ErrorKind {
        self.answer.kind()
    }

    /// Whether bytes, inodes or quota ran out.
    pub fn is_no_space(&self) -> bool {
        is_no_space(&self.answer)
    }

    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        if self.is_no_space() { Class::NoSpace } else { Class::Failed }
    }

    /// The remedy.
    pub fn hint(&self) -> Option<String> {
        let hint = match self.kind() {
            io::ErrorKind::PermissionDenied => {
                "run the command as the owner of the root directory (root for /), or name another with --root"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the file system is mounted read-only: remount it, or name another --root"
            }
            io::ErrorKind::NotADirectory if self.answer.get_ref().is_some() => {
                "replace the link by a directory: sidle follows none there; to use its target, mount it there (`mount --bind`)"
            }
            io::ErrorKind::NotADirectory => {
                "a part of the path is a file, not a directory: check it, or name another --root"
            }
            // An empty chroot, or a container without it.
            io::ErrorKind::NotFound if self.attempted.contains(" /proc/self/") => {
                "mount /proc: `mount -t proc proc /proc`"
            }
            io::ErrorKind::AlreadyExists => "check that file or directory, then move it away or remove it",
            _ if self.is_no_space() => "free space or inodes there; `sidle collect` removes old releases",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// The error for a link in the place of one of sidle's directories.
fn not_a_link() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "it is a link, not a directory")
}

/// Whether bytes, inodes or quota ran out.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The system's words without Rust's "(os error 2)".
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// A result of this floor.
pub type Result<T> = std::result::Result<T, OsError>;

crate::reports!(OsError);
