//! The releases and delegations to publish: `author/repository.json`.

use super::role::{RoleName, SignedRole};
use super::{AUTHOR, MODES, RepositoryError};
use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::os::place::Place;
use crate::trust::publish::{self, target};
use crate::trust::{Target, pattern, target as name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const FILE: &str = "repository.json";
/// Largest state file read: 65,536 releases. More is damage.
const STATE_BYTES_MAXIMUM: u64 = 32 * 1024 * 1024;
const SCHEMA: u32 = 1;

/// A stored file.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    pub length: u64,
    pub sha256: Digest,
}

/// A patch from an older manifest: a host that has the older one fetches less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPatch {
    /// The digest of the older compressed manifest.
    pub from: Digest,
    /// The patch.
    pub file: FileInfo,
}

/// The files of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseFiles {
    /// The compressed manifest.
    pub manifest: FileInfo,
    /// The payload.
    pub payload: FileInfo,
    /// The patch of the manifest, if the repository had an older release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<ManifestPatch>,
}

impl ReleaseFiles {
    /// The stored basename of the manifest.
    pub fn manifest_name(&self) -> String {
        format!("{}.manifest.json.zst", self.manifest.sha256)
    }

    /// True when the files are the same release's; its patch doesn't matter.
    pub(super) fn are(&self, other: &Self) -> bool {
        (self.manifest, self.payload) == (other.manifest, other.payload)
    }

    /// The stored basename of the payload.
    pub fn payload_name(&self) -> String {
        format!("{}.payload.tar.zst", self.payload.sha256)
    }
}

/// A withdrawn release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// Its files: hosts may have them, so the release never comes back with other bytes.
    pub files: ReleaseFiles,
    /// When it was withdrawn.
    pub time: Timestamp,
    /// The reason, if given.
    pub reason: Option<String>,
}

/// A part of the repository that another role signs.
pub type Delegation = publish::Delegation<RoleName>;

fn covers(delegation: &Delegation, id: &ReleaseId) -> bool {
    let fits = |target: String| delegation.paths.iter().any(|path| pattern::fits(path, &target));
    fits(name::manifest(id)) && fits(name::payload(id))
}

/// The author's state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The releases to publish.
    pub(super) releases: BTreeMap<ReleaseId, ReleaseFiles>,
    /// The withdrawn releases.
    pub(super) withdrawn: BTreeMap<ReleaseId, Withdrawn>,
    /// The delegations, in order of precedence.
    pub(super) delegations: Vec<Delegation>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u32,
    releases: BTreeMap<String, ReleaseFiles>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    withdrawn: BTreeMap<String, Withdrawn>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    delegations: Vec<Delegation>,
}

impl State {
    pub(super) fn load(repository: &Place) -> Result<Self, RepositoryError> {
        let file = Path::new(AUTHOR).join(FILE);
        let bytes = repository.read_existing(&file, STATE_BYTES_MAXIMUM)?;
        Self::parse(&bytes).map_err(|reason| RepositoryError::Damaged { path: repository.path().join(file), reason })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if stored.schema != SCHEMA {
            return Err(format!("its schema is {}, and only {SCHEMA} is known", stored.schema));
        }
        Ok(Self {
            releases: by_release(stored.releases)?,
            withdrawn: by_release(stored.withdrawn)?,
            delegations: stored.delegations,
        })
    }

    pub(super) fn store(&self, repository: &Place) -> Result<(), RepositoryError> {
        let stored = Stored {
            schema: SCHEMA,
            releases: self.releases.iter().map(|(id, files)| (id.to_string(), *files)).collect(),
            withdrawn: self.withdrawn.iter().map(|(id, one)| (id.to_string(), one.clone())).collect(),
            delegations: self.delegations.clone(),
        };
        let mut bytes = serde_json::to_vec_pretty(&stored).expect("only string keys");
        bytes.push(b'\n');
        Ok(repository.write(Path::new(AUTHOR).join(FILE), &bytes, MODES)?)
    }

    /// The role that signs a release: the first whose patterns fit, else targets.
    pub(super) fn role_of(&self, id: &ReleaseId) -> SignedRole {
        let delegated = self.delegations.iter().find(|delegation| covers(delegation, id));
        delegated.map_or(SignedRole::Targets, |delegation| SignedRole::Delegated(delegation.name.clone()))
    }

    /// The releases that a role signs for.
    pub(super) fn releases_of(&self, role: &SignedRole) -> impl Iterator<Item = (&ReleaseId, &ReleaseFiles)> {
        self.releases.iter().filter(move |(id, _)| self.role_of(id) == *role)
    }

    /// The targets that a role signs.
    pub(super) fn targets(&self, role: &SignedRole) -> BTreeMap<String, Target> {
        let entry = |file: &FileInfo| target(file.length, file.sha256);
        let all = |(id, files): (&ReleaseId, &ReleaseFiles)| {
            let patch = files.patch.map(|patch| (name::manifest_patch(id, &patch.from), entry(&patch.file)));
            let both = [(name::manifest(id), entry(&files.manifest)), (name::payload(id), entry(&files.payload))];
            both.into_iter().chain(patch)
        };
        self.releases_of(role).flat_map(all).collect()
    }
}

fn by_release<T>(stored: BTreeMap<String, T>) -> Result<BTreeMap<ReleaseId, T>, String> {
    let parse = |(id, value): (String, T)| Ok((id.parse().map_err(|_| format!("{id:?} is not a release"))?, value));
    stored.into_iter().map(parse).collect()
}
