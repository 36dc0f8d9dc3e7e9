//! What the author wants published: `author/repository.json`.

use super::{AUTHOR, DIRECTORY_MODE, FILE_MODE, RepositoryError};
use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::os::dir::Dir;
use crate::trust::publish::target;
use crate::trust::{Target, target as name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FILE: &str = "repository.json";
/// Largest state file read: 65,536 releases. More is damage.
const STATE_BYTES_MAXIMUM: u64 = 32 * 1024 * 1024;
const SCHEMA: u32 = 1;

/// One stored file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its size in bytes.
    pub length: u64,
    /// Its digest.
    pub sha256: Digest,
}

/// What makes a release's manifest out of an older one's: a host that has that fetches less.
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

    /// True when these are the same release's files; its patch says nothing that they don't.
    pub(super) fn are(&self, other: &Self) -> bool {
        (self.manifest, self.payload) == (other.manifest, other.payload)
    }

    /// The stored basename of the payload.
    pub fn payload_name(&self) -> String {
        format!("{}.payload.tar.zst", self.payload.sha256)
    }
}

/// The author's state.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Everything that is to be published.
    pub(super) releases: BTreeMap<ReleaseId, ReleaseFiles>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u32,
    releases: BTreeMap<String, ReleaseFiles>,
}

impl State {
    pub(super) fn load(repository: &Dir) -> Result<Self, RepositoryError> {
        let directory = repository.child(AUTHOR)?;
        let damaged = |reason| RepositoryError::Damaged { path: directory.path().join(FILE), reason };
        let bytes = directory.read(FILE, STATE_BYTES_MAXIMUM)?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if stored.schema != SCHEMA {
            return Err(damaged(format!("its schema is {}, and only {SCHEMA} is known", stored.schema)));
        }
        let parse = |(id, files): (String, ReleaseFiles)| {
            Ok((id.parse().map_err(|_| damaged(format!("{id:?} is no release")))?, files))
        };
        Ok(Self { releases: stored.releases.into_iter().map(parse).collect::<Result<_, RepositoryError>>()? })
    }

    pub(super) fn store(&self, repository: &Dir) -> Result<(), RepositoryError> {
        let releases = self.releases.iter().map(|(id, files)| (id.to_string(), *files)).collect();
        let mut bytes = serde_json::to_vec_pretty(&Stored { schema: SCHEMA, releases }).expect("only string keys");
        bytes.push(b'\n');
        let directory = repository.child_or_create(AUTHOR, DIRECTORY_MODE)?;
        Ok(directory.write_atomic(FILE, &bytes, FILE_MODE)?)
    }

    /// The targets to sign.
    pub(super) fn targets(&self) -> BTreeMap<String, Target> {
        let entry = |file: &FileInfo| target(file.length, file.sha256);
        let all = |(id, files): (&ReleaseId, &ReleaseFiles)| {
            let patch = files.patch.map(|patch| (name::manifest_patch(id, &patch.from), entry(&patch.file)));
            let both = [(name::manifest(id), entry(&files.manifest)), (name::payload(id), entry(&files.payload))];
            both.into_iter().chain(patch)
        };
        self.releases.iter().flat_map(all).collect()
    }
}
