//! What a release no longer offers, and what brings it back.

use serde::Serialize;

/// Functions of one module that a release does not have, and the one before has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Lost {
    /// The kind of module, as the agent's loaders call it.
    pub kind: String,
    /// The module.
    pub module: String,
    /// The functions; of a module with a single one this may be an empty name.
    pub functions: Vec<String>,
    /// True: nothing of the module is left.
    pub whole: bool,
}

/// Packages that are known to bring modules back.
#[derive(Debug, Clone, Copy)]
pub struct Successors {
    /// The day of the list: `2026-11-26`.
    pub as_of: &'static str,
    /// The package for a kind and a module, `NAME==VERSION`.
    pub find: fn(kind: &str, module: &str) -> Option<&'static str>,
}
