//! Rehearsals: the run of the agent's programs, and the rebuild of extras that may follow.

pub mod performance;
mod placing;
pub mod preparing;
pub mod rebuild;
pub mod room;
mod workplace;
