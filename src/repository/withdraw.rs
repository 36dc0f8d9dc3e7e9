//! Withdraws releases: from the next publish on, hosts refuse to install them.

use super::published::Published;
use super::state::Withdrawn;
use super::{Repository, RepositoryError};
use crate::bundle::member::ReleaseId;
use jiff::Timestamp;

/// What to do with the files of a withdrawn release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// Keep them: old metadata names them.
    KeepFiles,
    /// Delete them, once the published metadata no longer names them.
    DeleteFiles,
}

impl Repository {
    /// Withdraws releases. Files of a release that is still published stay: readers may be fetching them. Returns the releases whose files
    /// were deleted.
    pub fn withdraw(
        &mut self,
        ids: &[ReleaseId],
        reason: Option<&str>,
        withdrawal: Withdrawal,
        now: Timestamp,
    ) -> Result<Vec<ReleaseId>, RepositoryError> {
        for id in ids {
            let files = match (self.state.releases.get(id), self.state.withdrawn.get(id)) {
                (Some(files), _) => *files,
                (None, Some(_)) => continue,
                (None, None) => return Err(self.unknown(id)),
            };
            let withdrawn = Withdrawn { files, time: now, reason: reason.map(str::to_owned) };
            self.state.releases.remove(id);
            self.state.withdrawn.insert(id.clone(), withdrawn);
        }
        // First: a release whose files are gone must not be published again.
        self.state.store(&self.place)?;
        let published = Published::load(&self.place)?;
        let mut deleted = Vec::new();
        for id in ids.iter().filter(|_| withdrawal == Withdrawal::DeleteFiles) {
            if self.state.withdrawn.get(id).is_some_and(|one| published.lists(id, &one.files)) {
                continue;
            }
            self.remove_release(id)?;
            deleted.push(id.clone());
        }
        Ok(deleted)
    }

    /// True when the release has been withdrawn.
    pub fn is_withdrawn(&self, id: &ReleaseId) -> bool {
        self.state.withdrawn.contains_key(id) && !self.state.releases.contains_key(id)
    }
}
