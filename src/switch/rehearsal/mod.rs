//! Rehearsals: one run of the programs of the agent, what it may lead to, what came of those that the host made necessary.

pub mod performance;
pub mod preparing;
pub mod rebuild;
mod workplace;
