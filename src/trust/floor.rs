//! What verification starts from and ends with: the host's floor, how strict expiry is, and what an operator should know.

use super::role::Role;
use crate::failure::moment;
use jiff::{SignedDuration, Timestamp as Time};
use std::collections::BTreeMap;
use std::fmt;

/// Metadata files by the name they have in a repository's `metadata/`: `1.root.json`, `timestamp.json`, …
pub type MetadataFiles = BTreeMap<String, Vec<u8>>;

/// Delegated roles' files by role name, as received. A host may keep them, to ask for less the next time: they are verified again for each use,
/// against the delegation that leads to them, so a wrong one costs a request and no more.
pub type DelegatedFiles = BTreeMap<String, Vec<u8>>;

/// What a host has come to trust, as bytes: the anti-rollback floor. The host's trust_store stores it; nothing else may.
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
    /// The newest files of delegated roles, as far as they have come this way. They are verified again for each use.
    pub delegated: DelegatedFiles,
    /// The latest time at which root or targets were signed: it is surely past, also for a host whose clock is behind. Never taken from this
    /// host's clock, and never from timestamp or snapshot: their keys lie on a server, and one that was stolen could date a signature a year
    /// ahead, from when on all that is honest would have expired, also under a new root. Nothing is lost by that against who holds metadata
    /// back: what a host has seen it doesn't go back from, whatever the time, and a thief of online keys would date nothing honestly.
    pub last_seen: Option<Time>,
}

impl Floor {
    /// The floor of a host that trusts `root` and has seen nothing else.
    pub fn new(root: Vec<u8>) -> Self {
        Self { root, timestamp: None, snapshot: None, targets: None, delegated: DelegatedFiles::new(), last_seen: None }
    }

    /// The top-level metadata there is, by role.
    pub fn files(&self) -> Vec<(Role, &[u8])> {
        let optional =
            [(Role::Targets, &self.targets), (Role::Snapshot, &self.snapshot), (Role::Timestamp, &self.timestamp)];
        let there = optional.into_iter().filter_map(|(role, bytes)| bytes.as_deref().map(|bytes| (role, bytes)));
        std::iter::once((Role::Root, self.root.as_slice())).chain(there).collect()
    }
}

/// What an expired file means. Root and targets are refused in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Expired is refused: for what is fetched now.
    Strict,
    /// Timestamp and snapshot may be late by `grace`, with a warning: for what was carried by hand.
    ByHand {
        /// How late.
        grace: SignedDuration,
    },
}

impl Expiry {
    /// By hand, with the grace that holds where the settings don't say.
    pub const BY_HAND: Self = Self::ByHand { grace: BY_HAND_GRACE };
}

/// By-hand grace where the settings don't say: 90 days.
pub const BY_HAND_GRACE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Something an operator should know, which refuses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Expired, within the grace.
    Late {
        /// Whose file.
        role: Role,
        /// Its version.
        version: u64,
        /// Since when.
        expired: Time,
        /// From then on it is refused.
        refused_from: Time,
    },
    /// This host's clock shows a time before one that trusted metadata was signed at.
    ClockBehind {
        /// The clock.
        now: Time,
        /// The signed time.
        last_seen: Time,
    },
    /// What was offered is older than what is trusted here, and was ignored.
    OlderIgnored {
        /// The timestamp version trusted here.
        trusted: u64,
        /// The timestamp version offered.
        offered: u64,
    },
    /// The checksum list is signed by a key that signs for nothing in this repository now: one that was replaced (which a host that has the newest
    /// root alone can't know), or a stranger's. What is trusted rests on the metadata; who checks with minisign should know.
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
                    "the metadata offered (timestamp version {offered}) is older than what is trusted here ({trusted}): ignored"
                )
            }
            Self::UnknownSumsKey => out.write_str(
                "SHA256SUMS.minisig is by a key that does not sign for this repository now (replaced since, or a stranger's): \
                 checking with minisign proves nothing; the metadata vouches for the files",
            ),
        }
    }
}
