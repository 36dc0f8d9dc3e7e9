//! Drafts the files to sign next: the difference between the wanted and the published files.

use crate::repository::changes::{Change, of_root, of_targets};
use crate::repository::pending::{Draft, Pending};
use crate::repository::published::Published;
use crate::repository::role::SignedRole;
use crate::repository::rule::Rule;
use crate::repository::{Repository, RepositoryError};
use crate::trust::metadata::{Header, Root, Signed, Targets};
use crate::trust::publish::{Edition, Lifetimes, delegating_targets};
use crate::trust::{PublicKey, Role};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// A file that waits for signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its role.
    pub role: SignedRole,
    /// Its name, in `author/pending/` and when published.
    pub file: String,
    /// When it expires.
    pub expires: Timestamp,
    /// Its changes.
    pub changes: Vec<Change>,
    /// The keys that have signed.
    pub signed: Vec<PublicKey>,
    /// The needed signatures; all of these.
    pub needs: Vec<Need>,
}

/// A number of signatures by certain keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The source of the rule: `root version 1`.
    pub by: String,
    /// The needed signatures.
    pub threshold: u64,
    /// The present signatures.
    pub valid: u64,
    /// The keys that have not signed.
    pub missing: Vec<PublicKey>,
}

impl Waiting {
    /// True when no signature is missing: the next publish takes the file.
    pub fn is_complete(&self) -> bool {
        self.needs.iter().all(|need| need.valid >= need.threshold)
    }
}

/// Signatures that became void because their file changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discarded {
    /// The file.
    pub file: String,
    /// The keys of the void signatures.
    pub keys: Vec<PublicKey>,
}

impl Repository {
    /// Writes the files to sign next into `author/pending/`. Drafts that are still right stay, with their signatures.
    pub fn stage(&mut self, lifetimes: &Lifetimes, now: Timestamp) -> Result<Vec<Discarded>, RepositoryError> {
        let (published, mut pending) = self.load()?;
        let discarded = self.draft(&published, &mut pending, lifetimes, now)?;
        pending.store(&self.place)?;
        Ok(discarded)
    }

    /// The waiting files, root first.
    pub fn waiting(&self) -> Result<Vec<Waiting>, RepositoryError> {
        let (published, pending) = self.load()?;
        Ok(self.waiting_in(&published, &pending))
    }

    pub(in crate::repository) fn waiting_in(&self, published: &Published, pending: &Pending) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        if let Some(draft) = &pending.root {
            let rules = root_rules(published, &draft.file);
            waiting.push(draft.waiting(SignedRole::Root, &rules, of_root(published.root.as_ref(), &draft.file)));
        }
        for (role, draft) in &pending.targets {
            let rules = self.rules(role, published, pending);
            waiting.push(draft.waiting(role.clone(), &rules, of_targets(published.listing(role), &draft.file)));
        }
        waiting
    }

    /// Updates `pending` to the wanted files.
    pub(in crate::repository) fn draft(
        &self,
        published: &Published,
        pending: &mut Pending,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Vec<Discarded>, RepositoryError> {
        let mut discarded = Vec::new();
        let delegated = self.state.delegations.iter().map(|one| SignedRole::Delegated(one.name.clone()));
        let roles: Vec<SignedRole> = std::iter::once(SignedRole::Targets).chain(delegated).collect();
        pending.targets.retain(|role, _| roles.contains(role));
        for role in roles {
            let file = role.file(published.version(&role) + 1);
            let wanted = self.wanted(&role, &file, published, lifetimes, now)?;
            let due = |header: Header| is_due(header, lifetimes.targets, now);
            let needed = self.rules(&role, published, pending);
            let is_current = published.listing(&role).is_some_and(|old| {
                old.body == wanted.file.body && !due(old.header) && needed.iter().all(|rule| rule.is_met_in(old))
            });
            let there = pending.targets.get(&role);
            if !is_current && there.is_some_and(|there| there.file.body == wanted.file.body && !due(there.file.header))
            {
                continue;
            }
            if let Some(there) = pending.targets.remove(&role).filter(|there| !there.signatures.is_empty()) {
                discarded.push(Discarded { file, keys: there.signatures.into_keys().collect() });
            }
            if !is_current {
                pending.targets.insert(role, wanted);
            }
        }
        Ok(discarded)
    }

    /// The next file of a targets role.
    fn wanted(
        &self,
        role: &SignedRole,
        file: &str,
        published: &Published,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Draft<Targets>, RepositoryError> {
        let edition = Edition { version: published.version(role) + 1, signed: now, lifetime: lifetimes.targets };
        let delegations = match role {
            SignedRole::Targets => self.state.delegations.as_slice(),
            SignedRole::Root | SignedRole::Delegated(_) => &[],
        };
        Draft::new(file, &delegating_targets(edition, &self.state.targets(role), delegations, &[])?)
    }

    /// The rules for a targets role's next file.
    pub(in crate::repository) fn rules(
        &self,
        role: &SignedRole,
        published: &Published,
        pending: &Pending,
    ) -> Vec<Rule> {
        match role {
            SignedRole::Root => Vec::new(),
            SignedRole::Targets => {
                let root = pending.root.as_ref().map(|draft| &draft.file).or(published.root.as_ref());
                root.map(|root| Rule::of_root(root, Role::Targets)).into_iter().collect()
            }
            SignedRole::Delegated(name) => {
                let delegation = self.state.delegations.iter().find(|delegation| delegation.name == *name);
                delegation.map(|delegation| Rule::of_keys("targets", &delegation.keys)).into_iter().collect()
            }
        }
    }
}

/// The rules for a next root: the keys of the root before it, and its own (TUF §5.3.4).
pub(in crate::repository) fn root_rules(published: &Published, next: &Signed<Root>) -> Vec<Rule> {
    published.root.iter().chain([next]).map(|root| Rule::of_root(root, Role::Root)).collect()
}

/// True after half of the lifetime: renewing now costs nothing, forgetting it later stops every new install.
pub(in crate::repository) fn is_due(header: Header, lifetime: SignedDuration, now: Timestamp) -> bool {
    header.expires.checked_sub(lifetime / 2).is_ok_and(|due| now >= due)
}

impl<T> Draft<T> {
    fn waiting(&self, role: SignedRole, rules: &[Rule], changes: Vec<Change>) -> Waiting {
        let need = |rule: &Rule| {
            let (signed, missing): (BTreeSet<PublicKey>, BTreeSet<PublicKey>) =
                rule.public_keys().into_iter().partition(|key| self.signatures.contains_key(key));
            Need {
                by: rule.by.clone(),
                threshold: rule.threshold(),
                valid: signed.len() as u64,
                missing: missing.into_iter().collect(),
            }
        };
        Waiting {
            file: role.file(self.file.header.version),
            role,
            expires: self.file.header.expires,
            changes,
            signed: self.signatures.keys().copied().collect(),
            needs: rules.iter().map(need).collect(),
        }
    }
}
