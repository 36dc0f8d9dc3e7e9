//! The processes of one instance's agent: started through `sidle run`, found again after a crash of the supervisor, frozen, ended.
//!
//! A new process waits at a gate (its standard input) until its identity is on disk; a supervisor that dies before has started nothing.
//! Beside the file, every leader carries its own pid in `SIDLE_LEADER`: a deleted /run hides no process.

use super::running::{Running, told};
use crate::agent::{Activity, AgentSettings, Health, Registry};
use crate::bundle::manifest::Manifest;
use crate::crash_point;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::process::{Identity, Input, Program, SignalNumber, own_program};
use crate::os::{OsError, clock, notify, proc_fs};
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Child;

pub use super::running::{Frozen, Record, described};

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
#[derive(Serialize, Deserialize)]
struct Saved {
    schema: u32,
    processes: Vec<Record>,
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
            let alive = record.all().any(|identity| identity.is_alive().unwrap_or(true));
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
        let record = Record {
            core: vec![leader.clone()],
            remains: Vec::new(),
            leader,
            release,
            started_at: clock::now(),
            doomed: false,
        };
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
            remains: Vec::new(),
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
            for identity in running.record.all() {
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
            for identity in running.record.all() {
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
