//! What sidle must be able to do with an agent that it did not start: find it, and give it its guard while it runs.

use super::AgentError;
use crate::os::process::Identity;
use jiff::Zoned;
use std::path::{Path, PathBuf};

/// An agent that runs, and that sidle did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningAgent {
    /// Its first process.
    pub leader: Identity,
    /// The process that works: the leader or one below it.
    pub main: Identity,
    /// The program and arguments of the first one.
    pub command: Vec<String>,
    /// Its configuration directory.
    pub configuration: PathBuf,
    /// The user that it gives up root for.
    pub user: Option<String>,
}

/// How one kind of agent is adopted.
pub trait Adopter: Sync {
    /// The unit that a package's own scripts install.
    fn unit(&self, package: &str) -> String;

    /// Units of other packages that run an agent of this kind, each with its configuration directory.
    fn other_names(&self, unit: &str) -> Vec<(&'static str, &'static str)>;

    /// Which agent it is that two configuration directories describe, in the operator's words, if both are of the same one.
    fn is_same(&self, ours: &Path, theirs: &Path) -> Result<Option<String>, AgentError>;

    /// Looks for the agent of a configuration directory. `leader`: its first process, where a service manager knows it. None: none runs.
    fn find(&self, configuration: &Path, leader: Option<u32>) -> Result<Option<RunningAgent>, AgentError>;

    /// Asks a running agent to take its guard, which is copied into the directory `copy` for it. Its report in `gate` will tell
    /// whether it has; the asking itself leaves nothing behind once [`Adopter::tidy`] was called.
    fn guard(&self, found: &RunningAgent, gate: &Path, copy: &Path) -> Result<(), AgentError>;

    /// How the peers name what they asked for between two moments in which nobody was there, in the operator's words.
    fn missed(&self, from: &Zoned, until: &Zoned) -> String;

    /// Removes what [`Adopter::guard`] put where the agent looks for it.
    fn tidy(&self, configuration: &Path) -> Result<(), AgentError>;
}
