//! The TUF client workflow as a machine that asks for files and is given them (specification §5.2 to §5.6): the one way in which metadata of
//! HTTP, of a directory and of a bundle file becomes trusted. It reads nothing itself.

use super::error::TrustError;
use super::floor::{DelegatedFiles, Expiry, Floor, Warning};
use super::metadata::MetaFile;
use super::request::{Answer, MetadataRequest};
use super::role::Role;
use super::search::{Goal, Search};
use super::verify::{Offered, Workflow};
use jiff::Timestamp as Time;

/// What is asked for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Roots,
    Timestamp,
    Snapshot,
    Targets,
    /// All is trusted that the newest timestamp leads to.
    Done,
    /// An answer was refused: nothing more is asked.
    Refused,
}

/// A refresh under way: ask `request`, bring the file, give it to `answer`, until there is no request. After an error `floor` gives what was
/// adopted before it, which is to be stored all the same.
#[derive(Debug)]
pub struct Refresh {
    workflow: Workflow,
    stage: Stage,
    offered: Option<Offered>,
}

impl Refresh {
    /// Starts from what the host trusts, at the time `now`, fixed for the whole run (§5.1).
    pub fn start(floor: &Floor, now: Time, expiry: Expiry) -> Result<Self, TrustError> {
        Ok(Self { workflow: Workflow::start(floor, now, expiry)?, stage: Stage::Roots, offered: None })
    }

    /// What is to be brought next; None: there is nothing more to ask.
    pub fn request(&self) -> Option<MetadataRequest> {
        let top = |role: Role, version: Option<u64>| MetadataRequest {
            role: role.as_str().to_owned(),
            version,
            file: version.map_or(role.file(), |version| format!("{version}.{role}.json")),
            bytes_maximum: role.bytes_maximum() as u64,
        };
        let named = |role: Role, named: &MetaFile| {
            MetadataRequest::named(role.as_str(), self.workflow.published_name(role.as_str(), named.version), named)
        };
        match self.stage {
            Stage::Roots => Some(top(Role::Root, Some(self.workflow.root().header.version.saturating_add(1)))),
            Stage::Timestamp => Some(top(Role::Timestamp, None)),
            Stage::Snapshot => self.workflow.snapshot_wanted().map(|wanted| named(Role::Snapshot, wanted)),
            Stage::Targets => self.workflow.targets_wanted().map(|wanted| named(Role::Targets, wanted)),
            Stage::Done | Stage::Refused => None,
        }
    }

    /// Takes what the request brought. An error ends the refresh.
    pub fn answer(&mut self, answer: Answer<'_>) -> Result<(), TrustError> {
        let Some(request) = self.request() else { return Ok(()) };
        let next = self.take(answer, &request.file).and_then(|next| self.skip(next));
        self.stage = *next.as_ref().unwrap_or(&Stage::Refused);
        next.map(|_| ())
    }

    fn take(&mut self, answer: Answer<'_>, file: &str) -> Result<Stage, TrustError> {
        match (self.stage, answer.file(file)?) {
            (Stage::Roots, Some(bytes)) => self.workflow.add_root(bytes).map(|()| Stage::Roots),
            (Stage::Roots, None) => self.workflow.close_roots().map(|()| Stage::Timestamp),
            (Stage::Timestamp, bytes) => {
                self.offered = Some(self.workflow.timestamp(bytes)?);
                Ok(Stage::Snapshot)
            }
            (Stage::Snapshot, bytes) => self.workflow.snapshot(bytes).map(|()| Stage::Targets),
            (Stage::Targets, bytes) => self.workflow.targets(bytes).map(|()| Stage::Done),
            (stage @ (Stage::Done | Stage::Refused), _) => Ok(stage),
        }
    }

    /// Passes over what is trusted already; it must still be fresh.
    fn skip(&mut self, mut stage: Stage) -> Result<Stage, TrustError> {
        if stage == Stage::Snapshot && self.workflow.snapshot_wanted().is_none() {
            self.workflow.snapshot(None)?;
            stage = Stage::Targets;
        }
        if stage == Stage::Targets && self.workflow.targets_wanted().is_none() {
            self.workflow.targets(None)?;
            stage = Stage::Done;
        }
        Ok(stage)
    }

    /// Looks for the target of this name, in the targets and in the roles that they delegate to (§5.6.7). `delegated` is what is kept of
    /// delegated roles; the search adds what it finds.
    pub fn search<'a>(&'a self, target: &str, delegated: &'a mut DelegatedFiles) -> Result<Search<'a>, TrustError> {
        Search::start(&self.workflow, Goal::Target(target.to_owned()), delegated)
    }

    /// Brings every delegated role that may speak for a name below the top-level directory `directory` (empty: for any name), so that all
    /// releases can be listed. `delegated` is as for `search`.
    pub fn browse<'a>(&'a self, directory: &str, delegated: &'a mut DelegatedFiles) -> Result<Search<'a>, TrustError> {
        Search::start(&self.workflow, Goal::Below(directory.to_owned()), delegated)
    }

    /// The checks, and what they trust.
    pub fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// What became of the timestamp, once there was one.
    pub fn offered(&self) -> Option<Offered> {
        self.offered
    }

    /// What the host trusts now: to be stored, also after an error.
    pub fn floor(&self) -> Floor {
        self.workflow.floor()
    }

    /// What to tell the operator.
    pub fn warnings(&self) -> &[Warning] {
        self.workflow.warnings()
    }
}
