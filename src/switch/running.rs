//! One process of an agent: its record, its observer, and how it is frozen and looked at.

use crate::agent::{Activity, Agent, AgentError, AgentKind, AgentSettings, Health, Registry};
use crate::crash_point;
use crate::os::process::{Identity, SignalNumber};
use crate::os::{OsError, clock, proc_fs};
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// How long a frozen process may take to stop where it is; one in an uninterruptible wait is looked at again later.
const FREEZE_WAIT: Duration = Duration::from_millis(500);
const FREEZE_LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What is kept of a process, so that a later supervisor finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The first process of the agent.
    pub leader: Identity,
    /// The processes that are the agent itself, as last seen.
    pub core: Vec<Identity>,
    /// What was below an agent that stood still and was idle: no jobs, so it ends with the agent. Salt's engines, and children of 3007 that have
    /// returned and linger.
    #[serde(default)]
    pub remains: Vec<Identity>,
    /// What it runs.
    pub release: Release,
    /// Since when.
    pub started_at: Timestamp,
    /// It was sent a deadly signal: it is not to be counted on any more.
    pub doomed: bool,
}

impl Record {
    /// Everything that ends with the agent.
    pub(super) fn all(&self) -> impl Iterator<Item = &Identity> {
        self.core.iter().chain(&self.remains).chain([&self.leader])
    }
}

/// A process of the agent and its observer.
pub(super) struct Running {
    pub(super) record: Record,
    pub(super) child: Option<Child>,
    pub(super) agent: Result<Box<dyn Agent>, AgentError>,
    pub(super) settings: AgentSettings,
    pub(super) kind: AgentKind,
    pub(super) registry: Registry,
}

/// What came of freezing.
#[derive(Debug, PartialEq, Eq)]
pub enum Frozen {
    /// It stands still and would lose nothing.
    Idle,
    /// It runs on: this came in between.
    Busy(String),
}

impl Running {
    pub(super) fn leads(&self) -> bool {
        self.record.leader.is_alive().unwrap_or(true)
    }

    /// A zombie of the agent still stands in the way: Salt takes it for an instance that is already running.
    pub(super) fn lives(&self) -> bool {
        self.leads()
            || self.record.core.iter().chain(&self.record.remains).any(|identity| !identity.is_gone().unwrap_or(false))
    }

    /// The observer; one that could not be made (a configuration with an error) is tried again at every look.
    pub(super) fn observer(&mut self) -> Result<&dyn Agent, String> {
        if self.agent.is_err() {
            self.agent = (self.registry)(self.kind, &self.settings);
        }
        match &self.agent {
            Ok(agent) => Ok(agent.as_ref()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn activity(&mut self) -> Activity {
        let leader = self.record.leader.clone();
        self.observer().map_or_else(Activity::Unknown, |agent| agent.activity(&leader))
    }

    pub(super) fn health(&mut self) -> Health {
        self.refresh_core();
        let leader = self.record.leader.clone();
        self.observer().map_or_else(Health::Unknown, |agent| agent.health(&leader))
    }

    /// Remembers which processes are the agent itself while its leader can tell.
    pub(super) fn refresh_core(&mut self) {
        let leader = self.record.leader.clone();
        if let Ok(Ok(core)) = self.observer().map(|agent| agent.core(&leader)) {
            self.record.core = core;
        }
    }

    pub(super) fn thaw(&self) -> Result<(), OsError> {
        for identity in self.record.core.iter().chain([&self.record.leader]) {
            identity.signal(SignalNumber::CONT)?;
        }
        Ok(())
    }

    pub(super) fn freeze(&mut self) -> Result<Frozen, OsError> {
        self.refresh_core();
        for identity in &self.record.core {
            identity.signal(SignalNumber::STOP)?;
        }
        crash_point!("freeze.stopped");
        let seen = if self.stands_still()? {
            self.activity()
        } else {
            Activity::Unknown("it does not stand still yet".to_owned())
        };
        match described(&seen) {
            None => {
                let below = proc_fs::descendants(self.record.leader.pid)?;
                let below = below.iter().filter(|process| process.is_alive()).map(|process| Identity::of(process.pid));
                self.record.remains = below.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
                Ok(Frozen::Idle)
            }
            Some(work) => {
                self.thaw()?;
                Ok(Frozen::Busy(work))
            }
        }
    }

    pub(super) fn stands_still(&self) -> Result<bool, OsError> {
        let give_up_at = clock::since_boot() + FREEZE_WAIT;
        loop {
            let mut moving = false;
            for identity in &self.record.core {
                let state = proc_fs::process(identity.pid)?.map(|process| process.state);
                moving |= !matches!(state, None | Some('T' | 't' | 'Z' | 'X'));
            }
            if !moving || clock::since_boot() >= give_up_at {
                return Ok(!moving);
            }
            clock::sleep(FREEZE_LOOK_AGAIN);
        }
    }
}

/// What an activity waits for, in the operator's words; None when idle.
pub fn described(activity: &Activity) -> Option<String> {
    const JOBS_TOLD_MAXIMUM: usize = 3;
    match activity {
        Activity::Idle => None,
        Activity::Unknown(reason) => Some(format!("it can't be known whether it is idle: {reason}")),
        Activity::Busy(jobs) => {
            let told: Vec<String> = jobs.iter().take(JOBS_TOLD_MAXIMUM).map(ToString::to_string).collect();
            let more = jobs.len().saturating_sub(JOBS_TOLD_MAXIMUM);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Some(format!("{}{more}", told.join(", ")))
        }
    }
}

pub(super) fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
