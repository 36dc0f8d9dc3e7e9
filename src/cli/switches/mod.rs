//! The verbs that switch, and what they print of a switch.

pub mod cancel;
pub mod follow;
pub mod reach;
pub mod story;
pub mod switching;
pub mod timing;
pub mod upgrade;
