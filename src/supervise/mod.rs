//! The supervisor: one loop over one enum of events. It runs the instance's agent, starts it again when it ends, and drives its switches.

mod act;
pub mod adopting;
mod checks;
pub mod choose;
pub mod control;
pub mod events;
mod log;
pub mod manager;
pub mod pace;
mod parts;
pub mod renew;
mod sole;
pub mod status;
mod workers;

pub use parts::{configuration, hearing, host_change, intent, keeper, tree};

use crate::agent::Registry;
use crate::config::Settings;
use crate::crash_point;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::clock::Moment;
use crate::os::dir::Dir;
use crate::os::environment::Passed;
use crate::os::process::Identity;
use crate::os::{OsError, children, notify, signals, socket};
use crate::store::Store;
use crate::switch::driver::{Before, Driver, Rehearsals, Step};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::own_commands::OwnCommands;
use crate::switch::process::{ProcessKind, Processes};
use crate::switch::schedule::When;
use crate::switch::{self, Adopted, Phase};
use adopting::Unadoption;
use configuration::ConfigurationCheck;
use control::{Answer, Command, SwitchCommand};
use events::{Event, Events};
use hearing::Hearing;
use host_change::{HostChangeWatch, HostRehearsal};
use intent::OwnSwitch;
use keeper::{Keeper, Restart};
use pace::{END_INTERVAL, HEALTH_INTERVAL, HEALTH_INTERVAL_SHORT};
use renew::Renewal;
use status::{AgentStatus, Ended, SupervisorStatus};
use std::path::PathBuf;
use std::time::Duration;
use tree::TreeWatch;
use workers::Workers;

/// The settings of a supervisor.
#[derive(Debug, Clone)]
pub struct SuperviseSettings {
    /// The instance.
    pub instance: InstanceName,
    /// Its package.
    pub package: PackageName,
    /// The agent's configuration directory; None: the manifest's, below the root.
    pub configuration: Option<PathBuf>,
    /// The settings of the host.
    pub host: Settings,
    /// The agents.
    pub agents: Registry,
    /// The variables of this process that the agent gets.
    pub passed: Passed,
    /// The commands of this program that the supervisor starts.
    pub commands: OwnCommands,
    /// The digest of the settings files from which all this was read.
    pub digest: String,
}

/// Runs an instance until a signal ends it.
pub fn supervise(layout: &Layout, settings: SuperviseSettings) -> Result<(), Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| OsError::new("start", "the event loop".as_ref(), source))?;
    let _entered = runtime.enter();
    let directory = Dir::open_or_create(&layout.run(&settings.instance), 0o755)?;
    let mut supervisor = Supervisor::new(layout, settings, directory.try_clone()?)?;
    crash_point!("supervise.before");
    let mut events = Events::new(socket::listen(&directory, control::SOCKET_NAME)?)?;
    supervisor.log_settings();
    signals::admit()?;
    let ended = runtime.block_on(async {
        let mut announced = false;
        loop {
            let pause = supervisor.turn(Moment::now());
            if supervisor.is_over() {
                return Ok(());
            }
            if !announced {
                announced = true;
                notify_manager("READY=1");
            }
            events.watch(supervisor.watches());
            events.watch_trees(supervisor.workers.take_watch());
            let event = match supervisor.successor() {
                Some(program) => renew::become_program(&program, &mut supervisor, &mut events).await,
                None => events.next(pause).await,
            };
            supervisor.handle(event, Moment::now());
        }
    });
    directory.remove_file(control::SOCKET_NAME)?;
    if !supervisor.restarting {
        directory.remove_file(status::STATUS_NAME)?;
    }
    supervisor.log_end();
    ended
}

/// Sends the state to the service manager; a failure changes nothing.
fn notify_manager(state: &str) {
    let _ = notify::notify(state);
}

struct Supervisor {
    settings: SuperviseSettings,
    directory: Dir,
    own: Identity,
    driver: Driver,
    /// What was before this supervisor, while the journal could not be taken up.
    resuming: Option<Before>,
    processes: Processes,
    keeper: Keeper,
    health: Option<(Duration, AgentStatus)>,
    trouble: Option<String>,
    /// The last problem in the log; None: it is over.
    logged_trouble: Option<String>,
    written: Option<SupervisorStatus>,
    ending: Option<Duration>,
    unadoption: Unadoption,
    over: bool,
    renewal: Renewal,
    /// How the agent ended last.
    ended: Option<Ended>,
    /// The agent is to be restarted, as the service was.
    restarting: bool,
    /// The comparison with the present configuration, if one is due.
    configuration_check: ConfigurationCheck,
    /// The healthy process whose credentials are noted.
    noted: Option<Identity>,
    /// When the agent could not hear.
    hearing: Hearing,
    host_change: HostChangeWatch,
    host_rehearsal: HostRehearsal,
    tree: TreeWatch,
    workers: Workers,
}

impl Supervisor {
    fn new(layout: &Layout, settings: SuperviseSettings, directory: Dir) -> Result<Self, Report> {
        let files = InstanceFiles::new(layout, &settings.instance, &settings.package);
        let lock = sole::drive_alone(&files, &settings)?;
        children::adopt_orphans();
        let mut processes = Processes::new(
            layout,
            &settings.package,
            &settings.instance,
            settings.agents,
            settings.commands,
            settings.configuration.clone(),
            settings.passed.clone(),
        );
        let store = Store::new(layout, &settings.package);
        processes.find(&store)?;
        let now = Moment::now();
        adopting::recognise(&files, &store, &mut processes)?;
        let host = &settings.host;
        let rehearsals = Rehearsals {
            agents: settings.agents,
            policy: host.rehearsal,
            states: host.highstate,
            extras: host.extras,
            wheels: host.extras_wheels.as_ref().map(|path| layout.on_host(path)),
        };
        let mut driver = Driver::new(files, lock, host.limits(), now)?.with_rehearsals(rehearsals);
        let own = Identity::own()?;
        let last = SupervisorStatus::last(&directory);
        let same = last.as_ref().is_some_and(|last| last.supervisor == own);
        if let (None, Some(which)) = (&driver.journal().live, driver.journal().serving_process()) {
            // An earlier supervisor may have ended between a freeze and what was to follow.
            processes.thaw(which)?;
        }
        // A journal that could not be taken up after a boot still is of the boot before.
        let is_of_now = driver.journal().live.as_ref().is_none_or(|live| live.boot == own.boot_id);
        let before = if same && is_of_now { Before::OwnWork } else { Before::Absence };
        // A full or a read-only disk keeps no proven release from running.
        let resuming = driver.resume(&processes, before, now).err().map(|error| (before, error.to_string()));
        let keeper = Keeper::new(Restart::new(*host.restart_pause, *host.restart_pause_limit));
        let ended = last.and_then(|last| last.ended);
        let restarting = manager::is_marked(&directory)?;
        let hearing = Hearing::of(&driver.files().downtimes().unwrap_or_default());
        let configuration_check = ConfigurationCheck::read(&directory)?;
        Ok(Self {
            settings,
            directory,
            own,
            driver,
            resuming: resuming.as_ref().map(|(before, _)| *before),
            processes,
            keeper,
            health: None,
            trouble: resuming.map(|(_, error)| error),
            logged_trouble: None,
            written: None,
            ending: None,
            unadoption: Unadoption::default(),
            over: false,
            renewal: Renewal::NotWanted,
            ended,
            restarting,
            configuration_check,
            noted: None,
            hearing,
            host_change: HostChangeWatch::default(),
            host_rehearsal: HostRehearsal::default(),
            tree: TreeWatch::default(),
            workers: Workers::default(),
        })
    }

    fn is_over(&self) -> bool {
        self.over
    }

    /// Acts on everything that is due; returns the time until the next turn, if no event comes earlier. No failure (for example a full /run) ends
    /// the supervisor: it shows the failure and tries again.
    fn turn(&mut self, now: Moment) -> Duration {
        self.act(now).unwrap_or_else(|report| {
            self.troubled(report.to_string());
            HEALTH_INTERVAL_SHORT
        })
    }

    fn act(&mut self, now: Moment) -> Result<Duration, Report> {
        let _look = self.look_at_rest();
        if self.processes.reap()? {
            self.health = None;
        }
        self.driver.log_ends(&mut self.processes);
        let rehearsed =
            self.driver.children().into_iter().chain(self.host_rehearsal.child()).chain(self.workers.children());
        children::take_others(&self.processes.children().into_iter().chain(rehearsed).collect())?;
        self.note_ends(now);
        if self.over {
            return Ok(Duration::ZERO);
        }
        self.processes.end_remains()?;
        let until_finished = self.end_finished(now)?;
        if self.driver.journal().live.as_ref().is_some_and(|live| live.adopted.is_some() && live.phase.is_beside()) {
            self.processes.end_unguarded()?;
        }
        if let Some(since) = self.ending {
            return self.end(since, now);
        }
        self.restart_after_service_restart(now);
        self.compare_configuration(now);
        // The proven release comes first: a boot starts `current`, whatever switch is pending.
        let until_restart = self.keep_running(now);
        if !self.resumes(now) {
            self.check(now);
            self.report(now)?;
            return Ok(until_restart.min(HEALTH_INTERVAL_SHORT));
        }
        let step = match self.driver.assign(&mut self.processes) {
            Ok(()) => self.driver.step(&mut self.processes, now),
            Err(error) => self.driver.on_unwritable_gate(error, &mut self.processes, now),
        };
        let step = match step {
            Ok(step) => step,
            // For example a full disk: the journal was not written, so the same act is due again.
            Err(error) => {
                self.troubled(error.to_string());
                Step::Waits
            }
        };
        if step == Step::Moved {
            self.health = None;
            // At once: a status without the process that serves now would say that nothing runs.
            self.check(now);
            self.report(now)?;
            return Ok(Duration::ZERO);
        }
        let until_check = self.check(now).min(self.give_back(now)).min(self.watch_host(now)).min(self.watch_trees(now));
        let until_check = until_check.min(self.until_answer());
        self.report(now)?;
        let limit = |phase| self.settings.host.limits().of(phase, 0).unwrap_or(Duration::MAX);
        let until_step =
            self.driver.journal().live.as_ref().map(|live| pace::of_step(live, now).min(limit(live.phase)));
        Ok(until_step.into_iter().chain([until_restart, until_check, until_finished]).min().unwrap_or(HEALTH_INTERVAL))
    }

    /// True once the journal is taken up: no switch goes on before that.
    fn resumes(&mut self, now: Moment) -> bool {
        let Some(before) = self.resuming else { return true };
        match self.driver.resume(&self.processes, before, now) {
            Ok(()) => (self.resuming, self.trouble) = (None, None),
            Err(error) => self.troubled(error.to_string()),
        }
        self.resuming.is_none()
    }

    fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Timer | Event::Child | Event::Changed => {}
            Event::TreeChanged => {
                let intent = self.tree.changed(now.since_boot);
                self.carry_out(intent, now);
            }
            Event::Renew => self.renewal = Renewal::Wanted,
            Event::Asked(question) => {
                self.log_question(&question);
                let answer = match question.command.clone() {
                    Ok(request) => self.answer(request, question.asker.clone(), now),
                    Err(report) => Answer::Refused(report),
                };
                self.log_refusal(&question, &answer);
                question.answer(&answer);
            }
            Event::Terminate => {
                notify_manager("STOPPING=1");
                if self.ending.is_none() && self.leaves_to_a_successor() {
                    return;
                }
                let first = self.ending.is_none();
                self.log_ending(first);
                if first {
                    self.hears_until(now);
                }
                self.ending = Some(if first { now.since_boot } else { Duration::ZERO });
                if let (true, Err(error)) = (first, self.ask_to_end()) {
                    self.troubled(error.to_string());
                }
            }
        }
    }

    fn answer(&mut self, command: Command, asker: Option<Identity>, now: Moment) -> Answer {
        if self.ending.is_some() {
            return Answer::Refused(
                Report::of(Class::Failed, "cannot accept the command: the supervisor is ending")
                    .hint("try again once the supervisor runs again"),
            );
        }
        if let Some(report) = self.driver.unreadable() {
            return Answer::Refused(report.clone());
        }
        if !self.resumes(now) {
            let why = self.trouble.clone().unwrap_or_default();
            return Answer::Refused(
                Report::of(Class::Failed, format!("cannot accept the command: {why}"))
                    .hint("the journal in /var/lib/sidle has to be written first: free space there, or remount it"),
            );
        }
        let done = match command {
            Command::Switch(switch) => self.begin(*switch, None, now),
            Command::RestartIfChanged(switch) => self.restart_if_changed(*switch, now),
            Command::Adopt { switch, adopted } => self.adopt(*switch, *adopted, now),
            Command::Unadopt { deadline_seconds } => self.unadopt(Duration::from_secs(deadline_seconds), asker, now),
            Command::Cancel => self.driver.cancel(now).map(|_| self.driver.journal().last_id).map_err(Report::from),
            Command::Refused { .. } => Ok(self.driver.journal().last_id),
            Command::DryRun { switch, if_changed } => {
                return self.dry_run(*switch, if_changed, now).unwrap_or_else(Answer::Refused);
            }
        };
        match done {
            Ok(switch) => Answer::Accepted { switch, expected: None },
            Err(report) => Answer::Refused(report),
        }
    }

    /// Makes the command of the supervisor's own switch.
    fn own_command(&self, own: OwnSwitch) -> SwitchCommand {
        let OwnSwitch { purpose, mode, to, reason, .. } = own;
        let request = switch::Request { purpose, to, reason, by: "supervisor".to_owned(), origin: None };
        let deadline_seconds = self.settings.host.switch_deadline.as_secs();
        SwitchCommand { request, mode, deadline_seconds, force: false, when: When::default() }
    }

    fn begin(&mut self, command: SwitchCommand, adopted: Option<Adopted>, now: Moment) -> Result<u64, Report> {
        self.driver.make_room(&mut self.processes, now)?;
        let manifest = self.driver.store().head(&command.request.to)?;
        let running =
            adopted.as_ref().map_or_else(|| self.driver.journal().serving_process(), |_| Some(ProcessKind::Foreign));
        let choice = choose::choose(command.mode, command.request.purpose, running, &self.processes, &manifest)?;
        let bad = command.bad_releases();
        let mut new = command.planned(choice.mode, choice.note.into_iter().collect(), now.wall)?;
        new.adopted = adopted;
        Ok(self.driver.request(new, bad, now)?)
    }

    /// The directories whose changes wake a waiting switch early.
    fn watches(&self) -> Vec<PathBuf> {
        let waiting = self.driver.journal().live.as_ref().is_some_and(|live| live.phase == Phase::Waiting);
        if waiting { self.processes.watches() } else { Vec::new() }
    }
}
