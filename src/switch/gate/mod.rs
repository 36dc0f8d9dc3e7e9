//! Who may take jobs: the roles as the journal has them, the files that tell the processes, the round trips that they are asked for.

pub mod gatekeeper;
pub mod proofs;
pub mod roles;
