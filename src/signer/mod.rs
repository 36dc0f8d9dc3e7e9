//! Keys of the author: where they lie, and how they sign.
//!
//! `source` reads what the command line says of a key; `file` has private keys in files, `agent` those that an ssh-agent holds, `exec` those that a
//! program reaches (HSM, KMS); `public` is what others get to see.

mod agent;
mod error;
mod exec;
mod file;
mod public;
mod source;

pub use agent::AgentSigner;
pub use error::SignerError;
pub use exec::ExecSigner;
pub use file::FileSigner;
pub use public::{fingerprint, public_from_pem, public_pem};
pub use source::{KeySource, OpenedKey};

crate::reports!(SignerError);
