//! The supervisor's status file: the agent and its health, readable by every user, without the socket.

use crate::agent::Job;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::saved;
use crate::switch::process::finishing::Finishing;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The file's name in the instance's run directory.
pub const STATUS_NAME: &str = "status";
const STATUS_LENGTH_MAXIMUM: u64 = 64 * 1024;

/// The agent at the last check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its release; None: an agent under adoption.
    pub release: Option<Release>,
    /// Its first process.
    pub leader: Identity,
    /// When it was started.
    pub started_at: Timestamp,
    /// The peers that it reaches.
    pub reaches: Vec<String>,
    /// What it lacks to be healthy; None: nothing.
    pub lacks: Option<String>,
    /// Agents on this host that are this one once more: each does every job a second time.
    #[serde(default)]
    pub doubles: Vec<String>,
}

/// The end of an agent that sidle did not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When sidle noticed it.
    pub at: Timestamp,
    /// Its release; None: a process that sidle did not start.
    pub release: Option<Release>,
    /// Its first process.
    pub pid: u32,
    /// How it ended: `was ended by signal 9`.
    pub how: String,
    /// Its unfinished jobs.
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

/// The status of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// The form: 1.
    pub(super) schema: u32,
    /// The supervisor itself.
    pub supervisor: Identity,
    /// The agent; None: none runs.
    pub agent: Option<AgentStatus>,
    /// What keeps the supervisor from running the agent.
    pub trouble: Option<String>,
    /// The last end of the agent since the boot, if any.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// Old processes that finish their last jobs.
    #[serde(default)]
    pub finishing: Vec<Finishing>,
    /// Why the trees of running releases are polled; None: they are watched.
    #[serde(default)]
    pub unwatched: Option<String>,
    /// The digest of the settings files that the supervisor has read; empty: an older supervisor does not say.
    #[serde(default)]
    pub settings_sha256: String,
    /// The supervisor's own version.
    #[serde(default)]
    pub version: String,
}

impl AgentStatus {
    /// Its release, for people.
    pub fn name(&self) -> String {
        self.release.as_ref().map_or_else(|| "the adopted agent".to_owned(), Release::to_string)
    }
}

impl SupervisorStatus {
    /// What `sidle status` warns of.
    pub fn warnings(&self) -> Vec<String> {
        let doubles = self.agent.iter().flat_map(|agent| &agent.doubles);
        let warned = |text: &String| format!("  WARNING    {text}: every job runs twice; `sidle doctor` tells more");
        doubles.map(warned).collect()
    }

    /// Reads the last status, written by the previous supervisor or by this process before its renewal.
    pub fn last(directory: &Dir) -> Option<Self> {
        let bytes = directory.read_if_exists(STATUS_NAME, STATUS_LENGTH_MAXIMUM).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes the file.
    pub fn write(&self, directory: &Dir) -> Result<(), OsError> {
        directory.write_atomic(STATUS_NAME, &saved::line(self), 0o644)
    }

    /// Reads the status of an instance's supervisor; None: no supervisor is alive.
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
