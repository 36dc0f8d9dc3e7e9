//! What sidle must know of an agent: is it idle, is it healthy, which of its processes are the agent itself.

pub mod adoption;
pub mod caller;
pub mod examination;
pub mod findings;
pub mod gate;
pub mod introduction;
pub mod missed;
pub mod traces;
pub mod tryout;

use crate::digest::Digest;
use crate::failure::Class;
pub use crate::name::AgentKind;
use crate::os::OsError;
use crate::os::environment::Passed;
use crate::os::proc_fs::Process;
use crate::os::process::{Identity, Program};
use crate::rehearsal::{Part, Rehearser};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// One piece of work that a stop would kill or lose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The agent's own name for it: a Salt jid.
    pub id: String,
    /// What it does, in the operator's words: `state.apply`.
    pub what: String,
    /// Its process, where it has one of its own.
    pub pid: Option<u32>,
}

impl fmt::Display for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.what, self.id)?;
        self.pid.map_or(Ok(()), |pid| write!(formatter, " (process {pid})"))
    }
}

/// What an agent is doing. Unknown is not idle (promise 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// Nothing would be lost by a stop now.
    Idle,
    /// These jobs would be lost. Never empty.
    Busy(Vec<Job>),
    /// It can't be known, because of this. Counts as busy.
    Unknown(String),
}

impl Activity {
    /// The activity of an agent with these jobs.
    pub fn of<E: fmt::Display>(jobs: Result<Vec<Job>, E>) -> Self {
        match jobs {
            Ok(jobs) if jobs.is_empty() => Self::Idle,
            Ok(jobs) => Self::Busy(jobs),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}

/// One counterpart that the agent must reach to be of use: a Salt master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The name that the agent's configuration has for it.
    pub name: String,
    /// True when the connection is proven.
    pub proven: bool,
    /// What was seen, in the operator's words.
    pub detail: String,
}

/// How many of its peers an agent needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// Every one of them.
    All,
    /// One of them (failover).
    Any,
}

/// An agent's health. Unknown is not healthy (promise 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Its peers, each proven or not.
    Known {
        /// The peers, as configured.
        peers: Vec<Peer>,
        /// How many of them it needs.
        need: Need,
    },
    /// It can't be known, because of this. Counts as not healthy.
    Unknown(String),
}

impl Health {
    /// The names of the proven peers: what a later release is measured against.
    pub fn proven(&self) -> Vec<String> {
        match self {
            Self::Known { peers, .. } => {
                peers.iter().filter(|peer| peer.proven).map(|peer| peer.name.clone()).collect()
            }
            Self::Unknown(_) => Vec::new(),
        }
    }

    /// The same, where these peers don't count as proven, whatever was seen of them.
    #[must_use]
    pub fn without(self, unfindable: &[Peer]) -> Self {
        let Self::Known { peers, need } = self else { return self };
        let lost = |peer: &Peer| unfindable.iter().find(|lost| lost.name == peer.name).cloned();
        Self::Known { peers: peers.into_iter().map(|peer| lost(&peer).unwrap_or(peer)).collect(), need }
    }

    /// None when healthy, else what is missing. `baseline` names the peers that the release before had proven: a master that was down before the
    /// switch does not make the new release bad. Without a baseline the agent's own need decides.
    pub fn lacks(&self, baseline: &[String]) -> Option<String> {
        let (peers, need) = match self {
            Self::Unknown(reason) => return Some(reason.clone()),
            Self::Known { peers, need } => (peers, need),
        };
        let missing: Vec<String> = peers
            .iter()
            .filter(|peer| !peer.proven && (baseline.is_empty() || baseline.contains(&peer.name) || *need == Need::Any))
            .map(|peer| format!("{}: {}", peer.name, peer.detail))
            .collect();
        let proven = peers.iter().any(|peer| peer.proven);
        match (need, proven) {
            (Need::All, _) if missing.is_empty() && !peers.is_empty() => None,
            (Need::Any, true) => None,
            _ if peers.is_empty() => Some("no peer is configured".to_owned()),
            _ => Some(missing.join("; ")),
        }
    }
}

/// What an agent's observer works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// The agent's own configuration directory: `/etc/salt`.
    pub config_directory: PathBuf,
    /// The programs of the running release, by the names that its manifest gives them; empty: sidle did not start the agent.
    pub programs: BTreeMap<String, PathBuf>,
    /// The variables of this process that these programs get.
    pub passed: Passed,
    /// The release that can be asked what its agent makes of the configuration; None: there is none.
    pub release: Option<Part>,
    /// Whether its answers are kept, and where.
    pub answers: Answers,
    /// The root of an image, below which the configuration means all its paths; None: it means this host's.
    pub image: Option<PathBuf>,
}

/// Whether the answers of a release, about what its agent makes of a configuration, are kept for the next question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Answers {
    /// None is kept.
    #[default]
    Forgotten,
    /// Those in this directory count; none is written there.
    Read(PathBuf),
    /// They are kept in this directory, an instance's state.
    Kept(PathBuf),
}

impl AgentSettings {
    /// Settings for the agent configured in `config_directory`.
    pub fn new(config_directory: &Path) -> Self {
        let (config_directory, passed) = (config_directory.to_owned(), Passed::default());
        let (programs, release, answers, image) = (BTreeMap::new(), None, Answers::Forgotten, None);
        Self { config_directory, programs, passed, release, answers, image }
    }

    /// The same release, asked once about another configuration directory; `image`: where that one means its paths.
    #[must_use]
    pub fn about(&self, config_directory: PathBuf, image: Option<PathBuf>) -> Self {
        Self { config_directory, answers: Answers::Forgotten, image, ..self.clone() }
    }

    /// The same with a release to ask.
    #[must_use]
    pub fn asking(self, release: Part, answers: Answers) -> Self {
        Self { release: Some(release), answers, ..self }
    }
}

/// The paths of what makes an agent this host's agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityPaths {
    /// Its keys: an agent that has run here has one of them at least. Empty: it needs none.
    pub keys: Vec<PathBuf>,
    /// A generated name, its jobs and caches.
    pub others: Vec<PathBuf>,
}

/// Why an agent can't be observed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// The failed act and its cause, beginning "cannot".
    pub message: String,
}

impl AgentError {
    /// An error with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }

    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        Class::Failed
    }

    /// No remedy is known here.
    pub fn hint(&self) -> Option<String> {
        None
    }
}

impl From<OsError> for AgentError {
    fn from(error: OsError) -> Self {
        Self::new(error)
    }
}

crate::reports!(AgentError);

/// One process of an agent, as the supervisor knows it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The process that `sidle run` became.
    pub leader: &'a Identity,
    /// What its guard says, where it has one.
    pub report: Option<&'a gate::GuardReport>,
    /// The round trip that a peer has to answer to count as proven; None: a connection is enough.
    pub prove: Option<u64>,
}

impl<'a> Subject<'a> {
    /// A process without a guard.
    pub fn unguarded(leader: &'a Identity) -> Self {
        Self { leader, report: None, prove: None }
    }
}

/// An observer of one instance. It changes nothing: the supervisor starts, freezes and ends processes.
pub trait Agent: Send {
    /// The processes that are the agent itself rather than its jobs, leader first. They are frozen, judged and ended together; other descendants
    /// of the leader belong to jobs and are left alone. By default the leader alone.
    fn core(&self, subject: Subject<'_>) -> Result<Vec<Identity>, AgentError> {
        let leader = subject.leader;
        let gone = || AgentError::new(format!("cannot look at the agent: {leader} is gone"));
        leader.is_alive()?.then(|| vec![leader.clone()]).ok_or_else(gone)
    }

    /// The activity of the agent. It must not wait for an answer from the agent: `core` may be frozen.
    fn activity(&self, subject: Subject<'_>) -> Activity;

    /// The activity of one of two agents on a host, by its own processes and files: what its guard may not know. The other agent's work does not
    /// count. By default there is nothing that the guard does not know.
    fn at_work(&self, _subject: Subject<'_>) -> Activity {
        Activity::Idle
    }

    /// The processes below the agent that end with it once it has no work left, without those that a job left running on purpose. None: all.
    fn helpers(&self, _subject: Subject<'_>) -> Option<Vec<Identity>> {
        None
    }

    /// True for a child process that the agent keeps as long as it runs, such as an engine of Salt's: it is no job, and neither is what it starts.
    fn is_service(&self, _process: &Process) -> bool {
        false
    }

    /// Whether jobs run inside the agent's own process, invisible from outside.
    fn runs_jobs_inside(&self) -> bool {
        false
    }

    /// Whether the agent reaches its peers.
    fn health(&self, subject: Subject<'_>) -> Health;

    /// The peers that any process at or below the leader is connected to, for an agent that reports nothing and may share its files with another.
    fn connected(&self, _leader: &Identity) -> Vec<String> {
        Vec::new()
    }

    /// The agents on this host that are this agent once more, for people: each does every job a second time. `own`: the first processes of the
    /// instance; their descendants belong to it, too.
    fn doubles(&self, _own: &[u32]) -> Vec<String> {
        Vec::new()
    }

    /// The peers that a process started now could not find, and why: a name that does not resolve. A running process may still reach them.
    fn unfindable(&self) -> Vec<Peer> {
        Vec::new()
    }

    /// The user that the agent becomes, by its configuration: the gate's files must belong to that user.
    fn user(&self) -> Option<String> {
        None
    }

    /// The digest of the configuration that a start would load now: it changes when a restart would make a difference. None: not known.
    fn configuration(&self) -> Result<Option<Digest>, AgentError> {
        Ok(None)
    }

    /// The digest of the keys on disk, the agent's and its peers'. An agent loads its keys at its start, and may make them then. None: not known.
    fn credentials(&self) -> Option<Digest> {
        None
    }

    /// The files and directories that make it this host's agent, and no other's. They may be missing. A clone of the host must not have them.
    fn identity_files(&self) -> Result<IdentityPaths, AgentError> {
        Ok(IdentityPaths::default())
    }

    /// Existing directories whose changes can mean that `activity` changed; they wake a waiting switch early.
    fn watches(&self) -> Vec<PathBuf>;
}

/// Makes the observer of an instance's agent.
pub type Observer = fn(&AgentSettings) -> Result<Box<dyn Agent>, AgentError>;

/// The parts of one kind of agent. All but the observer may be missing.
pub struct Parts {
    /// Its kind, as manifests name it.
    pub kind: &'static str,
    /// Tells whether it is idle and healthy.
    pub observer: Observer,
    /// Tries its configuration with a new release.
    pub rehearser: Option<&'static dyn Rehearser>,
    /// Takes it over from a distribution's package.
    pub adopter: Option<&'static dyn adoption::Adopter>,
    /// Looks for problems of it on a host.
    pub examiner: Option<&'static dyn examination::Examiner>,
    /// Finds the agent's job that a process belongs to, by what is kept in the directory of all instances' states.
    pub caller: Option<fn(u32, &Path) -> Option<caller::Caller>>,
    /// Reads what the agent's own files tell of a job; None: the files are not known.
    pub traces: Option<fn(traces::Inquiry<'_>) -> Option<traces::JobTraces>>,
    /// Brings up a host's first one.
    pub introducer: Option<&'static dyn introduction::Introducer>,
    /// How the operator lists what was published while the agent could not hear.
    pub missed: Option<fn(missed::Unheard<'_>) -> String>,
    /// Shows that a release's programs work on a host.
    pub tryout: Option<tryout::Maker>,
    /// The program by which the release in a tree says what it brings; None: the tree has none.
    pub describer: Option<fn(&Path) -> Option<Program>>,
    /// Commands that its releases must have.
    pub commands: &'static [&'static str],
}

impl Parts {
    /// A kind of agent with an observer and nothing else.
    pub const fn new(kind: &'static str, observer: Observer) -> Self {
        Self {
            kind,
            observer,
            rehearser: None,
            adopter: None,
            examiner: None,
            caller: None,
            traces: None,
            introducer: None,
            missed: None,
            tryout: None,
            describer: None,
            commands: &[],
        }
    }
}

/// Gives the parts of a kind of agent, or says that this sidle does not know it. `cli::agents` has the only one.
pub type Registry = fn(&AgentKind) -> Result<&'static Parts, AgentError>;

#[cfg(test)]
mod tests {
    use super::*;

    fn health(need: Need, proven: &[(&str, bool)]) -> Health {
        let peers = proven.iter().map(|(name, proven)| Peer {
            name: (*name).to_owned(),
            proven: *proven,
            detail: "not connected".to_owned(),
        });
        Health::Known { peers: peers.collect(), need }
    }

    #[test]
    fn a_master_that_was_down_before_does_not_count_against_the_new_release() {
        let seen = health(Need::All, &[("a", true), ("b", false)]);
        assert_eq!(seen.lacks(&["a".to_owned()]), None);
        assert_eq!(seen.lacks(&["a".to_owned(), "b".to_owned()]), Some("b: not connected".to_owned()));
        assert_eq!(seen.lacks(&[]), Some("b: not connected".to_owned()));
    }

    #[test]
    fn failover_needs_one_and_unknown_is_not_healthy() {
        assert_eq!(health(Need::Any, &[("a", false), ("b", true)]).lacks(&["a".to_owned()]), None);
        assert!(health(Need::Any, &[("a", false)]).lacks(&[]).is_some());
        assert!(health(Need::All, &[]).lacks(&[]).is_some());
        assert!(Health::Unknown("why".to_owned()).lacks(&[]).is_some());
    }
}
