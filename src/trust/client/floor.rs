//! The start and the end of verification: the host's floor, the strictness of expiry, and warnings.

use crate::failure::moment;
use crate::trust::role::Role;
use jiff::{SignedDuration, Timestamp as Time};
use std::collections::BTreeMap;
use std::fmt;

/// Metadata files by name: `1.root.json`, `timestamp.json`, …
pub type MetadataFiles = BTreeMap<String, Vec<u8>>;

/// Delegated roles' files by role name, as received. A host may keep them to ask for fewer files: each use verifies them again, so a wrong
/// file costs one request.
pub type DelegatedFiles = BTreeMap<String, Vec<u8>>;

/// A host's anti-rollback floor: the newest trusted metadata, as bytes. Only the host's trust store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    /// The newest trusted root.
    pub root: Vec<u8>,
    /// The newest timestamp.
    pub timestamp: Option<Vec<u8>>,
    /// The newest snapshot.
    pub snapshot: Option<Vec<u8>>,
    /// The newest targets.
    pub targets: Option<Vec<u8>>,
    /// The newest files of delegated roles that were fetched or carried here. Each use verifies them again.
    pub delegated: DelegatedFiles,
    /// The latest signing time of root or targets, a lower bound of the present time. Never the host's clock; never timestamp or snapshot:
    /// their keys lie on a server, and a thief could date a signature a year ahead, after which all honest metadata would look expired.
    pub last_seen: Option<Time>,
}

impl Floor {
    /// The floor of a host that has only pinned `root`.
    pub fn new(root: Vec<u8>) -> Self {
        Self { root, timestamp: None, snapshot: None, targets: None, delegated: DelegatedFiles::new(), last_seen: None }
    }

    /// The top-level files, by role.
    pub fn files(&self) -> Vec<(Role, &[u8])> {
        let optional =
            [(Role::Targets, &self.targets), (Role::Snapshot, &self.snapshot), (Role::Timestamp, &self.timestamp)];
        let there = optional.into_iter().filter_map(|(role, bytes)| bytes.as_deref().map(|bytes| (role, bytes)));
        std::iter::once((Role::Root, self.root.as_slice())).chain(there).collect()
    }
}

/// The strictness of expiry. Expired root and targets are always refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Expired files are refused: for fetched metadata.
    Strict,
    /// Timestamp and snapshot may be late by `grace`, with a warning: for metadata carried by hand.
    ByHand {
        /// The grace.
        grace: SignedDuration,
    },
}

impl Expiry {
    /// By hand, with the default grace.
    pub const BY_HAND: Self = Self::ByHand { grace: BY_HAND_GRACE };
}

/// The default grace of metadata carried by hand: 90 days.
pub const BY_HAND_GRACE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// A warning for the operator; it refuses nothing.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Expired, within the grace; refused from `refused_from` on.
    Late { role: Role, version: u64, expired: Time, refused_from: Time },
    /// The host's clock is behind the signing time of trusted metadata.
    ClockBehind { now: Time, last_seen: Time },
    /// The offered timestamp is older than the trusted one, and ignored.
    OlderIgnored { trusted: u64, offered: u64 },
    /// The checksum list is signed by an unknown key: a replaced one, or a stranger's. Trust rests on the metadata; minisign alone proves
    /// nothing.
    UnknownSumsKey,
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late { role, version, expired, refused_from } => {
                let (expired, from) = (moment(*expired), moment(*refused_from));
                write!(
                    out,
                    "{role} metadata version {version} expired at {expired}; new releases are refused from {from} on"
                )
            }
            Self::ClockBehind { now, last_seen } => {
                let (now, seen) = (moment(*now), moment(*last_seen));
                write!(out, "this host's clock shows {now}, but metadata was signed at {seen}: the later time is used")
            }
            Self::OlderIgnored { trusted, offered } => {
                write!(
                    out,
                    "the offered metadata (timestamp version {offered}) is older than the trusted metadata ({trusted}): ignored"
                )
            }
            Self::UnknownSumsKey => out.write_str(
                "SHA256SUMS.minisig is by a key that does not sign for this repository now (replaced since, or a stranger's): \
                 checking with minisign proves nothing; the metadata vouches for the files",
            ),
        }
    }
}
