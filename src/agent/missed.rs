//! What was published while an agent could not hear: its peers know it, and the host does not.

use jiff::Timestamp;
use serde_json::Value;
use std::path::Path;

/// A time in which an agent could not hear.
#[derive(Debug, Clone, Copy)]
pub struct Unheard<'a> {
    /// Its beginning.
    pub from: Timestamp,
    /// The options of the running agent, in the agent's own form; None: not known.
    pub options: Option<&'a Value>,
    /// The instance's state directory.
    pub state: &'a Path,
}
