//! Processes: starting, observing and signalling them, and what they inherit.

pub mod account;
pub mod again;
pub mod children;
mod clone;
pub mod dialogue;
pub mod environment;
pub mod filter;
pub mod memory;
pub mod proc_fs;
pub mod process;
mod program;
pub mod signals;
pub mod standard_error;
pub mod standard_streams;
pub mod tcp;
pub mod thread;
