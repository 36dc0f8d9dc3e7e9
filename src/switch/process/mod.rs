//! The processes of one instance's agent: started by `sidle run`, found again after a crash of the supervisor, frozen, and ended ([`ends`]).
//!
//! A new process waits (on its standard input) until its identity is on disk: a supervisor that dies earlier leaves no agent behind. Every leader
//! also has its own pid in `SIDLE_LEADER`, so that it is found even if /run was deleted.

pub mod asked;
pub mod ends;
pub mod finishing;
pub mod foreign;
pub mod gated;
pub mod own_commands;
pub mod running;

use crate::agent::gate::{GATE_VARIABLE, GateRole, Origin, ROLE_VARIABLE};
use crate::agent::{Activity, Agent, AgentKind, AgentSettings, Health, Peer, Registry};
use crate::bundle::manifest::Head;
use crate::crash_point;
use crate::digest::Digest;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::environment::Passed;
use crate::os::process::{self, Identity, Input, Priority};
use crate::os::{OsError, children, clock, notify, proc_fs};
use crate::store::Store;
use crate::switch::gate::gatekeeper::Gatekeeper;
use crate::switch::process::ends::Ends;
use crate::switch::process::own_commands::OwnCommands;
use crate::switch::process::running::{Running, exit_text};
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;
use tracing::{info, warn};

pub use crate::switch::journal::kind::ProcessKind;
pub use crate::switch::process::running::{Frozen, Look, Record, described};

/// The instance that a process belongs to.
pub const INSTANCE_VARIABLE: &str = "SIDLE_INSTANCE";
/// The root directory of that instance.
pub const ROOT_VARIABLE: &str = "SIDLE_ROOT";
/// The release that a process runs.
pub const RELEASE_VARIABLE: &str = "SIDLE_RELEASE";
/// The pid of the agent's first process (its leader); descendants inherit it.
pub const LEADER_VARIABLE: &str = "SIDLE_LEADER";
/// The number of the switch that has a process on trial; absent: no trial.
pub const TRIAL_VARIABLE: &str = "SIDLE_TRIAL";
/// The line that lets a new process continue.
pub const START_WORD: &str = "go\n";

const PROCESSES_NAME: &str = "processes";
const PROCESSES_LENGTH_MAXIMUM: u64 = 64 * 1024;

#[derive(Serialize, Deserialize)]
struct Saved {
    schema: u32,
    processes: Vec<Record>,
}

/// Returns the recorded leaders of an instance that are alive, with or without a supervisor.
pub fn on_record(layout: &Layout, instance: &InstanceName) -> Result<Vec<Identity>, OsError> {
    let Some(directory) = Dir::open_if_exists(&layout.run(instance))? else { return Ok(Vec::new()) };
    let bytes = directory.read_if_exists(PROCESSES_NAME, PROCESSES_LENGTH_MAXIMUM)?;
    let saved = bytes.and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok());
    let leaders = saved.into_iter().flat_map(|saved| saved.processes).map(|record| record.leader);
    Ok(leaders.filter(|leader| leader.is_alive().unwrap_or(false)).collect())
}

/// The agent's processes of one instance.
pub struct Processes {
    layout: Layout,
    package: PackageName,
    instance: InstanceName,
    registry: Registry,
    commands: OwnCommands,
    configuration: Option<PathBuf>,
    pub(in crate::switch) passed: Passed,
    pub(in crate::switch) gate: Gatekeeper,
    pub(in crate::switch) running: Vec<Running>,
    pub(in crate::switch) ends: Ends,
}

impl Processes {
    /// Knows no process yet, see [`Processes::find`]. `configuration` overrides the configuration directory of the manifest.
    pub fn new(
        layout: &Layout,
        package: &PackageName,
        instance: &InstanceName,
        registry: Registry,
        commands: OwnCommands,
        configuration: Option<PathBuf>,
        passed: Passed,
    ) -> Self {
        Self {
            layout: layout.clone(),
            package: package.clone(),
            instance: instance.clone(),
            registry,
            commands,
            configuration,
            passed,
            gate: Gatekeeper::new(layout, instance),
            running: Vec::new(),
            ends: Ends::default(),
        }
    }

    fn directory(&self) -> Result<Dir, OsError> {
        Dir::open_or_create(&self.layout.run(&self.instance), 0o755)
    }

    /// Finds the processes of an earlier supervisor: by the record file, and by their environment variables.
    pub fn find(&mut self, store: &Store) -> Result<(), OsError> {
        let bytes = self.directory()?.read_if_exists(PROCESSES_NAME, PROCESSES_LENGTH_MAXIMUM)?;
        // The environment names all live processes, so an unreadable record file only loses `being_ended`.
        let saved = bytes.and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok());
        let mut records = saved.map_or_else(Vec::new, |saved| saved.processes);
        let boot_id = clock::boot_id()?;
        for process in proc_fs::all()?.into_iter().filter(proc_fs::Process::is_alive) {
            let leader = Identity { boot_id: boot_id.clone(), pid: process.pid, start_time: process.start_time };
            if records.iter().all(|record| record.leader != leader) {
                let is_started_from =
                    |pid: u32, release: &Release| store.is_started_from(release, pid).unwrap_or(false);
                records.extend(Record::self_declared(leader, &self.layout, &self.instance, is_started_from));
            }
        }
        for record in records {
            // The child may have ended while the supervisor replaced its own program.
            let status = children::take(&record.leader)?;
            if let Some(status) = status {
                self.ends.remember(&record, exit_text(status));
            }
            if !record.all().any(|identity| identity.is_alive().unwrap_or(true)) {
                let how = status.map_or_else(|| "ended while no supervisor ran".to_owned(), exit_text);
                self.ends.note(&record, how, Vec::new());
                continue;
            }
            // The journal names an adopted process: see `recognise`.
            let Some(release) = record.release.clone() else { continue };
            let pid = record.leader.pid;
            info!(instance = %self.instance, "process {pid} of {release} runs already; the supervisor takes it over");
            let running = match store.head(&release) {
                Ok(manifest) => self.observed(record, None, &manifest),
                // Not forgotten: a second one would be started beside it.
                Err(error) => {
                    warn!(instance = %self.instance, why = %error, "nothing is known of process {pid}");
                    Running::unread(record)
                }
            };
            self.running.push(running);
        }
        self.save()
    }

    fn observed(&self, record: Record, child: Option<Child>, manifest: &Head) -> Running {
        self.observing(record, child, &manifest.agent, manifest.guard.is_some(), self.settings(manifest))
    }

    pub(in crate::switch) fn observing(
        &self,
        record: Record,
        child: Option<Child>,
        kind: &AgentKind,
        guarded: bool,
        settings: AgentSettings,
    ) -> Running {
        let agent = (self.registry)(kind).and_then(|parts| (parts.observer)(&settings));
        Running {
            record,
            child,
            agent,
            settings,
            kind: kind.clone(),
            guarded,
            registry: self.registry,
            ended: false,
            silent_since: None,
        }
    }

    pub(in crate::switch) fn save(&self) -> Result<(), OsError> {
        let saved = Saved { schema: 1, processes: self.running.iter().map(|running| running.record.clone()).collect() };
        let bytes = serde_json::to_vec(&saved).expect("a record has no map keys but strings");
        self.directory()?.write_atomic(PROCESSES_NAME, &bytes, 0o644)
    }

    /// Starts the process, or thaws it if it runs already. `role`: its role until it has read the roles.
    pub fn start(
        &mut self,
        which: ProcessKind<'_>,
        manifest: &Head,
        origin: Origin,
        role: GateRole,
    ) -> Result<(), OsError> {
        if let Some(running) = self.usable(which) {
            return running.thaw();
        }
        let (release, trial_of) = match which {
            ProcessKind::Trial { switch, release } => (release, Some(switch)),
            ProcessKind::Incumbent { release, .. } => (release, None),
            // The service manager starts it: see `foreign`.
            ProcessKind::Foreign => return Ok(()),
        };
        let words = (self.commands.run)(&self.package, &self.instance, release);
        let mut program = own_commands::agent(&self.layout, self.commands, words, &self.passed)?;
        // A supervisor that was started by an agent's job must not pass on that agent's variables.
        program.without = [notify::NOTIFY_SOCKET, TRIAL_VARIABLE, GATE_VARIABLE, ROLE_VARIABLE].map(Into::into).into();
        if let Some(number) = trial_of {
            program = program.variable(TRIAL_VARIABLE, number.to_string());
        }
        if manifest.guard.is_some() {
            program = program.variable(GATE_VARIABLE, self.gate.path()).variable(ROLE_VARIABLE, role.to_string());
        }
        let mut child = program.start(Input::Pipe)?;
        crash_point!("start.spawned");
        let Some(leader) = Identity::of(child.id())? else {
            let status = child.wait().map_err(|source| OsError::new("wait for", &program.path, source))?;
            return Err(OsError::new("start", &program.path, std::io::Error::other(exit_text(status))));
        };
        let pid = leader.pid;
        self.gate.forget(pid)?;
        self.ends.forget(which);
        let mut record = Record::new(leader, release.clone(), trial_of, origin);
        // Its start takes seconds of processor time that the serving process may need.
        if role == GateRole::Standby && process::may_raise_priority() {
            record.aside = record.leader.prioritise(Priority::Aside).is_ok();
        }
        let starter = child.stdin.take();
        let mut running = self.observed(record, Some(child), manifest);
        self.gate.prepare(running.user())?;
        self.running.push(running);
        self.save()?;
        crash_point!("start.recorded");
        let part = if trial_of.is_some() { "trial" } else { "serving" };
        info!(instance = %self.instance, role = part, switch = trial_of, "process {pid} of {release} is started");
        if let Some(mut starter) = starter {
            match starter.write_all(START_WORD.as_bytes()) {
                // The process ends by itself without this line, so its end would say nothing about the release.
                Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(OsError::new("start", &program.path, source));
                }
                // The next turn notices a process that has ended.
                Ok(()) | Err(_) => {}
            }
        }
        crash_point!("start.opened");
        Ok(())
    }

    fn usable(&self, which: ProcessKind<'_>) -> Option<&Running> {
        self.running
            .iter()
            .find(|running| running.is_usable() && which.is(running.record.release.as_ref(), running.record.trial_of))
    }

    pub(in crate::switch) fn usable_mut(&mut self, which: ProcessKind<'_>) -> Option<&mut Running> {
        self.running
            .iter_mut()
            .find(|running| running.is_usable() && which.is(running.record.release.as_ref(), running.record.trial_of))
    }

    /// The record of a process, if it is usable.
    pub fn of(&self, which: ProcessKind<'_>) -> Option<&Record> {
        self.usable(which).map(|running| &running.record)
    }

    /// Makes the jobs of all processes wait until this time since boot, while files are repaired; None: jobs wait no longer.
    pub fn hold_jobs(&self, until: Option<Duration>) -> Result<(), OsError> {
        self.gate.hold_jobs(until)
    }

    /// The records of all processes.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.running.iter().map(|running| &running.record)
    }

    /// The activity of a process.
    pub fn activity(&mut self, which: ProcessKind<'_>) -> Option<Activity> {
        let report = self.report(which);
        self.usable_mut(which).map(|running| running.activity(report.as_ref()))
    }

    /// The health of a process. `prove`: the round trip that its guard has to have made.
    pub fn health(&mut self, which: ProcessKind<'_>, prove: Option<u64>) -> Option<Health> {
        let report = self.report(which);
        self.usable_mut(which).map(|running| running.health(report.as_ref(), prove))
    }

    /// The agents on this host that are this one once more, and belong to no process on record. The supervisor adopts orphans: that it is their parent says nothing.
    pub fn doubles(&mut self, which: ProcessKind<'_>) -> Vec<String> {
        let own: Vec<u32> = self.records().map(|record| record.leader.pid).collect();
        let observer = self.usable_mut(which).and_then(|running| running.observer().ok());
        observer.map_or_else(Vec::new, |agent| agent.doubles(&own))
    }

    /// The peers that a process started now could not find.
    pub fn unfindable(&mut self, which: ProcessKind<'_>) -> Vec<Peer> {
        let observer = self.usable_mut(which).and_then(|running| running.observer().ok());
        observer.map_or_else(Vec::new, Agent::unfindable)
    }

    /// The digest of the agent's present credentials.
    pub fn credentials(&mut self, which: ProcessKind<'_>) -> Option<Digest> {
        self.usable_mut(which)?.observer().ok()?.credentials()
    }

    /// Gives a process normal priority: it serves, or needs more processor time to come up.
    pub fn serve(&mut self, which: ProcessKind<'_>) -> Result<(), OsError> {
        let Some(running) = self.usable_mut(which).filter(|running| running.record.aside) else { return Ok(()) };
        running.record.leader.prioritise(Priority::Own)?;
        running.record.aside = false;
        self.save()
    }

    /// Directories whose changes may mean that a process has become idle.
    pub fn watches(&self) -> Vec<PathBuf> {
        self.running
            .iter()
            .filter_map(|running| running.agent.as_ref().ok())
            .flat_map(|agent| agent.watches())
            .collect()
    }

    /// Thaws a process, if it was frozen.
    pub fn thaw(&self, which: ProcessKind<'_>) -> Result<(), OsError> {
        self.usable(which).map_or(Ok(()), Running::thaw)
    }

    /// Freezes a process and checks it with `look`. It stays frozen only if its end would lose nothing.
    pub fn freeze(&mut self, which: ProcessKind<'_>, look: Look) -> Result<Frozen, OsError> {
        let report = self.report(which);
        let Some(running) = self.usable_mut(which) else { return Ok(Frozen::Idle) };
        let halted = running.halt(report.as_ref());
        // Its guard may have written a report just before the freeze.
        let report = self.report(which);
        let Some(running) = self.usable_mut(which) else { return Ok(Frozen::Idle) };
        let frozen = halted.and_then(|()| running.judge(report.as_ref(), look));
        let kept = frozen.and_then(|frozen| self.save().map(|()| frozen));
        if kept.is_err() {
            // Nobody would come back to it.
            self.thaw(which)?;
        }
        kept
    }

    /// The peers that a process is connected to, by its sockets.
    pub fn connected(&mut self, which: ProcessKind<'_>) -> Vec<String> {
        let Some(running) = self.usable_mut(which) else { return Vec::new() };
        let leader = running.record.leader.clone();
        running.observer().map_or_else(|_| Vec::new(), |agent| agent.connected(&leader))
    }

    /// Work of a process that its guard does not report; None: no such work.
    pub fn unreported(&mut self, which: ProcessKind<'_>) -> Option<String> {
        let report = self.report(which);
        self.usable_mut(which)?.unreported(report.as_ref())
    }

    /// True if the jobs of a process are threads, which can't be seen from outside.
    pub fn runs_jobs_inside(&mut self, which: ProcessKind<'_>) -> bool {
        self.usable_mut(which)
            .is_some_and(|running| running.observer().is_ok_and(crate::agent::Agent::runs_jobs_inside))
    }

    /// The number of the leader's descendants that are neither the agent itself nor its services.
    pub fn below(&self, which: ProcessKind<'_>) -> Result<usize, OsError> {
        self.usable(which).map_or(Ok(0), Running::below)
    }

    /// Thaws all processes.
    pub fn thaw_all(&self) -> Result<(), OsError> {
        self.running.iter().try_for_each(Running::thaw)
    }

    /// The children of this supervisor, which it waits for itself.
    pub fn children(&self) -> BTreeSet<u32> {
        self.running.iter().filter_map(|running| running.child.as_ref()).map(Child::id).collect()
    }
}
