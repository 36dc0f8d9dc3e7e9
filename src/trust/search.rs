//! The search for a target through delegated roles (TUF §5.6.7): pre-order, depth first, each role once, within limits. It asks for files as
//! `refresh` does.

use super::delegation::{Delegations, Heir};
use super::error::TrustError;
use super::key::KeyId;
use super::limits::{DELEGATION_DEPTH_MAXIMUM, DELEGATIONS_FOLLOWED_MAXIMUM};
use super::metadata::{KeyRule, Role, Signed, Target, Targets};
use super::refresh::{Answer, MetadataRequest};
use super::scheme::Key;
use super::verify::{Delegation, Workflow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Delegated roles' files by role name, as received. A host may keep them, to ask for less the next time: they are verified again for each use,
/// against the delegation that leads to them, so a wrong one costs a request and no more.
pub type DelegatedFiles = BTreeMap<String, Vec<u8>>;

/// A target, and who signs for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The role that lists it.
    pub role: String,
    /// Its length and digests.
    pub target: Target,
}

/// A role to look at.
#[derive(Debug)]
struct Visit {
    role: String,
    by: String,
    rule: KeyRule,
    keys: Arc<BTreeMap<KeyId, Key>>,
    depth: usize,
}

/// A search under way: ask `request`, bring the file, give it to `answer`, until there is no request; then `listed` tells. A role that can't
/// be verified ends it: what comes after that role could otherwise stand in for what the role withholds.
#[derive(Debug)]
pub struct Search<'a> {
    workflow: &'a Workflow,
    target: String,
    delegated: &'a mut DelegatedFiles,
    to_visit: Vec<Visit>,
    visited: BTreeSet<String>,
    waiting: Option<Visit>,
    listed: Option<Listed>,
}

impl<'a> Search<'a> {
    pub(super) fn start(
        workflow: &'a Workflow,
        target: &str,
        delegated: &'a mut DelegatedFiles,
    ) -> Result<Self, TrustError> {
        let missing = || TrustError::Missing { file: Role::Targets.file(), named_by: Role::Snapshot };
        let targets = workflow.trusted_targets().ok_or_else(missing)?;
        let mut search = Self {
            workflow,
            target: target.to_owned(),
            delegated,
            to_visit: Vec::new(),
            visited: BTreeSet::new(),
            waiting: None,
            listed: None,
        };
        search.visit(Role::Targets.as_str(), targets, 0);
        search.go_on()?;
        Ok(search)
    }

    /// What is to be brought next; None: the search has ended.
    pub fn request(&self) -> Option<MetadataRequest> {
        let role = &self.waiting.as_ref()?.role;
        let named = self.workflow.named(&format!("{role}.json"))?;
        Some(MetadataRequest::named(role, self.workflow.published_name(role, named.version), named))
    }

    /// Takes what the request brought. An error ends the search.
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
        self.visit(&visit.role, &targets, visit.depth);
        self.go_on()
    }

    /// The target, if a role that may speak for it lists it; None when no role does, or before the search has ended.
    pub fn listed(&self) -> Option<&Listed> {
        self.listed.as_ref()
    }

    /// Goes on with what is kept, up to a role that must be brought.
    fn go_on(&mut self) -> Result<(), TrustError> {
        while let (None, Some(visit)) = (&self.listed, self.to_visit.pop()) {
            if self.visited.contains(&visit.role) {
                continue;
            }
            let (target, role) = (self.target.clone(), visit.role.clone());
            if visit.depth > DELEGATION_DEPTH_MAXIMUM {
                return Err(TrustError::TooDeep { target, role, limit: DELEGATION_DEPTH_MAXIMUM });
            }
            if self.visited.len() == DELEGATIONS_FOLLOWED_MAXIMUM {
                return Err(TrustError::TooManyDelegations { target, limit: DELEGATIONS_FOLLOWED_MAXIMUM });
            }
            self.visited.insert(role);
            let kept = self.delegated.get(&visit.role);
            // What the snapshot doesn't name is not even asked for.
            let kept = self.workflow.delegated(&visit.delegation(), kept.map_or(&[][..], Vec::as_slice));
            match kept {
                Ok(targets) => self.visit(&visit.role, &targets, visit.depth),
                Err(error @ (TrustError::Missing { .. } | TrustError::ExpiredDelegated { .. })) => return Err(error),
                Err(_) => {
                    self.waiting = Some(visit);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Looks into a verified role: the target itself, else the roles that may speak for it.
    fn visit(&mut self, role: &str, targets: &Signed<Targets>, depth: usize) {
        if let Some(target) = targets.body.targets.get(&self.target) {
            self.listed = Some(Listed { role: role.to_owned(), target: target.clone() });
        } else if let Some(delegations) = &targets.body.delegations {
            self.follow(role, delegations, depth + 1);
        }
    }

    fn follow(&mut self, by: &str, delegations: &Delegations, depth: usize) {
        let heirs = delegations.heirs(&self.target);
        if heirs.last().is_some_and(|heir| heir.terminating) {
            self.to_visit.clear();
        }
        let keys = Arc::new(delegations.keys.clone());
        for Heir { name, rule, .. } in heirs.into_iter().rev() {
            self.to_visit.push(Visit { role: name, by: by.to_owned(), rule, keys: Arc::clone(&keys), depth });
        }
    }
}

impl Visit {
    fn delegation(&self) -> Delegation<'_> {
        Delegation { role: &self.role, by: &self.by, rule: &self.rule, keys: &self.keys }
    }
}
