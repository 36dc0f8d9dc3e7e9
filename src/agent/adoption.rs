//! Taking over an agent that sidle did not start: find it, and load its guard while it runs.

use super::{AgentError, AgentSettings};
use crate::os::again::Start;
use crate::os::process::Identity;
use crate::rehearsal::Part;
use jiff::Zoned;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// An agent that runs, and that sidle did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningAgent {
    /// Its first process.
    pub leader: Identity,
    /// The process that works: the leader or one below it.
    pub main: Identity,
    /// How its first process was started.
    pub start: Start,
    /// Its configuration directory.
    pub configuration: PathBuf,
    /// The user that it becomes after its start as root.
    pub user: Option<String>,
}

/// An adopted agent's trees: packages may have been installed over either of them.
#[derive(Debug, Clone)]
pub struct Trees {
    /// The package's tree, with the variables of its process.
    pub packaged: Part,
    /// The running release, with the variables of its process that name places of the host.
    pub release: Part,
    /// The first process of the running release; None: none runs.
    pub leader: Option<Identity>,
}

/// Which packages went back to a packaged agent and which did not, each with its version. All lists are empty where there were no packages to give back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ExtrasBack {
    /// The release's directory; None: it has none of its own.
    pub place: Option<PathBuf>,
    /// The packaged agent's directory.
    pub into: Option<PathBuf>,
    /// Given back, or in a plan: to be given back.
    pub given: Vec<String>,
    /// Changed in both directories: the packaged agent keeps its own.
    pub conflicts: Vec<String>,
    /// Removed from the release's directory: the packaged agent keeps its own.
    pub removed: Vec<String>,
    /// Fit only for the release's Python.
    pub unfit: Vec<String>,
    /// Not given back, and why.
    pub failed: Vec<String>,
}

/// A variable that a file of the host names for a packaged agent, and that the running agent does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSetting {
    /// The variable: one of [`Adopter::shared_variables`].
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The file that names it.
    pub file: PathBuf,
    /// Why a release must not get it, and what to do about that; None: nothing forbids it.
    pub refusal: Option<String>,
}

/// How one kind of agent is adopted.
pub trait Adopter: Sync {
    /// The unit that the package installs.
    fn unit(&self, package: &str) -> String;

    /// True for a command of a release that a package's agent brings, too: other commands, such as a Python, have other owners on a host.
    fn is_command(&self, name: &str) -> bool;

    /// Variables that name places of the host. An agent's tools need them with the value that the agent has, so that both find the same files; and
    /// what the host sets counts before what a release sets.
    fn shared_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Shared variables that files of the host name for the package of `unit`, and that the running agent does not have. `root`: where the host's files are.
    fn host_settings(&self, _root: &Path, _unit: &str, _found: &RunningAgent) -> Result<Vec<HostSetting>, AgentError> {
        Ok(Vec::new())
    }

    /// Units of other packages that run an agent of this kind, each with its configuration directory.
    fn other_names(&self, unit: &str) -> Vec<(&'static str, &'static str)>;

    /// The agent that both configurations describe, in the operator's words; None: they describe two agents.
    fn is_same(&self, ours: &AgentSettings, theirs: &AgentSettings) -> Result<Option<String>, AgentError>;

    /// Finds the running agent of a configuration. `leader`: its first process, if a service manager knows it.
    fn find(&self, settings: &AgentSettings, leader: Option<u32>) -> Result<Option<RunningAgent>, AgentError>;

    /// Why a running agent can never run beside another one; None: nothing is known against it, and its guard says more.
    fn alone(&self, _found: &RunningAgent) -> Option<String> {
        None
    }

    /// Asks a running agent to load its guard, which is copied into the directory `copy`. The guard's report in `gate` says whether it did;
    /// [`Adopter::tidy`] removes what the request needed.
    fn guard(&self, settings: &AgentSettings, found: &RunningAgent, gate: &Path, copy: &Path)
    -> Result<(), AgentError>;

    /// How the operator lists the jobs that the peers published between two moments while no agent ran.
    fn missed(&self, from: &Zoned, until: &Zoned) -> String;

    /// Removes the files of [`Adopter::guard`] from the agent's directories.
    fn tidy(&self, settings: &AgentSettings) -> Result<(), AgentError>;

    /// Describes the packages that are installed over both trees, for [`Adopter::extras_back`]; None: there can be none.
    fn extras(&self, _trees: &Trees) -> Result<Option<String>, AgentError> {
        Ok(None)
    }

    /// Gives back to the packaged agent the packages that were installed over the release since `record` was made.
    fn extras_back(&self, _trees: &Trees, _record: &str, _is_plan: bool) -> Result<ExtrasBack, AgentError> {
        Ok(ExtrasBack::default())
    }
}
