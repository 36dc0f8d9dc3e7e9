//! The gate decides which process takes a job: the roles from the journal, their files, and the round trips that guards are asked for.

pub mod claims;
pub mod gatekeeper;
pub mod proofs;
pub mod roles;
