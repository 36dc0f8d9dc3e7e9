//! Why a key can't be made or used.

use crate::failure::Class;
use crate::os::OsError;
use std::path::{Path, PathBuf};

/// Why a private key can't be made or used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum SignerError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The file exists already.
    #[error("cannot make the key {path}: the file exists already")]
    Exists { path: PathBuf },
    /// The path names no file.
    #[error("cannot make the key {path}: the path names no file")]
    NoFile { path: PathBuf },
    /// The file holds no usable key.
    #[error("cannot use the key {path}: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    /// Users other than the owner may read or change the file.
    #[error("cannot use the key {path}: other users may read or change it (mode {mode:04o})")]
    Exposed { path: PathBuf, mode: u32 },
    /// The passphrase doesn't open the file.
    #[error("cannot open the key {path}: the passphrase is wrong, or the file is damaged")]
    Passphrase { path: PathBuf },
    /// The key is encrypted, and there is no terminal to ask for the passphrase.
    #[error("cannot open an encrypted key: {reason}")]
    NoPassphrase { reason: String },
    /// An ssh-agent doesn't answer, or doesn't hold the key.
    #[error("cannot use the key ssh-agent:{key}: {reason}")]
    Agent { key: String, reason: String },
    /// A program doesn't give its key.
    #[error("cannot use the key exec:{command}: {reason}")]
    Exec { command: String, reason: String },
    /// The system has no random numbers.
    #[error("cannot make a key: the system gives no random numbers ({reason})")]
    Random { reason: String },
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

    /// A remedy for the author.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Exists { .. } => Some("name another file: an existing key is never overwritten".to_owned()),
            Self::Agent { .. } => Some("`ssh-add -l` lists the fingerprints of the keys that the agent holds".to_owned()),
            Self::Exec { .. } => Some(
                "with SIDLE_SIGN=public it prints its public key (PEM), with SIDLE_SIGN=sign the signature over its standard input".to_owned(),
            ),
            Self::Exposed { path, .. } => Some(format!(
                "`chmod 600 {}`; if another user may have read it, replace it: `sidle key new`, `sidle repo rotate`",
                path.display()
            )),
            Self::Unreadable { .. } => Some("`sidle key new FILE` makes a key".to_owned()),
            Self::NoFile { .. } | Self::Passphrase { .. } | Self::NoPassphrase { .. } | Self::Random { .. } => None,
        }
    }
}
