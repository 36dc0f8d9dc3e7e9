//! The supervisor: one loop over one enum of events. It runs the instance's agent, starts it again when it ends, and drives its switches.

mod adopting;
mod checks;
pub mod choose;
pub mod control;
pub mod events;
mod host_change;
mod log;
pub mod manager;
pub mod pace;
pub mod renew;
pub mod restart;
mod sole;
pub mod status;
mod take_up;
mod tree;
mod unreadable;

use crate::agent::Registry;
use crate::agent::gate::{GateRole, Origin};
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::os::{OsError, children, clock, notify, signals, socket};
use crate::store::Store;
use crate::switch::driver::configuration::Keeping;
use crate::switch::driver::{BadReleases, Before, Driver, Moment, Rehearsals, Step};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::{ProcessKind, Processes};
use crate::switch::schedule::When;
use crate::switch::{Adopted, Limits, Mode, Phase, Purpose};
use crate::version::Release;
use control::{Answer, Request, Wish};
use events::{Event, Events};
use host_change::HostChangeWatch;
use pace::{END_INTERVAL, HEALTH_INTERVAL, HEALTH_INTERVAL_SHORT};
use renew::Renewal;
use restart::Restart;
use status::{AgentStatus, Ended, SupervisorStatus};
use std::path::PathBuf;
use std::time::Duration;
use take_up::TakeUp;
use tree::TreeWatch;

/// What a supervisor is told.
#[derive(Debug, Clone)]
pub struct SuperviseSettings {
    /// The instance.
    pub instance: InstanceName,
    /// Its package.
    pub package: PackageName,
    /// The agent's configuration directory; None: the one that the manifest names, below the root.
    pub configuration: Option<PathBuf>,
    /// How long the phases of a switch may last.
    pub limits: Limits,
    /// How long an agent may take to end by itself when the service is stopped.
    pub stop: Duration,
    /// The first pause before an agent that ended is started again; each further one is twice as long.
    pub restart_pause_minimum: Duration,
    /// The longest such pause.
    pub restart_pause_maximum: Duration,
    /// How long a release counts as new: one that is in a crash loop then is left for the one before.
    pub fall_back_within: Duration,
    /// How long a switch that the supervisor itself asks for waits for running jobs.
    pub switch_deadline: Duration,
    /// How releases are rehearsed.
    pub rehearsals: Rehearsals,
    /// How often it is looked whether the host has changed under the releases.
    pub host_look: Duration,
    /// How often the package is scrubbed; zero: never.
    pub scrub_every: Duration,
    /// How configuration is kept.
    pub keeping: Keeping,
}

/// Runs an instance until it is told to end.
pub fn supervise(layout: &Layout, settings: SuperviseSettings, registry: Registry) -> Result<(), Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| OsError::new("start", "the event loop".as_ref(), source))?;
    let _entered = runtime.enter();
    let directory = Dir::open_or_create(&layout.run(&settings.instance), 0o755)?;
    let mut supervisor = Supervisor::new(layout, settings, registry, directory.try_clone()?)?;
    let mut events = Events::new(socket::listen(&directory, control::SOCKET_NAME)?)?;
    supervisor.tell_settings();
    signals::admit()?;
    let ended = runtime.block_on(async {
        let mut announced = false;
        loop {
            let pause = supervisor.turn(moment());
            if supervisor.is_over() {
                return Ok(());
            }
            if !announced {
                announced = true;
                tell("READY=1");
            }
            events.watch(supervisor.watches());
            events.watch_trees(supervisor.tree.take_watch());
            let event = match supervisor.successor() {
                Some(program) => renew::succeed(&program, &mut supervisor, &mut events).await,
                None => events.next(pause).await,
            };
            supervisor.handle(event, moment());
        }
    });
    directory.remove_file(control::SOCKET_NAME)?;
    if !supervisor.restarting {
        directory.remove_file(status::STATUS_NAME)?;
    }
    supervisor.tell_end();
    ended
}

fn moment() -> Moment {
    Moment { wall: clock::now(), since_boot: clock::since_boot() }
}

/// A service manager that doesn't listen changes nothing here.
fn tell(state: &str) {
    let _ = notify::notify(state);
}

struct Supervisor {
    settings: SuperviseSettings,
    directory: Dir,
    own: Identity,
    driver: Driver,
    processes: Processes,
    restart: Restart,
    health: Option<(Duration, AgentStatus)>,
    trouble: Option<String>,
    /// The last trouble that is in the log; None: it is over.
    told: Option<String>,
    written: Option<SupervisorStatus>,
    /// Since when something that is to be gone isn't.
    lingering: Option<Duration>,
    ending: Option<Duration>,
    /// Until when the agent may become idle, to be given back.
    unadopting: Option<Duration>,
    over: bool,
    renewal: Renewal,
    /// How the agent ended last.
    ended: Option<Ended>,
    /// The agent is to be restarted, as the service was.
    restarting: bool,
    /// The way back from a crash loop has been tried.
    left: bool,
    /// The damaged release that the supervisor has tried to leave.
    left_damaged: Option<Release>,
    /// A changed configuration is to be taken up after the live switch.
    take_up: TakeUp,
    /// The healthy process whose credentials are noted.
    noted: Option<Identity>,
    host_change: HostChangeWatch,
    tree: TreeWatch,
    registry: Registry,
}

impl Supervisor {
    fn new(layout: &Layout, settings: SuperviseSettings, registry: Registry, directory: Dir) -> Result<Self, Report> {
        let files = InstanceFiles::new(layout, &settings.instance, &settings.package);
        let lock = sole::drive_alone(&files, &settings)?;
        children::adopt_orphans();
        let mut processes =
            Processes::new(layout, &settings.package, &settings.instance, registry, settings.configuration.clone());
        let store = Store::new(layout, &settings.package);
        processes.find(|release| store.manifest(release).ok())?;
        let now = moment();
        adopting::recognise(&files, &store, &mut processes)?;
        let mut driver = Driver::new(files, lock, settings.limits, now)?.with_rehearsals(settings.rehearsals.clone());
        driver = driver.with_snapshots(settings.keeping);
        let own = Identity::own()?;
        let last = SupervisorStatus::last(&directory);
        let same = last.as_ref().is_some_and(|last| last.supervisor == own);
        driver.resume(&processes, if same { Before::OwnWork } else { Before::Absence }, now)?;
        let restart = Restart::new(settings.restart_pause_minimum, settings.restart_pause_maximum);
        let ended = last.and_then(|last| last.ended);
        let restarting = manager::is_marked(&directory)?;
        let take_up = TakeUp::read(&directory)?;
        Ok(Self {
            settings,
            directory,
            own,
            driver,
            processes,
            restart,
            health: None,
            trouble: None,
            told: None,
            written: None,
            lingering: None,
            ending: None,
            unadopting: None,
            over: false,
            renewal: Renewal::NotWanted,
            ended,
            restarting,
            left: false,
            left_damaged: None,
            take_up,
            noted: None,
            host_change: HostChangeWatch::default(),
            tree: TreeWatch::default(),
            registry,
        })
    }

    fn is_over(&self) -> bool {
        self.over
    }

    /// Does what is due; gives how long it may rest until the next turn, if no event comes before. Nothing that goes wrong ends the
    /// supervisor (a full /run, say): it is told where it can be, and tried again.
    fn turn(&mut self, now: Moment) -> Duration {
        self.act(now).unwrap_or_else(|report| {
            self.troubled(report.to_string());
            HEALTH_INTERVAL_SHORT
        })
    }

    fn act(&mut self, now: Moment) -> Result<Duration, Report> {
        if self.processes.reap()? {
            self.health = None;
        }
        self.driver.tell_ends(&mut self.processes);
        let rehearsed = self.driver.children().into_iter().chain(self.host_change.child()).chain(self.tree.children());
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
        self.restart_as_told(now);
        self.take_up_as_told(now);
        self.leave_ground_to_a_switch();
        // First what worked, then what is new: a boot starts `current`, whatever switch is pending.
        let until_restart = self.keep_running(now);
        let step = match self.driver.assign(&mut self.processes) {
            Ok(()) => self.driver.step(&mut self.processes, now),
            Err(error) => self.driver.hindered(error, &mut self.processes, now),
        };
        let step = match step {
            Ok(step) => step,
            // A full disk, say: nothing is believed that is not written, so the same act is due again.
            Err(error) => {
                self.troubled(error.to_string());
                Step::Waits
            }
        };
        if step == Step::Moved {
            self.health = None;
            if self.driver.journal().live.is_none() {
                self.check(now);
            }
            self.report(now)?;
            return Ok(Duration::ZERO);
        }
        let until_check = self.check(now).min(self.give_back(now)).min(self.watch_host(now)).min(self.watch_trees(now));
        let until_check = until_check.min(self.until_answer());
        self.report(now)?;
        let limit = |phase| self.settings.limits.of(phase, 0).unwrap_or(Duration::MAX);
        let until_step =
            self.driver.journal().live.as_ref().map(|live| pace::of_step(live, now).min(limit(live.phase)));
        Ok(until_step.into_iter().chain([until_restart, until_check, until_finished]).min().unwrap_or(HEALTH_INTERVAL))
    }

    /// Starts the process that is meant to run when it doesn't, unless the switch's own acts are to do that.
    fn keep_running(&mut self, now: Moment) -> Duration {
        if self.leaves_all_as_it_is() {
            return HEALTH_INTERVAL;
        }
        let journal = self.driver.journal().clone();
        let kept = match &journal.live {
            Some(live) => live.phase.keeps().map(|side| live.which(side)),
            None => Some(journal.meant_which()),
        };
        let Some(kept) = kept else { return HEALTH_INTERVAL };
        // What else runs is left of a switch that was given up.
        match self.processes.end_all_but(&journal.allowed()) {
            Ok(true) => self.lingering = None,
            Ok(false) => {
                let since = *self.lingering.get_or_insert(now.since_boot);
                // One that doesn't end at all (in an uninterruptible wait) must not keep its successor from being there.
                if now.since_boot.saturating_sub(since) < self.settings.limits.stop {
                    return END_INTERVAL;
                }
            }
            Err(error) => self.troubled(error.to_string()),
        }
        let Some(which) = kept else { return HEALTH_INTERVAL };
        if self.processes.of(which).is_some() {
            self.restart.runs(now.since_boot);
            return HEALTH_INTERVAL;
        }
        let pause = self.restart.rests(now.since_boot);
        if pause > Duration::ZERO {
            return pause;
        }
        let _ = self.processes.how_ended(which);
        self.driver.tell_ends(&mut self.processes);
        let how = self.processes.how_ended(which);
        let loops = which.release().and_then(|release| self.restart.trouble(release, how));
        let again = how.map(|how| format!("the agent {how} and was started again"));
        let started = self.start(which);
        let damaged = started.as_ref().err().filter(|report| report.class == Class::Integrity).map(ToString::to_string);
        match started {
            Err(report) => self.needs_a_person(report.to_string()),
            Ok(mended) => match (loops.clone(), again.or(mended)) {
                (Some(loops), _) => self.needs_a_person(loops),
                // In the log already: the end and the start, or the repair.
                (None, other) => self.trouble = other,
            },
        }
        self.health = None;
        self.restart.begins(now.since_boot);
        if let Some(loops) = loops {
            self.leave_for_the_one_before(&loops, now);
        }
        if let Some(damaged) = damaged {
            self.leave_the_damaged_one(&damaged, now);
        }
        HEALTH_INTERVAL_SHORT
    }

    /// Starts a process; gives what had to be mended before that.
    fn start(&mut self, which: ProcessKind<'_>) -> Result<Option<String>, Report> {
        let store = self.driver.store();
        // Who it is that starts an adopted agent, it is not this supervisor.
        let Some(release) = which.release() else { return Ok(None) };
        let mended = store.verify_or_repair(release)?.map(|repaired| repaired.told(release));
        self.tell_mended(mended.as_deref());
        let manifest = store.manifest(release)?;
        self.processes.start(which, &manifest, Origin::Boot, GateRole::Active)?;
        Ok(mended)
    }

    fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Timer | Event::Child | Event::Changed => {}
            Event::TreeChanged => self.tree_changed(now),
            Event::Renew => self.renewal = Renewal::Wanted,
            Event::Asked(question) => {
                self.tell_question(&question);
                let answer = match question.request.clone() {
                    Ok(request) => self.answer(request, now),
                    Err(report) => Answer::Refused(report),
                };
                self.tell_refusal(&question, &answer);
                question.answer(&answer);
            }
            Event::Told => {
                tell("STOPPING=1");
                if self.ending.is_none() && self.leaves_to_a_successor() {
                    return;
                }
                let first = self.ending.is_none();
                self.tell_ending(first);
                self.ending = Some(if first { now.since_boot } else { Duration::ZERO });
                if let (true, Err(error)) = (first, self.ask_to_end()) {
                    self.troubled(error.to_string());
                }
            }
        }
    }

    fn answer(&mut self, request: Request, now: Moment) -> Answer {
        if self.ending.is_some() {
            return Answer::Refused(Report {
                class: Class::Failed,
                message: "cannot begin anything: the supervisor is ending".to_owned(),
                causes: Vec::new(),
                hint: Some("ask again once it is started again".to_owned()),
            });
        }
        if let Some(report) = self.driver.unreadable() {
            return Answer::Refused(report.clone());
        }
        let done = match request {
            Request::Switch(wish) => self.begin(*wish, None, now),
            Request::TakeUp(wish) => self.take_up(*wish, now),
            Request::Adopt { wish, adopted } => self.adopt(*wish, *adopted, now),
            Request::Unadopt { deadline_seconds } => self.unadopt(Duration::from_secs(deadline_seconds), now),
            Request::Cancel => self.driver.cancel(now).map(|_| self.driver.journal().last_id).map_err(Report::from),
            Request::Refused { .. } => Ok(self.driver.journal().last_id),
        };
        match done {
            Ok(switch) => Answer::Accepted { switch },
            Err(report) => Answer::Refused(report),
        }
    }

    /// A wish of the supervisor itself.
    fn own_wish(&self, purpose: Purpose, mode: Option<Mode>, to: Release, reason: &str) -> Wish {
        let deadline_seconds = self.settings.switch_deadline.as_secs();
        let (reason, by) = (reason.to_owned(), "supervisor".to_owned());
        Wish { purpose, mode, to, deadline_seconds, reason, by, origin: None, force: false, when: When::default() }
    }

    fn begin(&mut self, wish: Wish, adopted: Option<Adopted>, now: Moment) -> Result<u64, Report> {
        self.driver.make_room(&mut self.processes, now)?;
        let manifest = self.driver.store().manifest(&wish.to)?;
        let running =
            adopted.as_ref().map_or_else(|| self.driver.journal().meant_which(), |_| Some(ProcessKind::Foreign));
        let choice = choose::choose((wish.mode, wish.purpose), running, &self.processes, &manifest)?;
        let bad = if wish.force { BadReleases::TryAgain } else { BadReleases::Refuse };
        let mut request = wish.request(choice.mode, choice.note.into_iter().collect(), now.wall)?;
        request.adopted = adopted;
        Ok(self.driver.request(request, bad, now)?)
    }

    /// What wakes a waiting switch early.
    fn watches(&self) -> Vec<PathBuf> {
        let waiting = self.driver.journal().live.as_ref().is_some_and(|live| live.phase == Phase::Waiting);
        if waiting { self.processes.watches() } else { Vec::new() }
    }
}
