//! The author's keys: where they are, and how they sign.
//!
//! `source` reads the command line's name of a key; `file` has keys in files, `agent` the keys of an ssh-agent, `exec` keys behind a program
//! (HSM, KMS).

mod agent;
mod error;
mod exec;
mod file;
mod source;

pub use agent::AgentSigner;
pub use error::SignerError;
pub use exec::ExecSigner;
pub use file::{FileSigner, fingerprint, public_from_pem, public_pem};
pub use source::{KeySource, OpenedKey};

crate::reports!(SignerError);
