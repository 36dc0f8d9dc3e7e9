//! The metadata that a repository directory publishes now, read back as a client would find it.

use super::{METADATA, ReleaseFiles, RepositoryError};
use crate::bundle::member::{MetadataName, ReleaseId};
use crate::os::dir::Dir;
use crate::trust::metadata::{Body, MetaFile, Role, Root, Signed, Snapshot, Targets, Timestamp};
use crate::trust::{target, verify};

/// The published metadata: the roots, and the set that `timestamp.json` leads to, if anything has been published.
pub(super) struct Published {
    /// Every root from 1 on, as bytes.
    pub(super) roots: Vec<Vec<u8>>,
    /// The newest root.
    pub(super) root: Signed<Root>,
    /// The set.
    pub(super) set: Option<Set>,
}

/// One consistent set.
pub(super) struct Set {
    pub(super) timestamp: Signed<Timestamp>,
    pub(super) snapshot: Signed<Snapshot>,
    pub(super) targets: Signed<Targets>,
}

impl Published {
    pub(super) fn load(repository: &Dir) -> Result<Self, RepositoryError> {
        let metadata = repository.child(METADATA)?;
        let mut roots = Vec::new();
        let name = |roots: &Vec<_>| format!("{}.root.json", roots.len() + 1);
        while let Some(bytes) = metadata.read_if_exists(name(&roots), Role::Root.bytes_maximum() as u64)? {
            roots.push(bytes);
        }
        let newest =
            roots.last().ok_or_else(|| RepositoryError::NoRepository { path: repository.path().to_owned() })?;
        let root: Signed<Root> = Signed::parse(&format!("{}.root.json", roots.len()), newest)?;
        verify::verify(&root, &root)?;
        let limit = Role::Timestamp.bytes_maximum() as u64;
        let set = match metadata.read_if_exists("timestamp.json", limit)? {
            None => None,
            Some(bytes) => {
                let timestamp: Signed<Timestamp> = Signed::parse("timestamp.json", &bytes)?;
                let snapshot: Signed<Snapshot> = read(&metadata, &timestamp.body.snapshot)?;
                let named = snapshot.body.files.get("targets.json").expect("a parsed snapshot names targets.json");
                let targets = read(&metadata, named)?;
                Some(Set { timestamp, snapshot, targets })
            }
        };
        Ok(Self { roots, root, set })
    }

    /// True when the published targets list both files of the release.
    pub(super) fn lists(&self, id: &ReleaseId, files: &ReleaseFiles) -> bool {
        let Some(set) = &self.set else { return false };
        let has = |name: String, digest| {
            set.targets.body.targets.get(&name).is_some_and(|listed| listed.hashes.sha256 == Some(digest))
        };
        has(target::manifest(id), files.manifest.sha256) && has(target::payload(id), files.payload.sha256)
    }

    /// The files as a bundle carries them, in its order.
    pub(super) fn members(&self) -> Vec<(MetadataName, Vec<u8>)> {
        let roots = (1..).zip(&self.roots).map(|(version, bytes)| (MetadataName::Root(version), bytes.clone()));
        let set = self.set.iter().flat_map(|set| {
            [
                (MetadataName::Timestamp, set.timestamp.bytes.clone()),
                (MetadataName::Snapshot(set.snapshot.header.version), set.snapshot.bytes.clone()),
                (MetadataName::Targets(set.targets.header.version), set.targets.bytes.clone()),
            ]
        });
        roots.chain(set).collect()
    }
}

fn read<T: Body>(metadata: &Dir, named: &MetaFile) -> Result<Signed<T>, RepositoryError> {
    let name = format!("{}.{}.json", named.version, T::ROLE);
    let bytes = metadata.read(&name, T::ROLE.bytes_maximum() as u64)?;
    if named.hashes.as_ref().is_some_and(|hashes| !hashes.fit(&bytes)) {
        let reason = "its bytes are not what the metadata that names it says".to_owned();
        return Err(RepositoryError::Damaged { path: metadata.path().join(name), reason });
    }
    Ok(Signed::parse(&name, &bytes)?)
}
