//! What an agent's own files say about one job, during the job and after it.

use jiff::Timestamp;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A question about one job of one agent.
#[derive(Debug, Clone, Copy)]
pub struct Inquiry<'a> {
    /// The agent's own name for the job; None: about the agent alone.
    pub job: Option<&'a str>,
    /// The options of the running agent, in the agent's own form; None: not known.
    pub options: Option<&'a Value>,
    /// The instance's state directory.
    pub state: &'a Path,
}

/// The facts about a job. None: could not be found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTraces {
    /// The start of the agent's main process.
    pub started: Option<Timestamp>,
    /// When the job was published, if its name tells that.
    pub published: Option<Timestamp>,
    /// The peers of the agent, as the names of claims have them.
    pub peers: Vec<String>,
    /// The process that runs the job.
    pub running: Option<u32>,
    /// The process of the job that is gone, and has left its entry behind.
    pub stale: Option<u32>,
    /// True: the agent's own cache holds the job's return.
    pub cached: Option<bool>,
    /// The file of the job in a queue of the agent.
    pub queued: Option<PathBuf>,
    /// The agent's log.
    pub log: LogTraces,
}

/// What an agent's log says about a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogTraces {
    /// The last lines about the job.
    pub lines: Vec<String>,
    /// The time of the oldest line that was read.
    pub since: Option<Timestamp>,
    /// When the return was sent.
    pub returned_at: Option<Timestamp>,
    /// True: the log level is such that each job is in the log.
    pub is_detailed: Option<bool>,
}
