//! The published metadata of a repository directory, read as a client would.

use super::role::{RoleName, SignedRole};
use super::{METADATA, ReleaseFiles, RepositoryError};
use crate::bundle::member::{MetadataName, ReleaseId};
use crate::os::place::Place;
use crate::trust::delegation::Delegated;
use crate::trust::metadata::{Body, MetaFile, Root, Signed, Snapshot, Targets, Timestamp};
use crate::trust::{Role, target, verify};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The published metadata: the roots, and the set that `timestamp.json` leads to.
#[derive(Debug)]
pub(super) struct Published {
    /// Every root from 1 on, as bytes. Empty before the first root has enough signatures.
    pub(super) roots: Vec<Vec<u8>>,
    /// The newest root.
    pub(super) root: Option<Signed<Root>>,
    /// The set, once there is one.
    pub(super) set: Option<Set>,
}

/// One consistent set.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) timestamp: Signed<Timestamp>,
    pub(super) snapshot: Signed<Snapshot>,
    pub(super) listing: Listing,
}

/// The files that list releases: targets and its delegated roles.
#[derive(Debug, Clone)]
pub(super) struct Listing {
    pub(super) targets: Signed<Targets>,
    pub(super) delegated: BTreeMap<RoleName, Signed<Targets>>,
}

impl Published {
    pub(super) fn load(repository: &Place) -> Result<Self, RepositoryError> {
        let mut roots = Vec::new();
        let name = |roots: &Vec<_>| format!("{}.root.json", roots.len() + 1);
        while let Some(bytes) = repository.read(path(&name(&roots)), Role::Root.bytes_maximum() as u64)? {
            roots.push(bytes);
        }
        let Some(newest) = roots.last() else { return Ok(Self { roots, root: None, set: None }) };
        let root: Signed<Root> = Signed::parse(&format!("{}.root.json", roots.len()), newest)?;
        verify::verify(&root, &root)?;
        let limit = Role::Timestamp.bytes_maximum() as u64;
        let set = match repository.read(path("timestamp.json"), limit)? {
            None => None,
            Some(bytes) => Some(Set::load(repository, &bytes)?),
        };
        Ok(Self { roots, root: Some(root), set })
    }

    /// The newest root's version, or 0.
    pub(super) fn root_version(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.header.version)
    }

    /// The published version of a role, or 0. A role that is delegated to again continues its versions: a snapshot never drops a name (TUF
    /// §5.5.5).
    pub(super) fn version(&self, role: &SignedRole) -> u64 {
        let named = |file: &str| self.set.as_ref().and_then(|set| set.snapshot.body.files.get(file));
        match role {
            SignedRole::Root => self.root_version(),
            SignedRole::Targets => named("targets.json").map_or(0, |named| named.version),
            SignedRole::Delegated(name) => named(&name.file()).map_or(0, |named| named.version),
        }
    }

    /// The published file of a targets role.
    pub(super) fn listing(&self, role: &SignedRole) -> Option<&Signed<Targets>> {
        let listing = &self.set.as_ref()?.listing;
        match role {
            SignedRole::Root => None,
            SignedRole::Targets => Some(&listing.targets),
            SignedRole::Delegated(name) => listing.delegated.get(name),
        }
    }

    /// True when the published metadata lists both files of the release.
    pub(super) fn lists(&self, id: &ReleaseId, files: &ReleaseFiles) -> bool {
        self.set.as_ref().is_some_and(|set| set.listing.lists(id, files))
    }

    /// The files for a bundle with these releases, in its order: every root, and the roles that lead to each release.
    pub(super) fn members<'a>(&self, ids: impl IntoIterator<Item = &'a ReleaseId>) -> Vec<(MetadataName, Vec<u8>)> {
        let roots = (1..).zip(&self.roots).map(|(version, bytes)| (MetadataName::Root(version), bytes.clone()));
        let Some(set) = &self.set else { return roots.collect() };
        let top = [
            (MetadataName::Timestamp, set.timestamp.bytes.clone()),
            (MetadataName::Snapshot(set.snapshot.header.version), set.snapshot.bytes.clone()),
            (MetadataName::Targets(set.listing.targets.header.version), set.listing.targets.bytes.clone()),
        ];
        let way: BTreeSet<&RoleName> = ids.into_iter().flat_map(|id| set.listing.way(id)).collect();
        let delegated = way.into_iter().map(|role| {
            let file = &set.listing.delegated[role];
            (MetadataName::Delegated(role.to_string(), file.header.version), file.bytes.clone())
        });
        roots.chain(top).chain(delegated).collect()
    }
}

impl Set {
    fn load(metadata: &Place, timestamp: &[u8]) -> Result<Self, RepositoryError> {
        let timestamp: Signed<Timestamp> = Signed::parse("timestamp.json", timestamp)?;
        let snapshot: Signed<Snapshot> = read(metadata, Role::Snapshot.as_str(), &timestamp.body.snapshot)?;
        let named = snapshot.body.files.get("targets.json").expect("a parsed snapshot names targets.json");
        let targets: Signed<Targets> = read(metadata, Role::Targets.as_str(), named)?;
        let mut delegated = BTreeMap::new();
        for role in names(&targets) {
            // A file that the snapshot doesn't name was never published.
            if let Some(named) = snapshot.body.files.get(&role.file()) {
                let file = read(metadata, role.as_str(), named)?;
                delegated.insert(role, file);
            }
        }
        Ok(Self { timestamp, snapshot, listing: Listing { targets, delegated } })
    }
}

impl Listing {
    /// True when both files of the release are listed, by roles that may list them.
    pub(super) fn lists(&self, id: &ReleaseId, files: &ReleaseFiles) -> bool {
        let has = |name: String, digest| {
            let in_role = |file: &Signed<Targets>| file.body.targets.get(&name).map(|listed| listed.hashes.sha256);
            let listed = in_role(&self.targets).or_else(|| self.heirs(&name).iter().find_map(|role| in_role(role.1)));
            listed == Some(Some(digest))
        };
        has(target::manifest(id), files.manifest.sha256) && has(target::payload(id), files.payload.sha256)
    }

    /// The roles that a client reads for the target, in order, if they are here.
    fn heirs(&self, target: &str) -> Vec<(&RoleName, &Signed<Targets>)> {
        let Some(delegations) = &self.targets.body.delegations else { return Vec::new() };
        let heirs = delegations.heirs(target);
        heirs.iter().filter_map(|heir| self.delegated.get_key_value(&heir.name.parse().ok()?)).collect()
    }

    /// The delegated roles that a client reads to find the release.
    fn way(&self, id: &ReleaseId) -> Vec<&RoleName> {
        let mut way = Vec::new();
        for name in [target::manifest(id), target::payload(id)] {
            if self.targets.body.targets.contains_key(&name) {
                continue;
            }
            for (role, file) in self.heirs(&name) {
                way.push(role);
                if file.body.targets.contains_key(&name) {
                    break;
                }
            }
        }
        way
    }
}

/// The path of a metadata file below the repository.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(METADATA).join(name)
}

/// The roles that a targets file delegates to by name.
pub(super) fn names(targets: &Signed<Targets>) -> Vec<RoleName> {
    match targets.body.delegations.as_ref().map(|delegations| &delegations.roles) {
        Some(Delegated::Named(roles)) => roles.iter().filter_map(|role| role.name.parse().ok()).collect(),
        Some(Delegated::Succinct { .. }) | None => Vec::new(),
    }
}

fn read<T: Body>(repository: &Place, role: &str, named: &MetaFile) -> Result<Signed<T>, RepositoryError> {
    let name = format!("{}.{role}.json", named.version);
    let bytes = repository.read_existing(path(&name), T::ROLE.bytes_maximum() as u64)?;
    if named.hashes.as_ref().is_some_and(|hashes| !hashes.fit(&bytes)) {
        let reason = "its bytes don't match the metadata that names it".to_owned();
        return Err(RepositoryError::Damaged { path: repository.path().join(path(&name)), reason });
    }
    Ok(Signed::parse(&name, &bytes)?)
}
