//! A repository with small releases, its keys, and a host that may pin it.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use super::trees;
use jiff::{SignedDuration, Timestamp};
use sidle::bundle::contents::Contents;
use sidle::bundle::file::{BundleReader, BundleWriter};
use sidle::bundle::member::{MemberName, MetadataName, ReleaseFile, ReleaseId, checksums};
use sidle::bundle::pack::{PAYLOAD_NAME, PackInput, Packed, pack};
use sidle::bundle::recipe::Recipe;
use sidle::digest::Digest;
use sidle::os::dir::Dir;
use sidle::os::place::Effect;
use sidle::repository::{Added, Publication, PublishKeys, Repository, RepositoryError};
use sidle::signer::FileSigner;
use sidle::trust::metadata::Target;
use sidle::trust::publish::{self, Edition, Lifetimes, RoleKeys, describe};
use sidle::trust::{MetadataFiles, PublicKey, Role, Signer as _, minisign, target};
use sidle::version::Release;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The first day of every test repository, at midnight, plus this many days.
pub fn day(days: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start.checked_add(SignedDuration::from_hours(days * 24)).unwrap()
}

/// The keys of a role with one key.
pub fn one_key(key: PublicKey) -> RoleKeys {
    RoleKeys { keys: vec![key], threshold: 1 }
}

/// Makes a repository with one key for root and targets, and one for the other roles. Returns the root's fingerprint, too.
pub fn init(
    path: &Path,
    offline: &FileSigner,
    online: &FileSigner,
    now: Timestamp,
) -> Result<(Repository, Digest), RepositoryError> {
    let roles = [(Role::Root, offline), (Role::Targets, offline), (Role::Snapshot, online), (Role::Timestamp, online)];
    let roles = roles.map(|(role, key)| (role, one_key(key.public()))).into();
    let (repository, fingerprint) =
        Repository::init(path, &roles, &[offline], (&Lifetimes::default(), now), Effect::Apply)?;
    Ok((repository, fingerprint.unwrap()))
}

/// An author at work.
pub struct RepoBuilder {
    /// Everything lies here: `repo`, keys, packed releases.
    pub directory: TempDir,
    /// The fingerprint of the first root.
    pub fingerprint: Digest,
    /// The key of root and targets.
    pub offline: FileSigner,
    /// The key of snapshot and timestamp.
    pub online: FileSigner,
    /// When it is.
    pub now: Timestamp,
}

impl RepoBuilder {
    /// A repository without releases, made on `now`.
    pub fn new(now: Timestamp) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let offline = FileSigner::create(&directory.path().join("offline.pem"), None).unwrap();
        let online = FileSigner::create(&directory.path().join("online.pem"), None).unwrap();
        let path = directory.path().join("repo");
        let (_, fingerprint) = init(&path, &offline, &online, now).unwrap();
        Self { directory, fingerprint, offline, online, now }
    }

    /// The repository directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("repo")
    }

    /// The repository, locked.
    pub fn open(&self) -> Repository {
        Repository::open(&self.path()).unwrap()
    }

    /// Packs `content` as this version of `demo`.
    pub fn pack(&self, version: &str, content: impl AsRef<[u8]>) -> (Packed, PathBuf) {
        let work = tempfile::tempdir_in(self.directory.path()).unwrap().keep();
        let tree = work.join("tree");
        trees::put(&tree, "bin/agent", b"#!/bin/sh\nexit 0\n", 0o755);
        trees::put(&tree, "lib/data", content.as_ref(), 0o644);
        for directory in ["", "bin", "lib"] {
            fs::set_permissions(tree.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let text = "schema = 1\npackage = \"demo\"\nagent = \"demo\"\n[build]\ntree = \"tree\"\n[commands]\nagent = \"bin/agent\"\n\
                    [service]\ncommand = [\"agent\"]\nconfig = \"/etc/demo\"\n";
        let input = PackInput {
            tree: &Dir::open(&tree).unwrap(),
            recipe: &Recipe::parse(text).unwrap(),
            version: version.parse().unwrap(),
            revision: 1,
            previous: &[],
            source_date_epoch: 1_700_000_000,
            level: 3,
            threads: 1,
            progress: &|_, _| {},
            contents: Contents::default(),
            output: &Dir::open(&work).unwrap(),
        };
        (pack(&input).unwrap(), work.join(PAYLOAD_NAME))
    }

    /// Packs and stages a release.
    pub fn try_add(&self, version: &str, content: impl AsRef<[u8]>) -> Result<Added, RepositoryError> {
        let (packed, payload) = self.pack(version, content);
        self.open().add(&packed.manifest_bytes, &mut fs::File::open(payload).unwrap())
    }

    /// Packs and stages a release that isn't there yet.
    pub fn add(&self, version: &str, content: impl AsRef<[u8]>) -> ReleaseId {
        match self.try_add(version, content).unwrap() {
            Added::Staged(id) => id,
            Added::Already(id) => panic!("{id} is there already"),
        }
    }

    /// Publishes what is staged.
    pub fn publish(&self) -> Publication {
        let keys = PublishKeys { targets: &self.offline, online: &self.online };
        self.open().publish(keys, &Lifetimes::default(), self.now).unwrap()
    }

    /// Exports releases into a bundle file.
    pub fn export(&self, ids: &[ReleaseId], name: &str) -> PathBuf {
        self.export_since(ids, &[], name)
    }

    /// Exports what hosts with one of the releases `since` lack.
    pub fn export_since(&self, ids: &[ReleaseId], since: &[Release], name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        self.open().export(ids, since, &path, self.now).unwrap();
        path
    }

    /// A bundle of one release with whatever manifest (compressed) and payload, beside `more` targets, signed as an author signs: nothing but the
    /// content is wrong.
    pub fn vouch(&self, id: &ReleaseId, manifest: &[u8], payload: &[u8], more: &BTreeMap<String, Target>) -> Vec<u8> {
        let (digest, payload_digest) = (Digest::of(manifest), Digest::of(payload));
        let edition = |role| Edition { version: 2, signed: self.now, lifetime: Lifetimes::default().of(role) };
        let mut list = more.clone();
        list.insert(target::manifest(id), publish::target(manifest.len() as u64, digest));
        list.insert(target::payload(id), publish::target(payload.len() as u64, payload_digest));
        let targets = publish::targets(edition(Role::Targets), &list, &[&self.offline]).unwrap();
        let named = [("targets.json".to_owned(), describe(2, &targets))].into();
        let snapshot = publish::snapshot(edition(Role::Snapshot), &named, &[&self.online]).unwrap();
        let timestamp = publish::timestamp(edition(Role::Timestamp), &describe(2, &snapshot), &[&self.online]).unwrap();
        let mut bundle = BundleWriter::new(Vec::new(), std::slice::from_ref(id)).unwrap();
        for (name, bytes) in [
            (MetadataName::Root(1), self.root()),
            (MetadataName::Timestamp, timestamp),
            (MetadataName::Snapshot(2), snapshot),
            (MetadataName::Targets(2), targets),
        ] {
            bundle.small(&MemberName::Metadata(name), &bytes).unwrap();
        }
        let sums = checksums(&digest, &payload_digest);
        let signature = minisign::sign(&self.offline, sums.as_bytes()).unwrap();
        for (file, bytes) in [
            (ReleaseFile::Manifest(digest), manifest),
            (ReleaseFile::Checksums, sums.as_bytes()),
            (ReleaseFile::Signature, signature.as_bytes()),
        ] {
            bundle.small(&MemberName::Small(id.clone(), file), bytes).unwrap();
        }
        bundle.payload(id, payload_digest, payload.len() as u64, &mut &payload[..]).unwrap();
        bundle.finish().unwrap()
    }

    /// The first root, as a host pins it.
    pub fn root(&self) -> Vec<u8> {
        fs::read(self.path().join("metadata/1.root.json")).unwrap()
    }
}

/// The metadata that a bundle file carries.
pub fn metadata_of(bundle: &Path) -> MetadataFiles {
    let (head, _) = BundleReader::open(fs::File::open(bundle).unwrap()).unwrap();
    head.metadata.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect()
}

/// Every file below `root` with its content.
pub fn snapshot_of(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push((path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}
