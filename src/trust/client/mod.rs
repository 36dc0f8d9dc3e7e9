//! The client workflow: every check above a floor, which files it asks for, and what it comes to trust.

pub mod by_hand;
pub mod floor;
pub mod refresh;
pub mod request;
pub mod search;
pub mod trusted;
pub mod verify;
