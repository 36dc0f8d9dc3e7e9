//! The search through delegated roles (TUF §5.6.7): pre-order, depth first, within limits; for one target, or for every role that may list a
//! name below a directory. It asks for files as `refresh` does.

use crate::trust::delegation::Delegations;
use crate::trust::error::TrustError;
use crate::trust::floor::DelegatedFiles;
use crate::trust::key::KeyId;
use crate::trust::limits::{DELEGATION_DEPTH_MAXIMUM, DELEGATIONS_FOLLOWED_MAXIMUM};
use crate::trust::metadata::{Signed, Target, Targets};
use crate::trust::request::{Answer, MetadataRequest};
use crate::trust::role::Role;
use crate::trust::scheme::{Key, KeyRule};
use crate::trust::verify::{Delegation, Workflow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// A target, and who signs for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The role that lists it.
    pub role: String,
    /// Its length and digests.
    pub target: Target,
}

/// By the role, and by who delegates to it: a role delegates to each name once (`delegation::named_roles`).
type Verified = BTreeMap<(String, String), Arc<Signed<Targets>>>;

/// Files that are here, for searches that bring none. Each is verified once for each role that delegates to it: a repository of thousands of releases would take
/// minutes otherwise.
#[derive(Debug, Clone, Default)]
pub(in crate::trust) struct Held {
    files: DelegatedFiles,
    verified: Arc<Mutex<Verified>>,
}

impl Held {
    pub(in crate::trust) fn new(files: DelegatedFiles) -> Self {
        Self { files, verified: Arc::default() }
    }

    pub(in crate::trust) fn files(&self) -> &DelegatedFiles {
        &self.files
    }

    pub(in crate::trust) fn verified(
        &self,
        workflow: &Workflow,
        delegation: &Delegation<'_>,
    ) -> Result<Arc<Signed<Targets>>, TrustError> {
        let key = (delegation.role.to_owned(), delegation.by.to_owned());
        let mut known = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(targets) = known.get(&key) {
            return Ok(Arc::clone(targets));
        }
        let bytes = self.files.get(delegation.role).map_or(&[][..], Vec::as_slice);
        let targets = Arc::new(workflow.delegated(delegation, bytes)?);
        known.insert(key, Arc::clone(&targets));
        Ok(targets)
    }
}

/// What a search is for.
#[derive(Debug)]
pub(in crate::trust) enum Goal {
    /// The target of this name: the search ends with the first role that lists it.
    Target(String),
    /// Every role that may list a name below this directory.
    Below(String),
}

/// A role to read.
#[derive(Debug)]
struct Visit {
    role: String,
    by: String,
    rule: KeyRule,
    keys: Arc<BTreeMap<KeyId, Key>>,
    depth: usize,
}

/// A search under way: ask `request`, bring the file, give it to `answer`, until there is no request; then `listed` has the target, and the
/// map of delegated files every file. A role that can't be verified ends it: a later role could otherwise stand in for what this one withholds.
#[derive(Debug)]
pub struct Search<'a> {
    workflow: &'a Workflow,
    goal: Goal,
    delegated: &'a mut DelegatedFiles,
    /// Files that count before these.
    held: Option<&'a Held>,
    to_visit: Vec<Visit>,
    /// Roles that were read, with who delegated to them where that counts ([`Goal::visited`]).
    visited: BTreeSet<(String, String)>,
    waiting: Option<Visit>,
    listed: Option<Listed>,
}

impl<'a> Search<'a> {
    pub(in crate::trust) fn start(
        workflow: &'a Workflow,
        goal: Goal,
        delegated: &'a mut DelegatedFiles,
        held: Option<&'a Held>,
    ) -> Result<Self, TrustError> {
        let missing = || TrustError::Missing { file: Role::Targets.file(), named_by: Role::Snapshot };
        let targets = workflow.trusted_targets().ok_or_else(missing)?;
        let (to_visit, visited) = (Vec::new(), BTreeSet::new());
        let mut search = Self { workflow, goal, delegated, held, to_visit, visited, waiting: None, listed: None };
        search.read(Role::Targets.as_str(), targets, 0)?;
        search.go_on()?;
        Ok(search)
    }

    /// The file to bring next; None: the search has ended.
    pub fn request(&self) -> Option<MetadataRequest> {
        let role = &self.waiting.as_ref()?.role;
        let named = self.workflow.named(&format!("{role}.json"))?;
        Some(MetadataRequest::named(role, self.workflow.published_name(role, named.version), named))
    }

    /// Takes the file. An error ends the search.
    pub fn answer(&mut self, answer: Answer<'_>) -> Result<(), TrustError> {
        let Some(MetadataRequest { file, .. }) = self.request() else { return Ok(()) };
        let Some(visit) = self.waiting.take() else { return Ok(()) };
        let bytes = answer.file(&file)?.ok_or(TrustError::Missing { file, named_by: Role::Snapshot })?;
        let targets = self.workflow.delegated(&visit.delegation(), bytes)?;
        self.delegated.insert(visit.role.clone(), bytes.to_vec());
        self.read(&visit.role, &targets, visit.depth)?;
        self.go_on()
    }

    /// The target, if a role that may speak for it lists it; None when no role does, or before the search has ended.
    pub fn listed(&self) -> Option<&Listed> {
        self.listed.as_ref()
    }

    /// Goes on with the files that are kept, up to a file that must be brought.
    fn go_on(&mut self) -> Result<(), TrustError> {
        while let (None, Some(visit)) = (&self.listed, self.to_visit.pop()) {
            let visited = self.goal.visited(&visit);
            if self.visited.contains(&visited) {
                continue;
            }
            let target = self.goal.name();
            if visit.depth > DELEGATION_DEPTH_MAXIMUM {
                return Err(TrustError::TooDeep { target, role: visit.role, limit: DELEGATION_DEPTH_MAXIMUM });
            }
            if self.visited.len() == DELEGATIONS_FOLLOWED_MAXIMUM {
                return Err(TrustError::TooManyDelegations { target, limit: DELEGATIONS_FOLLOWED_MAXIMUM });
            }
            self.visited.insert(visited);
            match self.verified(&visit) {
                Ok(targets) => self.read(&visit.role, &targets, visit.depth)?,
                // A file that the snapshot doesn't name is not asked for.
                Err(error @ (TrustError::Missing { .. } | TrustError::ExpiredDelegated { .. })) => return Err(error),
                Err(_) => {
                    self.waiting = Some(visit);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn verified(&self, visit: &Visit) -> Result<Arc<Signed<Targets>>, TrustError> {
        if let Some(held) = self.held {
            return held.verified(self.workflow, &visit.delegation());
        }
        let kept = self.delegated.get(&visit.role).map_or(&[][..], Vec::as_slice);
        self.workflow.delegated(&visit.delegation(), kept).map(Arc::new)
    }

    /// Reads a verified role: the target itself, else the roles that may list it.
    fn read(&mut self, role: &str, targets: &Signed<Targets>, depth: usize) -> Result<(), TrustError> {
        if let Goal::Target(name) = &self.goal {
            if let Some(target) = targets.body.targets.get(name) {
                self.listed = Some(Listed { role: role.to_owned(), target: target.clone() });
                return Ok(());
            }
        }
        targets.body.delegations.as_ref().map_or(Ok(()), |delegations| self.follow(role, delegations, depth + 1))
    }

    fn follow(&mut self, by: &str, delegations: &Delegations, depth: usize) -> Result<(), TrustError> {
        let heirs = match &self.goal {
            Goal::Target(target) => {
                let heirs = delegations.heirs(target);
                if heirs.last().is_some_and(|heir| heir.terminating) {
                    self.to_visit.clear();
                }
                heirs
            }
            Goal::Below(directory) => {
                let limit = DELEGATIONS_FOLLOWED_MAXIMUM;
                let heirs = delegations.heirs_below(directory, limit);
                heirs.ok_or_else(|| TrustError::TooManyDelegations { target: self.goal.name(), limit })?
            }
        };
        let keys = Arc::new(delegations.keys.clone());
        for heir in heirs.into_iter().rev() {
            let keys = Arc::clone(&keys);
            self.to_visit.push(Visit { role: heir.name, by: by.to_owned(), rule: heir.rule, keys, depth });
        }
        Ok(())
    }
}

impl Goal {
    fn name(&self) -> String {
        match self {
            Self::Target(name) => name.clone(),
            Self::Below(directory) => format!("{directory}/"),
        }
    }

    /// A role is read once for a target (§5.6.7.1), and once for each delegating role below a directory: another one may give it other keys.
    fn visited(&self, visit: &Visit) -> (String, String) {
        let by = if let Self::Below(_) = self { visit.by.clone() } else { String::new() };
        (visit.role.clone(), by)
    }
}

impl Visit {
    fn delegation(&self) -> Delegation<'_> {
        Delegation { role: &self.role, by: &self.by, rule: &self.rule, keys: &self.keys }
    }
}
