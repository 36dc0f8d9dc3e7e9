//! The Salt minion as an agent: its jobs, its masters, its own processes.

pub mod adoption;
pub mod agentless;
pub mod beside;
pub mod caller;
pub mod doctor;
pub mod entry;
pub mod identity;
pub mod jobs;
pub mod lingering;
pub mod masters;
pub mod names;
pub mod options;
pub mod queues;
pub mod rehearsal;
pub mod roster;
pub mod sign_in;
pub mod title;
pub mod traces;
pub mod tryout;
pub mod yaml;

use crate::agent::{Activity, Agent, AgentError, AgentSettings, Health, IdentityPaths, Peer, Subject};
use crate::digest::Digest;
use crate::os::file;
use crate::os::proc_fs::{self, Process};
use crate::os::process::Identity;
use masters::{Known, Reach};
use options::MinionConfig;
use options::asking::Asker;
use std::path::PathBuf;

/// A pid file holds a number.
const PID_BYTES_MAX: u64 = 64;

/// Processes between the leader and main: Salt has none, a wrapper that doesn't exec adds one. More is another process's pid.
const CHAIN_MAX: usize = 4;

/// Observes the minion of one configuration directory.
///
/// Its options are what the guard of the process reports, else what its release's Salt made of the configuration: see [`options`].
#[derive(Debug)]
pub struct SaltMinion {
    settings: AgentSettings,
    asker: Asker,
    known: Known,
    others: doctor::second::Others,
}

impl SaltMinion {
    /// An observer of the minion configured in `settings`.
    pub fn new(settings: &AgentSettings) -> Self {
        let (known, others) = (Known::default(), doctor::second::Others::default());
        Self { settings: settings.clone(), asker: Asker::new(settings), known, others }
    }

    /// The options of the process that runs, with the masters that the configuration names now: those a switch has to reach. While they cannot be
    /// known, with the masters that it runs with.
    fn reaching(&self, subject: Subject<'_>) -> Result<MinionConfig, AgentError> {
        let running = self.asker.running(subject)?;
        let masters = self.asker.lately().ok().map(|present| present.masters);
        let masters = masters.filter(|masters| !matches!(masters, options::Masters::Unknown(_)));
        Ok(MinionConfig { masters: masters.unwrap_or_else(|| running.masters.clone()), ..running })
    }

    /// The leader, and below it main: as its guard says, or the pid file.
    fn chain(config: Result<&MinionConfig, &AgentError>, subject: Subject<'_>) -> Result<Vec<Identity>, AgentError> {
        let leader = subject.leader;
        if !leader.is_alive()? {
            return Err(AgentError::new(format!("cannot look at the minion: {leader} is gone")));
        }
        if let Some(report) = subject.report {
            // Its own pid file has another name while two share the default one.
            let main = Identity::of(report.pid)?;
            if main.is_some_and(|main| main.start_time == report.start_time) {
                return Self::below(leader, report.pid)?.ok_or_else(|| {
                    AgentError::new(format!(
                        "cannot tell the minion's main process: {} is not below {leader}",
                        report.pid
                    ))
                });
            }
        }
        let path = &config.map_err(Clone::clone)?.pid_file;
        let waits = |cause: &str| {
            AgentError::new(format!("waits for the minion to write its process number: {}{cause}", path.display()))
        };
        let main = pid_in(path)?.ok_or_else(|| waits(" does not exist yet"))?;
        Self::below(leader, main)?.ok_or_else(|| {
            waits(&format!(" still names process {main}, of an earlier or another minion, and not one of {leader}'s"))
        })
    }

    /// The processes from the leader down to `main`; None: it is not below it.
    fn below(leader: &Identity, main: u32) -> Result<Option<Vec<Identity>>, AgentError> {
        let mut chain = Vec::new();
        let mut pid = main;
        while chain.len() < CHAIN_MAX {
            let Some(process) = proc_fs::process(pid)?.filter(Process::is_alive) else { break };
            chain.push(Identity::of_process(&process)?);
            if pid == leader.pid {
                chain.reverse();
                return Ok(Some(chain));
            }
            pid = process.parent;
        }
        Ok(None)
    }

    /// The masters to which a process from the leader down is connected.
    fn reached_below(reach: &mut Reach<'_>, leader: u32) -> Vec<String> {
        let below = proc_fs::descendants(leader).unwrap_or_default();
        let first = reach.first(below.iter().map(|process| process.pid).chain([leader]));
        first.map_or_else(Vec::new, |(_, masters)| masters)
    }

    /// The leader, and below it main, which is the first one there that is connected to a master; None: nobody is.
    fn connected_chain(&self, config: &MinionConfig, leader: &Identity) -> Result<Option<Vec<Identity>>, AgentError> {
        let below = proc_fs::descendants(leader.pid)?;
        let main = Reach::of(config, &self.known.names).first(below.iter().map(|process| process.pid));
        main.map_or(Ok(None), |(main, _)| Self::below(leader, main))
    }

    fn main(config: &MinionConfig, subject: Subject<'_>) -> Result<u32, AgentError> {
        Self::main_of(Ok(config), subject)
    }

    fn main_of(config: Result<&MinionConfig, &AgentError>, subject: Subject<'_>) -> Result<u32, AgentError> {
        Ok(Self::chain(config, subject)?.last().map_or(subject.leader.pid, |main| main.pid))
    }
}

/// The process number in a pid file; None: there is no such file.
fn pid_in(path: &std::path::Path) -> Result<Option<u32>, AgentError> {
    let Some(bytes) = file::read_if_exists(path, PID_BYTES_MAX)? else { return Ok(None) };
    let number = String::from_utf8_lossy(&bytes).trim().parse::<u32>();
    let cause = || format!("cannot tell the minion's main process: {} holds no process number", path.display());
    number.map(Some).map_err(|_| AgentError::new(cause()))
}

impl Agent for SaltMinion {
    /// Salt's parent process, which restarts main on a keep-alive exit, and main, which the pid file names. With `--disable-keepalive` both are one.
    ///
    /// After the kill, wait until both are gone (`Identity::is_gone`), not only dead: a new minion takes a zombie for a running instance and exits
    /// (`salt.utils.process.claim_mantle_of_responsibility`). Init reaps main after Salt's parent is dead; measured 1.5 s with a slow init.
    fn core(&self, subject: Subject<'_>) -> Result<Vec<Identity>, AgentError> {
        let config = self.asker.running(subject);
        match (Self::chain(config.as_ref(), subject), config) {
            // Beside another minion one without a guard has no pid file of its own.
            (Err(error), Ok(config)) => self.connected_chain(&config, subject.leader)?.ok_or(error),
            (told, _) => told,
        }
    }

    fn activity(&self, subject: Subject<'_>) -> Activity {
        let layout = subject.report.and_then(|report| queues::Layout::reported(report.queue_layout.as_deref()?));
        let config = self.asker.running(subject);
        let jobs = config.and_then(|config| jobs::read(&config, Self::main(&config, subject)?, layout));
        Activity::of(jobs)
    }

    fn at_work(&self, subject: Subject<'_>) -> Activity {
        let main = |config: &MinionConfig| Self::main(config, subject);
        let config = self.asker.running(subject);
        Activity::of(config.and_then(|config| beside::at_work(&config, subject.leader, main(&config)?)))
    }

    fn helpers(&self, subject: Subject<'_>) -> Option<Vec<Identity>> {
        let main = Self::main_of(self.asker.running(subject).as_ref(), subject).ok()?;
        beside::helpers(main).ok()
    }

    fn is_service(&self, process: &Process) -> bool {
        beside::is_engine(process)
    }

    fn runs_jobs_inside(&self) -> bool {
        self.asker.last().is_ok_and(|config| !config.multiprocessing)
    }

    fn health(&self, subject: Subject<'_>) -> Health {
        let looked = self
            .reaching(subject)
            .and_then(|config| Ok(masters::health(&config, Self::main(&config, subject)?, subject, &self.known)));
        looked.unwrap_or_else(|error| Health::Unknown(error.message))
    }

    fn connected(&self, leader: &Identity) -> Vec<String> {
        self.asker.last().map_or_else(
            |_| Vec::new(),
            |config| Self::reached_below(&mut Reach::of(&config, &self.known.names), leader.pid),
        )
    }

    fn doubles(&self, own: &[u32]) -> Vec<String> {
        let Ok(config) = self.asker.last() else { return Vec::new() };
        let mut reach = Reach::of(&config, &self.known.names);
        let listens = |pid: u32| !Self::reached_below(&mut reach, pid).is_empty();
        self.others.doubles(&self.settings, &config, own, listens)
    }

    fn unfindable(&self) -> Vec<Peer> {
        self.asker.present().map_or_else(|_| Vec::new(), |config| masters::unfindable(&config, &self.known.names))
    }

    fn user(&self) -> Option<String> {
        self.asker.present().or_else(|_| self.asker.last()).ok()?.user
    }

    fn configuration(&self) -> Result<Option<Digest>, AgentError> {
        let config = self.asker.present()?;
        options::digest(&self.asker.answer()?, &config, &self.settings.config_directory)
    }

    fn credentials(&self) -> Option<Digest> {
        self.asker.last().ok()?.credentials().ok()
    }

    fn identity_files(&self) -> Result<IdentityPaths, AgentError> {
        let config = self.asker.present()?;
        Ok(identity::files(&config, &self.asker.answer()?))
    }

    fn watches(&self) -> Vec<PathBuf> {
        let Ok(config) = self.asker.last() else { return Vec::new() };
        let mut watched = vec![config.jobs_directory()];
        watched.extend(queues::directories(&config));
        watched.retain(|path| matches!(crate::os::dir::Dir::open_if_exists(path), Ok(Some(_))));
        watched
    }
}
