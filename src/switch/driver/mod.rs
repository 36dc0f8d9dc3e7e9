//! The driver: performs the act of the journal's phase, writes the outcome into the journal, and only then acts on it.

pub mod acts;
pub mod dry_run;
pub mod error;
pub mod hearing;
pub mod leaving;
pub mod log;
pub mod proving;
pub mod rehearsing;
pub mod requests;

use crate::agent::Registry;
use crate::crash_point;
use crate::failure::Report;
use crate::os::clock::{self, Moment};
use crate::rehearsal::ExtrasPolicy;
use crate::rehearsal::states::Depth;
use crate::store::Store;
use crate::switch::driver::acts::gone;
use crate::switch::driver::error::DriveError;
use crate::switch::gate::proofs::Asked;
use crate::switch::gate::roles::{self, Backlog};
use crate::switch::journal::files::{DriverLock, FilesError, InstanceFiles};
use crate::switch::process::Processes;
use crate::switch::rehearsal::preparing::Preparing;
use crate::switch::{Act, Journal, Limits, Outcome, Phase, Side};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tracing::{debug, error};

/// The situation before a driver resumes a live switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// No supervisor ran, for any time.
    Absence,
    /// The same process drove it until just now, and has replaced its own program.
    OwnWork,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The journal changed: the next act is due now.
    Moved,
    /// The same act is due again later.
    Waits,
    /// No switch is under way.
    Rests,
}

/// The effect of the findings of a rehearsal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Refuse the switch.
    #[default]
    Refuse,
    /// Add notes to the switch.
    Report,
    /// No rehearsal.
    Off,
}

/// How releases are rehearsed before a trial.
#[derive(Debug, Clone)]
pub struct Rehearsals {
    /// The agents, with their rehearsers.
    pub agents: Registry,
    /// The effect of the findings.
    pub policy: Policy,
    /// What is asked about the states that the agent applies.
    pub states: Depth,
    /// What to do with extras that would vanish.
    pub extras: ExtrasPolicy,
    /// A directory of packages for the rebuild; None: the source that the agent's own configuration names.
    pub wheels: Option<PathBuf>,
}

/// Drives the switches of one instance.
pub struct Driver {
    pub(in crate::switch) files: InstanceFiles,
    pub(in crate::switch) store: Store,
    pub(in crate::switch) lock: DriverLock,
    pub(in crate::switch) journal: Journal,
    pub(in crate::switch) limits: Limits,
    pub(in crate::switch) in_phase: InPhase,
    /// The serial number of the present roles.
    pub(in crate::switch) serial: u64,
    pub(in crate::switch) rehearsals: Option<Rehearsals>,
    /// The journal on disk can't be read, so nothing may be written. `journal` is then made from `current`.
    pub(in crate::switch) unreadable: Option<Report>,
    /// The process on trial whose guard has reported: if its report vanishes later, somebody has deleted the file.
    pub(in crate::switch) reported: Option<u32>,
    /// The peers of which the new process has missed jobs in this switch, with the last job that it had received by then.
    pub(in crate::switch) missed: BTreeMap<String, Option<String>>,
}

/// What is remembered of the present phase alone: the next phase begins without it.
pub(in crate::switch) struct InPhase {
    /// When the phase was entered or resumed, since boot.
    pub entered: Duration,
    /// The round trips that were asked for.
    pub asked: Asked,
    /// The jobs that only the leaving process may have.
    pub backlog: Backlog,
    /// Since when the guard of the leaving process sends no report.
    pub silent_since: Option<Duration>,
    /// Since when the new process misses jobs, one after the other, that the old process had to take.
    pub deaf_since: Option<Duration>,
    /// The rehearsal that runs.
    pub preparing: Option<Preparing>,
    /// The last act that was logged.
    pub performed: Option<Act>,
}

impl InPhase {
    fn entered(now: Moment) -> Self {
        Self {
            entered: now.since_boot,
            asked: Asked::default(),
            backlog: Backlog::Possible,
            silent_since: None,
            deaf_since: None,
            preparing: None,
            performed: None,
        }
    }
}

impl Driver {
    /// Makes the driver of an instance from its lock and its journal; performs no act.
    pub fn new(files: InstanceFiles, lock: DriverLock, limits: Limits, now: Moment) -> Result<Self, DriveError> {
        let (journal, unreadable) = match files.journal() {
            Ok(journal) => (journal, None),
            Err(error @ FilesError::Corrupt { .. }) => {
                let report = Report::from(error);
                error!(instance = %files.instance(), "{report}; sidle runs `current` and begins no switch");
                (files.journal_of_current()?, Some(report))
            }
            Err(error) => return Err(error.into()),
        };
        let store = Store::new(files.layout(), files.package());
        Ok(Self {
            files,
            store,
            lock,
            journal,
            limits,
            in_phase: InPhase::entered(now),
            serial: 0,
            rehearsals: None,
            unreadable,
            reported: None,
            missed: BTreeMap::new(),
        })
    }

    /// Adds rehearsals before trials.
    #[must_use]
    pub fn with_rehearsals(self, rehearsals: Rehearsals) -> Self {
        Self { rehearsals: Some(rehearsals), ..self }
    }

    /// The journal as it is on disk.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Why the journal can't be read; None: it can.
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

    /// The driver lock.
    pub fn lock(&self) -> &DriverLock {
        &self.lock
    }

    /// The child of this driver, which it waits for itself.
    pub fn children(&self) -> Option<u32> {
        self.in_phase.preparing.as_ref().and_then(Preparing::child)
    }

    /// Writes a journal, then acts on it.
    pub(in crate::switch) fn write_journal(&mut self, journal: Journal, now: Moment) -> Result<Step, DriveError> {
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
        if journal.live.as_ref().map(|live| live.id) != self.journal.live.as_ref().map(|live| live.id) {
            self.missed.clear();
        }
        if moved {
            self.in_phase = InPhase::entered(now);
        }
        self.journal = journal;
        Ok(if moved { Step::Moved } else { Step::Waits })
    }

    /// Resumes the live switch, and makes `current` name the proven release of the journal.
    pub fn resume(&mut self, processes: &Processes, before: Before, now: Moment) -> Result<(), DriveError> {
        let alive = |side| {
            let which = self.journal.live.as_ref().and_then(|live| live.which(side));
            which.is_some_and(|which| processes.of(which).is_some())
        };
        if before == Before::Absence {
            let journal = self.journal.resumed(&clock::boot_id()?, alive(Side::Former), alive(Side::Trial), now.wall);
            self.write_journal(journal, now)?;
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

    /// Logs the processes that have ended since the last call.
    pub fn log_ends(&self, processes: &mut Processes) {
        log::ends(processes, &self.journal);
    }

    /// Adds a note to the live switch.
    pub fn note(&mut self, text: &str, now: Moment) -> Result<Step, DriveError> {
        let journal = self.journal.noted(&[text.to_owned()]);
        self.write_journal(journal, now)
    }

    /// Asks every process for a round trip to its peers; returns its number.
    pub fn ask(&mut self, now: Moment) -> u64 {
        self.in_phase.asked = self.in_phase.asked.again(now);
        self.in_phase.asked.number
    }

    /// Writes the role of each process at the gate, from the journal.
    pub fn assign(&mut self, processes: &mut Processes) -> Result<(), DriveError> {
        // Two processes of a newer sidle's switch keep the roles that it gave them.
        if self.unreadable.is_some() && processes.records().count() > 1 {
            return Ok(());
        }
        let guarded = |which| processes.guarded(which);
        let roles = match &self.journal.live {
            Some(live) => {
                let (former, trial) = (live.which(Side::Former), live.which(Side::Trial));
                let (former, trial) = (former.and_then(guarded), trial.and_then(guarded));
                roles::roles(live, former, trial, self.in_phase.backlog, self.in_phase.asked.number)
            }
            None => roles::alone(self.journal.serving_process().and_then(guarded), self.in_phase.asked.number),
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

    /// Handles a gate that can't be written (for example a full /run). A switch that has changed nothing yet ends; a later one waits for the gate up
    /// to the limit of its phase and then goes back, while the same process goes on serving. The end of the process on trial and the end of a
    /// switch need no gate.
    pub fn on_unwritable_gate(
        &mut self,
        error: DriveError,
        processes: &mut Processes,
        now: Moment,
    ) -> Result<Step, DriveError> {
        let Some(live) = self.journal.live.clone() else { return Err(error) };
        let waited = now.since_boot.saturating_sub(self.in_phase.entered);
        let outcome = match live.phase {
            Phase::Scheduled | Phase::Checking | Phase::Rehearsing | Phase::Waiting | Phase::Freezing => {
                Outcome::Failed(error.to_string())
            }
            Phase::DrainingNew if waited >= self.limits.stop => Outcome::Failed(error.to_string()),
            Phase::Starting | Phase::Proving | Phase::Handing | Phase::Probation | Phase::DrainingNew => {
                live.in_time(Outcome::NotYet(error.to_string()), waited, now.wall, &self.limits)
            }
            Phase::StoppingNew
            | Phase::Committed
            | Phase::RolledBack
            | Phase::Refused
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Abandoned => return self.step(processes, now),
            Phase::Stopping
            | Phase::Flipping
            | Phase::FinishingOld
            | Phase::StartingOld
            | Phase::ProvingOld
            | Phase::Stranded => return Err(error),
        };
        // The release is not the cause.
        let journal = self.journal.with_peers_down(true).advanced(&outcome, now.wall);
        self.write_journal(journal, now)
    }

    /// Performs the act of the present phase once and writes its outcome into the journal.
    pub fn step(&mut self, processes: &mut Processes, now: Moment) -> Result<Step, DriveError> {
        let Some(live) = self.journal.live.clone() else { return Ok(Step::Rests) };
        let act = live.phase.act();
        let waited = now.since_boot.saturating_sub(self.in_phase.entered);
        // A new process starts with low priority. On a host that is always busy it may get no processor time, which is not the release's fault:
        // after half of the limit it gets normal priority.
        let comes_up = matches!(act, Act::Start(Side::Trial) | Act::Prove(Side::Trial));
        if let Some(trial) = live.which(Side::Trial).filter(|_| comes_up && waited >= self.limits.start / 2) {
            processes.serve(trial)?;
        }
        if self.in_phase.performed.replace(act).is_none() {
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
        let written = self.write_journal(journal, now);
        if written.is_err() && act == Act::Freeze {
            // The agent works on until there is room for the journal.
            processes.thaw_all()?;
        }
        written
    }
}
