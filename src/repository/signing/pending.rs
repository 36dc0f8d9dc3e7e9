//! The files that wait for signatures: `author/pending/`. They are not served, and not trusted before they are complete.
//!
//! ```text
//! N.ROLE.json          the next version of a role, without signatures
//! N.ROLE.KEYID.sig     one person's signature on it: merged by being copied here
//! ```
//!
//! A signature belongs to a file only if it verifies over that file's bytes: changing the file voids it.

use crate::bundle::member::{MetadataName, ReleaseId};
use crate::os::place::Place;
use crate::repository::published::Published;
use crate::repository::role::SignedRole;
use crate::repository::rule::Rule;
use crate::repository::{AUTHOR, MODES, RepositoryError};
use crate::trust::key::{SIGNATURE_BYTES, from_hex, to_hex};
use crate::trust::metadata::{Body, Root, Signed, Targets};
use crate::trust::publish::with_signatures;
use crate::trust::{KeyId, PublicKey, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

pub(in crate::repository) const PENDING: &str = "pending";
/// Largest signature file read: checksum signatures of 16,384 releases. More is damage.
const SIGNATURE_BYTES_MAXIMUM: u64 = 16 * 1024 * 1024;
const SCHEMA: u32 = 1;

/// Everything that waits for signatures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::repository) struct Pending {
    /// The next root.
    pub(in crate::repository) root: Option<Draft<Root>>,
    /// The next targets, and the next files of delegated roles.
    pub(in crate::repository) targets: BTreeMap<SignedRole, Draft<Targets>>,
    /// Names of signature files that fit no file here.
    pub(in crate::repository) void: Vec<String>,
}

/// A waiting file and its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repository) struct Draft<T> {
    /// The file, without signatures.
    pub(in crate::repository) file: Signed<T>,
    /// The signatures; every one is valid.
    pub(in crate::repository) signatures: BTreeMap<PublicKey, Note>,
}

/// One person's signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repository) struct Note {
    /// The signature on the file.
    pub(in crate::repository) value: [u8; SIGNATURE_BYTES],
    /// `SHA256SUMS.minisig` of releases that the file lists, for checks without sidle.
    pub(in crate::repository) sums: BTreeMap<ReleaseId, String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u32,
    public: PublicKey,
    sig: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sums: BTreeMap<String, String>,
}

impl<T: Body> Draft<T> {
    pub(in crate::repository) fn new(name: &str, bytes: &[u8]) -> Result<Self, RepositoryError> {
        Ok(Self { file: Signed::parse(name, bytes)?, signatures: BTreeMap::new() })
    }

    /// True when the signatures meet all of these rules.
    pub(in crate::repository) fn is_complete(&self, rules: &[Rule]) -> bool {
        rules.iter().all(|rule| rule.is_met_by(self.signatures.keys()))
    }

    /// The file with the signatures that count under these rules, ready to publish.
    pub(in crate::repository) fn assembled(&self, rules: &[Rule]) -> Signed<T> {
        let mut signatures: BTreeMap<KeyId, [u8; SIGNATURE_BYTES]> = BTreeMap::new();
        for (key, note) in &self.signatures {
            signatures.extend(rules.iter().flat_map(|rule| rule.keyids(key)).map(|keyid| (keyid.clone(), note.value)));
        }
        let bytes = with_signatures(&self.file.bytes, &signatures).expect("a parsed file is JSON");
        Signed::parse("the assembled file", &bytes).expect("signatures change nothing else in a parsed file")
    }
}

impl Pending {
    /// Loads the waiting files that have not been published since.
    pub(in crate::repository) fn load(repository: &Place, published: &Published) -> Result<Self, RepositoryError> {
        let mut pending = Self::default();
        let path = |name: &str| Path::new(AUTHOR).join(PENDING).join(name);
        let Some(names) = repository.names(path(""))? else { return Ok(pending) };
        for name in &names {
            let limit = Role::Targets.bytes_maximum() as u64;
            let role = match name.parse() {
                Ok(MetadataName::Root(version)) if version > published.root_version() => {
                    pending.root = Some(Draft::new(name, &repository.read_existing(path(name), limit)?)?);
                    continue;
                }
                Ok(MetadataName::Targets(_)) => SignedRole::Targets,
                Ok(MetadataName::Delegated(role, _)) => match role.parse() {
                    Ok(role) => SignedRole::Delegated(role),
                    Err(_) => continue,
                },
                _ => continue,
            };
            let draft = Draft::new(name, &repository.read_existing(path(name), limit)?)?;
            if draft.file.header.version > published.version(&role) {
                pending.targets.insert(role, draft);
            }
        }
        for name in names.iter().filter(|name| name.strip_suffix(".sig").is_some()) {
            let bytes = repository.read_existing(path(name), SIGNATURE_BYTES_MAXIMUM)?;
            if !pending.take(name, &bytes) {
                pending.void.push(name.clone());
            }
        }
        Ok(pending)
    }

    /// Takes a signature if it fits a file.
    fn take(&mut self, name: &str, bytes: &[u8]) -> bool {
        let Some((public, note)) = read_note(bytes) else { return false };
        let of = |role: &SignedRole, version: u64| name == signature_name(&role.file(version), &public);
        if let Some(root) = self.root.as_mut().filter(|root| of(&SignedRole::Root, root.file.header.version)) {
            return root.take(public, note);
        }
        let draft = self.targets.iter_mut().find(|(role, draft)| of(role, draft.file.header.version));
        draft.is_some_and(|(_, draft)| draft.take(public, note))
    }

    /// Writes the waiting files, and removes all others.
    pub(in crate::repository) fn store(&self, repository: &Place) -> Result<(), RepositoryError> {
        let path = |name: &str| Path::new(AUTHOR).join(PENDING).join(name);
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        if let Some(root) = &self.root {
            root.write(&SignedRole::Root, &mut files);
        }
        for (role, draft) in &self.targets {
            draft.write(role, &mut files);
        }
        for (name, bytes) in &files {
            repository.write(path(name), bytes, MODES)?;
        }
        for name in repository.names(path(""))?.unwrap_or_default() {
            if !files.contains_key(&name) {
                repository.remove(path(&name))?;
            }
        }
        Ok(())
    }
}

impl<T> Draft<T> {
    fn take(&mut self, public: PublicKey, note: Note) -> bool {
        let fits = public.verifies(&self.file.canonical, &note.value);
        if fits {
            self.signatures.insert(public, note);
        }
        fits
    }

    fn write(&self, role: &SignedRole, files: &mut BTreeMap<String, Vec<u8>>) {
        let name = role.file(self.file.header.version);
        for (public, note) in &self.signatures {
            let sums = note.sums.iter().map(|(id, text)| (id.to_string(), text.clone())).collect();
            let stored = Stored { schema: SCHEMA, public: *public, sig: to_hex(&note.value), sums };
            let mut bytes = serde_json::to_vec_pretty(&stored).expect("only string keys");
            bytes.push(b'\n');
            files.insert(signature_name(&name, public), bytes);
        }
        files.insert(name, self.file.bytes.clone());
    }
}

/// `2.targets.KEYID.sig` for `2.targets.json`.
fn signature_name(file: &str, public: &PublicKey) -> String {
    format!("{}.{}.sig", file.strip_suffix(".json").unwrap_or(file), public.keyid())
}

fn read_note(bytes: &[u8]) -> Option<(PublicKey, Note)> {
    let stored: Stored = serde_json::from_slice(bytes).ok().filter(|stored: &Stored| stored.schema == SCHEMA)?;
    let sums = stored.sums.into_iter().map(|(id, text)| Some((id.parse().ok()?, text)));
    Some((stored.public, Note { value: from_hex(&stored.sig)?, sums: sums.collect::<Option<_>>()? }))
}
