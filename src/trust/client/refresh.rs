//! The TUF client workflow as a machine that asks for files (specification §5.2 to §5.6): the same for HTTP, a directory and a bundle file.
//! It does no I/O.

use crate::trust::error::TrustError;
use crate::trust::floor::{DelegatedFiles, Expiry, Floor, Warning};
use crate::trust::metadata::MetaFile;
use crate::trust::request::{Answer, MetadataRequest};
use crate::trust::role::Role;
use crate::trust::search::{Goal, Search};
use crate::trust::verify::{Offered, Workflow};
use jiff::Timestamp as Time;

/// The file that is asked for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Roots,
    Timestamp,
    Snapshot,
    Targets,
    /// Everything that the newest timestamp leads to is trusted.
    Done,
    /// An answer was refused: the refresh has ended.
    Refused,
}

/// A refresh under way: get the file of `request`, give it to `answer`, until there is no request. After an error, store `floor` all the
/// same.
#[derive(Debug)]
pub struct Refresh {
    workflow: Workflow,
    stage: Stage,
    offered: Option<Offered>,
}

impl Refresh {
    /// Starts from the host's floor, at the time `now`, fixed for the whole run (§5.1).
    pub fn start(floor: &Floor, now: Time, expiry: Expiry) -> Result<Self, TrustError> {
        Ok(Self { workflow: Workflow::start(floor, now, expiry)?, stage: Stage::Roots, offered: None })
    }

    /// The next file to get; None: the refresh has ended.
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

    /// Takes the requested file. An error ends the refresh.
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

    /// Skips files that are trusted already; they must still be fresh.
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

    /// Searches a target in the targets role and its delegated roles (§5.6.7). `delegated` has the files kept from earlier searches; the
    /// search adds to it.
    pub fn search<'a>(&'a self, target: &str, delegated: &'a mut DelegatedFiles) -> Result<Search<'a>, TrustError> {
        Search::start(&self.workflow, Goal::Target(target.to_owned()), delegated, None)
    }

    /// Gets every delegated role that may list a name below the top-level directory `directory` (empty: any name). `delegated` as for
    /// `search`.
    pub fn browse<'a>(&'a self, directory: &str, delegated: &'a mut DelegatedFiles) -> Result<Search<'a>, TrustError> {
        Search::start(&self.workflow, Goal::Below(directory.to_owned()), delegated, None)
    }

    /// The checks, and the trusted files.
    pub fn workflow(&self) -> &Workflow {
        &self.workflow
    }

    /// The result of offering the timestamp, once there was one.
    pub fn offered(&self) -> Option<Offered> {
        self.offered
    }

    /// The new floor, to be stored also after an error.
    pub fn floor(&self) -> Floor {
        self.workflow.floor()
    }

    /// Warnings for the operator.
    pub fn warnings(&self) -> &[Warning] {
        self.workflow.warnings()
    }
}
