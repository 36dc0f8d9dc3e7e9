//! The formats: manifest, payload frames, archive members, and their limits.

pub mod compression;
pub mod contents;
pub mod frames;
pub mod host_versions;
pub(in crate::bundle) mod judge;
pub mod limits;
pub mod manifest;
pub mod member;
pub mod part;
pub mod path;
pub mod problems;
pub mod ustar;
pub(in crate::bundle) mod wire;
