//! The host's trust store on disk: the pinned root and the newest metadata seen. Older metadata is never accepted again.
//!
//! `floor.json` names every other file by role and SHA-256, and is replaced last: a crash leaves the old floor or the new one, whole. Files
//! are stored as received.

use crate::crash_point;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::lock::{self, Holder, LOCK, Lock, LockFile, by};
use crate::trust::by_hand::{self, Verification};
use crate::trust::metadata::{self, Body, Header, Root, Signed, Snapshot, Targets};
use crate::trust::{
    Authority, DelegatedFiles, Expiry, Floor, MetadataFiles, Role, TrustError, TrustedTargets, Warning, verify,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

const INDEX: &str = "floor.json";
/// Largest `floor.json` read: five short entries, and one per delegated role. More is damage.
const INDEX_BYTES_MAXIMUM: u64 = 1024 * 1024;
/// Limit on the files of delegated roles. Stops a repository of very many roles from filling the disk; a role that isn't kept is unknown
/// until a bundle brings it again.
const DELEGATED_KEPT_MAXIMUM: usize = 1_024;
/// How long a command waits for another one's adoption of metadata, which takes milliseconds.
const LOCK_WAIT_MAXIMUM: Duration = Duration::from_secs(10);

/// The host's trust store. Reading needs no lock; changing needs [`TrustStore::lock`].
#[derive(Debug)]
pub struct TrustStore {
    directory: Dir,
}

/// The trust store, locked for changes.
#[derive(Debug)]
pub struct LockedTrustStore<'a> {
    trust_store: &'a TrustStore,
    _lock: Lock,
}

/// What this host trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// The root that a person pinned.
    pub pin: Pin,
    /// The newest metadata seen since.
    pub floor: Floor,
}

impl Trusted {
    /// The headers of the top-level files, by role.
    pub fn headers(&self) -> Result<Vec<(&'static str, Header)>, TrustError> {
        fn header<T: Body>(bytes: &[u8]) -> Result<Header, TrustError> {
            Ok(Signed::<T>::parse(&T::ROLE.file(), bytes)?.header)
        }
        let floor = &self.floor;
        let mut headers = vec![("root", header::<Root>(&floor.root)?)];
        if let Some(bytes) = &floor.targets {
            headers.push(("targets", header::<Targets>(bytes)?));
        }
        if let Some(bytes) = &floor.snapshot {
            headers.push(("snapshot", header::<Snapshot>(bytes)?));
        }
        if let Some(bytes) = &floor.timestamp {
            headers.push(("timestamp", header::<metadata::Timestamp>(bytes)?));
        }
        Ok(headers)
    }
}

/// The pinned root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Its SHA-256, as `sha256sum` prints it.
    pub fingerprint: Digest,
    /// Its version.
    pub version: u64,
}

/// The result of pinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// Pinned now.
    Now,
    /// Pinned before.
    Already,
}

#[derive(Serialize, Deserialize)]
struct Index {
    schema: u32,
    pin: Pin,
    files: BTreeMap<String, Digest>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    delegated: BTreeMap<String, Digest>,
    last_seen: Option<Timestamp>,
}

impl TrustStore {
    /// The trust store at `path` (`/var/lib/sidle/trust`); created if missing.
    pub fn open_or_create(path: &Path) -> Result<Self, TrustStoreError> {
        Ok(Self { directory: Dir::open_or_create(path, 0o755)? })
    }

    /// The trust store at `path`; `Unpinned` if missing.
    pub fn open(path: &Path) -> Result<Self, TrustStoreError> {
        let directory =
            Dir::open_if_exists(path)?.ok_or_else(|| TrustStoreError::Unpinned { path: path.to_owned() })?;
        Ok(Self { directory })
    }

    /// Loads the pin and the floor. `Unpinned` without a pinned root; `Damaged` when a stored file is missing or has changed.
    pub fn load(&self) -> Result<Trusted, TrustStoreError> {
        self.read()?.ok_or_else(|| TrustStoreError::Unpinned { path: self.directory.path().to_owned() })
    }

    /// What pinning `root` in the trust store at `path` would come to; changes nothing.
    pub fn would_pin(path: &Path, root: &[u8], fingerprint: &Digest) -> Result<Pinned, TrustStoreError> {
        match Dir::open_if_exists(path)? {
            Some(directory) => Ok(Self { directory }.judge_pin(root, fingerprint)?.0),
            None => parsed_root(root, fingerprint).map(|_| Pinned::Now),
        }
    }

    fn judge_pin(&self, root: &[u8], fingerprint: &Digest) -> Result<(Pinned, Signed<Root>), TrustStoreError> {
        let parsed = parsed_root(root, fingerprint)?;
        let pinned = match self.read()? {
            Some(trusted) if trusted.pin.fingerprint == *fingerprint || trusted.floor.root == root => Pinned::Already,
            Some(trusted) => {
                let path = self.directory.path().to_owned();
                let (pinned, offered) = (trusted.pin.fingerprint, *fingerprint);
                return Err(TrustStoreError::OtherPinned { path, pinned, offered });
            }
            None => Pinned::Now,
        };
        Ok((pinned, parsed))
    }

    /// Waits up to 10 s for the lock.
    pub fn lock(&self) -> Result<LockedTrustStore<'_>, TrustStoreError> {
        let file = LockFile::new(&self.directory, LOCK);
        match lock::wait(LOCK_WAIT_MAXIMUM, || file.try_exclusive())? {
            Some(lock) => Ok(LockedTrustStore { trust_store: self, _lock: lock }),
            None => Err(TrustStoreError::Locked { path: self.directory.path().to_owned(), holder: file.holder() }),
        }
    }

    /// Verifies metadata against the floor, and stores newer metadata even if a later file is refused.
    pub fn verify(
        &self,
        files: &MetadataFiles,
        now: Timestamp,
        expiry: Expiry,
    ) -> Result<Verification, TrustStoreError> {
        let locked = self.lock()?;
        let trusted = self.load()?;
        let verification = by_hand::verify(&trusted.floor, files, now, expiry);
        locked.adopt(&verification.floor)?;
        Ok(verification)
    }

    fn read(&self) -> Result<Option<Trusted>, TrustStoreError> {
        let Some(bytes) = self.directory.read_if_exists(INDEX, INDEX_BYTES_MAXIMUM)? else { return Ok(None) };
        let index: Index = serde_json::from_slice(&bytes).map_err(|error| self.damaged(INDEX, error.to_string()))?;
        if index.schema != 1 {
            return Err(self.damaged(INDEX, format!("its schema is {}, and only 1 is known", index.schema)));
        }
        let root =
            self.stored(Role::Root, &index)?.ok_or_else(|| self.damaged(INDEX, "it names no root".to_owned()))?;
        let floor = Floor {
            root,
            timestamp: self.stored(Role::Timestamp, &index)?,
            snapshot: self.stored(Role::Snapshot, &index)?,
            targets: self.stored(Role::Targets, &index)?,
            delegated: self.stored_delegated(&index)?,
            last_seen: index.last_seen,
        };
        Ok(Some(Trusted { pin: index.pin, floor }))
    }

    fn stored(&self, role: Role, index: &Index) -> Result<Option<Vec<u8>>, TrustStoreError> {
        let Some(digest) = index.files.get(role.as_str()) else { return Ok(None) };
        self.stored_file(&stored_name(role, digest), digest, role).map(Some)
    }

    fn stored_delegated(&self, index: &Index) -> Result<DelegatedFiles, TrustStoreError> {
        let read = |(role, digest): (&String, &Digest)| {
            let bytes = self.stored_file(&stored_delegated_name(digest), digest, Role::Targets)?;
            Ok((role.clone(), bytes))
        };
        index.delegated.iter().map(read).collect()
    }

    fn stored_file(&self, name: &str, digest: &Digest, role: Role) -> Result<Vec<u8>, TrustStoreError> {
        let bytes = self.directory.read_if_exists(name, role.bytes_maximum() as u64)?;
        let bytes = bytes.ok_or_else(|| self.damaged(name, "it is missing".to_owned()))?;
        if Digest::of(&bytes) == *digest { Ok(bytes) } else { Err(self.damaged(name, "it has changed".to_owned())) }
    }

    fn damaged(&self, name: &str, reason: String) -> TrustStoreError {
        TrustStoreError::Damaged { path: self.directory.path().join(name), reason }
    }
}

fn parsed_root(root: &[u8], fingerprint: &Digest) -> Result<Signed<Root>, TrustStoreError> {
    let found = Digest::of(root);
    if found != *fingerprint {
        return Err(TrustStoreError::Fingerprint { expected: *fingerprint, found });
    }
    let parsed: Signed<Root> = Signed::parse("the root to pin", root)?;
    verify::verify(&parsed, &parsed)?;
    Ok(parsed)
}

impl LockedTrustStore<'_> {
    /// Pins `root` if its SHA-256 is `fingerprint`. Never replaces another pinned root.
    pub fn pin(&self, root: &[u8], fingerprint: &Digest) -> Result<Pinned, TrustStoreError> {
        let (pinned, parsed) = self.trust_store.judge_pin(root, fingerprint)?;
        if pinned == Pinned::Now {
            let pin = Pin { fingerprint: *fingerprint, version: parsed.header.version };
            // The root was signed before now: a clock that is behind must not make expired metadata fresh.
            let floor = Floor { last_seen: parsed.header.signed, ..Floor::new(root.to_vec()) };
            self.store(&Trusted { pin, floor })?;
        }
        Ok(pinned)
    }

    /// Stores `floor`, made from what `load` returned. Writes nothing if it is stored already.
    pub fn adopt(&self, floor: &Floor) -> Result<(), TrustStoreError> {
        let trusted = self.trust_store.load()?;
        if trusted.floor == *floor { Ok(()) } else { self.store(&Trusted { floor: floor.clone(), ..trusted }) }
    }

    /// Forgets the latest signing time seen, for a host that saw a signature with a wrong, late date.
    pub fn reset_clock(&self) -> Result<(), TrustStoreError> {
        let trusted = self.trust_store.load()?;
        self.store(&Trusted { floor: Floor { last_seen: None, ..trusted.floor.clone() }, ..trusted })
    }

    fn store(&self, trusted: &Trusted) -> Result<(), TrustStoreError> {
        let directory = &self.trust_store.directory;
        let mut files = BTreeMap::new();
        let mut kept = vec![OsString::from(INDEX), OsString::from(LOCK)];
        for (role, bytes) in trusted.floor.files() {
            let digest = Digest::of(bytes);
            let name = stored_name(role, &digest);
            // Written even if a file of this name exists: a crash or a bad disk may have spoiled it.
            directory.write_atomic(&name, bytes, 0o644)?;
            crash_point!("trust_store.file_stored");
            files.insert(role.as_str().to_owned(), digest);
            kept.push(name.into());
        }
        let mut delegated = BTreeMap::new();
        for (role, bytes) in trusted.floor.delegated.iter().take(DELEGATED_KEPT_MAXIMUM) {
            let digest = Digest::of(bytes);
            let name = stored_delegated_name(&digest);
            directory.write_atomic(&name, bytes, 0o644)?;
            crash_point!("trust_store.file_stored");
            delegated.insert(role.clone(), digest);
            kept.push(name.into());
        }
        let last_seen = trusted.floor.last_seen;
        let index = Index { schema: 1, pin: trusted.pin.clone(), files, delegated, last_seen };
        let mut text = serde_json::to_vec_pretty(&index).expect("an index has only string keys");
        text.push(b'\n');
        directory.write_atomic(INDEX, &text, 0o644)?;
        crash_point!("trust_store.floor_stored");
        for name in directory.names()?.iter().filter(|name| !kept.contains(name)) {
            directory.remove_file(name)?; // superseded metadata, and temporary files of a crash
        }
        Ok(())
    }
}

/// The host's trust store as the judge of metadata, carried by hand or fetched.
#[derive(Debug)]
pub struct Judge<'a> {
    /// The trust store.
    pub trust_store: &'a TrustStore,
    /// The wall clock.
    pub now: Timestamp,
    /// The strictness of expiry.
    pub expiry: Expiry,
    /// Whether newer valid metadata is stored.
    pub persist: Persist,
}

/// Whether newer valid metadata is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persist {
    /// Store it, even if a later file is refused.
    Store,
    /// Forget it: for dry runs and inspection.
    Forget,
}

impl Judge<'_> {
    /// Verifies `files`, and stores newer metadata if `persist` says so.
    pub fn verification(&self, files: &MetadataFiles) -> Result<Verification, TrustStoreError> {
        match self.persist {
            Persist::Store => self.trust_store.verify(files, self.now, self.expiry),
            Persist::Forget => Ok(by_hand::verify(&self.trust_store.load()?.floor, files, self.now, self.expiry)),
        }
    }
}

impl Authority for Judge<'_> {
    fn judge(&self, files: &MetadataFiles) -> Result<(TrustedTargets, Vec<Warning>), Report> {
        let verification = self.verification(files)?;
        Ok((verification.targets?, verification.warnings))
    }
}

fn stored_name(role: Role, digest: &Digest) -> String {
    format!("{digest}.{role}.json")
}

/// A delegated role's name may be any text, so it is not part of a file's name.
fn stored_delegated_name(digest: &Digest) -> String {
    format!("{digest}.delegated.json")
}

/// Why the trust store can't be used or changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum TrustStoreError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// No root is pinned on this host.
    #[error("cannot trust anything yet: no root is pinned in {path}")]
    Unpinned { path: PathBuf },
    /// The root to pin hasn't the expected fingerprint.
    #[error("cannot pin this root: its fingerprint is {found}, not {expected}")]
    Fingerprint { expected: Digest, found: Digest },
    /// Another root is pinned.
    #[error("cannot pin the root {offered}: {path} has {pinned} pinned")]
    OtherPinned { path: PathBuf, pinned: Digest, offered: Digest },
    /// Another command holds the lock.
    #[error("cannot change {path}: another command is changing it{}", by(.holder.as_ref()))]
    Locked { path: PathBuf, holder: Option<Holder> },
    /// A stored file has changed or is missing.
    #[error("cannot trust {path}: {reason}")]
    Damaged { path: PathBuf, reason: String },
    /// The root to pin is no valid root.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl TrustStoreError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Unpinned { .. } | Self::Fingerprint { .. } => Class::NotTrusted,
            Self::OtherPinned { .. } => Class::Conflict,
            Self::Locked { .. } => Class::Locked,
            Self::Damaged { .. } => Class::Integrity,
            Self::Trust(error) => error.class(),
        }
    }

    /// A remedy for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Unpinned { .. } => Some(
                "pin the repository's root first: `sidle trust pin FILE --fingerprint SHA256`, with the fingerprint from its owner"
                    .to_owned(),
            ),
            Self::Fingerprint { .. } => {
                Some("ask the repository's owner for the fingerprint (`sha256sum metadata/1.root.json`), over another channel than the file".to_owned())
            }
            Self::OtherPinned { path, .. } => Some(format!(
                "`sidle trust show` prints the pinned root; to trust another repository instead, move {} aside and pin again",
                path.display()
            )),
            Self::Locked { .. } => Some("wait for the other command, then try again".to_owned()),
            Self::Damaged { path, .. } => path.parent().map(|store| {
                format!("restore {} from a backup, or move it aside and pin the root again with `sidle trust pin`", store.display())
            }),
            Self::Trust(error) => error.hint(),
        }
    }
}

crate::reports!(TrustStoreError);
