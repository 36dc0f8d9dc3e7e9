//! The command line's name of a key: a plain path or `file:PATH`, `ssh-agent:FINGERPRINT|COMMENT`, `exec:COMMAND`.

use super::file::KEY_FILE_BYTES_MAXIMUM;
use super::{AgentSigner, ExecSigner, FileSigner, SignerError, public_from_pem};
use crate::os::file;
use crate::trust::{PublicKey, Signer};
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file: a private key, or a public key where nothing is signed.
    File(PathBuf),
    /// An ssh-agent: the key of this fingerprint or comment.
    Agent(String),
    /// A program: this command line.
    Exec(String),
}

/// An opened key.
pub enum OpenedKey {
    /// It can sign.
    Signer(Box<dyn Signer>),
    /// Only the public half.
    Public(PublicKey),
}

impl FromStr for KeySource {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once(':') {
            Some(("file", path)) => Self::File(path.into()),
            Some(("ssh-agent", name)) => Self::Agent(name.to_owned()),
            Some(("exec", command)) => Self::Exec(command.to_owned()),
            _ => Self::File(text.into()),
        })
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Agent(name) => write!(formatter, "ssh-agent:{name}"),
            Self::Exec(command) => write!(formatter, "exec:{command}"),
        }
    }
}

impl KeySource {
    /// Opens the key. Asks for `passphrase` only if its file is encrypted.
    pub fn open(&self, passphrase: &mut dyn FnMut() -> Result<Vec<u8>, SignerError>) -> Result<OpenedKey, SignerError> {
        match self {
            Self::File(path) => {
                let bytes = file::read(path, KEY_FILE_BYTES_MAXIMUM)?;
                match public_from_pem(path, &String::from_utf8_lossy(&bytes))? {
                    Some(public) => Ok(OpenedKey::Public(public)),
                    None => Ok(OpenedKey::Signer(Box::new(FileSigner::open(path, passphrase)?))),
                }
            }
            Self::Agent(name) => Ok(OpenedKey::Signer(Box::new(AgentSigner::find(name)?))),
            Self::Exec(command) => Ok(OpenedKey::Signer(Box::new(ExecSigner::find(command)?))),
        }
    }
}

impl OpenedKey {
    /// The public half.
    pub fn public(&self) -> PublicKey {
        match self {
            Self::Signer(signer) => signer.public(),
            Self::Public(key) => *key,
        }
    }

    /// The signer; None with only the public half.
    pub fn signer(&self) -> Option<&dyn Signer> {
        match self {
            Self::Signer(signer) => Some(&**signer),
            Self::Public(_) => None,
        }
    }
}
