//! Why something is not trusted, and the remedy.

use super::role::Role;
use crate::failure::{Class, moment};
use jiff::{SignedDuration, Timestamp};

/// Why metadata or a target is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum TrustError {
    /// The file is larger than any file of its role may be.
    #[error("cannot trust {file}: it is larger than {limit_bytes} bytes")]
    TooLarge { file: String, limit_bytes: usize },
    /// The file is not metadata of the expected kind.
    #[error("cannot read {file}: {reason}")]
    Malformed { file: String, reason: String },
    /// Too few distinct, valid signatures by the keys of root version `root_version`; `missing` names the keyids without one.
    #[error(
        "cannot trust {role} metadata version {version}: {valid} of {threshold} needed signatures are valid under root version {root_version}{}",
        none_from(.missing)
    )]
    Unsigned { role: Role, version: u64, root_version: u64, valid: usize, threshold: u64, missing: Vec<String> },
    /// A root's version is not the next in the chain.
    #[error("cannot trust {expected}.root.json: it says it is version {found}")]
    RootVersion { expected: u64, found: u64 },
    /// The chain of roots has a hole.
    #[error(
        "cannot follow the roots from version {trusted}, trusted here, to version {offered}: the roots between are missing"
    )]
    RootGap { trusted: u64, offered: u64 },
    /// More new roots than one run follows.
    #[error("cannot follow more than {limit} new roots at once")]
    TooManyRoots { limit: u64 },
    /// A root of the trusted one's version has other content.
    #[error(
        "cannot trust this metadata: it belongs to another repository (its root version {version} is not the trusted one)"
    )]
    OtherRepository { version: u64 },
    /// The file is older than this host has already seen.
    #[error("cannot go back to {file} version {offered}: this host has seen version {trusted}")]
    Rollback { file: String, trusted: u64, offered: u64 },
    /// A newer snapshot no longer lists a file.
    #[error("cannot trust snapshot metadata that no longer lists {file}")]
    Vanished { file: String },
    /// Expired; `clock`: the host's clock, where only a later signed time makes this expired; `grace`: already over, too.
    #[error("cannot trust {role} metadata version {version}: {}{}", expiry(*.expired, *.now, *.clock), over(*.grace))]
    Expired {
        role: Role,
        version: u64,
        expired: Timestamp,
        now: Timestamp,
        clock: Option<Timestamp>,
        grace: Option<SignedDuration>,
    },
    /// A file's `what` (length, digest, version) is not the one that the role above it names.
    #[error("cannot trust {file}: its {what} differs from {named_by} metadata")]
    Mismatch { file: String, named_by: Role, what: &'static str },
    /// A file that the role above names isn't there.
    #[error("cannot find {file}, which {named_by} metadata names")]
    Missing { file: String, named_by: Role },
    /// Too few distinct, valid signatures by the keys that the role `by` gives a delegated role.
    #[error(
        "cannot trust version {version} of the delegated role {role:?}: {valid} of {threshold} signatures required by {by:?} are valid"
    )]
    UnsignedDelegated { role: String, version: u64, by: String, valid: usize, threshold: u64 },
    /// A delegated role's metadata has expired; `clock` as in [`Self::Expired`].
    #[error("cannot trust version {version} of the delegated role {role:?}: {}", expiry(*.expired, *.now, *.clock))]
    ExpiredDelegated { role: String, version: u64, expired: Timestamp, now: Timestamp, clock: Option<Timestamp> },
    /// The search for a target would have to read too many roles.
    #[error("cannot look for {target} in more than {limit} delegated roles")]
    TooManyDelegations { target: String, limit: usize },
    /// The search for a target would have to follow a too long chain of delegations.
    #[error("cannot look for {target} in the delegated role {role:?}: it is more than {limit} delegations deep")]
    TooDeep { target: String, role: String, limit: usize },
    /// The file could not be fetched.
    #[error("cannot get {file}: {reason}")]
    Unreachable { file: String, reason: String },
    /// Signed once, and no longer listed by this version of the targets role.
    #[error("cannot trust {target}: it has been withdrawn (targets version {version}, trusted here, doesn't list it)")]
    Withdrawn { target: String, version: u64 },
    /// No role lists the target.
    #[error("cannot trust {target}: it is not signed (targets version {version} doesn't list it)")]
    Unlisted { target: String, version: u64 },
    /// Whether the target is listed can't be known.
    #[error("cannot tell whether {target} is signed: {reason}")]
    Unknown { target: String, reason: String },
    /// SHA256SUMS or its signature isn't the one that this repository would have written.
    #[error("cannot trust SHA256SUMS: {reason}")]
    Minisign { reason: String },
}

fn none_from(missing: &[String]) -> String {
    if missing.is_empty() { String::new() } else { format!("; none from {}", missing.join(", ")) }
}

fn over(grace: Option<SignedDuration>) -> String {
    grace.map_or_else(String::new, |grace| format!("; the grace of {} days is over, too", grace.as_hours() / 24))
}

fn expiry(expired: Timestamp, now: Timestamp, clock: Option<Timestamp>) -> String {
    let because = clock.map_or_else(String::new, |clock| {
        format!(" by a signature that was seen here, while this host's clock shows {}", moment(clock))
    });
    format!("it expired at {}, and it is {}{because}", moment(expired), moment(now))
}

impl TrustError {
    /// A file that can't be reached is no verdict on trust; every other error means not trusted.
    pub fn class(&self) -> Class {
        if matches!(self, Self::Unreachable { .. }) { Class::Failed } else { Class::NotTrusted }
    }

    /// A remedy for the operator.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::RootGap { .. } => {
                "export the bundle again with a current sidle: it carries every root from the first"
            }
            Self::OtherRepository { .. } | Self::Unsigned { role: Role::Root, .. } => {
                "compare `sidle trust show` with the fingerprint from the repository's owner"
            }
            Self::Expired { clock: Some(_), .. } | Self::ExpiredDelegated { clock: Some(_), .. } => {
                "set this host's clock if it is behind; if it is right, the signature had a wrong date: `sidle trust reset-clock` forgets it"
            }
            Self::Expired { role: Role::Root | Role::Targets, .. } => {
                "check this host's clock; else ask for a newer bundle (`sidle repo publish`, `sidle export`)"
            }
            Self::Expired { .. } => {
                "check this host's clock; else export a fresh bundle (`sidle repo publish`, `sidle export`)"
            }
            Self::Withdrawn { .. } => "install a release that is still published",
            Self::Missing { .. } | Self::Unknown { .. } => "export the bundle again: an export carries all metadata",
            Self::Unlisted { .. } => {
                "ask the repository's owner to publish it (`sidle repo publish`) and to export it again (`sidle export`)"
            }
            Self::Malformed { .. } => {
                "the file was damaged in transit, or its author wrote it so: get it again; if it is the same, tell the repository's owner"
            }
            Self::TooLarge { .. } | Self::Unsigned { .. } | Self::Mismatch { .. } | Self::Minisign { .. } => {
                "the file was damaged or changed in transit: get it again from the repository's owner"
            }
            Self::UnsignedDelegated { .. }
            | Self::ExpiredDelegated { .. }
            | Self::TooManyDelegations { .. }
            | Self::TooDeep { .. } => "tell the repository's owner: one of its delegated roles is broken",
            Self::Unreachable { .. } => "check the network path to the repository, then try again",
            Self::TooManyRoots { .. } => {
                "run the command again: each run follows that many roots and keeps its progress"
            }
            Self::Rollback { .. } => {
                "get a newer bundle, or name an up-to-date mirror; else ask the repository's owner"
            }
            Self::RootVersion { .. } | Self::Vanished { .. } => "ask the repository's owner: its metadata is broken",
        };
        Some(hint.to_owned())
    }
}
