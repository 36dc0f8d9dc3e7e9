//! One process of an agent: its record, its observer, and its freeze.

use crate::agent::gate::{GuardReport, Origin};
use crate::agent::{Activity, Agent, AgentError, AgentKind, AgentSettings, Health, Job, Registry, Subject};
use crate::crash_point;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::proc_fs::Process;
use crate::os::process::{Identity, SignalNumber};
use crate::os::{OsError, children, clock, proc_fs, process};
use crate::switch::process::{INSTANCE_VARIABLE, LEADER_VARIABLE, RELEASE_VARIABLE, ROOT_VARIABLE, TRIAL_VARIABLE};
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// How long a process may take to stop in a freeze; a process in an uninterruptible wait is tried again later.
const FREEZE_WAIT: Duration = Duration::from_millis(500);
const FREEZE_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The record of a process, by which a later supervisor finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The first process of the agent.
    pub leader: Identity,
    /// The processes of the agent itself, as last seen.
    pub core: Vec<Identity>,
    /// Descendants of a frozen idle agent, which are no jobs and end with the agent: Salt's engines, and finished job processes of 3007.
    #[serde(default)]
    pub remains: Vec<Identity>,
    /// Its release; None: sidle did not start it.
    pub release: Option<Release>,
    /// The kind of an agent that sidle did not start; None: sidle started it.
    #[serde(default)]
    pub foreign: Option<AgentKind>,
    /// When it was started.
    pub started_at: Timestamp,
    /// It was sent a deadly signal, so it is no longer usable.
    pub being_ended: bool,
    /// The number of the switch that has it on trial, if any.
    #[serde(default)]
    pub trial_of: Option<u64>,
    /// Why it was started.
    #[serde(default)]
    pub origin: Origin,
    /// It has low priority until it serves.
    #[serde(default)]
    pub aside: bool,
    /// It belongs to no switch any more: it takes no jobs, and finishes its own.
    #[serde(default)]
    pub finishing: bool,
}

impl Record {
    /// The record of a process that was started just now.
    pub(in crate::switch) fn new(leader: Identity, release: Release, trial_of: Option<u64>, origin: Origin) -> Self {
        Self { release: Some(release), trial_of, origin, ..Self::foreign(leader, None) }
    }

    /// Makes a record from the environment of a process, if it is a leader of this instance. Any user can run a program with such an environment:
    /// `is_started_from` tells whether the process was started from the release.
    pub(super) fn self_declared(
        leader: Identity,
        layout: &Layout,
        instance: &InstanceName,
        is_started_from: impl FnOnce(u32, &Release) -> bool,
    ) -> Option<Self> {
        let variable = |name| proc_fs::environment_variable(leader.pid, name).ok().flatten();
        let is_leader = variable(LEADER_VARIABLE)? == leader.pid.to_string().as_str();
        let is_ours = variable(INSTANCE_VARIABLE)? == instance.as_str() && variable(ROOT_VARIABLE)? == *layout.root();
        let release = variable(RELEASE_VARIABLE)?.to_str()?.parse().ok()?;
        if !(is_leader && is_ours && is_started_from(leader.pid, &release)) {
            return None;
        }
        let trial_of = variable(TRIAL_VARIABLE).and_then(|number| number.to_str()?.parse().ok());
        Some(Self::new(leader, release, trial_of, Origin::Boot))
    }

    /// The record of a process that sidle did not start.
    pub(in crate::switch) fn foreign(leader: Identity, foreign: Option<AgentKind>) -> Self {
        let (core, remains) = (vec![leader.clone()], Vec::new());
        Self {
            leader,
            core,
            remains,
            release: None,
            foreign,
            started_at: clock::now(),
            being_ended: false,
            trial_of: None,
            origin: Origin::Boot,
            aside: false,
            finishing: false,
        }
    }

    /// All processes that end with the agent.
    pub(in crate::switch) fn all(&self) -> impl Iterator<Item = &Identity> {
        self.core.iter().chain(&self.remains).chain([&self.leader])
    }
}

/// A process of the agent and its observer.
pub(in crate::switch) struct Running {
    pub(in crate::switch) record: Record,
    pub(in crate::switch) child: Option<Child>,
    pub(in crate::switch) agent: Result<Box<dyn Agent>, AgentError>,
    pub(in crate::switch) settings: AgentSettings,
    pub(in crate::switch) kind: AgentKind,
    /// Its release brings a guard.
    pub(in crate::switch) guarded: bool,
    pub(in crate::switch) registry: Registry,
    /// Its end has been recorded.
    pub(in crate::switch) ended: bool,
    /// Since when a finishing process has been seen without a fresh report.
    pub(in crate::switch) silent_since: Option<Duration>,
}

/// The check of a frozen process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It runs alone: the agent may have no job on this host.
    Alone,
    /// Another process runs, too: its own guard must report no job.
    Beside,
}

/// The result of a freeze.
#[derive(Debug, PartialEq, Eq)]
pub enum Frozen {
    /// It is frozen, and its end would lose nothing.
    Idle,
    /// It was thawed, because of this work.
    Busy(String),
}

impl Running {
    /// A process of a release whose manifest cannot be read: it is kept, and nothing is known of its health and its jobs.
    pub(super) fn unread(record: Record) -> Self {
        let registry: Registry = |_| {
            let remedy = "`sidle doctor` says why; once that is put right, send its supervisor a HUP";
            Err(AgentError::new(format!("cannot read the manifest of the running release: {remedy}")))
        };
        let kind: AgentKind = "unknown".parse().expect("it is a name");
        let settings = AgentSettings::new(Path::new(""));
        let agent = registry(&kind).and_then(|parts| (parts.observer)(&settings));
        Self { record, child: None, agent, settings, kind, guarded: false, registry, ended: false, silent_since: None }
    }

    pub(in crate::switch) fn leads(&self) -> bool {
        self.record.leader.is_alive().unwrap_or(true)
    }

    /// How the leader ended, on the first call after its end. Also reaps the agent's other processes: their parents may have been killed before
    /// they could wait for them.
    pub(in crate::switch) fn take_end(&mut self) -> Option<ExitStatus> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait().ok().flatten(),
            None => children::take(&self.record.leader).ok().flatten(),
        };
        for identity in self.record.core.iter().chain(&self.record.remains).filter(|it| **it != self.record.leader) {
            let _ = children::take(identity);
        }
        ended
    }

    /// The unfinished jobs of a process that ended by itself: those of its guard's last report, or those in the agent's own files. Empty for a
    /// process that sidle ended.
    pub(in crate::switch) fn unfinished(&mut self, report: Option<GuardReport>) -> Vec<Job> {
        if self.record.being_ended {
            return Vec::new();
        }
        match report.map_or_else(|| self.activity(None), |report| Activity::Busy(report.jobs)) {
            Activity::Busy(jobs) => jobs,
            Activity::Idle | Activity::Unknown(_) => Vec::new(),
        }
    }

    /// True while any process of the agent exists. A zombie counts: Salt would take it for a running instance.
    pub(in crate::switch) fn lives(&self) -> bool {
        let mut agent = self.record.core.iter().chain(&self.record.remains);
        if self.record.foreign.is_some() {
            // Zombies do not count here: the parent of an adopted agent may wait late, and the next process uses another pid file.
            return self.leads() || agent.any(|identity| identity.is_alive().unwrap_or(true));
        }
        self.leads() || agent.any(|identity| !identity.is_gone().unwrap_or(false))
    }

    /// The observer. If it could not be made (an error in the configuration), every call tries again.
    pub(in crate::switch) fn observer(&mut self) -> Result<&dyn Agent, String> {
        if self.agent.is_err() {
            self.agent = (self.registry)(&self.kind).and_then(|parts| (parts.observer)(&self.settings));
        }
        match &self.agent {
            Ok(agent) => Ok(agent.as_ref()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// True if it is alive, serves its switch, and was not sent a deadly signal.
    pub(in crate::switch) fn is_usable(&self) -> bool {
        !self.record.being_ended && !self.record.finishing && self.leads()
    }

    /// The user of the agent, if it is not the user of this process.
    pub(in crate::switch) fn user(&mut self) -> Option<u32> {
        let name = self.observer().ok()?.user()?;
        process::user_number(&name).filter(|number| *number != process::user())
    }

    pub(in crate::switch) fn activity(&mut self, report: Option<&GuardReport>) -> Activity {
        let leader = self.record.leader.clone();
        let subject = Subject { leader: &leader, report, prove: None };
        match self.observer().map_or_else(Activity::Unknown, |agent| agent.activity(subject)) {
            Activity::Idle => accepted(report),
            known => known,
        }
    }

    pub(in crate::switch) fn health(&mut self, report: Option<&GuardReport>, prove: Option<u64>) -> Health {
        self.refresh_core(report);
        let leader = self.record.leader.clone();
        let subject = Subject { leader: &leader, report, prove };
        self.observer().map_or_else(Health::Unknown, |agent| agent.health(subject))
    }

    /// Records the processes of the agent itself, while the leader is alive to find them. False: the agent could not tell them.
    pub(in crate::switch) fn refresh_core(&mut self, report: Option<&GuardReport>) -> bool {
        let leader = self.record.leader.clone();
        let subject = Subject { leader: &leader, report, prove: None };
        let core = self.observer().map(|agent| agent.core(subject));
        let is_known = matches!(core, Ok(Ok(_)));
        if let Ok(Ok(core)) = core {
            self.record.core = core;
        }
        is_known
    }

    /// Records the children of a leader that has just begun: the agent cannot tell its own processes yet, and has no job. Its main process would live on without its
    /// leader, for ever where it works as another user than root. The leader starts no more.
    pub(in crate::switch) fn keep_its_first_children(&mut self) -> Result<(), OsError> {
        if self.record.core.iter().any(|identity| *identity != self.record.leader) {
            return Ok(());
        }
        self.record.leader.signal(SignalNumber::STOP)?;
        for child in proc_fs::children(self.record.leader.pid)? {
            self.record.remains.push(Identity::of_process(&child)?);
        }
        Ok(())
    }

    pub(in crate::switch) fn thaw(&self) -> Result<(), OsError> {
        for identity in self.record.core.iter().chain([&self.record.leader]) {
            identity.signal(SignalNumber::CONT)?;
        }
        Ok(())
    }

    /// Stops the agent itself; its jobs continue.
    pub(in crate::switch) fn halt(&mut self, report: Option<&GuardReport>) -> Result<(), OsError> {
        self.refresh_core(report);
        for identity in &self.record.core {
            identity.signal(SignalNumber::STOP)?;
        }
        crash_point!("freeze.stopped");
        Ok(())
    }

    /// Checks it after a halt; thaws it unless its end would lose nothing.
    pub(in crate::switch) fn judge(&mut self, report: Option<&GuardReport>, look: Look) -> Result<Frozen, OsError> {
        let work = if !self.stands_still()? {
            Some("the process is not paused yet".to_owned())
        } else if look == Look::Beside {
            report
                .map_or(Some("its guard sends no report".to_owned()), GuardReport::unfinished)
                .or_else(|| self.unreported(report))
        } else {
            described(&self.activity(report))
        };
        if let Some(work) = work {
            self.thaw()?;
            return Ok(Frozen::Busy(work));
        }
        self.record.remains = self.helpers(report, look)?;
        Ok(Frozen::Idle)
    }

    /// Its descendants that end with it: all descendants, if it is idle and alone.
    fn helpers(&mut self, report: Option<&GuardReport>, look: Look) -> Result<Vec<Identity>, OsError> {
        let leader = self.record.leader.clone();
        let subject = Subject { leader: &leader, report, prove: None };
        if look == Look::Beside {
            if let Some(helpers) = self.observer().ok().and_then(|agent| agent.helpers(subject)) {
                return Ok(helpers);
            }
        }
        let below = proc_fs::descendants(leader.pid)?;
        below.iter().filter(|process| process.is_alive()).map(Identity::of_process).collect()
    }

    /// Work that its guard does not report, for people; None: no such work.
    pub(in crate::switch) fn unreported(&mut self, report: Option<&GuardReport>) -> Option<String> {
        let leader = self.record.leader.clone();
        let subject = Subject { leader: &leader, report, prove: None };
        match self.observer().map_or_else(Activity::Unknown, |agent| agent.at_work(subject)) {
            Activity::Unknown(reason) => self.children_left(report, &reason),
            known => described(&known),
        }
    }

    /// Work of a process whose observer cannot tell: each child is perhaps a job. A process that has none, and whose guard reports no work, has
    /// nothing to lose; it would be waited for in vain. None: no such work.
    fn children_left(&self, report: Option<&GuardReport>, reason: &str) -> Option<String> {
        let main = report.map(|report| report.pid);
        let children = proc_fs::descendants(self.record.leader.pid).map(|below| {
            let own = |pid| Some(pid) == main || self.record.core.iter().any(|identity| identity.pid == pid);
            below.iter().filter(|process| process.is_alive() && !own(process.pid)).count()
        });
        match children {
            Ok(0) if report.is_some() => None,
            _ => Some(reason.to_owned()),
        }
    }

    /// The number of the leader's descendants that are neither the agent itself nor its services.
    pub(in crate::switch) fn below(&self) -> Result<usize, OsError> {
        let own = |pid| self.record.core.iter().any(|identity| identity.pid == pid);
        let is_service = |process: &Process| self.agent.as_ref().is_ok_and(|agent| agent.is_service(process));
        let (mut services, mut count) = (BTreeSet::new(), 0);
        // Each process comes after its parent.
        for process in proc_fs::descendants(self.record.leader.pid)?.iter().filter(|process| !own(process.pid)) {
            if services.contains(&process.parent) || (own(process.parent) && is_service(process)) {
                services.insert(process.pid);
            } else if process.is_alive() {
                count += 1;
            }
        }
        Ok(count)
    }

    pub(in crate::switch) fn stands_still(&self) -> Result<bool, OsError> {
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
            clock::sleep(FREEZE_RETRY_INTERVAL);
        }
    }
}

/// The jobs that a process has accepted and not begun: they wait in its memory (a minion of Salt up to 3006.20 and 3007.12, at its `process_count_max`), where
/// its guard alone sees them. They are its first process's own.
fn accepted(report: Option<&GuardReport>) -> Activity {
    let jobs: Vec<Job> = report.map_or_else(Vec::new, |report| {
        report.jobs.iter().filter(|job| job.pid == Some(report.pid)).cloned().collect()
    });
    if jobs.is_empty() { Activity::Idle } else { Activity::Busy(jobs) }
}

/// Describes an activity for people; None: idle.
pub fn described(activity: &Activity) -> Option<String> {
    const JOBS_NAMED_MAXIMUM: usize = 3;
    match activity {
        Activity::Idle => None,
        Activity::Unknown(reason) => Some(format!("cannot tell whether the agent is idle: {reason}")),
        Activity::Busy(jobs) => {
            let named: Vec<String> = jobs.iter().take(JOBS_NAMED_MAXIMUM).map(ToString::to_string).collect();
            let more = jobs.len().saturating_sub(JOBS_NAMED_MAXIMUM);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Some(format!("{}{more}", named.join(", ")))
        }
    }
}

pub(in crate::switch) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
