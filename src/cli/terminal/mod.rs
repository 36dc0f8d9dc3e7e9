//! What the verbs print with, and what they read.

pub mod exit;
pub mod facts;
pub mod input;
pub mod log;
pub mod output;
pub mod plain;
pub mod rows;
mod screen;
mod times;
pub mod tone;
