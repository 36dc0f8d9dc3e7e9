//! Keys of the author: where they lie, and how they sign.
//!
//! `source` reads what the command line says of a key; `file` has private keys in files; `public` is what others get to see.

mod error;
mod file;
mod public;
mod source;

pub use error::SignerError;
pub use file::FileSigner;
pub use public::{fingerprint, public_from_pem, public_pem};
pub use source::{KeySource, OpenedKey};

crate::reports!(SignerError);
