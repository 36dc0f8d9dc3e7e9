//! The parts of the supervisor. Each owns its memory, and returns what it wants done as intents.

pub mod configuration;
pub mod hearing;
pub mod host_change;
pub mod intent;
pub mod keeper;
pub mod tree;
