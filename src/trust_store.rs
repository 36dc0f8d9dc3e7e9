//! What this host trusts, on disk: the pinned root and the newest metadata seen, below which nothing is accepted any more.
//!
//! `floor.json` names every other file by role and SHA-256; it is replaced last, so that a crash leaves the old floor or the new one,
//! whole. Received bytes are stored as they came.

use crate::crash_point;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::lock::{self, Holder, LOCK, Lock, LockFile, by};
use crate::trust::by_hand::{self, MetadataFiles, Verification};
use crate::trust::metadata::{self, Body, Header, Root, Signed, Snapshot, Targets};
use crate::trust::{Authority, DelegatedFiles, Expiry, Floor, Role, TrustError, TrustedTargets, Warning, verify};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const INDEX: &str = "floor.json";
/// Largest `floor.json` read: five short entries, and one for each delegated role that is kept. More is damage.
const INDEX_BYTES_MAXIMUM: u64 = 1024 * 1024;
/// Most files of delegated roles that are kept. Stops a repository of very many roles from filling the disk; one that isn't kept is unknown
/// until a bundle brings it again.
const DELEGATED_KEPT_MAXIMUM: usize = 1_024;
/// How long a command waits for another one that is adopting metadata, which takes milliseconds.
const LOCK_WAIT_MAXIMUM: Duration = Duration::from_secs(10);

/// The host's trust store. Reading needs no lock; changing needs [`TrustStore::lock`].
#[derive(Debug)]
pub struct TrustStore {
    directory: Dir,
}

/// The trust_store, with the lock that every change needs.
#[derive(Debug)]
pub struct LockedTrustStore<'a> {
    trust_store: &'a TrustStore,
    _lock: Lock,
}

/// What this host trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// What a person decided to trust.
    pub pin: Pin,
    /// What has been seen since.
    pub floor: Floor,
}

impl Trusted {
    /// What the top-level files say of themselves, by role.
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

/// The root that a person decided to trust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// SHA-256 of the pinned root file, as `sha256sum` prints it.
    pub fingerprint: Digest,
    /// That root's version.
    pub version: u64,
}

/// What pinning came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// This host trusts it from now on.
    Now,
    /// This host trusted it already.
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
    /// The trust store at `path` (`/var/lib/sidle/trust`), made if it is missing.
    pub fn open_or_create(path: &Path) -> Result<Self, TrustStoreError> {
        Ok(Self { directory: Dir::open_or_create(path, 0o755)? })
    }

    /// The trust store at `path`; without one, nothing is pinned.
    pub fn open(path: &Path) -> Result<Self, TrustStoreError> {
        let directory =
            Dir::open_if_exists(path)?.ok_or_else(|| TrustStoreError::Unpinned { path: path.to_owned() })?;
        Ok(Self { directory })
    }

    /// What this host trusts. `Unpinned` without a pinned root; `Damaged` when a stored file is missing or not as it was stored.
    pub fn load(&self) -> Result<Trusted, TrustStoreError> {
        self.read()?.ok_or_else(|| TrustStoreError::Unpinned { path: self.directory.path().to_owned() })
    }

    /// Waits (at most 10 s) for the lock that changes need.
    pub fn lock(&self) -> Result<LockedTrustStore<'_>, TrustStoreError> {
        let file = LockFile::new(&self.directory, LOCK);
        match lock::wait(LOCK_WAIT_MAXIMUM, || file.try_exclusive())? {
            Some(lock) => Ok(LockedTrustStore { trust_store: self, _lock: lock }),
            None => Err(TrustStoreError::Locked { path: self.directory.path().to_owned(), holder: file.holder() }),
        }
    }

    /// Verifies metadata against what this host trusts, and stores what is newer, whatever comes of the rest.
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

impl LockedTrustStore<'_> {
    /// Makes `root` the one that this host starts from, if its SHA-256 is `fingerprint`. Never replaces another pinned root.
    pub fn pin(&self, root: &[u8], fingerprint: &Digest) -> Result<Pinned, TrustStoreError> {
        let found = Digest::of(root);
        if found != *fingerprint {
            return Err(TrustStoreError::Fingerprint { expected: *fingerprint, found });
        }
        let parsed: Signed<Root> = Signed::parse("the root to pin", root)?;
        verify::verify(&parsed, &parsed)?;
        match self.trust_store.read()? {
            Some(trusted) if trusted.pin.fingerprint == found || trusted.floor.root == root => Ok(Pinned::Already),
            Some(trusted) => {
                let path = self.trust_store.directory.path().to_owned();
                Err(TrustStoreError::OtherPinned { path, pinned: trusted.pin.fingerprint, offered: found })
            }
            None => {
                let pin = Pin { fingerprint: found, version: parsed.header.version };
                // It was surely not signed after now: metadata that had expired by then is not fresh because a clock is behind.
                let floor = Floor { last_seen: parsed.header.signed, ..Floor::new(root.to_vec()) };
                self.store(&Trusted { pin, floor })?;
                Ok(Pinned::Now)
            }
        }
    }

    /// Stores `floor`, which the workflow made from what `load` gave. Nothing is written if it is what is stored already.
    pub fn adopt(&self, floor: &Floor) -> Result<(), TrustStoreError> {
        let trusted = self.trust_store.load()?;
        if trusted.floor == *floor { Ok(()) } else { self.store(&Trusted { floor: floor.clone(), ..trusted }) }
    }

    /// Forgets the latest signed time seen, for a host that a wrongly dated signature has told too late a time.
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
            // Written even where a file of this name is there: one that a crash or a bad disk spoiled must not stay.
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

/// The host's trust_store as the judge of metadata that was carried by hand, or fetched.
#[derive(Debug)]
pub struct Judge<'a> {
    /// What this host trusts.
    pub trust_store: &'a TrustStore,
    /// The wall clock.
    pub now: Timestamp,
    /// How late metadata may be.
    pub expiry: Expiry,
    /// What becomes of newer valid metadata.
    pub adoption: Adoption,
}

/// What becomes of newer valid metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// This host trusts it from now on, whatever comes of the rest.
    Store,
    /// It is judged and forgotten: for looking only.
    Forget,
}

impl Judge<'_> {
    /// Judges `files`, adopting as told.
    pub fn verification(&self, files: &MetadataFiles) -> Result<Verification, TrustStoreError> {
        match self.adoption {
            Adoption::Store => self.trust_store.verify(files, self.now, self.expiry),
            Adoption::Forget => Ok(by_hand::verify(&self.trust_store.load()?.floor, files, self.now, self.expiry)),
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

/// A delegated role's name may be any text, so it is no part of a file's name.
fn stored_delegated_name(digest: &Digest) -> String {
    format!("{digest}.delegated.json")
}

/// Why the trust store can't be used or changed.
#[derive(Debug)]
pub enum TrustStoreError {
    /// The system refused.
    Os(OsError),
    /// No root is pinned on this host.
    Unpinned {
        /// The trust store.
        path: PathBuf,
    },
    /// The root to pin isn't the one that the fingerprint names.
    Fingerprint {
        /// The fingerprint given.
        expected: Digest,
        /// That of the file.
        found: Digest,
    },
    /// Another root is pinned.
    OtherPinned {
        /// The trust store.
        path: PathBuf,
        /// The fingerprint of the one that is.
        pinned: Digest,
        /// That of the one offered.
        offered: Digest,
    },
    /// Another command holds the lock.
    Locked {
        /// The trust store.
        path: PathBuf,
        /// Who holds it, where it could be seen.
        holder: Option<Holder>,
    },
    /// A stored file is not as it was stored.
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The root to pin is no valid root.
    Trust(TrustError),
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

    /// What an operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Unpinned { .. } => Some(
                "pin the repository's root first: `sidle trust pin FILE --fingerprint SHA256`, with the fingerprint that its owner gives out"
                    .to_owned(),
            ),
            Self::Fingerprint { .. } => {
                Some("ask the repository's owner for the fingerprint (`sha256sum metadata/1.root.json`), by another way than the file".to_owned())
            }
            Self::OtherPinned { path, .. } => Some(format!(
                "`sidle trust show` tells what is trusted; to trust another repository instead, move {} aside and pin again",
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

impl fmt::Display for TrustStoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => error.fmt(out),
            Self::Unpinned { path } => {
                write!(out, "cannot trust anything yet: no root is pinned in {}", path.display())
            }
            Self::Fingerprint { expected, found } => {
                write!(out, "cannot pin this root: its fingerprint is {found}, not {expected}")
            }
            Self::OtherPinned { path, pinned, offered } => {
                write!(out, "cannot pin the root {offered}: {} has {pinned} pinned", path.display())
            }
            Self::Locked { path, holder } => {
                let by = by(holder.as_ref());
                write!(out, "cannot change {}: another command is changing it{by}", path.display())
            }
            Self::Damaged { path, reason } => write!(out, "cannot trust {}: {reason}", path.display()),
            Self::Trust(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for TrustStoreError {}

impl From<OsError> for TrustStoreError {
    fn from(error: OsError) -> Self {
        Self::Os(error)
    }
}

impl From<TrustError> for TrustStoreError {
    fn from(error: TrustError) -> Self {
        Self::Trust(error)
    }
}

crate::reports!(TrustStoreError);
