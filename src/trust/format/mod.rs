//! The form of TUF metadata: strict JSON, its types, names, keys and signatures.

pub mod canonical;
pub mod delegation;
pub mod key;
pub mod limits;
pub mod metadata;
pub mod pattern;
pub mod reader;
pub mod role;
pub mod scheme;
pub mod target;
