//! Builds and signs metadata: the same input gives the same bytes (Ed25519 signatures are deterministic).

use super::canonical::{Json, Object, object};
use super::key::{KeyId, PublicKey, SIGNATURE_BYTES, to_hex};
use super::metadata::{Hashes, MetaFile, Target};
use super::role::Role;
use crate::digest::Digest;
use jiff::{SignedDuration, Timestamp as Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The TUF specification's version in written metadata.
const SPEC_VERSION: &str = "1.0.31";

/// A private key, or access to one.
pub trait Signer {
    /// The public half.
    fn public(&self) -> PublicKey;
    /// A plain Ed25519 signature over `message`.
    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SignError>;
}

/// A signer could not sign: which key, and why, beginning "cannot".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SignError {
    /// The message.
    pub message: String,
}

/// How long each role's signature holds.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    pub root: SignedDuration,
    pub targets: SignedDuration,
    pub snapshot: SignedDuration,
    pub timestamp: SignedDuration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let days = |days: i64| SignedDuration::from_hours(days * 24);
        Self { root: days(365), targets: days(365), snapshot: days(30), timestamp: days(7) }
    }
}

impl Lifetimes {
    /// The lifetime of one role.
    pub fn of(&self, role: Role) -> SignedDuration {
        match role {
            Role::Root => self.root,
            Role::Targets => self.targets,
            Role::Snapshot => self.snapshot,
            Role::Timestamp => self.timestamp,
        }
    }
}

/// The common fields of a file to publish.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edition {
    pub version: u64,
    /// The signing time; cut to whole seconds.
    pub signed: Time,
    /// The time from signing to expiry.
    pub lifetime: SignedDuration,
}

/// The keys of a role.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleKeys {
    pub keys: Vec<PublicKey>,
    /// The number of signatures that are needed.
    pub threshold: u64,
}

/// Root metadata with these keys. Consistent snapshots are always on.
pub fn root(edition: Edition, roles: &BTreeMap<Role, RoleKeys>, signers: &[&dyn Signer]) -> Result<Vec<u8>, SignError> {
    let all = roles.values().flat_map(|role| &role.keys);
    let keys: Object = all.map(|key| (key.keyid().as_str().to_owned(), key.to_json())).collect();
    let role_objects: Object = roles.iter().map(|(role, rule)| (role.as_str().to_owned(), rule.to_json())).collect();
    let body = [
        ("consistent_snapshot", Json::Bool(true)),
        ("keys", Json::Object(keys)),
        ("roles", Json::Object(role_objects)),
    ];
    signed(Role::Root, edition, body.into(), signers)
}

impl RoleKeys {
    fn to_json(&self) -> Json {
        Json::Object(self.members())
    }

    fn members(&self) -> Object {
        let mut keyids: Vec<KeyId> = self.keys.iter().map(PublicKey::keyid).collect();
        keyids.sort();
        keyids.dedup();
        let keyids = keyids.iter().map(|keyid| keyid.as_str().into()).collect();
        let members = [("keyids", Json::Array(keyids)), ("threshold", number(self.threshold))];
        members.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// A role that may sign some targets.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation<Name = String> {
    pub name: Name,
    /// The patterns of its targets (TUF §4.5, `PATHPATTERN`): `salt-minion/*/*/*`.
    pub paths: Vec<String>,
    #[serde(flatten)]
    pub keys: RoleKeys,
    /// True when the search for such a target ends with it.
    pub terminating: bool,
}

impl<Name: fmt::Display> Delegation<Name> {
    fn to_json(&self) -> Json {
        let mut members = self.keys.members();
        members.insert("name".to_owned(), Json::String(self.name.to_string()));
        let paths = self.paths.iter().map(|path| path.as_str().into()).collect();
        members.insert("paths".to_owned(), Json::Array(paths));
        members.insert("terminating".to_owned(), Json::Bool(self.terminating));
        Json::Object(members)
    }
}

/// Targets metadata that lists `targets`.
pub fn targets(
    edition: Edition,
    targets: &BTreeMap<String, Target>,
    signers: &[&dyn Signer],
) -> Result<Vec<u8>, SignError> {
    delegating_targets::<String>(edition, targets, &[], signers)
}

/// Targets metadata that lists `targets`, with delegations in order of precedence.
pub fn delegating_targets<Name: fmt::Display>(
    edition: Edition,
    targets: &BTreeMap<String, Target>,
    delegations: &[Delegation<Name>],
    signers: &[&dyn Signer],
) -> Result<Vec<u8>, SignError> {
    let entry = |target: &Target| object([("hashes", hashes(&target.hashes)), ("length", number(target.length))]);
    let list = targets.iter().map(|(name, target)| (name.clone(), entry(target))).collect();
    let mut body = vec![("targets", Json::Object(list))];
    if !delegations.is_empty() {
        let keys = delegations.iter().flat_map(|role| &role.keys.keys);
        let keys: Object = keys.map(|key| (key.keyid().as_str().to_owned(), key.to_json())).collect();
        let roles = delegations.iter().map(Delegation::to_json).collect();
        body.push(("delegations", object([("keys", Json::Object(keys)), ("roles", Json::Array(roles))])));
    }
    signed(Role::Targets, edition, body, signers)
}

/// The metadata `file` with other signatures. None when it is not metadata.
pub fn with_signatures(file: &[u8], signatures: &BTreeMap<KeyId, [u8; SIGNATURE_BYTES]>) -> Option<Vec<u8>> {
    let Ok(Json::Object(mut members)) = Json::parse(file) else { return None };
    let signatures = signatures.iter().map(|(keyid, value)| (keyid.clone(), to_hex(value))).collect();
    members.insert("signatures".to_owned(), signature_list(signatures));
    Some(Json::Object(members).text())
}

/// Snapshot metadata of the targets files.
pub fn snapshot(
    edition: Edition,
    files: &BTreeMap<String, MetaFile>,
    signers: &[&dyn Signer],
) -> Result<Vec<u8>, SignError> {
    let list = files.iter().map(|(name, file)| (name.clone(), meta_file(file))).collect();
    signed(Role::Snapshot, edition, vec![("meta", Json::Object(list))], signers)
}

/// Timestamp metadata of the snapshot.
pub fn timestamp(edition: Edition, snapshot: &MetaFile, signers: &[&dyn Signer]) -> Result<Vec<u8>, SignError> {
    signed(Role::Timestamp, edition, vec![("meta", object([("snapshot.json", meta_file(snapshot))]))], signers)
}

/// The entry for the published file `bytes` in the role above.
pub fn describe(version: u64, bytes: &[u8]) -> MetaFile {
    let hashes = Hashes { sha256: Some(Digest::of(bytes)), sha512: None };
    MetaFile { version, length: Some(bytes.len() as u64), hashes: Some(hashes) }
}

/// A target of this length and digest.
pub fn target(length: u64, digest: Digest) -> Target {
    Target { length, hashes: Hashes { sha256: Some(digest), sha512: None } }
}

/// The signed file: `signed` with the common fields, and one signature per signer, in order of keyid.
fn signed(
    role: Role,
    edition: Edition,
    body: Vec<(&str, Json)>,
    signers: &[&dyn Signer],
) -> Result<Vec<u8>, SignError> {
    let time = Time::from_second(edition.signed.as_second()).expect("a time cut to whole seconds stays in range");
    let expires = time.checked_add(edition.lifetime).unwrap_or(Time::MAX);
    let expires = Time::from_second(expires.as_second()).expect("a time cut to whole seconds stays in range");
    let mut members: Object = body.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    members.insert("_type".to_owned(), role.as_str().into());
    members.insert("expires".to_owned(), Json::String(expires.to_string()));
    members.insert("spec_version".to_owned(), SPEC_VERSION.into());
    members.insert("version".to_owned(), number(edition.version));
    members.insert("x-sidle-signed".to_owned(), Json::String(time.to_string()));
    let body = Json::Object(members);
    let message = body.canonical();
    let mut signatures: BTreeMap<KeyId, String> = BTreeMap::new();
    for signer in signers {
        signatures.insert(signer.public().keyid(), to_hex(&signer.sign(&message)?));
    }
    Ok(object([("signatures", signature_list(signatures)), ("signed", body)]).text())
}

fn signature_list(signatures: BTreeMap<KeyId, String>) -> Json {
    let signature =
        |(keyid, value): (KeyId, String)| object([("keyid", keyid.as_str().into()), ("sig", Json::String(value))]);
    Json::Array(signatures.into_iter().map(signature).collect())
}

fn meta_file(file: &MetaFile) -> Json {
    let version = ("version".to_owned(), number(file.version));
    let length = file.length.map(|length| ("length".to_owned(), number(length)));
    let hashes = file.hashes.as_ref().map(|digests| ("hashes".to_owned(), hashes(digests)));
    Json::Object([version].into_iter().chain(length).chain(hashes).collect())
}

fn hashes(hashes: &Hashes) -> Json {
    let sha256 = hashes.sha256.map(|digest| ("sha256".to_owned(), Json::String(digest.to_string())));
    let sha512 = hashes.sha512.map(|digest| ("sha512".to_owned(), Json::String(to_hex(&digest))));
    Json::Object(sha256.into_iter().chain(sha512).collect())
}

fn number(number: u64) -> Json {
    Json::Integer(i64::try_from(number).expect("versions and lengths are far below 2^63"))
}
