//! What several tests stand on.

pub mod repositories;
pub mod trees;
