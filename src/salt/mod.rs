//! The Salt minion as an agent.

pub mod config;
pub mod includes;
pub mod yaml;
