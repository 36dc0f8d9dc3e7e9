//! The supervisor's status file: what runs and how it is, for everybody to read without a socket and without rights.

use crate::agent::Job;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::switch::process::finishing::Finishing;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The file's name in the instance's run directory.
pub const STATUS_NAME: &str = "status";
const STATUS_LENGTH_MAXIMUM: u64 = 64 * 1024;

/// How the agent is, as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// What it runs; None: nothing of sidle's, it is being adopted.
    pub release: Option<Release>,
    /// Its first process.
    pub leader: Identity,
    /// Since when.
    pub started_at: Timestamp,
    /// The peers that it reaches.
    pub reaches: Vec<String>,
    /// What it lacks to be healthy; None: nothing.
    pub lacks: Option<String>,
}

/// How an agent ended that nobody had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When that was seen.
    pub at: Timestamp,
    /// What it ran; None: a process that sidle did not start.
    pub release: Option<Release>,
    /// Its first process.
    pub pid: u32,
    /// How, in words: `was ended by signal 9`.
    pub how: String,
    /// The jobs that it had not finished.
    pub unfinished: Vec<Job>,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.release.as_ref().map_or_else(|| "the adopted agent".to_owned(), Release::to_string);
        write!(formatter, "{what} (process {}) {}", self.pid, self.how)?;
        let jobs: Vec<String> = self.unfinished.iter().map(ToString::to_string).collect();
        if jobs.is_empty() { Ok(()) } else { write!(formatter, "; unfinished: {}", jobs.join(", ")) }
    }
}

/// How a supervisor is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorStatus {
    schema: u32,
    /// The supervisor itself.
    pub supervisor: Identity,
    /// The agent; None: none runs.
    pub agent: Option<AgentStatus>,
    /// What keeps the supervisor from running the agent.
    pub trouble: Option<String>,
    /// How the agent ended last; None: it has not, since the host was started.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// Old processes that finish their last jobs.
    #[serde(default)]
    pub finishing: Vec<Finishing>,
    /// How the running trees are looked after, and why so, where no watch could be had.
    #[serde(default)]
    pub unwatched: Option<String>,
    /// The supervisor's own version.
    #[serde(default)]
    pub version: String,
}

impl AgentStatus {
    /// What it runs, in words.
    pub fn name(&self) -> String {
        self.release.as_ref().map_or_else(|| "the adopted agent".to_owned(), Release::to_string)
    }
}

impl SupervisorStatus {
    /// A status of this very program.
    pub fn new(
        supervisor: Identity,
        agent: Option<AgentStatus>,
        trouble: Option<String>,
        ended: Option<Ended>,
    ) -> Self {
        Self {
            schema: 1,
            supervisor,
            agent,
            trouble,
            ended,
            finishing: Vec::new(),
            unwatched: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// This status with the old processes that finish their last jobs.
    #[must_use]
    pub fn with_finishing(self, finishing: Vec<Finishing>) -> Self {
        Self { finishing, ..self }
    }

    /// This status with how the running trees are looked after.
    #[must_use]
    pub fn with_unwatched(self, unwatched: Option<String>) -> Self {
        Self { unwatched, ..self }
    }

    /// What was written last: by the supervisor before, or by this process before it became a newer program.
    pub fn last(directory: &Dir) -> Option<Self> {
        let bytes = directory.read_if_exists(STATUS_NAME, STATUS_LENGTH_MAXIMUM).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes it for everybody to read.
    pub fn write(&self, directory: &Dir) -> Result<(), OsError> {
        let bytes = serde_json::to_vec(self).expect("a status has no map keys but strings");
        directory.write_atomic(STATUS_NAME, &bytes, 0o644)
    }

    /// The status of an instance's supervisor, if one lives. What a dead one wrote is no status.
    pub fn read(layout: &Layout, instance: &InstanceName) -> Result<Option<Self>, OsError> {
        let Some(directory) = Dir::open_if_exists(&layout.run(instance))? else { return Ok(None) };
        let Some(bytes) = directory.read_if_exists(STATUS_NAME, STATUS_LENGTH_MAXIMUM)? else { return Ok(None) };
        let failed = |error: serde_json::Error| {
            OsError::new("understand", &directory.path().join(STATUS_NAME), std::io::Error::from(error))
        };
        let status: Self = serde_json::from_slice(&bytes).map_err(failed)?;
        Ok(if status.supervisor.is_alive()? { Some(status) } else { None })
    }
}
