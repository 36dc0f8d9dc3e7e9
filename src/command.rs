//! A daemon whose release brings two commands: `health` and `idle`. Whoever can write them needs no Rust (docs/authors.md, "Your own agent").
//!
//! ```text
//! health CONFIG PID     exit 0: the daemon with this process number works; else the first line printed says what is missing
//! idle CONFIG PID       exit 0: a stop would lose nothing; else each printed line names one job. Nothing printed: not known
//! ```

use crate::agent::{Activity, Agent, AgentError, AgentSettings, Health, Job, Need, Peer, Subject};
use crate::os::notify::NOTIFY_SOCKET;
use crate::os::process::{Identity, Program, Said};
use std::path::PathBuf;
use std::time::Duration;

/// Every release of such a daemon has them.
pub const COMMANDS: &[&str] = &["health", "idle"];

/// Longest time that a command may take. It stops a command that hangs (a daemon may be frozen while `idle` runs) from holding up the supervisor.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Observes one such daemon.
#[derive(Debug)]
pub struct CommandAgent {
    settings: AgentSettings,
}

impl CommandAgent {
    /// An observer of the daemon configured in `settings`.
    pub fn new(settings: &AgentSettings) -> Result<Self, AgentError> {
        Ok(Self { settings: settings.clone() })
    }

    fn ask(&self, name: &str, leader: &Identity) -> Result<Said, String> {
        let path = self.settings.programs.get(name);
        let path = path.ok_or_else(|| format!("the release has no command `{name}` below [commands]"))?;
        let mut program = Program::new(path).passing(self.settings.passed.clone());
        program = program.argument(&self.settings.config_directory).argument(leader.pid.to_string());
        program.without.push(NOTIFY_SOCKET.into());
        let said = program.answer_within(ANSWER_MAX).map_err(|error| error.to_string())?;
        said.ok_or_else(|| format!("the command `{name}` did not end within {} s", ANSWER_MAX.as_secs()))
    }
}

fn first_line<'a>(said: &'a Said, otherwise: &'a str) -> &'a str {
    said.output.lines().chain(said.errors.lines()).find(|line| !line.trim().is_empty()).unwrap_or(otherwise)
}

impl Agent for CommandAgent {
    fn activity(&self, subject: Subject<'_>) -> Activity {
        let said = match self.ask("idle", subject.leader) {
            Ok(said) if said.success => return Activity::Idle,
            Ok(said) => said,
            Err(reason) => return Activity::Unknown(reason),
        };
        let lines = said.output.lines().filter(|line| !line.trim().is_empty());
        let jobs: Vec<Job> = lines.map(|line| Job { id: line.to_owned(), what: "job".to_owned(), pid: None }).collect();
        if jobs.is_empty() {
            return Activity::Unknown(format!("`idle` failed: {}", first_line(&said, "it printed nothing")));
        }
        Activity::Busy(jobs)
    }

    fn health(&self, subject: Subject<'_>) -> Health {
        match self.ask("health", subject.leader) {
            Ok(said) => {
                let (proven, otherwise) = (said.success, if said.success { "healthy" } else { "not healthy" });
                let peer = Peer { name: "health".to_owned(), proven, detail: first_line(&said, otherwise).to_owned() };
                Health::Known { peers: vec![peer], need: Need::All }
            }
            Err(reason) => Health::Unknown(reason),
        }
    }

    fn watches(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
