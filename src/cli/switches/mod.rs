//! The verbs that switch, and what they print of a switch.

pub mod cancel;
pub mod follow;
mod foresight;
pub mod order;
mod own_release;
pub mod reach;
pub mod rehearse;
pub mod story;
pub mod switching;
pub mod timing;
pub mod upgrade;
