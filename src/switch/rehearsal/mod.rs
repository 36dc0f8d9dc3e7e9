//! Rehearsals: the run of the agent's programs, and the rebuild of extras that may follow.

pub mod performance;
pub mod preparing;
mod placing;
pub mod rebuild;
pub mod room;
mod workplace;
