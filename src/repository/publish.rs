//! Signs what is staged, and renews what is halfway to its expiry. Readers see the old set until `timestamp.json` is replaced, last.

use super::published::{Published, Set};
use super::{FILE_MODE, METADATA, Repository, RepositoryError};
use crate::bundle::member::{ReleaseId, checksums};
use crate::crash_point;
use crate::trust::metadata::{Body, Header, Root, Signed};
use crate::trust::publish::{self, Edition, Lifetimes, describe};
use crate::trust::scheme::Key;
use crate::trust::{Role, Signer, minisign};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Who signs: the targets key, and the online key for snapshot and timestamp. They may be the same.
#[derive(Clone, Copy)]
pub struct PublishKeys<'a> {
    /// Signs what is published.
    pub targets: &'a dyn Signer,
    /// Signs snapshot and timestamp.
    pub online: &'a dyn Signer,
}

/// What publishing came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publication {
    /// The releases that are published from now on and weren't before.
    pub added: Vec<ReleaseId>,
    /// The files of metadata that were written, in this order. Empty: nothing to do.
    pub signed: Vec<String>,
}

impl Repository {
    /// Publishes what is staged. Writes nothing, and says so, when the published set is what is wanted and far from its expiry.
    pub fn publish(
        &mut self,
        keys: PublishKeys<'_>,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Publication, RepositoryError> {
        let published = Published::load(&self.directory)?;
        for (role, signer) in
            [(Role::Targets, keys.targets), (Role::Snapshot, keys.online), (Role::Timestamp, keys.online)]
        {
            may_sign(&published.root, role, signer)?;
        }
        let added: Vec<ReleaseId> = self
            .state
            .releases
            .iter()
            .filter(|(id, files)| !published.lists(id, files))
            .map(|(id, _)| id.clone())
            .collect();
        self.write_checksums(keys.targets)?;
        let plan = self.sign(published.set.as_ref(), keys, lifetimes, now)?;
        let metadata = self.directory.child(METADATA)?;
        for (name, bytes) in &plan {
            metadata.write_atomic(name, bytes, FILE_MODE)?;
            crash_point!("repository.metadata_written");
        }
        Ok(Publication { added, signed: plan.into_iter().map(|(name, _)| name).collect() })
    }

    /// The files to write, in order: each names those before it.
    fn sign(
        &self,
        old: Option<&Set>,
        keys: PublishKeys<'_>,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Vec<(String, Vec<u8>)>, RepositoryError> {
        let edition = |role, old: Option<u64>| Edition {
            version: old.unwrap_or(0) + 1,
            signed: now,
            lifetime: lifetimes.of(role),
        };
        let mut plan = Vec::new();
        let wanted = self.state.targets();
        let mut files = old.map(|set| set.snapshot.body.files.clone()).unwrap_or_default();
        let current = old.is_some_and(|set| {
            set.targets.body.targets == wanted && !is_due(set.targets.header, lifetimes.targets, now)
        });
        if !current {
            let edition = edition(Role::Targets, old.map(|set| set.targets.header.version));
            let bytes = publish::targets(edition, &wanted, &[keys.targets])?;
            files = BTreeMap::from([(Role::Targets.file(), describe(edition.version, &bytes))]);
            plan.push((format!("{}.targets.json", edition.version), bytes));
        }
        let current = plan.is_empty() && old.is_some_and(|set| !is_due(set.snapshot.header, lifetimes.snapshot, now));
        let mut snapshot = old.map(|set| set.timestamp.body.snapshot.clone());
        if !current {
            let edition = edition(Role::Snapshot, old.map(|set| set.snapshot.header.version));
            let bytes = publish::snapshot(edition, &files, &[keys.online])?;
            snapshot = Some(describe(edition.version, &bytes));
            plan.push((format!("{}.snapshot.json", edition.version), bytes));
        }
        let current = plan.is_empty() && old.is_some_and(|set| !is_due(set.timestamp.header, lifetimes.timestamp, now));
        if let Some(snapshot) = snapshot.filter(|_| !current) {
            let edition = edition(Role::Timestamp, old.map(|set| set.timestamp.header.version));
            plan.push((Role::Timestamp.file(), publish::timestamp(edition, &snapshot, &[keys.online])?));
        }
        Ok(plan)
    }

    /// `SHA256SUMS` and its signature beside each release. Signatures are deterministic, so only what differs (new, or the key) is written.
    fn write_checksums(&self, signer: &dyn Signer) -> Result<(), RepositoryError> {
        for (id, files) in &self.state.releases {
            let directory = self.release_directory(id)?;
            for (name, length) in
                [(files.manifest_name(), files.manifest.length), (files.payload_name(), files.payload.length)]
            {
                if directory.stat(&name)?.is_none_or(|stat| stat.size != length) {
                    let reason = "it is missing, or has another size than when it was added".to_owned();
                    return Err(RepositoryError::Damaged { path: directory.path().join(name), reason });
                }
            }
            let list = checksums(&files.manifest.sha256, &files.payload.sha256);
            let signature = minisign::sign(signer, list.as_bytes())?;
            for (name, text) in [("SHA256SUMS", &list), ("SHA256SUMS.minisig", &signature)] {
                if directory.read_if_exists(name, 4096)?.as_deref() != Some(text.as_bytes()) {
                    directory.write_atomic(name, text.as_bytes(), FILE_MODE)?;
                }
            }
        }
        Ok(())
    }
}

/// More than half of its life is over: renewing it now costs nothing, forgetting it later stops every new install.
fn is_due(header: Header, lifetime: jiff::SignedDuration, now: Timestamp) -> bool {
    header.expires.checked_sub(lifetime / 2).is_ok_and(|due| now >= due)
}

/// Refuses a key that no client would count, before anything is signed with it.
fn may_sign(root: &Signed<Root>, role: Role, signer: &dyn Signer) -> Result<(), RepositoryError> {
    let needed = root.body.rule(role);
    let public = Key::Ed25519(signer.public());
    if needed.threshold > 1 {
        return Err(RepositoryError::Threshold { role, threshold: needed.threshold });
    }
    if needed.keyids.iter().any(|keyid| root.body.keys.get(keyid) == Some(&public)) {
        return Ok(());
    }
    Err(RepositoryError::WrongKey {
        role,
        keyid: signer.public().keyid(),
        root_version: root.header.version,
        file: Root::ROLE.file(),
    })
}
