//! What shows that a release's programs work on a host: calls of them that need nothing of the host's own agent and change nothing of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The calls of one kind of agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tryout {
    /// Files that the calls read, with their contents: below the place of the tryout.
    pub files: Vec<(PathBuf, String)>,
    /// In this order.
    pub calls: Vec<Call>,
}

/// A call of a release's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The command, as the manifest names it.
    pub command: &'static str,
    /// Its words.
    pub arguments: Vec<OsString>,
    /// What stands in its output if it works.
    pub expected: &'static str,
    /// The call as people read it.
    pub shown: &'static str,
}

/// Makes the calls for a kind of agent; all that they write lies below `place`.
pub type Maker = fn(place: &Path) -> Tryout;
