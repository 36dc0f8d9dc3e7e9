//! Lets others sign for a part of the repository, or no longer.

use super::init::check_keys;
use super::role::RoleName;
use super::state::Delegation;
use super::{Repository, RepositoryError};

impl Repository {
    /// Lets a role sign for the targets that its patterns cover, from the next publish on; a role of this name is changed. Releases that fit
    /// move into it.
    pub fn delegate(&mut self, delegation: Delegation) -> Result<(), RepositoryError> {
        check_keys(delegation.name.as_str(), &delegation.keys)?;
        if delegation.paths.is_empty() {
            return Err(RepositoryError::NoPaths { role: delegation.name.to_string() });
        }
        match self.state.delegations.iter_mut().find(|one| one.name == delegation.name) {
            Some(there) => *there = delegation,
            None => self.state.delegations.push(delegation),
        }
        self.state.store(&self.directory)
    }

    /// No longer lets a role sign, from the next publish on. Its releases move back to who is next.
    pub fn undelegate(&mut self, name: &RoleName) -> Result<(), RepositoryError> {
        let place = self.state.delegations.iter().position(|one| one.name == *name);
        self.state.delegations.remove(place.ok_or_else(|| RepositoryError::NoRole { role: name.to_string() })?);
        self.state.store(&self.directory)
    }

    /// Who else signs, in order of precedence.
    pub fn delegations(&self) -> &[Delegation] {
        &self.state.delegations
    }
}
