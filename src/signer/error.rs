//! Why a key can't be made or used.

use crate::failure::Class;
use crate::os::OsError;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a private key can't be made or used.
#[derive(Debug)]
pub enum SignerError {
    /// The system refused.
    Os(OsError),
    /// The file is there already.
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The path names no file.
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The file holds no key that can be used.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Others than its owner may read or change the file.
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The passphrase doesn't open it.
    Passphrase {
        /// The file.
        path: PathBuf,
    },
    /// The key is encrypted and nobody can be asked.
    NoPassphrase {
        /// Why not, and what to do, in the caller's words.
        reason: String,
    },
    /// An ssh-agent can't be asked, or doesn't hold the key.
    Agent {
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// A program doesn't give its key.
    Exec {
        /// Its command line.
        command: String,
        /// Why.
        reason: String,
    },
    /// The system has no random numbers.
    Random {
        /// Its answer.
        reason: String,
    },
}

impl SignerError {
    pub(super) fn unreadable(path: &Path, reason: &str) -> Self {
        Self::Unreadable { path: path.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn encoding(path: &Path, error: &pkcs8::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), reason: format!("it cannot be encoded: {error}") }
    }

    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Exists { .. } => Class::Conflict,
            Self::NoFile { .. } | Self::NoPassphrase { .. } => Class::Usage,
            Self::Unreadable { .. }
            | Self::Exposed { .. }
            | Self::Passphrase { .. }
            | Self::Random { .. }
            | Self::Agent { .. }
            | Self::Exec { .. } => Class::Failed,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Exists { .. } => Some("name another file: an existing key is never overwritten".to_owned()),
            Self::Agent { .. } => Some("`ssh-add -l` lists the fingerprints of the keys that the agent holds".to_owned()),
            Self::Exec { .. } => Some(
                "with SIDLE_SIGN=public it prints its public key (PEM), with SIDLE_SIGN=sign the signature over its standard input".to_owned(),
            ),
            Self::Exposed { path, .. } => Some(format!(
                "`chmod 600 {}`; if somebody else may have read it, replace it: `sidle key new`, `sidle repo rotate`",
                path.display()
            )),
            Self::Unreadable { .. } => Some("`sidle key new FILE` makes a key".to_owned()),
            Self::NoFile { .. } | Self::Passphrase { .. } | Self::NoPassphrase { .. } | Self::Random { .. } => None,
        }
    }
}

impl fmt::Display for SignerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => error.fmt(out),
            Self::Exists { path } => write!(out, "cannot make the key {}: the file is there already", path.display()),
            Self::NoFile { path } => write!(out, "cannot make the key {}: the path names no file", path.display()),
            Self::Unreadable { path, reason } => write!(out, "cannot use the key {}: {reason}", path.display()),
            Self::Exposed { path, mode } => {
                write!(out, "cannot use the key {}: others may read or change it (mode {mode:04o})", path.display())
            }
            Self::Passphrase { path } => {
                write!(out, "cannot open the key {}: the passphrase is wrong, or the file is damaged", path.display())
            }
            Self::Agent { key, reason } => write!(out, "cannot use the key ssh-agent:{key}: {reason}"),
            Self::Exec { command, reason } => write!(out, "cannot use the key exec:{command}: {reason}"),
            Self::NoPassphrase { reason } => write!(out, "cannot open an encrypted key: {reason}"),
            Self::Random { reason } => write!(out, "cannot make a key: the system gives no random numbers ({reason})"),
        }
    }
}

impl std::error::Error for SignerError {}

impl From<OsError> for SignerError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}
