//! Repositories, good and evil, and what the workflow makes of them.

mod browse;
mod delegated;
mod evil;
mod floor;
mod forms;
mod online;
mod roots;
mod schemes;
mod search;
mod vectors;

use super::by_hand::{Verification, verify};
use super::canonical::{Json, Object, object};
use super::floor::{Expiry, Floor, MetadataFiles, Warning};
use super::key::{PublicKey, SIGNATURE_BYTES, to_hex};
use super::metadata::{MetaFile, Signed, Target, Targets};
use super::publish::{self, Edition, Lifetimes, RoleKeys, SignError, Signer, describe, target};
use super::role::Role;
use super::scheme::Key;
use super::trusted::{TrustedTargets, Verdict};
use super::{TrustError, key};
use crate::digest::Digest;
use ed25519_dalek::{Signer as _, SigningKey};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

struct TestKey(SigningKey);

impl Signer for TestKey {
    fn public(&self) -> PublicKey {
        self.0.verifying_key().into()
    }
    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SignError> {
        Ok(self.0.sign(message).to_bytes())
    }
}

fn test_key(seed: u8) -> TestKey {
    TestKey(SigningKey::from_bytes(&[seed; 32]))
}

fn refs(keys: &[TestKey]) -> Vec<&dyn Signer> {
    keys.iter().map(|key| key as &dyn Signer).collect()
}

const ROOT: u8 = 1;
const TARGETS: u8 = 2;
const SNAPSHOT: u8 = 3;
const TIMESTAMP: u8 = 4;

fn day(days: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start.checked_add(SignedDuration::from_hours(days * 24)).unwrap()
}

/// A repository in memory, as an author keeps it.
#[derive(Clone)]
struct Repo {
    files: MetadataFiles,
    seeds: BTreeMap<Role, Vec<u8>>,
    thresholds: BTreeMap<Role, u64>,
    root_version: u64,
    versions: [u64; 3],
    today: i64,
}

impl Repo {
    fn new() -> Self {
        let seeds =
            [(Role::Root, ROOT), (Role::Targets, TARGETS), (Role::Snapshot, SNAPSHOT), (Role::Timestamp, TIMESTAMP)];
        let mut repo = Self {
            files: MetadataFiles::new(),
            seeds: seeds.into_iter().map(|(role, seed)| (role, vec![seed])).collect(),
            thresholds: Role::ALL.into_iter().map(|role| (role, 1)).collect(),
            root_version: 0,
            versions: [0; 3],
            today: 0,
        };
        repo.next_root(&[ROOT]);
        repo
    }

    fn keys(&self, role: Role) -> Vec<TestKey> {
        self.seeds[&role].iter().copied().map(test_key).collect()
    }

    fn edition(&self, role: Role, version: u64) -> Edition {
        Edition { version, signed: day(self.today), lifetime: Lifetimes::default().of(role) }
    }

    /// The next root with the present keys, signed by `seeds`.
    fn next_root(&mut self, seeds: &[u8]) -> &mut Self {
        self.root_version += 1;
        let rule = |role: Role| {
            let keys = self.keys(role).iter().map(Signer::public).collect();
            (role, RoleKeys { keys, threshold: self.thresholds[&role] })
        };
        let keys: Vec<TestKey> = seeds.iter().copied().map(test_key).collect();
        let edition = self.edition(Role::Root, self.root_version);
        let bytes = publish::root(edition, &Role::ALL.into_iter().map(rule).collect(), &refs(&keys)).unwrap();
        self.files.insert(format!("{}.root.json", self.root_version), bytes);
        self
    }

    /// Publishes these targets (name, content) as the next version of all three roles.
    fn publish(&mut self, targets: &[(&str, &str)]) -> &mut Self {
        self.versions = self.versions.map(|version| version + 1);
        let list = targets.iter().map(|(name, content)| ((*name).to_owned(), signed_target(content))).collect();
        let bytes =
            publish::targets(self.edition(Role::Targets, self.versions[0]), &list, &refs(&self.keys(Role::Targets)));
        let bytes = bytes.unwrap();
        self.files.insert(format!("{}.targets.json", self.versions[0]), bytes.clone());
        self.snapshot(&[("targets.json", describe(self.versions[0], &bytes))])
    }

    fn snapshot(&mut self, files: &[(&str, MetaFile)]) -> &mut Self {
        let list = files.iter().map(|(name, file)| ((*name).to_owned(), file.clone())).collect();
        let edition = self.edition(Role::Snapshot, self.versions[1]);
        let bytes = publish::snapshot(edition, &list, &refs(&self.keys(Role::Snapshot))).unwrap();
        let named = describe(self.versions[1], &bytes);
        self.files.insert(format!("{}.snapshot.json", self.versions[1]), bytes);
        self.timestamp(&named)
    }

    fn timestamp(&mut self, snapshot: &MetaFile) -> &mut Self {
        let edition = self.edition(Role::Timestamp, self.versions[2]);
        let bytes = publish::timestamp(edition, snapshot, &refs(&self.keys(Role::Timestamp))).unwrap();
        self.files.insert("timestamp.json".to_owned(), bytes);
        self
    }

    /// What a host that pinned the first root trusts.
    fn pinned(&self) -> Floor {
        Floor::new(self.files["1.root.json"].clone())
    }

    fn targets_file(&self) -> String {
        format!("{}.targets.json", self.versions[0])
    }

    /// Replaces a file by one with `edit` made to what is signed, signed again by `seeds`; what names it is not touched.
    fn forge(&mut self, file: &str, seeds: &[u8], edit: impl FnOnce(&mut Object)) -> &mut Self {
        let forged = forged(&self.files[file], seeds, edit);
        self.files.insert(file.to_owned(), forged);
        self
    }
}

fn forged(bytes: &[u8], seeds: &[u8], edit: impl FnOnce(&mut Object)) -> Vec<u8> {
    let Json::Object(mut top) = Json::parse(bytes).unwrap() else { unreachable!() };
    let Some(Json::Object(mut signed)) = top.remove("signed") else { unreachable!() };
    edit(&mut signed);
    let signed = Json::Object(signed);
    let signature = |seed: &u8| {
        let key = test_key(*seed);
        let value = to_hex(&key.sign(&signed.canonical()).unwrap());
        object([("keyid", key.public().keyid().as_str().into()), ("sig", Json::String(value))])
    };
    let signatures = Json::Array(seeds.iter().map(signature).collect());
    object([("signatures", signatures), ("signed", signed)]).text()
}

fn signed_target(content: &str) -> Target {
    target(content.len() as u64, Digest::of(content.as_bytes()))
}

fn look(repo: &Repo, floor: &Floor, days: i64) -> Verification {
    verify(floor, &repo.files, day(days), Expiry::BY_HAND)
}

fn trusted(repo: &Repo, floor: &Floor, days: i64) -> (Floor, TrustedTargets) {
    let verification = look(repo, floor, days);
    (verification.floor, verification.targets.unwrap())
}

fn refusal(repo: &Repo, floor: &Floor, days: i64) -> TrustError {
    look(repo, floor, days).targets.unwrap_err()
}
