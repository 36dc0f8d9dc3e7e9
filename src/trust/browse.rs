//! Brings every delegated role that may speak for names below one directory, so that what there is can be listed and judged without asking
//! again. It asks for files as `search` does; which of the roles has the say for a name is the search's to tell.

use super::delegation::Delegations;
use super::error::TrustError;
use super::key::KeyId;
use super::limits::{DELEGATION_DEPTH_MAXIMUM, DELEGATIONS_FOLLOWED_MAXIMUM};
use super::metadata::{KeyRule, Role};
use super::refresh::{Answer, MetadataRequest};
use super::scheme::Key;
use super::search::DelegatedFiles;
use super::verify::{Delegation, Workflow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A delegation to follow.
#[derive(Debug)]
struct Visit {
    role: String,
    by: String,
    rule: KeyRule,
    keys: Arc<BTreeMap<KeyId, Key>>,
    depth: usize,
}

/// A round under way: ask `request`, bring the file, give it to `answer`, until there is no request; then all files are in the map.
#[derive(Debug)]
pub struct Browse<'a> {
    workflow: &'a Workflow,
    directory: String,
    delegated: &'a mut DelegatedFiles,
    to_visit: Vec<Visit>,
    /// Roles by whom they were delegated to: another one may give them other keys.
    visited: BTreeSet<(String, String)>,
    waiting: Option<Visit>,
}

impl<'a> Browse<'a> {
    pub(super) fn start(
        workflow: &'a Workflow,
        directory: &str,
        delegated: &'a mut DelegatedFiles,
    ) -> Result<Self, TrustError> {
        let missing = || TrustError::Missing { file: Role::Targets.file(), named_by: Role::Snapshot };
        let targets = workflow.trusted_targets().ok_or_else(missing)?;
        let mut browse = Self {
            workflow,
            directory: directory.to_owned(),
            delegated,
            to_visit: Vec::new(),
            visited: BTreeSet::new(),
            waiting: None,
        };
        browse.follow(Role::Targets.as_str(), targets.body.delegations.as_ref(), 1)?;
        browse.go_on()?;
        Ok(browse)
    }

    /// What is to be brought next; None: all of it is there.
    pub fn request(&self) -> Option<MetadataRequest> {
        let role = &self.waiting.as_ref()?.role;
        let named = self.workflow.named(&format!("{role}.json"))?;
        Some(MetadataRequest::named(role, self.workflow.published_name(role, named.version), named))
    }

    /// Takes what the request brought. An error ends the round.
    pub fn answer(&mut self, answer: Answer<'_>) -> Result<(), TrustError> {
        let Some(MetadataRequest { file, .. }) = self.request() else { return Ok(()) };
        let Some(visit) = self.waiting.take() else { return Ok(()) };
        let bytes = match answer {
            Answer::File(bytes) => bytes,
            Answer::NotFound => return Err(TrustError::Missing { file, named_by: Role::Snapshot }),
            Answer::Failed(reason) => return Err(TrustError::Unreachable { file, reason: reason.to_owned() }),
        };
        let targets = self.workflow.delegated(&visit.delegation(), bytes)?;
        self.delegated.insert(visit.role.clone(), bytes.to_vec());
        self.follow(&visit.role, targets.body.delegations.as_ref(), visit.depth + 1)?;
        self.go_on()
    }

    /// Goes on with what is there, up to a role that must be brought.
    fn go_on(&mut self) -> Result<(), TrustError> {
        while let Some(visit) = self.to_visit.pop() {
            if !self.visited.insert((visit.role.clone(), visit.by.clone())) {
                continue;
            }
            let (target, role) = (format!("{}/", self.directory), visit.role.clone());
            if visit.depth > DELEGATION_DEPTH_MAXIMUM {
                return Err(TrustError::TooDeep { target, role, limit: DELEGATION_DEPTH_MAXIMUM });
            }
            if self.visited.len() > DELEGATIONS_FOLLOWED_MAXIMUM {
                return Err(TrustError::TooManyDelegations { target, limit: DELEGATIONS_FOLLOWED_MAXIMUM });
            }
            let there = self.delegated.get(&visit.role).map_or(&[][..], Vec::as_slice);
            match self.workflow.delegated(&visit.delegation(), there) {
                Ok(targets) => self.follow(&visit.role, targets.body.delegations.as_ref(), visit.depth + 1)?,
                Err(error @ (TrustError::Missing { .. } | TrustError::ExpiredDelegated { .. })) => return Err(error),
                Err(_) => {
                    self.waiting = Some(visit);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn follow(&mut self, by: &str, delegations: Option<&Delegations>, depth: usize) -> Result<(), TrustError> {
        let Some(delegations) = delegations else { return Ok(()) };
        let limit = DELEGATIONS_FOLLOWED_MAXIMUM;
        let heirs = delegations
            .heirs_below(&self.directory, limit)
            .ok_or_else(|| TrustError::TooManyDelegations { target: format!("{}/", self.directory), limit })?;
        let keys = Arc::new(delegations.keys.clone());
        for heir in heirs.into_iter().rev() {
            let keys = Arc::clone(&keys);
            self.to_visit.push(Visit { role: heir.name, by: by.to_owned(), rule: heir.rule, keys, depth });
        }
        Ok(())
    }
}

impl Visit {
    fn delegation(&self) -> Delegation<'_> {
        Delegation { role: &self.role, by: &self.by, rule: &self.rule, keys: &self.keys }
    }
}
