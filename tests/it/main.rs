//! The integration tests: one file per promise or floor.

mod bundle;
mod keyring;
mod machine;
mod python_tuf;
mod repository;
mod signer;
mod support;
