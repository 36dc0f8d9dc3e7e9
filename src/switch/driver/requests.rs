//! What people ask of the driver: a new switch, a cancellation, the end of an adoption.

use crate::failure::Report;
use crate::os::clock::{self, Moment};
use crate::store::StoreError;
use crate::switch::driver::error::DriveError;
use crate::switch::driver::{Driver, Step};
use crate::switch::{NewSwitch, Outcome, Phase, Purpose, Switch};
use crate::version::Release;
use jiff::Timestamp;
use tracing::warn;

/// Whether a release that failed here may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadReleases {
    /// No.
    Refuse,
    /// A person wants it all the same.
    TryAgain,
}

impl Driver {
    /// Accepts a request: the target is installed and whole, or mended now, and nothing is held against it. It is written down; nothing else
    /// happens yet.
    pub fn request(&mut self, new: NewSwitch, bad: BadReleases, now: Moment) -> Result<u64, DriveError> {
        if let Some(report) = &self.unreadable {
            return Err(DriveError::Unreadable(report.clone()));
        }
        // What the switch's end has to add to: found now, not then.
        self.files.history()?;
        if let Some(refusal) = self.held(new.request.purpose, now.wall)? {
            return Err(DriveError::Held(refusal));
        }
        let mended = self.mended(&new.request.to)?;
        let verdicts = self.files.verdicts()?;
        if let (Some(verdict), BadReleases::Refuse) = (verdicts.bad.get(&new.request.to), bad) {
            return Err(DriveError::Verdict { release: new.request.to, reason: verdict.reason.clone() });
        }
        let journal = self.journal.requested(new, &clock::boot_id()?, now.wall)?.noted(&mended);
        self.believe(journal, now)?;
        Ok(self.journal.last_id)
    }

    /// Makes sure that a release is whole, with what this host has. Gives what there is to tell of that.
    pub(in crate::switch) fn mended(&self, release: &Release) -> Result<Vec<String>, StoreError> {
        let mended = self.store.verify_or_repair(release)?.map(|repaired| repaired.told(release));
        if let Some(mended) = &mended {
            warn!(instance = %self.journal.instance, "{mended}");
        }
        Ok(mended.into_iter().collect())
    }

    /// The refusal of a switch of this purpose, where a person holds the instance.
    pub(in crate::switch) fn held(&self, purpose: Purpose, now: Timestamp) -> Result<Option<Report>, DriveError> {
        let hold = self.files.hold()?.filter(|hold| hold.forbids(purpose, now));
        Ok(hold.map(|hold| hold.refusal(purpose, self.files.instance(), self.files.package())))
    }

    /// Gives the instance back to whoever ran its agent before: from now on nothing is meant to run.
    pub fn release(&mut self, now: Moment) -> Result<(), DriveError> {
        if let Some(journal) = self.journal.released() {
            self.believe(journal, now)?;
            let lock = self.store.lock()?;
            self.store.unlink(&lock, self.files.instance())?;
        }
        Ok(())
    }

    /// A person takes the live switch back. What that does depends on how far it is.
    pub fn cancel(&mut self, now: Moment) -> Result<Step, DriveError> {
        let journal = self.journal.advanced(&Outcome::Cancelled, now.wall);
        self.believe(journal, now)
    }

    /// The same where no supervisor is there: what has not touched a process yet is over with that, and makes room for the next switch. What
    /// has is undone by the next supervisor. True: it is over.
    pub fn cancel_unsupervised(&mut self, now: Moment) -> Result<bool, DriveError> {
        let touched = |live: &Switch| live.phase == Phase::Freezing || live.adopted.is_some();
        let untouched = !self.journal.live.as_ref().is_some_and(touched);
        self.cancel(now)?;
        let Some(ended) = self.journal.live.clone().filter(|live| untouched && live.phase.is_ended()) else {
            return Ok(false);
        };
        self.put_on_record(&ended)?;
        self.believe(self.journal.advanced(&Outcome::Done, now.wall), now)?;
        Ok(true)
    }
}
