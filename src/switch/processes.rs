//! The processes of one instance's agent: started through `sidle run`, found again after a crash of the supervisor, frozen, ended.
//!
//! A new process waits at a gate (its standard input) until its identity is on disk; a supervisor that dies before has started nothing.
//! Beside the file, every leader carries its own pid in `SIDLE_LEADER`: a deleted /run hides no process.

use crate::agent::{Activity, Agent, AgentError, AgentSettings, Health, Registry};
use crate::bundle::manifest::Manifest;
use crate::crash_point;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::process::{Identity, Input, Program, SignalNumber, own_program};
use crate::os::{OsError, clock, notify, proc_fs};
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// The instance that a process belongs to.
pub const INSTANCE_VARIABLE: &str = "SIDLE_INSTANCE";
/// The root directory of that instance.
pub const ROOT_VARIABLE: &str = "SIDLE_ROOT";
/// The release that a process runs.
pub const RELEASE_VARIABLE: &str = "SIDLE_RELEASE";
/// The pid that the agent's first process has itself; what descends from it has its leader's.
pub const LEADER_VARIABLE: &str = "SIDLE_LEADER";
/// What the gate says when the process may go on.
pub const GATE_WORD: &str = "go\n";

const PROCESSES_NAME: &str = "processes";
const PROCESSES_LENGTH_MAXIMUM: u64 = 64 * 1024;
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
    /// What it runs.
    pub release: Release,
    /// Since when.
    pub started_at: Timestamp,
    /// It was sent a deadly signal: it is not to be counted on any more.
    pub doomed: bool,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    schema: u32,
    processes: Vec<Record>,
}

/// A process of the agent and its observer.
struct Running {
    record: Record,
    child: Option<Child>,
    agent: Result<Box<dyn Agent>, AgentError>,
    settings: AgentSettings,
    kind: crate::agent::AgentKind,
    registry: Registry,
}

/// What came of freezing.
#[derive(Debug, PartialEq, Eq)]
pub enum Frozen {
    /// It stands still and would lose nothing.
    Idle,
    /// It runs on: this came in between.
    Busy(String),
}

/// The agent's processes of one instance.
pub struct Processes {
    layout: Layout,
    package: PackageName,
    instance: InstanceName,
    registry: Registry,
    configuration: Option<PathBuf>,
    running: Vec<Running>,
    last_exit: Option<String>,
}

impl Processes {
    /// Nothing known yet: [`Processes::find`] looks for what runs. `configuration` overrides the directory that the manifest names.
    pub fn new(
        layout: &Layout,
        package: &PackageName,
        instance: &InstanceName,
        registry: Registry,
        configuration: Option<PathBuf>,
    ) -> Self {
        Self {
            layout: layout.clone(),
            package: package.clone(),
            instance: instance.clone(),
            registry,
            configuration,
            running: Vec::new(),
            last_exit: None,
        }
    }

    fn directory(&self) -> Result<Dir, OsError> {
        Dir::open_or_create(&self.layout.run(&self.instance), 0o755)
    }

    /// Finds the processes that an earlier supervisor left: those on record, and those that say of themselves that they are leaders.
    /// `manifest` reads a release's manifest.
    pub fn find(&mut self, manifest: impl Fn(&Release) -> Option<Manifest>) -> Result<(), OsError> {
        let bytes = self.directory()?.read_if_exists(PROCESSES_NAME, PROCESSES_LENGTH_MAXIMUM)?;
        // /run does not survive a boot, and what lives says so itself: a record that can't be read loses nothing but `doomed`.
        let saved = bytes.and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok());
        let mut records = saved.map_or_else(Vec::new, |saved| saved.processes);
        let boot_id = clock::boot_id()?;
        for process in proc_fs::all()?.into_iter().filter(proc_fs::Process::is_alive) {
            let leader = Identity { boot_id: boot_id.clone(), pid: process.pid, start_time: process.start_time };
            if records.iter().all(|record| record.leader != leader) {
                records.extend(self.self_declared(leader));
            }
        }
        for record in records {
            let alive = record.core.iter().chain([&record.leader]).any(|identity| identity.is_alive().unwrap_or(true));
            if let (true, Some(manifest)) = (alive, manifest(&record.release)) {
                let running = self.observed(record, None, &manifest);
                self.running.push(running);
            }
        }
        self.save()
    }

    /// The record of a leader of this instance that is on no record.
    fn self_declared(&self, leader: Identity) -> Option<Record> {
        let variable = |name| proc_fs::environment_variable(leader.pid, name).ok().flatten();
        let is_leader = variable(LEADER_VARIABLE)? == leader.pid.to_string().as_str();
        let is_ours =
            variable(INSTANCE_VARIABLE)? == self.instance.as_str() && variable(ROOT_VARIABLE)? == *self.layout.root();
        let release = variable(RELEASE_VARIABLE)?.to_str()?.parse().ok()?;
        let record = Record { core: vec![leader.clone()], leader, release, started_at: clock::now(), doomed: false };
        (is_leader && is_ours).then_some(record)
    }

    fn observed(&self, record: Record, child: Option<Child>, manifest: &Manifest) -> Running {
        let directory =
            self.configuration.clone().unwrap_or_else(|| self.layout.on_host(manifest.service.config.as_ref()));
        let settings = AgentSettings::new(&directory);
        let agent = (self.registry)(manifest.agent, &settings);
        Running { record, child, agent, settings, kind: manifest.agent, registry: self.registry }
    }

    fn save(&self) -> Result<(), OsError> {
        let saved = Saved { schema: 1, processes: self.running.iter().map(|running| running.record.clone()).collect() };
        let bytes = serde_json::to_vec(&saved).expect("a record has no map keys but strings");
        self.directory()?.write_atomic(PROCESSES_NAME, &bytes, 0o644)
    }

    /// Starts `release` unless a process that can be counted on runs it already; thaws that one.
    pub fn start(&mut self, release: &Release, manifest: &Manifest) -> Result<(), OsError> {
        if let Some(running) = self.usable(release) {
            return running.thaw();
        }
        let program = Program::new(own_program()?)
            .argument("--root")
            .argument(self.layout.root())
            .argument("run")
            .argument(self.package.as_str())
            .argument("--release")
            .argument(release.to_string())
            .argument("--instance")
            .argument(self.instance.as_str())
            .argument("--gate");
        let program = Program { without: vec![notify::NOTIFY_SOCKET.into()], ..program };
        let mut child = program.start(Input::Pipe)?;
        crash_point!("start.spawned");
        let Some(leader) = Identity::of(child.id())? else {
            let status = child.wait().map_err(|source| OsError::new("wait for", &program.path, source))?;
            self.last_exit = Some(told(status));
            return Err(OsError::new("start", &program.path, std::io::Error::other(told(status))));
        };
        let record = Record {
            core: vec![leader.clone()],
            leader,
            release: release.clone(),
            started_at: clock::now(),
            doomed: false,
        };
        let gate = child.stdin.take();
        let running = self.observed(record, Some(child), manifest);
        self.running.push(running);
        self.save()?;
        crash_point!("start.recorded");
        if let Some(mut gate) = gate {
            // A process that ended meanwhile shows as such at the next look.
            let _ = gate.write_all(GATE_WORD.as_bytes());
        }
        crash_point!("start.opened");
        Ok(())
    }

    fn usable(&self, release: &Release) -> Option<&Running> {
        self.running
            .iter()
            .find(|running| running.record.release == *release && !running.record.doomed && running.leads())
    }

    /// The record of the process that runs `release` and can be counted on.
    pub fn of(&self, release: &Release) -> Option<&Record> {
        self.usable(release).map(|running| &running.record)
    }

    /// All processes on record.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.running.iter().map(|running| &running.record)
    }

    /// How the last process that ended did so.
    pub fn last_exit(&self) -> Option<&str> {
        self.last_exit.as_deref()
    }

    /// Takes note of processes that have ended; true when there was one.
    pub fn reap(&mut self) -> Result<bool, OsError> {
        let before = self.running.len();
        let mut last_exit = None;
        self.running.retain_mut(|running| {
            if let Some(status) = running.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                last_exit = Some(told(status));
            } else if !running.leads() {
                last_exit = last_exit.take().or(Some("ended".to_owned()));
            }
            running.lives()
        });
        let ended = self.running.len() != before;
        if last_exit.is_some() {
            self.last_exit = last_exit;
        }
        if ended {
            self.save()?;
        }
        Ok(ended)
    }

    /// Ends what a leader that is gone has left of the agent itself, so that nothing works beside the next process.
    pub fn end_remains(&mut self) -> Result<(), OsError> {
        for running in self.running.iter().filter(|running| !running.leads()) {
            for identity in &running.record.core {
                identity.signal(SignalNumber::KILL)?;
            }
        }
        Ok(())
    }

    /// What the process of `release` does.
    pub fn activity(&mut self, release: &Release) -> Option<Activity> {
        self.usable_mut(release).map(Running::activity)
    }

    /// Whether the process of `release` reaches its peers.
    pub fn health(&mut self, release: &Release) -> Option<Health> {
        self.usable_mut(release).map(Running::health)
    }

    /// Directories whose changes mean that it is worth looking again.
    pub fn watches(&self) -> Vec<PathBuf> {
        self.running
            .iter()
            .filter_map(|running| running.agent.as_ref().ok())
            .flat_map(|agent| agent.watches())
            .collect()
    }

    fn usable_mut(&mut self, release: &Release) -> Option<&mut Running> {
        self.running
            .iter_mut()
            .find(|running| running.record.release == *release && !running.record.doomed && running.leads())
    }

    /// Lets the process of `release` run on, if it was frozen.
    pub fn thaw(&self, release: &Release) -> Result<(), OsError> {
        self.usable(release).map_or(Ok(()), Running::thaw)
    }

    /// Freezes the process of `release` and looks again. It stays frozen only when that loses nothing.
    pub fn freeze(&mut self, release: &Release) -> Result<Frozen, OsError> {
        let Some(running) = self.usable_mut(release) else { return Ok(Frozen::Idle) };
        let frozen = running.freeze()?;
        self.save()?;
        Ok(frozen)
    }

    /// Sends every process of the agent itself its end; true once all are gone. Jobs are not the agent itself and are left alone.
    pub fn end_all(&mut self) -> Result<bool, OsError> {
        self.end_all_but(None)
    }

    /// The same for all but the process that runs `kept` and can be counted on.
    pub fn end_all_but(&mut self, kept: Option<&Release>) -> Result<bool, OsError> {
        self.reap()?;
        let spared = |running: &Running| {
            kept.is_some_and(|kept| running.record.release == *kept && !running.record.doomed && running.leads())
        };
        let mut news = false;
        for running in self.running.iter_mut().filter(|running| !spared(running)) {
            running.refresh_core();
            news |= !running.record.doomed;
            running.record.doomed = true;
        }
        if news {
            self.save()?;
        }
        crash_point!("end.recorded");
        for running in self.running.iter().filter(|running| !spared(running)) {
            for identity in running.record.core.iter().chain([&running.record.leader]) {
                identity.signal(SignalNumber::KILL)?;
            }
        }
        crash_point!("end.killed");
        self.reap()?;
        Ok(self.running.iter().all(spared))
    }

    /// Lets everything that was frozen run on.
    pub fn thaw_all(&self) -> Result<(), OsError> {
        self.running.iter().try_for_each(Running::thaw)
    }

    /// Asks every leader to end in its own way: for a stop of the service, not for a switch.
    pub fn ask_to_end(&self) -> Result<(), OsError> {
        for running in &self.running {
            running.thaw()?;
            running.record.leader.signal(SignalNumber::TERM)?;
        }
        Ok(())
    }

    /// The pids of all leaders, for waiting on their ends.
    pub fn leaders(&self) -> BTreeSet<u32> {
        self.running.iter().map(|running| running.record.leader.pid).collect()
    }
}

impl Running {
    fn leads(&self) -> bool {
        self.record.leader.is_alive().unwrap_or(true)
    }

    /// A zombie of the agent still stands in the way: Salt takes it for an instance that is already running.
    fn lives(&self) -> bool {
        self.leads() || self.record.core.iter().any(|identity| !identity.is_gone().unwrap_or(false))
    }

    /// The observer; one that could not be made (a configuration with an error) is tried again at every look.
    fn observer(&mut self) -> Result<&dyn Agent, String> {
        if self.agent.is_err() {
            self.agent = (self.registry)(self.kind, &self.settings);
        }
        match &self.agent {
            Ok(agent) => Ok(agent.as_ref()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn activity(&mut self) -> Activity {
        let leader = self.record.leader.clone();
        self.observer().map_or_else(Activity::Unknown, |agent| agent.activity(&leader))
    }

    fn health(&mut self) -> Health {
        self.refresh_core();
        let leader = self.record.leader.clone();
        self.observer().map_or_else(Health::Unknown, |agent| agent.health(&leader))
    }

    /// Remembers which processes are the agent itself while its leader can tell.
    fn refresh_core(&mut self) {
        let leader = self.record.leader.clone();
        if let Ok(Ok(core)) = self.observer().map(|agent| agent.core(&leader)) {
            self.record.core = core;
        }
    }

    fn thaw(&self) -> Result<(), OsError> {
        for identity in self.record.core.iter().chain([&self.record.leader]) {
            identity.signal(SignalNumber::CONT)?;
        }
        Ok(())
    }

    fn freeze(&mut self) -> Result<Frozen, OsError> {
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
            None => Ok(Frozen::Idle),
            Some(work) => {
                self.thaw()?;
                Ok(Frozen::Busy(work))
            }
        }
    }

    fn stands_still(&self) -> Result<bool, OsError> {
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

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
