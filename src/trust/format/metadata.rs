//! The four kinds of TUF metadata, parsed field by field as TUF §4 says, within limits.

use crate::digest::Digest;
use crate::trust::canonical::{Json, Object};
use crate::trust::delegation::{Delegations, delegations};
use crate::trust::error::TrustError;
use crate::trust::key::{KeyId, from_hex, hex_bytes};
use crate::trust::limits;
use crate::trust::reader::{Fields, Reason};
use crate::trust::role::Role;
use crate::trust::scheme::{Key, KeyRule, Signature, key_rule, keyid, keys};
use jiff::Timestamp as Time;
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, BTreeSet};

/// A parsed metadata file. Parsing verifies nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed<T> {
    /// Its content.
    pub body: T,
    /// The common fields.
    pub header: Header,
    /// Its signatures, each keyid once (TUF §4.2).
    pub signatures: Vec<Signature>,
    /// The signed bytes.
    pub canonical: Vec<u8>,
    /// The file as received: stored and passed on unchanged.
    pub bytes: Vec<u8>,
}

/// The fields that every role has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Grows with every change, from 1.
    pub version: u64,
    /// The file is refused from then on.
    pub expires: Time,
    /// The signing time, in sidle's repositories only (`x-sidle-signed`, RFC 3339); other TUF clients ignore it.
    pub signed: Option<Time>,
}

/// The root role's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// True when stored target names carry their digest, and metadata names carry their version.
    pub consistent_snapshot: bool,
    /// The keys of its roles.
    pub keys: BTreeMap<KeyId, Key>,
    /// The rule of each top-level role; all four are there.
    pub roles: BTreeMap<Role, KeyRule>,
}

/// The timestamp role's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timestamp {
    /// The newest snapshot.
    pub snapshot: MetaFile,
}

/// The snapshot role's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Every targets file of the repository by name (`targets.json`, and one per delegated role).
    pub files: BTreeMap<String, MetaFile>,
}

/// One metadata file's entry for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaFile {
    /// The version.
    pub version: u64,
    /// The size in bytes, if given.
    pub length: Option<u64>,
    /// The digests, if given.
    pub hashes: Option<Hashes>,
}

/// A targets role's file, top-level or delegated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// The signed files, by target name.
    pub targets: BTreeMap<String, Target>,
    /// The roles that may sign for it.
    pub delegations: Option<Delegations>,
}

/// A signed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its size in bytes.
    pub length: u64,
    /// Its digests.
    pub hashes: Hashes,
}

/// The digests of a file, of the algorithms known here; at least one.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashes {
    pub sha256: Option<Digest>,
    pub sha512: Option<[u8; 64]>,
}

impl Hashes {
    /// True when `bytes` have every digest.
    pub fn fit(&self, bytes: &[u8]) -> bool {
        self.sha256.is_none_or(|digest| digest == Digest::of(bytes))
            && self.sha512.is_none_or(|digest| digest[..] == Sha512::digest(bytes)[..])
    }
}

/// A kind of metadata, read from a `signed` object.
pub trait Body: Sized {
    /// Its `_type`.
    const ROLE: Role;
    /// Reads the fields that only this kind has.
    fn from_fields(fields: &Fields<'_>) -> Result<Self, Reason>;
}

impl<T: Body> Signed<T> {
    /// Reads a metadata file. `file` is its name, for messages.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, TrustError> {
        if bytes.len() > T::ROLE.bytes_maximum() {
            return Err(TrustError::TooLarge { file: file.to_owned(), limit_bytes: T::ROLE.bytes_maximum() });
        }
        Self::read(bytes).map_err(|reason| TrustError::Malformed { file: file.to_owned(), reason: reason.0 })
    }

    fn read(bytes: &[u8]) -> Result<Self, Reason> {
        let json = Json::parse(bytes).map_err(Reason)?;
        let top = Fields::of(&json, "the file")?;
        let signatures = signatures(&top)?;
        let signed = top.get("signed")?;
        let fields = Fields::of(signed, "signed")?;
        let found = fields.text("_type")?;
        if found != T::ROLE.as_str() {
            return Err(Reason(format!("it is {found:?} metadata, not {:?}", T::ROLE.as_str())));
        }
        spec_version(fields.text("spec_version")?)?;
        let header = Header {
            version: fields.count("version", 1)?,
            expires: fields.time("expires")?,
            signed: fields.optional("x-sidle-signed").map(|_| fields.time("x-sidle-signed")).transpose()?,
        };
        let body = T::from_fields(&fields)?;
        Ok(Self { body, header, signatures, canonical: signed.canonical(), bytes: bytes.to_vec() })
    }
}

/// Only major version 1 is known (TUF §4.2: a client must not read another major version).
fn spec_version(text: &str) -> Result<(), Reason> {
    let parts: Vec<&str> = text.split('.').collect();
    let numbers = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if numbers && (2..=3).contains(&parts.len()) && parts[0] == "1" {
        Ok(())
    } else {
        Err(Reason(format!("its spec_version is {text:?}, and only 1.x is known")))
    }
}

fn signatures(top: &Fields<'_>) -> Result<Vec<Signature>, Reason> {
    let list = top.array("signatures", limits::SIGNATURES_MAXIMUM)?;
    let mut seen = BTreeSet::new();
    list.iter()
        .map(|item| {
            let fields = Fields::of(item, "a signature")?;
            let keyid = keyid(fields.text("keyid")?)?;
            if !seen.insert(keyid.clone()) {
                return Err(Reason(format!("two signatures have the keyid {keyid}")));
            }
            Ok(Signature { keyid, value: hex_bytes(fields.text("sig")?) })
        })
        .collect()
}

impl Body for Root {
    const ROLE: Role = Role::Root;

    fn from_fields(fields: &Fields<'_>) -> Result<Self, Reason> {
        let roles = fields.object("roles", limits::KEYS_MAXIMUM)?;
        let rule = |role: Role| {
            let value = roles.get(role.as_str()).ok_or_else(|| Reason(format!("it names no {role} role")))?;
            Ok((role, key_rule(&Fields::of(value, role.as_str())?)?))
        };
        Ok(Self {
            consistent_snapshot: fields.optional("consistent_snapshot").is_some()
                && fields.flag("consistent_snapshot")?,
            keys: keys(fields)?,
            roles: Role::ALL.into_iter().map(rule).collect::<Result<_, Reason>>()?,
        })
    }
}

impl Root {
    /// The rule for a top-level role.
    pub fn rule(&self, role: Role) -> &KeyRule {
        self.roles.get(&role).expect("a parsed root has all four roles")
    }
}

impl Body for Timestamp {
    const ROLE: Role = Role::Timestamp;

    fn from_fields(fields: &Fields<'_>) -> Result<Self, Reason> {
        let files = meta_files(fields)?;
        let snapshot = files.get("snapshot.json").cloned();
        Ok(Self { snapshot: snapshot.ok_or_else(|| Reason("it doesn't name snapshot.json".to_owned()))? })
    }
}

impl Body for Snapshot {
    const ROLE: Role = Role::Snapshot;

    fn from_fields(fields: &Fields<'_>) -> Result<Self, Reason> {
        let files = meta_files(fields)?;
        if !files.contains_key("targets.json") {
            return Err(Reason("it doesn't name targets.json".to_owned()));
        }
        Ok(Self { files })
    }
}

fn meta_files(fields: &Fields<'_>) -> Result<BTreeMap<String, MetaFile>, Reason> {
    fields
        .object("meta", limits::SNAPSHOT_FILES_MAXIMUM)?
        .iter()
        .map(|(name, value)| {
            let fields = Fields::of(value, name)?;
            let length = fields.optional("length").map(|_| fields.count("length", 0)).transpose()?;
            let hashes = fields.optional("hashes").map(|_| hashes(&fields)).transpose()?;
            Ok((name.clone(), MetaFile { version: fields.count("version", 1)?, length, hashes }))
        })
        .collect()
}

/// Without a known algorithm the file can't be checked.
fn hashes(fields: &Fields<'_>) -> Result<Hashes, Reason> {
    let map: &Object = fields.object("hashes", 16)?;
    let bad = |algorithm: &str| Reason(format!("{} has an invalid {algorithm}", fields.name()));
    let text = |algorithm: &str| match map.get(algorithm) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(bad(algorithm)),
    };
    let sha256 =
        text("sha256")?.map(|hex| from_hex(hex).map(Digest::from_bytes).ok_or_else(|| bad("sha256"))).transpose()?;
    let sha512 = text("sha512")?.map(|hex| from_hex(hex).ok_or_else(|| bad("sha512"))).transpose()?;
    if sha256.is_none() && sha512.is_none() {
        return Err(Reason(format!("{} has neither a sha256 nor a sha512", fields.name())));
    }
    Ok(Hashes { sha256, sha512 })
}

impl Body for Targets {
    const ROLE: Role = Role::Targets;

    fn from_fields(fields: &Fields<'_>) -> Result<Self, Reason> {
        let target = |(name, value): (&String, &Json)| {
            if name.len() > limits::TARGET_NAME_BYTES_MAXIMUM {
                return Err(Reason(format!(
                    "a target's name is longer than {} bytes",
                    limits::TARGET_NAME_BYTES_MAXIMUM
                )));
            }
            let fields = Fields::of(value, name)?;
            let length = fields.count("length", 0)?;
            if length > limits::TARGET_BYTES_MAXIMUM {
                return Err(Reason(format!("{name} has a length of {length} bytes, which is too large")));
            }
            Ok((name.clone(), Target { length, hashes: hashes(&fields)? }))
        };
        Ok(Self {
            targets: fields
                .object("targets", limits::TARGETS_MAXIMUM)?
                .iter()
                .map(target)
                .collect::<Result<_, Reason>>()?,
            delegations: fields.optional("delegations").map(|_| delegations(fields)).transpose()?,
        })
    }
}
