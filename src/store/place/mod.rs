//! Where releases lie, whether they fit there, and whether they stay there.

pub mod location;
pub mod owners;
pub mod preflight;
pub mod tmpfiles;
