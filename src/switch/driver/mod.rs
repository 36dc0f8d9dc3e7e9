//! The driver: performs the act of the journalled phase, writes down what came of it, and only then believes it.

pub mod acts;
pub mod configuration;
pub mod error;
pub mod leaving;
pub mod log;
pub mod proving;
pub mod rehearsing;
pub mod requests;

use crate::crash_point;
use crate::failure::Report;
use crate::os::clock::{self, Moment};
use crate::rehearsal::{ExtrasPolicy, Rehearsers};
use crate::store::Store;
use crate::switch::driver::acts::gone;
use crate::switch::driver::configuration::Keeping;
use crate::switch::driver::error::DriveError;
use crate::switch::gate::proofs::Asked;
use crate::switch::gate::roles::{self, Backlog};
use crate::switch::journal::files::{DriverLock, FilesError, InstanceFiles};
use crate::switch::process::Processes;
use crate::switch::rehearsal::preparing::Preparing;
use crate::switch::{Act, Journal, Limits, Outcome, Phase, Side};
use std::path::PathBuf;
use std::time::Duration;
use tracing::{debug, error};

/// What was before a driver takes up a live switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nobody watched, for whatever reason and for however long.
    Absence,
    /// This very process drove it until just now, as another program.
    OwnWork,
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
#[derive(Debug, Clone)]
pub struct Rehearsals {
    /// How each kind of agent is.
    pub rehearsers: Rehearsers,
    /// What comes of it.
    pub policy: Policy,
    /// What comes of extras that would vanish.
    pub extras: ExtrasPolicy,
    /// A directory of packages that they are rebuilt out of; None: from where the agent's own configuration says.
    pub wheels: Option<PathBuf>,
}

/// Drives the switches of one instance.
pub struct Driver {
    pub(in crate::switch) files: InstanceFiles,
    pub(in crate::switch) store: Store,
    pub(in crate::switch) lock: DriverLock,
    pub(in crate::switch) journal: Journal,
    pub(in crate::switch) limits: Limits,
    pub(in crate::switch) entered: Duration,
    /// The number under which the guards know the present roles.
    pub(in crate::switch) serial: u64,
    pub(in crate::switch) asked: Asked,
    pub(in crate::switch) rehearsals: Option<Rehearsals>,
    pub(in crate::switch) preparing: Option<Preparing>,
    pub(in crate::switch) keeping: Option<Keeping>,
    /// The act of the present phase, once it has been performed.
    pub(in crate::switch) performed: Option<Act>,
    /// Why nothing may be written down: the journal is there, and can't be read. `journal` is what `current` says then.
    pub(in crate::switch) unreadable: Option<Report>,
    /// Whether the side on its way out has been told to take nothing any more; begun anew with each phase.
    pub(in crate::switch) backlog: Backlog,
    /// Since when the guard of the side on its way out says nothing.
    pub(in crate::switch) silent_since: Option<Duration>,
    /// The process on trial whose guard has reported: a report that is gone since then is somebody's who cleaned up.
    pub(in crate::switch) reported: Option<u32>,
    /// Since when the new process has not heard of jobs that the old one had to take.
    pub(in crate::switch) deaf_since: Option<Duration>,
}

impl Driver {
    /// The driver of an instance whose lock is held. Reads the journal; does nothing yet.
    pub fn new(files: InstanceFiles, lock: DriverLock, limits: Limits, now: Moment) -> Result<Self, DriveError> {
        let (journal, unreadable) = match files.journal() {
            Ok(journal) => (journal, None),
            Err(error @ FilesError::Corrupt { .. }) => {
                let report = Report::from(error);
                error!(instance = %files.instance(), "{report}; `current` is run all the same, and nothing is switched");
                (files.journal_of_current()?, Some(report))
            }
            Err(error) => return Err(error.into()),
        };
        let store = Store::new(files.layout(), files.package());
        let (serial, asked, backlog) = (0, Asked::default(), Backlog::Possible);
        let entered = now.since_boot;
        let (rehearsals, preparing, keeping) = (None, None, None);
        Ok(Self {
            files,
            store,
            lock,
            journal,
            limits,
            entered,
            serial,
            asked,
            rehearsals,
            preparing,
            keeping,
            performed: None,
            unreadable,
            backlog,
            silent_since: None,
            reported: None,
            deaf_since: None,
        })
    }

    /// The same, which rehearses before a trial.
    #[must_use]
    pub fn with_rehearsals(self, rehearsals: Rehearsals) -> Self {
        Self { rehearsals: Some(rehearsals), ..self }
    }

    /// The same, which keeps snapshots of the agent's configuration.
    #[must_use]
    pub fn with_snapshots(self, keeping: Keeping) -> Self {
        Self { keeping: Some(keeping), ..self }
    }

    /// The journal as it is on disk.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Why it drives nothing: the journal can't be read.
    pub fn unreadable(&self) -> Option<&Report> {
        self.unreadable.as_ref()
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

    /// The children that it has started itself and asks for.
    pub fn children(&self) -> Option<u32> {
        self.preparing.as_ref().and_then(Preparing::child)
    }

    /// Writes a journal, then believes it.
    pub(in crate::switch) fn believe(&mut self, journal: Journal, now: Moment) -> Result<Step, DriveError> {
        if journal == self.journal {
            return Ok(Step::Waits);
        }
        if let Some(report) = &self.unreadable {
            return Err(DriveError::Unreadable(report.clone()));
        }
        crash_point!("journal.before");
        self.files.write_journal(&self.lock, &journal)?;
        crash_point!("journal.after");
        log::changes(&self.journal, &journal);
        let phase = |journal: &Journal| journal.live.as_ref().map(|live| (live.id, live.phase, live.setbacks));
        let moved = phase(&journal) != phase(&self.journal);
        if moved {
            self.entered = now.since_boot;
            self.asked = Asked::default();
            self.backlog = Backlog::Possible;
            self.silent_since = None;
            self.deaf_since = None;
            self.preparing = None;
            self.performed = None;
        }
        self.journal = journal;
        Ok(if moved { Step::Moved } else { Step::Waits })
    }

    /// Takes up the live switch, and makes `current` name what the journal says.
    pub fn resume(&mut self, processes: &Processes, before: Before, now: Moment) -> Result<(), DriveError> {
        let alive = |side| {
            let which = self.journal.live.as_ref().and_then(|live| live.which(side));
            which.is_some_and(|which| processes.of(which).is_some())
        };
        if before == Before::Absence {
            let journal = self.journal.resumed(&clock::boot_id()?, alive(Side::Former), alive(Side::Trial), now.wall);
            self.believe(journal, now)?;
        }
        let flipping = self.journal.live.as_ref().is_some_and(|live| live.phase.act() == Act::Flip);
        if let (Some(proven), false) = (self.journal.proven.clone(), flipping) {
            if self.store.current(self.files.instance())?.as_ref() != Some(&proven) {
                let lock = self.store.lock()?;
                self.store.flip(&lock, self.files.instance(), &proven)?;
            }
        }
        Ok(())
    }

    /// Logs the processes that have ended since it was last asked to.
    pub fn log_ends(&self, processes: &mut Processes) {
        log::ends(processes, &self.journal);
    }

    /// Adds to what is to be known of the live switch.
    pub fn note(&mut self, text: &str, now: Moment) -> Result<Step, DriveError> {
        let journal = self.journal.noted(&[text.to_owned()]);
        self.believe(journal, now)
    }

    /// Asks every process for a round trip to its peers; gives its number.
    pub fn ask(&mut self, now: Moment) -> u64 {
        self.asked = self.asked.again(now);
        self.asked.number
    }

    /// Gives each process its role at the gate, as the journal has it.
    pub fn assign(&mut self, processes: &mut Processes) -> Result<(), DriveError> {
        // Two that a switch of a newer program has put beside each other keep the roles that it gave them.
        if self.unreadable.is_some() && processes.records().count() > 1 {
            return Ok(());
        }
        let guarded = |which| processes.guarded(which);
        let roles = match &self.journal.live {
            Some(live) => {
                let (former, trial) = (live.which(Side::Former), live.which(Side::Trial));
                let (former, trial) = (former.and_then(guarded), trial.and_then(guarded));
                roles::roles(live, former, trial, self.backlog, self.asked.number)
            }
            None => roles::alone(self.journal.serving_process().and_then(guarded), self.asked.number),
        };
        let roles = roles.with_closed(processes.draining());
        if let Some(which) = self.journal.serving_process() {
            processes.serve(which)?;
        }
        if !roles.slots.is_empty() {
            self.serial = processes.assign(&roles)?;
        }
        Ok(())
    }

    /// The gate can't be moved (a full /run, say). A switch that has not touched anything yet ends here; one that has waits for the gate as long as
    /// its phase may last, and then goes back: whoever served goes on serving. To end the process on trial needs no gate,
    /// nor does the end of a switch.
    pub fn hindered(&mut self, error: DriveError, processes: &mut Processes, now: Moment) -> Result<Step, DriveError> {
        let Some(live) = self.journal.live.clone() else { return Err(error) };
        let waited = now.since_boot.saturating_sub(self.entered);
        let outcome = match live.phase {
            Phase::Scheduled | Phase::Checking | Phase::Rehearsing | Phase::Waiting | Phase::Freezing => {
                Outcome::Failed(error.to_string())
            }
            Phase::Returning if waited >= self.limits.stop => Outcome::Failed(error.to_string()),
            Phase::Starting | Phase::Proving | Phase::Handing | Phase::Probation | Phase::Returning => {
                live.in_time(Outcome::NotYet(error.to_string()), waited, now.wall, &self.limits)
            }
            Phase::Retreating
            | Phase::Committed
            | Phase::RolledBack
            | Phase::Refused
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Abandoned => return self.step(processes, now),
            Phase::Stopping
            | Phase::Flipping
            | Phase::Retiring
            | Phase::Restarting
            | Phase::Reproving
            | Phase::Stranded => return Err(error),
        };
        // A gate that can't be moved says nothing of the release.
        let journal = self.journal.with_peers_down(true).advanced(&outcome, now.wall);
        self.believe(journal, now)
    }

    /// Performs the act of the present phase once and writes down what came of it.
    pub fn step(&mut self, processes: &mut Processes, now: Moment) -> Result<Step, DriveError> {
        let Some(live) = self.journal.live.clone() else { return Ok(Step::Rests) };
        let act = live.phase.act();
        let waited = now.since_boot.saturating_sub(self.entered);
        // What comes up beside another process gives way to it. On a host that is always busy that may mean to get nothing, which is no fault of
        // the release: for the second half of its time it gives way no more.
        let comes_up = matches!(act, Act::Start(Side::Trial) | Act::Prove(Side::Trial));
        if let Some(trial) = live.which(Side::Trial).filter(|_| comes_up && waited >= self.limits.start / 2) {
            processes.serve(trial)?;
        }
        if self.performed.replace(act).is_none() {
            debug!(instance = %live.instance, phase = %live.phase, act = ?act, "switch {} acts", live.id);
        }
        let ending = match gone(&live, processes) {
            Some(ending) => Some(ending),
            None => self.bypasses_gate(&live, processes, now)?,
        };
        let outcome = match ending {
            Some(ending) => ending,
            None => self.perform(act, &live, processes, now)?,
        };
        self.log_ends(processes);
        let outcome = match outcome {
            Outcome::Done if act == Act::Watch => match self.not_proven_yet(&live, processes, now) {
                Some(other) => other,
                None => live.in_time(Outcome::Done, waited, now.wall, &self.limits),
            },
            outcome => live.in_time(outcome, waited, now.wall, &self.limits),
        };
        let journal = self.journal.advanced(&outcome, now.wall);
        self.believe(journal, now)
    }
}
