//! The driver: performs the act of the journalled phase, writes down what came of it, and only then believes it.

use super::files::{DriverLock, FilesError, InstanceFiles};
use super::processes::{Frozen, Look, Processes, Which, described};
use super::rehearse::Rehearsing;
use super::roles::{self, Backlog};
use super::{Act, Entry, Former, Journal, Limits, Outcome, Purpose, Request, RequestError, Side, Switch};
use crate::agent::gate::{Origin, Report, Role};
use crate::bundle::manifest::{Manifest, Service};
use crate::crash_point;
use crate::failure::Class;
use crate::os::{OsError, clock, file};
use crate::rehearsal::{Part, Rehearsers, Scene};
use crate::store::{Store, StoreError};
use crate::version::Release;
use jiff::Timestamp;
use std::fmt;
use std::time::Duration;

/// The present, on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// For people and deadlines.
    pub wall: Timestamp,
    /// For waits.
    pub since_boot: Duration,
}

/// Why the driver could not go on. The journal tells where it is; the next try goes on from there.
#[derive(Debug)]
pub enum DriveError {
    /// An instance's files.
    Files(FilesError),
    /// The system.
    Os(OsError),
    /// The request can't be taken.
    Request(RequestError),
    /// The release failed here before, or was left by a person.
    Verdict {
        /// The release.
        release: Release,
        /// What is held against it.
        reason: String,
    },
    /// The release isn't there or isn't whole.
    Store(StoreError),
}

impl DriveError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Files(error) => error.class(),
            Self::Os(error) => error.class(),
            Self::Request(error) => error.class(),
            Self::Verdict { .. } => Class::Held,
            Self::Store(error) => error.class(),
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Files(error) => error.hint(),
            Self::Os(error) => error.hint(),
            Self::Request(error) => error.hint(),
            Self::Verdict { .. } => Some("to try it all the same, add --force".to_owned()),
            Self::Store(error) => error.hint(),
        }
    }
}

impl fmt::Display for DriveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(error) => error.fmt(formatter),
            Self::Os(error) => error.fmt(formatter),
            Self::Request(error) => error.fmt(formatter),
            Self::Verdict { release, reason } => {
                write!(formatter, "cannot switch to {release}: it failed on this host: {reason}")
            }
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for DriveError {}

impl From<FilesError> for DriveError {
    fn from(error: FilesError) -> Self {
        Self::Files(error)
    }
}

impl From<OsError> for DriveError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

impl From<StoreError> for DriveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<RequestError> for DriveError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

/// Whether a release that failed here may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadReleases {
    /// No.
    Refuse,
    /// A person wants it all the same.
    TryAgain,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The journal changed: the next act is due now.
    Moved,
    /// The same act is due again later.
    Waits,
    /// There is no switch under way.
    Rests,
}

/// What a rehearsal may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Refuse the switch for what it finds.
    #[default]
    Refuse,
    /// Tell what it finds.
    Report,
    /// There is none.
    Off,
}

/// How releases are rehearsed before a trial.
#[derive(Debug, Clone, Copy)]
pub struct Rehearsals {
    /// How each kind of agent is.
    pub rehearsers: Rehearsers,
    /// What comes of it.
    pub policy: Policy,
}

/// Drives the switches of one instance.
pub struct Driver {
    files: InstanceFiles,
    store: Store,
    lock: DriverLock,
    journal: Journal,
    limits: Limits,
    entered: Duration,
    /// The number under which the guards know the present roles.
    serial: u64,
    asked: Asked,
    rehearsals: Option<Rehearsals>,
    rehearsing: Option<Rehearsing>,
    /// Whether the side on its way out has been told to take nothing any more; begun anew with each phase.
    backlog: Backlog,
}

impl Driver {
    /// The driver of an instance whose lock is held. Reads the journal; does nothing yet.
    pub fn new(files: InstanceFiles, lock: DriverLock, limits: Limits, now: Moment) -> Result<Self, DriveError> {
        let journal = files.journal()?;
        let store = Store::new(files.layout(), files.package());
        let (serial, asked, backlog) = (0, Asked::default(), Backlog::Possible);
        let entered = now.since_boot;
        let (rehearsals, rehearsing) = (None, None);
        Ok(Self { files, store, lock, journal, limits, entered, serial, asked, rehearsals, rehearsing, backlog })
    }

    /// The same, which rehearses before a trial.
    #[must_use]
    pub fn with_rehearsals(self, rehearsals: Rehearsals) -> Self {
        Self { rehearsals: Some(rehearsals), ..self }
    }

    /// The journal as it is on disk.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The files of the instance.
    pub fn files(&self) -> &InstanceFiles {
        &self.files
    }

    /// The package's store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The proof that this driver alone drives.
    pub fn lock(&self) -> &DriverLock {
        &self.lock
    }

    /// Writes a journal, then believes it.
    fn believe(&mut self, journal: Journal, now: Moment) -> Result<Step, DriveError> {
        if journal == self.journal {
            return Ok(Step::Waits);
        }
        crash_point!("journal.before");
        self.files.write_journal(&self.lock, &journal)?;
        crash_point!("journal.after");
        let phase = |journal: &Journal| journal.live.as_ref().map(|live| (live.id, live.phase, live.setbacks));
        let moved = phase(&journal) != phase(&self.journal);
        if moved {
            self.entered = now.since_boot;
            self.asked = Asked::default();
            self.backlog = Backlog::Possible;
            self.rehearsing = None;
        }
        self.journal = journal;
        Ok(if moved { Step::Moved } else { Step::Waits })
    }

    /// Takes up the live switch after an absence, and makes `current` name what the journal says.
    pub fn resume(&mut self, processes: &Processes, now: Moment) -> Result<(), DriveError> {
        let alive = |side| {
            let which = self.journal.live.as_ref().and_then(|live| live.which(side));
            which.is_some_and(|which| processes.of(which).is_some())
        };
        let journal = self.journal.resumed(&clock::boot_id()?, alive(Side::Former), alive(Side::Trial), now.wall);
        self.believe(journal, now)?;
        let flipping = self.journal.live.as_ref().is_some_and(|live| live.phase.act() == Act::Flip);
        if let (Some(proven), false) = (self.journal.proven.clone(), flipping) {
            if self.store.current(self.files.instance())?.as_ref() != Some(&proven) {
                let lock = self.store.lock()?;
                self.store.flip(&lock, self.files.instance(), &proven)?;
            }
        }
        Ok(())
    }

    /// Accepts a request: the target is installed and whole, and nothing is held against it. It is written down; nothing else happens yet.
    pub fn request(&mut self, request: Request, bad: BadReleases, now: Moment) -> Result<u64, DriveError> {
        self.store.verify(&request.to)?;
        let verdicts = self.files.verdicts()?;
        if let (Some(verdict), BadReleases::Refuse) = (verdicts.bad.get(&request.to), bad) {
            return Err(DriveError::Verdict { release: request.to, reason: verdict.reason.clone() });
        }
        let journal = self.journal.requested(request, &clock::boot_id()?, now.wall)?;
        self.believe(journal, now)?;
        Ok(self.journal.last_id)
    }

    /// A person takes the live switch back. What that does depends on how far it is.
    pub fn cancel(&mut self, now: Moment) -> Result<Step, DriveError> {
        let journal = self.journal.advanced(&Outcome::Cancelled, now.wall);
        self.believe(journal, now)
    }

    /// Gives each process its role at the gate, as the journal has it.
    pub fn assign(&mut self, processes: &mut Processes) -> Result<(), DriveError> {
        let guarded = |which| processes.guarded(which);
        let roles = match &self.journal.live {
            Some(live) => {
                let (former, trial) = (live.which(Side::Former), live.which(Side::Trial));
                let (former, trial) = (former.and_then(guarded), trial.and_then(guarded));
                roles::roles(live, former, trial, self.backlog, self.asked.number)
            }
            None => roles::alone(self.journal.meant_which().and_then(guarded), self.asked.number),
        };
        if !roles.seats.is_empty() {
            self.serial = processes.assign(&roles)?;
        }
        Ok(())
    }

    /// Performs the act of the present phase once and writes down what came of it.
    pub fn step(&mut self, processes: &mut Processes, now: Moment) -> Result<Step, DriveError> {
        let Some(live) = self.journal.live.clone() else { return Ok(Step::Rests) };
        let act = live.phase.act();
        let outcome = match gone(&live, processes) {
            Some(lost) => lost,
            None => self.perform(act, &live, processes, now)?,
        };
        let waited = now.since_boot.saturating_sub(self.entered);
        let outcome = live.in_time(outcome, waited, now.wall, &self.limits);
        let journal = self.journal.advanced(&outcome, now.wall);
        self.believe(journal, now)
    }

    fn perform(
        &mut self,
        act: Act,
        live: &Switch,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        match act {
            Act::Check => self.check(live, processes, now),
            Act::Rehearse => self.rehearse(live, processes, now),
            Act::AwaitIdle => self.await_idle(live, processes, now),
            Act::Freeze => match live.which(Side::Former).map(|former| processes.freeze(former, Look::Alone)) {
                None | Some(Ok(Frozen::Idle)) => Ok(Outcome::Done),
                Some(Ok(Frozen::Busy(work))) => Ok(Outcome::NotYet(work)),
                Some(Err(error)) => Ok(Outcome::NotYet(error.to_string())),
            },
            Act::Stop(_) => Ok(match processes.end_all_but(&live.others_allowed(Side::Trial)) {
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::NotYet("the process to be gone".to_owned()),
                Err(error) => Outcome::NotYet(error.to_string()),
            }),
            Act::Start(side) => Ok(self.start(live, side, processes)),
            Act::Prove(side) => Ok(match self.lacks(live, side, processes, now, Proof::OfThisPhase) {
                None => Outcome::Done,
                Some(missing) => Outcome::NotYet(missing),
            }),
            Act::HandOver => Ok(self.hand_over(live, processes)),
            Act::Watch => Ok(match self.lacks(live, Side::Trial, processes, now, Proof::OfLate) {
                None => Outcome::Done,
                Some(missing) => Outcome::Failed(missing),
            }),
            Act::Flip => Ok(self.flip()),
            Act::Drain(side) => self.drain(live, side, processes, now),
            Act::Pause => Ok(Outcome::NotYet(live.waiting_for.clone().unwrap_or_else(|| "another try".to_owned()))),
            Act::Settle => self.settle(live, processes),
        }
    }

    /// The files of both releases are what was signed; the peers of the running process are the baseline.
    fn check(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        if self.asked.number == 0 {
            for release in [Some(&live.to), live.from.as_ref()].into_iter().flatten() {
                if let Err(error) = self.store.verify(release) {
                    return Ok(Outcome::Failed(error.to_string()));
                }
            }
            self.asked = Asked::at(now);
            self.assign(processes)?;
        }
        let report = live.which(Side::Former).and_then(|former| processes.report(former));
        let answered = report.is_none_or(|report| report.prove >= self.asked.number);
        if !answered && now.since_boot.saturating_sub(self.asked.at) < PROOF_WAIT {
            return Ok(Outcome::NotYet("the running process to reach its peers once more".to_owned()));
        }
        self.measure(live, processes, now)?;
        Ok(Outcome::Done)
    }

    fn measure(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<(), DriveError> {
        let health = live.which(Side::Former).and_then(|former| processes.health(former, None));
        if let Some(health) = health {
            let journal = self.journal.measured(health.proven());
            self.believe(journal, now)?;
        }
        Ok(())
    }

    /// The new release loads what this host has for it. A restart changes no release: its trial will tell.
    fn rehearse(&mut self, live: &Switch, processes: &Processes, now: Moment) -> Result<Outcome, DriveError> {
        let wanted = self.rehearsals.filter(|wanted| wanted.policy != Policy::Off && live.purpose != Purpose::Restart);
        let Some(Rehearsals { rehearsers, policy }) = wanted else { return Ok(Outcome::Done) };
        let mut rehearsing = match self.rehearsing.take() {
            Some(rehearsing) => rehearsing,
            None => {
                let manifest = self.store.manifest(&live.to)?;
                let scene = self.scene(live, &manifest, processes)?;
                let run = self.files.layout().run(self.files.instance());
                Rehearsing::start(rehearsers(manifest.agent), scene, &run, self.limits.rehearsal, now.since_boot)?
            }
        };
        let Some(came) = rehearsing.poll(now.since_boot) else {
            self.rehearsing = Some(rehearsing);
            return Ok(Outcome::NotYet("the rehearsal".to_owned()));
        };
        match came {
            Ok(rehearsal) => {
                let refuses = rehearsal.refusal().filter(|_| policy == Policy::Refuse);
                let journal = self.journal.noted(&rehearsal.lines());
                self.believe(journal, now)?;
                Ok(refuses.map_or(Outcome::Done, Outcome::Failed))
            }
            Err(reason) => {
                let journal = self.journal.noted(&[reason]);
                self.believe(journal, now)?;
                Ok(Outcome::Done)
            }
        }
    }

    fn scene(&self, live: &Switch, manifest: &Manifest, processes: &Processes) -> Result<Scene, DriveError> {
        let config_directory = processes.configuration(manifest);
        let part = |manifest: &Manifest| -> Result<Part, DriveError> {
            let environment = manifest.service.environment.iter();
            let environment = environment.map(|(name, value)| (name.into(), Service::expanded(value, &config_directory)));
            let tree = file::canonical(self.store.tree(&manifest.release())?.path())?;
            Ok(Part { tree, environment: environment.collect() })
        };
        let former = match &live.from {
            Some(from) => Some(part(&self.store.manifest(from)?)?),
            None => None,
        };
        Ok(Scene { trial: part(manifest)?, former, config_directory: config_directory.clone() })
    }

    fn await_idle(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        let Some(former) = live.which(Side::Former) else { return Ok(Outcome::Done) };
        if let Err(error) = processes.thaw(former) {
            return Ok(Outcome::NotYet(error.to_string()));
        }
        self.measure(live, processes, now)?;
        Ok(match processes.activity(former).as_ref().and_then(described) {
            None => Outcome::Done,
            Some(work) => Outcome::NotYet(work),
        })
    }

    fn start(&self, live: &Switch, side: Side, processes: &mut Processes) -> Outcome {
        let Some(which) = live.which(side) else {
            return Outcome::Failed("there is no release to start".to_owned());
        };
        // What else runs would hold the agent's own locks against the new process.
        let mut allowed = live.others_allowed(side);
        allowed.push(which);
        match processes.end_all_but(&allowed) {
            Ok(true) => {}
            Ok(false) => return Outcome::NotYet("the old process to be gone".to_owned()),
            Err(error) => return Outcome::NotYet(error.to_string()),
        }
        let release = which.release();
        let manifest: Result<Manifest, StoreError> =
            self.store.verify(release).and_then(|()| self.store.manifest(release));
        let first_role = roles::first_role(Some(live), side);
        match manifest {
            Err(error) => Outcome::Failed(error.to_string()),
            Ok(manifest) => match processes.start(which, &manifest, Origin::Switch, first_role) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.to_string()),
            },
        }
    }

    /// Both processes follow the roles of this phase.
    fn hand_over(&self, live: &Switch, processes: &Processes) -> Outcome {
        for (side, name) in [(Side::Trial, "new"), (Side::Former, "old")] {
            let report = live.which(side).and_then(|which| processes.report(which));
            if report.is_none_or(|report| report.serial < self.serial) {
                return Outcome::NotYet(format!("the {name} process to follow the gate"));
            }
        }
        Outcome::Done
    }

    /// The process of `side` takes nothing any more, and has nothing left. The old one is ended at once.
    fn drain(
        &mut self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Outcome, DriveError> {
        let other = if side == Side::Former { Side::Trial } else { Side::Former };
        let Some(leaving) = live.which(side) else { return Ok(Outcome::Done) };
        processes.thaw(leaving)?;
        let fresh = |report: &Report| report.is_fresh(now.since_boot.as_secs_f64());
        let report = processes.report(leaving);
        let never_armed = report.is_none() && side == Side::Trial;
        let Some(report) = report.filter(fresh) else {
            // Its guard hangs with it, or is not there: what runs below it are the jobs that are left. Without a guard nothing was taken.
            let waited = now.since_boot.saturating_sub(self.entered);
            return match processes.below(leaving)? {
                0 if waited > PROOF_WAIT || never_armed => Self::finish(side, live, processes),
                0 => Ok(Outcome::NotYet("its guard to say something".to_owned())),
                count => Ok(Outcome::NotYet(format!("{count} processes of its jobs, while its guard says nothing"))),
            };
        };
        let staying = live.which(other).and_then(|which| processes.report(which));
        if staying.filter(fresh).is_some_and(|staying| report.has_caught_up_with(&staying)) {
            self.backlog = Backlog::Seen;
        }
        if report.role != Role::Closed || report.serial < self.serial {
            return Ok(Outcome::NotYet("it to take nothing any more".to_owned()));
        }
        if let Some(work) = report.unfinished() {
            return Ok(Outcome::NotYet(work));
        }
        match (side, processes.freeze(leaving, Look::Beside)?) {
            (_, Frozen::Busy(work)) => Ok(Outcome::NotYet(work)),
            (_, Frozen::Idle) => Self::finish(side, live, processes),
        }
    }

    /// Ends the old process; the one on trial is ended by the phase that follows.
    fn finish(side: Side, live: &Switch, processes: &mut Processes) -> Result<Outcome, DriveError> {
        if side == Side::Trial {
            return Ok(Outcome::Done);
        }
        let kept: Vec<Which<'_>> = live.which(Side::Trial).into_iter().collect();
        Ok(match processes.end_all_but(&kept)? {
            true => Outcome::Done,
            false => Outcome::NotYet("the old process to be gone".to_owned()),
        })
    }

    /// What the process of a side lacks to be healthy.
    fn lacks(
        &mut self,
        live: &Switch,
        side: Side,
        processes: &mut Processes,
        now: Moment,
        proof: Proof,
    ) -> Option<String> {
        let which = live.which(side)?;
        let report = processes.report(which);
        let answered = report.as_ref().is_none_or(|report| report.prove >= self.asked.number);
        if self.asked.is_due(now, answered, proof) {
            self.asked = self.asked.again(now);
        }
        let floor = match proof {
            Proof::OfThisPhase => self.asked.first,
            Proof::OfLate => self.asked.before,
        };
        // Without a guard the connections have to do.
        let floor = processes.guarded(which).map(|_| floor);
        let health = processes.health(which, floor);
        health.map_or_else(|| Some("its process is not running".to_owned()), |health| health.lacks(&live.baseline))
    }

    fn flip(&self) -> Outcome {
        let Some(proven) = &self.journal.proven else { return Outcome::Done };
        let moved = self.store.lock().and_then(|lock| self.store.flip(&lock, self.files.instance(), proven));
        match moved {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::NotYet(error.to_string()),
        }
    }

    fn settle(&self, live: &Switch, processes: &Processes) -> Result<Outcome, DriveError> {
        processes.thaw_all()?;
        if let Some(entry) = Entry::of(live) {
            self.files.write_history(&self.lock, &self.files.history()?.with(entry))?;
            crash_point!("settle.history");
            self.files.write_verdicts(&self.lock, &self.files.verdicts()?.after(live))?;
            crash_point!("settle.verdicts");
        }
        Ok(Outcome::Done)
    }
}

/// How long a round trip may take: longer than a guard's own limit, and than a guard that hangs is waited for.
const PROOF_WAIT: Duration = Duration::from_secs(12);
/// How often a process on trial is asked for a round trip.
const PROOF_INTERVAL: Duration = Duration::from_secs(10);
/// The same while it has not yet made one.
const PROOF_INTERVAL_SOON: Duration = Duration::from_secs(1);

/// Which round trip counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// One that was asked for since the phase was entered.
    OfThisPhase,
    /// The last one or the one before: one lost request is no reason.
    OfLate,
}

/// The round trips that were asked for in a phase; numbers are milliseconds since boot, so that they grow whoever asks.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    number: u64,
    at: Duration,
    first: u64,
    before: u64,
}

impl Asked {
    fn at(now: Moment) -> Self {
        let number = u64::try_from(now.since_boot.as_millis()).unwrap_or(u64::MAX);
        Self { number, at: now.since_boot, first: number, before: 0 }
    }

    fn again(self, now: Moment) -> Self {
        let new = Self::at(now);
        if self.number == 0 { new } else { Self { first: self.first, before: self.number, ..new } }
    }

    fn is_due(&self, now: Moment, answered: bool, proof: Proof) -> bool {
        let interval = match (answered, proof) {
            (false, _) => PROOF_WAIT,
            (true, Proof::OfThisPhase) => PROOF_INTERVAL_SOON,
            (true, Proof::OfLate) => PROOF_INTERVAL,
        };
        self.number == 0 || now.since_boot.saturating_sub(self.at) >= interval
    }
}

/// `Lost`, where the phase counts on a process that is gone.
fn gone(live: &Switch, processes: &Processes) -> Option<Outcome> {
    let sides: &[Side] = match (live.phase.act(), live.former()) {
        (Act::AwaitIdle | Act::Freeze | Act::Prove(Side::Former), _) => &[Side::Former],
        (Act::Start(Side::Trial) | Act::Flip | Act::Drain(Side::Former) | Act::Stop(Side::Trial), Former::Beside) => {
            &[Side::Former]
        }
        (Act::Prove(Side::Trial) | Act::HandOver | Act::Watch, Former::Beside) => &[Side::Former, Side::Trial],
        (Act::Drain(Side::Trial), _) => &[Side::Former, Side::Trial],
        (Act::Prove(Side::Trial) | Act::HandOver | Act::Watch, Former::Apart | Former::None) => &[Side::Trial],
        (
            Act::Check
            | Act::Rehearse
            | Act::Stop(_)
            | Act::Start(_)
            | Act::Flip
            | Act::Drain(Side::Former)
            | Act::Pause
            | Act::Settle,
            _,
        ) => &[],
    };
    for side in sides {
        let Some(which) = live.which(*side) else { continue };
        if processes.of(which).is_none() {
            let how = processes.last_exit().unwrap_or("is not running");
            return Some(Outcome::Lost(*side, format!("the process of {} {how}", which.release())));
        }
    }
    None
}
