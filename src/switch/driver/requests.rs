//! What people ask of the driver: a new switch, a cancellation, the end of an adoption.

use crate::failure::Report;
use crate::os::clock::{self, Moment};
use crate::store::StoreError;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::{Driver, Step};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::{NewSwitch, Outcome, Phase, Purpose, Switch};
use crate::version::Release;
use jiff::Timestamp;
use tracing::warn;

/// Whether a request may name a release that failed on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadReleases {
    /// It may not.
    Refuse,
    /// A person asks for it with --force.
    TryAgain,
}

impl Driver {
    /// Writes a request into the journal, if its release is installed, whole (or repaired now), and not marked as bad. Performs no act.
    pub fn request(&mut self, new: NewSwitch, bad: BadReleases, now: Moment) -> Result<u64, DriveError> {
        if let Some(report) = &self.unreadable {
            return Err(DriveError::Unreadable(report.clone()));
        }
        // The end of the switch has to write the history: an unreadable history has to fail now.
        self.files.history()?;
        refuse_held(&self.files, new.request.purpose, now.wall)?;
        let repaired = self.repair_if_damaged(&new.request.to)?;
        refuse_bad(&self.files, &new.request.to, bad)?;
        let journal = self.journal.requested(new, &clock::boot_id()?, now.wall)?.noted(&repaired);
        self.write_journal(journal, now)?;
        Ok(self.journal.last_id)
    }

    /// Verifies a release, and repairs it from the files of this host if it is damaged. Returns notes on the repair.
    pub(in crate::switch) fn repair_if_damaged(&self, release: &Release) -> Result<Vec<String>, StoreError> {
        let note = self.store.verify_or_repair(release)?.map(|repaired| repaired.told(release));
        if let Some(note) = &note {
            warn!(instance = %self.journal.instance, "{note}");
        }
        Ok(note.into_iter().collect())
    }

    /// The refusal of a switch of this purpose, if a person holds the instance.
    pub(in crate::switch) fn held(&self, purpose: Purpose, now: Timestamp) -> Result<Option<Report>, DriveError> {
        held(&self.files, purpose, now)
    }

    /// Ends an adoption: from now on sidle runs nothing for this instance.
    pub fn release(&mut self, now: Moment) -> Result<(), DriveError> {
        if let Some(journal) = self.journal.released() {
            self.write_journal(journal, now)?;
            let lock = self.store.lock()?;
            self.store.unlink(&lock, self.files.instance())?;
        }
        Ok(())
    }

    /// Cancels the live switch; the effect depends on its phase.
    pub fn cancel(&mut self, now: Moment) -> Result<Step, DriveError> {
        let journal = self.journal.advanced(&Outcome::Cancelled, now.wall);
        self.write_journal(journal, now)
    }

    /// Cancels the live switch without a supervisor. A switch that has not touched a process yet ends (true); the next supervisor undoes any other
    /// switch (false).
    pub fn cancel_unsupervised(&mut self, now: Moment) -> Result<bool, DriveError> {
        let touched = |live: &Switch| live.phase == Phase::Freezing || live.adopted.is_some();
        let untouched = !self.journal.live.as_ref().is_some_and(touched);
        self.cancel(now)?;
        let Some(ended) = self.journal.live.clone().filter(|live| untouched && live.phase.is_ended()) else {
            return Ok(false);
        };
        self.put_on_record(&ended)?;
        self.write_journal(self.journal.advanced(&Outcome::Done, now.wall), now)?;
        Ok(true)
    }
}

fn held(files: &InstanceFiles, purpose: Purpose, now: Timestamp) -> Result<Option<Report>, DriveError> {
    let hold = files.hold()?.filter(|hold| hold.forbids(purpose, now));
    Ok(hold.map(|hold| hold.refusal(purpose, files.instance(), files.package())))
}

/// Refuses a switch that a person's hold forbids.
pub(super) fn refuse_held(files: &InstanceFiles, purpose: Purpose, now: Timestamp) -> Result<(), DriveError> {
    held(files, purpose, now)?.map_or(Ok(()), |refusal| Err(DriveError::Held(refusal)))
}

/// Refuses a release that failed on this host.
pub(super) fn refuse_bad(files: &InstanceFiles, to: &Release, bad: BadReleases) -> Result<(), DriveError> {
    match (files.verdicts()?.bad.get(to), bad) {
        (Some(verdict), BadReleases::Refuse) => {
            Err(DriveError::Verdict { release: to.clone(), reason: verdict.reason.clone() })
        }
        _ => Ok(()),
    }
}
