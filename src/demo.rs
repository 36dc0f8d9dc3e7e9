//! The demonstration agent of `bundles/demo-agent` as an agent: files in its state directory tell everything.

pub mod rehearsal;

use crate::agent::{Activity, Agent, AgentError, AgentSettings, Health, Job, Need, Peer, Subject};
use crate::digest::Digest;
use crate::os::dir::{Dir, FileKind};
use crate::os::{OsError, clock, file, proc_fs};
use std::path::PathBuf;
use std::time::Duration;

const CONFIGURATION_NAME: &str = "demo.conf";

/// Each of its files holds a line or two.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The heart beats every second; on a busy machine two beats may be late.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(3);

/// Observes one demonstration agent.
#[derive(Debug)]
pub struct DemoAgent {
    state: PathBuf,
    configuration: Digest,
}

impl DemoAgent {
    /// An observer of the agent configured in `settings`: `demo.conf` there may name the state directory (default: `state`).
    pub fn new(settings: &AgentSettings) -> Result<Self, AgentError> {
        let path = settings.config_directory.join(CONFIGURATION_NAME);
        let bytes = file::read_if_exists(&path, FILE_BYTES_MAX)?.unwrap_or_default();
        let configuration = Digest::of(&bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let named = text.lines().filter_map(|line| line.strip_prefix("state=")).next_back();
        Ok(Self { state: settings.config_directory.join(named.unwrap_or("state")), configuration })
    }

    fn text(&self, name: &str) -> Result<Option<String>, OsError> {
        let bytes = file::read_if_exists(&self.state.join(name), FILE_BYTES_MAX)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn files(&self, name: &str) -> Result<Vec<String>, OsError> {
        let Some(directory) = Dir::open_if_exists(&self.state.join(name))? else { return Ok(Vec::new()) };
        let files = directory.entries()?.into_iter().filter(|(_, kind)| *kind == FileKind::File);
        // The agent takes no name with a dot in front: its own temporary files, and others'.
        let names = files.map(|(name, _)| name.to_string_lossy().into_owned());
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }

    fn jobs(&self) -> Result<Vec<Job>, OsError> {
        let waiting = self.files("jobs")?.into_iter().map(|id| Job { id, what: "waiting".to_owned(), pid: None });
        let mut jobs: Vec<Job> = waiting.collect();
        let running = self.files("running")?;
        for id in running.iter().filter(|name| name.strip_suffix(".pid").is_none()) {
            let text = self.text(&format!("running/{id}.pid"))?;
            let pid = text.and_then(|text| text.trim().parse().ok());
            // Without a number the job is just being started.
            let alive = match pid {
                Some(pid) => proc_fs::process(pid)?.is_some_and(|process| process.is_alive()),
                None => true,
            };
            if alive {
                jobs.push(Job { id: id.clone(), what: "running".to_owned(), pid });
            }
        }
        Ok(jobs)
    }

    /// None when it is ready, else what is missing.
    fn lacks(&self, subject: Subject<'_>) -> Result<Option<String>, OsError> {
        let leader = subject.leader;
        if !leader.is_alive()? {
            return Ok(Some(format!("{leader} is gone")));
        }
        if let (Some(report), Some(prove)) = (subject.report, subject.prove) {
            // Two agents share the state directory: its guard tells of this one.
            let answered = report.peers.iter().any(|peer| peer.proven.is_some_and(|proven| proven >= prove));
            return Ok((!answered).then(|| "not ready yet: its guard has not answered".to_owned()));
        }
        let Some(ready) = self.text("ready")? else { return Ok(Some("not ready yet".to_owned())) };
        let pid = ready.lines().find_map(|line| line.strip_prefix("pid=")).and_then(|pid| pid.parse().ok());
        if pid != Some(leader.pid) {
            return Ok(Some(format!("not ready yet: another process was ready before {leader}")));
        }
        let Some(beat) = Dir::open(&self.state)?.stat("heartbeat")? else {
            return Ok(Some("no heartbeat yet".to_owned()));
        };
        let beat = i128::from(beat.mtime.0) * 1_000_000_000 + i128::from(beat.mtime.1);
        let age = clock::now().as_nanosecond() - beat;
        let fresh = age.unsigned_abs() <= HEARTBEAT_AGE_MAX.as_nanos();
        Ok((!fresh).then(|| format!("no heartbeat for {} s", age / 1_000_000_000)))
    }
}

impl Agent for DemoAgent {
    fn activity(&self, _subject: Subject<'_>) -> Activity {
        Activity::of(self.jobs())
    }

    fn health(&self, subject: Subject<'_>) -> Health {
        match self.lacks(subject) {
            Ok(missing) => {
                let detail = missing.clone().unwrap_or_else(|| "ready, and its heart beats".to_owned());
                let peer = Peer { name: "demo".to_owned(), proven: missing.is_none(), detail };
                Health::Known { peers: vec![peer], need: Need::All }
            }
            Err(error) => Health::Unknown(error.to_string()),
        }
    }

    fn configuration(&self) -> Result<Option<Digest>, AgentError> {
        Ok(Some(self.configuration))
    }

    fn watches(&self) -> Vec<PathBuf> {
        let mut watched = vec![self.state.join("running"), self.state.join("jobs"), self.state.clone()];
        watched.retain(|path| matches!(Dir::open_if_exists(path), Ok(Some(_))));
        watched
    }
}
