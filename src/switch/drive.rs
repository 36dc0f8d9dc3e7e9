//! The driver: performs the act of the journalled phase, writes down what came of it, and only then believes it.

use super::files::{DriverLock, FilesError, InstanceFiles};
use super::processes::{Frozen, Processes, described};
use super::{Act, Entry, Journal, Limits, Outcome, Request, RequestError, Side, Switch};
use crate::bundle::manifest::Manifest;
use crate::crash_point;
use crate::failure::Class;
use crate::os::{OsError, clock};
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

/// Drives the switches of one instance.
pub struct Driver {
    files: InstanceFiles,
    store: Store,
    lock: DriverLock,
    journal: Journal,
    limits: Limits,
    entered: Duration,
}

impl Driver {
    /// The driver of an instance whose lock is held. Reads the journal; does nothing yet.
    pub fn new(files: InstanceFiles, lock: DriverLock, limits: Limits, now: Moment) -> Result<Self, DriveError> {
        let journal = files.journal()?;
        let store = Store::new(files.layout(), files.package());
        Ok(Self { files, store, lock, journal, limits, entered: now.since_boot })
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
        }
        self.journal = journal;
        Ok(if moved { Step::Moved } else { Step::Waits })
    }

    /// Takes up the live switch after an absence, and makes `current` name what the journal says.
    pub fn resume(&mut self, processes: &Processes, now: Moment) -> Result<(), DriveError> {
        let alive = self.journal.meant().is_some_and(|release| processes.of(release).is_some());
        let journal = self.journal.resumed(&clock::boot_id()?, alive, now.wall);
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
            Act::AwaitIdle => self.await_idle(live, processes, now),
            Act::Freeze => match live.from.as_ref().map(|from| processes.freeze(from)) {
                None | Some(Ok(Frozen::Idle)) => Ok(Outcome::Done),
                Some(Ok(Frozen::Busy(work))) => Ok(Outcome::NotYet(work)),
                Some(Err(error)) => Ok(Outcome::NotYet(error.to_string())),
            },
            Act::Stop(_) => Ok(match processes.end_all() {
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::NotYet("the old process to be gone".to_owned()),
                Err(error) => Outcome::NotYet(error.to_string()),
            }),
            Act::Start(side) => Ok(self.start(live, side, processes)),
            Act::Prove(side) => Ok(match lacks(live, side, processes) {
                None => Outcome::Done,
                Some(missing) => Outcome::NotYet(missing),
            }),
            Act::Watch => Ok(match lacks(live, Side::Trial, processes) {
                None => Outcome::Done,
                Some(missing) => Outcome::Failed(missing),
            }),
            Act::Flip => Ok(self.flip()),
            Act::Pause => Ok(Outcome::NotYet(live.waiting_for.clone().unwrap_or_else(|| "another try".to_owned()))),
            Act::Settle => self.settle(live, processes),
        }
    }

    /// The files of both releases are what was signed; the peers of the running process are the baseline.
    fn check(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        for release in [Some(&live.to), live.from.as_ref()].into_iter().flatten() {
            if let Err(error) = self.store.verify(release) {
                return Ok(Outcome::Failed(error.to_string()));
            }
        }
        self.measure(live, processes, now)?;
        Ok(Outcome::Done)
    }

    fn measure(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<(), DriveError> {
        let health = live.from.as_ref().and_then(|from| processes.health(from));
        if let Some(health) = health {
            let journal = self.journal.measured(health.proven());
            self.believe(journal, now)?;
        }
        Ok(())
    }

    fn await_idle(&mut self, live: &Switch, processes: &mut Processes, now: Moment) -> Result<Outcome, DriveError> {
        let Some(from) = live.from.as_ref() else { return Ok(Outcome::Done) };
        if let Err(error) = processes.thaw(from) {
            return Ok(Outcome::NotYet(error.to_string()));
        }
        self.measure(live, processes, now)?;
        Ok(match processes.activity(from).as_ref().and_then(described) {
            None => Outcome::Done,
            Some(work) => Outcome::NotYet(work),
        })
    }

    fn start(&self, live: &Switch, side: Side, processes: &mut Processes) -> Outcome {
        let Some(release) = live.release(side) else {
            return Outcome::Failed("there is no release to start".to_owned());
        };
        // What else runs would hold the agent's own locks against the new process.
        match processes.end_all_but(Some(release)) {
            Ok(true) => {}
            Ok(false) => return Outcome::NotYet("the old process to be gone".to_owned()),
            Err(error) => return Outcome::NotYet(error.to_string()),
        }
        let manifest: Result<Manifest, StoreError> =
            self.store.verify(release).and_then(|()| self.store.manifest(release));
        match manifest {
            Err(error) => Outcome::Failed(error.to_string()),
            Ok(manifest) => match processes.start(release, &manifest) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.to_string()),
            },
        }
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

/// `Lost`, where the phase counts on a process that is gone.
fn gone(live: &Switch, processes: &Processes) -> Option<Outcome> {
    let counts_on_it = match live.phase.act() {
        Act::AwaitIdle | Act::Freeze | Act::Prove(_) | Act::Watch => true,
        Act::Check | Act::Stop(_) | Act::Start(_) | Act::Flip | Act::Pause | Act::Settle => false,
    };
    let release = live.meant().filter(|_| counts_on_it)?;
    if processes.of(release).is_some() {
        return None;
    }
    let how = processes.last_exit().unwrap_or("is not running");
    Some(Outcome::Lost(format!("the process of {release} {how}")))
}

/// What the process of a side lacks to be healthy.
fn lacks(live: &Switch, side: Side, processes: &mut Processes) -> Option<String> {
    let health = live.release(side).and_then(|release| processes.health(release));
    health.map_or_else(|| Some("its process is not running".to_owned()), |health| health.lacks(&live.baseline))
}
