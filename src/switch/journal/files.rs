//! The files of an instance: the journal, the history, the verdicts on releases, the host fingerprints, the hold, the claim.

use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::lock::{Holder, LOCK, Lock, LockFile};
use crate::os::{OsError, clock};
use crate::saved::Saved;
use crate::store::{Store, StoreError};
use crate::switch::journal::claim::{Claim, RolloutId};
use crate::switch::journal::downtimes::Downtimes;
use crate::switch::journal::history::{HISTORY_LENGTH_MAXIMUM, HISTORY_NAME, History};
use crate::switch::journal::hold::Hold;
use crate::switch::journal::host_fingerprints::HostFingerprints;
use crate::switch::journal::repeated::RehearsedAgain;
use crate::switch::journal::verdicts::Verdicts;
use crate::switch::journal::{JOURNAL_LENGTH_MAXIMUM, JOURNAL_NAME, Journal};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Held while a claim is compared and written.
const CLAIM_LOCK: &str = "rollout.lock";
/// Held while the downtimes are read and written.
const DOWNTIMES_LOCK: &str = "downtimes.lock";
/// How long another command may keep it: it writes one small file.
const DOWNTIMES_PATIENCE: Duration = Duration::from_secs(2);
const DOWNTIMES_INTERVAL: Duration = Duration::from_millis(20);
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// Why an instance's files can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A saved file is damaged. It is never read as absent: the record of switches must not vanish silently.
    #[error("cannot use {}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with its content.
        reason: String,
        /// The hint.
        hint: Option<String>,
    },
}

impl FilesError {
    /// The class of the failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Store(error) => error.class(),
            Self::Corrupt { .. } => Class::Failed,
        }
    }

    /// The hint for people.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Corrupt { hint, .. } => hint.clone(),
        }
    }
}

/// The lock on an instance's switches. A supervisor holds it while it lives; without a supervisor, a command may take it.
#[derive(Debug)]
pub struct DriverLock {
    _lock: Lock,
}

/// The files of one instance.
#[derive(Debug, Clone)]
pub struct InstanceFiles {
    layout: Layout,
    instance: InstanceName,
    package: PackageName,
}

impl InstanceFiles {
    /// Names the files of `instance` below a layout's root; opens nothing.
    pub fn new(layout: &Layout, instance: &InstanceName, package: &PackageName) -> Self {
        Self { layout: layout.clone(), instance: instance.clone(), package: package.clone() }
    }

    /// The instance.
    pub fn instance(&self) -> &InstanceName {
        &self.instance
    }

    /// The instance's package.
    pub fn package(&self) -> &PackageName {
        &self.package
    }

    /// The paths of this host.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn directory(&self) -> Result<Option<Dir>, FilesError> {
        Ok(Dir::open_if_exists(&self.layout.instance(&self.instance))?)
    }

    fn directory_to_write(&self) -> Result<Dir, FilesError> {
        Ok(Dir::open_or_create(&self.layout.instance(&self.instance), DIRECTORY_MODE)?)
    }

    /// Takes the driver lock; None while another process holds it.
    pub fn try_drive(&self) -> Result<Option<DriverLock>, FilesError> {
        let directory = self.directory_to_write()?;
        let file = LockFile::new(&directory, LOCK);
        Ok(file.try_exclusive()?.map(|lock| DriverLock { _lock: lock }))
    }

    /// Returns the process that holds the driver lock, if that is known.
    pub fn driver(&self) -> Option<Holder> {
        let directory = self.directory().ok()??;
        LockFile::new(&directory, LOCK).holder()
    }

    fn read<T, E: fmt::Display>(
        &self,
        name: &str,
        limit: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
        hint: impl FnOnce(&E) -> Option<String>,
    ) -> Result<Option<T>, FilesError> {
        let Some(directory) = self.directory()? else { return Ok(None) };
        let Some(bytes) = directory.read_if_exists(name, limit)? else { return Ok(None) };
        parse(&bytes).map(Some).map_err(|error| FilesError::Corrupt {
            path: directory.path().join(name),
            reason: error.to_string(),
            hint: hint(&error),
        })
    }

    fn saved<T: Saved>(&self) -> Result<Option<T>, FilesError> {
        self.read(T::NAME, T::LENGTH_MAXIMUM, T::parse, |error| error.hint(T::REMEDY))
    }

    fn save<T: Saved>(&self, content: &T) -> Result<(), FilesError> {
        Ok(self.directory_to_write()?.write_atomic(T::NAME, &content.to_bytes(), FILE_MODE)?)
    }

    /// Reads the journal. A missing journal is made from `current`, which only ever names a proven release.
    pub fn journal(&self) -> Result<Journal, FilesError> {
        let found =
            self.read(JOURNAL_NAME, JOURNAL_LENGTH_MAXIMUM, Journal::parse, crate::switch::JournalError::hint)?;
        if let Some(journal) = found {
            return Ok(journal);
        }
        let current = Store::new(&self.layout, &self.package).current(&self.instance)?;
        let last_id = self.history()?.last_id();
        Ok(Journal::new(self.instance.clone(), self.package.clone(), current, last_id))
    }

    /// Makes a journal from `current` alone, so that the proven release runs even if the real journal can't be read.
    pub fn journal_of_current(&self) -> Result<Journal, FilesError> {
        let current = Store::new(&self.layout, &self.package).current(&self.instance)?;
        Ok(Journal::new(self.instance.clone(), self.package.clone(), current, 0))
    }

    /// Writes the journal, whole or not at all.
    pub fn write_journal(&self, _lock: &DriverLock, journal: &Journal) -> Result<(), FilesError> {
        Ok(self.directory_to_write()?.write_atomic(JOURNAL_NAME, &journal.to_bytes(), FILE_MODE)?)
    }

    /// Reads the history: the switches that ended.
    pub fn history(&self) -> Result<History, FilesError> {
        Ok(self
            .read(
                HISTORY_NAME,
                HISTORY_LENGTH_MAXIMUM,
                History::parse,
                crate::switch::journal::history::HistoryError::hint,
            )?
            .unwrap_or_default())
    }

    /// Writes the history, whole or not at all.
    pub fn write_history(&self, _lock: &DriverLock, history: &History) -> Result<(), FilesError> {
        Ok(self.directory_to_write()?.write_atomic(HISTORY_NAME, &history.to_bytes(), FILE_MODE)?)
    }

    /// Reads the verdicts: releases that failed on this host or that a person left by a rollback.
    pub fn verdicts(&self) -> Result<Verdicts, FilesError> {
        Ok(self.saved()?.unwrap_or_default())
    }

    /// Reads the host fingerprints of the proven releases.
    pub fn host_fingerprints(&self) -> Result<HostFingerprints, FilesError> {
        Ok(self.saved()?.unwrap_or_default())
    }

    /// Reads the results of rehearsals that were repeated after the host had changed.
    pub fn rehearsed_again(&self) -> Result<RehearsedAgain, FilesError> {
        Ok(self.saved()?.unwrap_or_default())
    }

    /// Reads when the agent could not hear, outside of switches.
    pub fn downtimes(&self) -> Result<Downtimes, FilesError> {
        Ok(self.saved()?.unwrap_or_default())
    }

    /// Changes the downtimes. A supervisor and a command may both do; false: another process was changing them all the time.
    pub fn change_downtimes(&self, change: impl FnOnce(Downtimes) -> Downtimes) -> Result<bool, FilesError> {
        let directory = self.directory_to_write()?;
        let file = LockFile::new(&directory, DOWNTIMES_LOCK);
        let give_up_at = clock::since_boot() + DOWNTIMES_PATIENCE;
        let _lock = loop {
            match file.try_exclusive()? {
                Some(lock) => break lock,
                None if clock::since_boot() >= give_up_at => return Ok(false),
                None => clock::sleep(DOWNTIMES_INTERVAL),
            }
        };
        self.save(&change(self.downtimes()?))?;
        Ok(true)
    }

    /// Writes verdicts, host fingerprints or results of repeated rehearsals, whole or not at all.
    pub fn write(&self, _lock: &DriverLock, content: &impl Saved) -> Result<(), FilesError> {
        self.save(content)
    }

    /// Reads the hold on the instance, expired or not.
    pub fn hold(&self) -> Result<Option<Hold>, FilesError> {
        self.saved()
    }

    /// Holds the instance. This needs no lock: the last hold counts.
    pub fn write_hold(&self, hold: &Hold) -> Result<(), FilesError> {
        self.save(hold)
    }

    /// True if there is a hold that [`InstanceFiles::remove_hold`] would remove, even if its file is damaged.
    pub fn has_hold(&self) -> Result<bool, FilesError> {
        let Some(directory) = self.directory()? else { return Ok(false) };
        Ok(directory.stat(Hold::NAME)?.is_some())
    }

    /// Removes the hold, even if its file is damaged; false: there was no hold.
    pub fn remove_hold(&self) -> Result<bool, FilesError> {
        let Some(directory) = self.directory()? else { return Ok(false) };
        let there = directory.stat(Hold::NAME)?.is_some();
        directory.remove_file(Hold::NAME)?;
        directory.sync()?;
        Ok(there)
    }

    /// Reads the claim of a rollout, expired or not.
    pub fn claimed(&self) -> Result<Option<Claim>, FilesError> {
        self.saved()
    }

    /// Claims the instance for a rollout; gives the claim as it is then. A dry run only checks. Refuses another rollout and an older epoch, and while
    /// another command changes the claim.
    pub fn claim(&self, wanted: Claim, is_dry_run: bool) -> Result<Claim, Report> {
        let _lock = self.claim_lock(is_dry_run)?;
        let claim = wanted.after(self.claimed()?.as_ref(), &self.instance, &self.package)?;
        if !is_dry_run {
            self.save(&claim)?;
        }
        Ok(claim)
    }

    /// Ends the claim of this rollout; false: there was none. Refuses the claim of another rollout. A dry run only checks.
    pub fn end_claim(&self, id: &RolloutId, is_dry_run: bool) -> Result<bool, Report> {
        let _lock = self.claim_lock(is_dry_run)?;
        let Some(claim) = self.claimed()? else { return Ok(false) };
        if claim.id != *id {
            let message = format!("cannot take {} out of rollout {id}: it belongs to rollout {claim}", self.instance);
            return Err(Report::of(Class::Conflict, message).hint("name that rollout"));
        }
        if !is_dry_run {
            let directory = self.directory_to_write()?;
            directory.remove_file(Claim::NAME)?;
            directory.sync()?;
        }
        Ok(true)
    }

    fn claim_lock(&self, is_dry_run: bool) -> Result<Option<Lock>, Report> {
        if is_dry_run {
            return Ok(None);
        }
        let directory = self.directory_to_write()?;
        let lock = LockFile::new(&directory, CLAIM_LOCK).try_exclusive()?;
        let locked = || {
            Report::of(Class::Locked, format!("cannot change the rollout of {}: another command does", self.instance))
        };
        lock.map(Some).ok_or_else(|| locked().hint("repeat the command"))
    }
}
