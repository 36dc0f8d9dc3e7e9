//! Why something is not trusted, in words that tell which role, which version, which key, and since when.

use super::metadata::Role;
use crate::failure::{Class, moment};
use jiff::{SignedDuration, Timestamp};
use std::fmt;

/// Why metadata or a target is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustError {
    /// The file is larger than any of its role may be.
    TooLarge {
        /// Its name.
        file: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The file is no metadata of the expected kind.
    Malformed {
        /// Its name.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Too few distinct, valid signatures by the keys that count.
    Unsigned {
        /// Whose file.
        role: Role,
        /// Its version.
        version: u64,
        /// The version of the root whose keys count.
        root_version: u64,
        /// How many of them signed.
        valid: usize,
        /// How many are needed.
        threshold: u64,
        /// The keyids that count, and didn't sign.
        missing: Vec<String>,
    },
    /// A root has another version than its place in the chain says.
    RootVersion {
        /// The version that comes next.
        expected: u64,
        /// The version in the file.
        found: u64,
    },
    /// The chain of roots has a hole.
    RootGap {
        /// The newest root trusted here.
        trusted: u64,
        /// The next one that is offered.
        offered: u64,
    },
    /// More new roots than are followed in one go.
    TooManyRoots {
        /// The limit.
        limit: u64,
    },
    /// A root of the same version as the trusted one says something else.
    OtherRepository {
        /// That version.
        version: u64,
    },
    /// Older than what this host has already seen.
    Rollback {
        /// Whose file is the older one.
        file: String,
        /// The version seen here.
        trusted: u64,
        /// The version offered.
        offered: u64,
    },
    /// A newer snapshot no longer lists a file that an older one did.
    Vanished {
        /// The file.
        file: String,
    },
    /// Expired.
    Expired {
        /// Whose file.
        role: Role,
        /// Its version.
        version: u64,
        /// Since when.
        expired: Timestamp,
        /// The time it is here.
        now: Timestamp,
        /// What this host's clock shows, where a signed time is later, and only by that it is refused.
        clock: Option<Timestamp>,
        /// The grace that was granted and is over, too.
        grace: Option<SignedDuration>,
    },
    /// A file is not the one that the role above it names.
    Mismatch {
        /// The file.
        file: String,
        /// Who names it.
        named_by: Role,
        /// What differs: `length`, `digest`, `version`.
        what: &'static str,
    },
    /// A file that the role above names isn't there.
    Missing {
        /// The file.
        file: String,
        /// Who names it.
        named_by: Role,
    },
    /// Too few distinct, valid signatures by the keys that a delegation gives a role.
    UnsignedDelegated {
        /// The delegated role.
        role: String,
        /// Its version.
        version: u64,
        /// The role that delegates to it, and whose keys count.
        by: String,
        /// How many of them signed.
        valid: usize,
        /// How many are needed.
        threshold: u64,
    },
    /// A delegated role's metadata has expired.
    ExpiredDelegated {
        /// The delegated role.
        role: String,
        /// Its version.
        version: u64,
        /// Since when.
        expired: Timestamp,
        /// The time it is here.
        now: Timestamp,
        /// What this host's clock shows, where a signed time is later, and only by that it is refused.
        clock: Option<Timestamp>,
    },
    /// The search for a target would have to look at more roles than allowed.
    TooManyDelegations {
        /// The target.
        target: String,
        /// The limit.
        limit: usize,
    },
    /// The search for a target would have to follow a longer chain of delegations than allowed.
    TooDeep {
        /// The target.
        target: String,
        /// The role that lies too deep.
        role: String,
        /// The limit.
        limit: usize,
    },
    /// Whether there is a file, and what is in it, could not be found out.
    Unreachable {
        /// The file.
        file: String,
        /// What came in the way.
        reason: String,
    },
    /// Signed once, and no longer.
    Withdrawn {
        /// The target.
        target: String,
        /// The version of the targets role that doesn't list it any more.
        version: u64,
    },
    /// Listed by nobody.
    Unlisted {
        /// The target.
        target: String,
        /// The version of the targets role that doesn't list it.
        version: u64,
    },
    /// It can't be known whether it is listed.
    Unknown {
        /// The target.
        target: String,
        /// Why not.
        reason: String,
    },
    /// A checksum list or its signature isn't what this repository would have written.
    Minisign {
        /// What is wrong.
        reason: String,
    },
}

impl TrustError {
    /// Every one of these means: not trusted. What could not be reached is no verdict on trust.
    pub fn class(&self) -> Class {
        if matches!(self, Self::Unreachable { .. }) { Class::Failed } else { Class::NotTrusted }
    }

    /// What an operator can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::RootGap { .. } => {
                "export the bundle again with a current sidle: it carries every root from the first"
            }
            Self::OtherRepository { .. } | Self::Unsigned { role: Role::Root, .. } => {
                "compare `sidle trust show` with the fingerprint that the repository's owner gives out"
            }
            Self::Expired { clock: Some(_), .. } | Self::ExpiredDelegated { clock: Some(_), .. } => {
                "set this host's clock if it is behind; if it is right, the signature had a wrong date: `sidle trust reset-clock` forgets it"
            }
            Self::Expired { role: Role::Root | Role::Targets, .. } => {
                "check this host's clock; else ask for a bundle that was published since (`sidle repo publish`, `sidle export`)"
            }
            Self::Expired { .. } => {
                "check this host's clock; else export a fresh bundle (`sidle repo publish`, `sidle export`)"
            }
            Self::Withdrawn { .. } => "install a release that is still published",
            Self::Missing { .. } | Self::Unknown { .. } => "export the bundle again: it carries the whole metadata",
            Self::Unlisted { .. } => {
                "ask the repository's owner to publish it (`sidle repo publish`) and to export it again (`sidle export`)"
            }
            Self::TooLarge { .. }
            | Self::Malformed { .. }
            | Self::Unsigned { .. }
            | Self::Mismatch { .. }
            | Self::Minisign { .. } => {
                "the file was damaged or changed on its way: get it again from the repository's owner"
            }
            Self::UnsignedDelegated { .. }
            | Self::ExpiredDelegated { .. }
            | Self::TooManyDelegations { .. }
            | Self::TooDeep { .. } => "tell the repository's owner: a role that it delegates to is not in order",
            Self::Unreachable { .. } => "check the way to the repository, then try again",
            Self::TooManyRoots { .. } => "run it again: each run follows as many, and what it came to trust is kept",
            Self::Rollback { .. } => {
                "get a newer bundle, or name a mirror that is up to date; if there is none, ask the repository's owner"
            }
            Self::RootVersion { .. } | Self::Vanished { .. } => {
                "ask the repository's owner: no repository that is in order publishes that"
            }
        };
        Some(hint.to_owned())
    }
}

impl fmt::Display for TrustError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { file, limit_bytes } => {
                write!(out, "cannot trust {file}: it is larger than {limit_bytes} bytes")
            }
            Self::Malformed { file, reason } => write!(out, "cannot read {file}: {reason}"),
            Self::Unsigned { role, version, root_version, valid, threshold, missing } => {
                write!(
                    out,
                    "cannot trust {role} metadata version {version}: {valid} of {threshold} needed signatures are valid under root version {root_version}"
                )?;
                if missing.is_empty() { Ok(()) } else { write!(out, "; none from {}", missing.join(", ")) }
            }
            Self::RootVersion { expected, found } => {
                write!(out, "cannot trust {expected}.root.json: it says it is version {found}")
            }
            Self::RootGap { trusted, offered } => write!(
                out,
                "cannot follow the roots from version {trusted}, trusted here, to version {offered}: those between are missing"
            ),
            Self::TooManyRoots { limit } => write!(out, "cannot follow more than {limit} new roots at once"),
            Self::OtherRepository { version } => write!(
                out,
                "cannot trust this metadata: it is another repository's (its root version {version} is not the one trusted here)"
            ),
            Self::Rollback { file, trusted, offered } => {
                write!(out, "cannot go back to {file} version {offered}: version {trusted} has been seen here")
            }
            Self::Vanished { file } => write!(out, "cannot trust snapshot metadata that no longer lists {file}"),
            Self::Expired { role, version, expired, now, clock, grace } => {
                write!(out, "cannot trust {role} metadata version {version}: ")?;
                tell_expiry(out, *expired, *now, *clock)?;
                grace.map_or(Ok(()), |grace| write!(out, "; the grace of {} days is over, too", grace.as_hours() / 24))
            }
            Self::Mismatch { file, named_by, what } => {
                write!(out, "cannot trust {file}: its {what} is not the one that {named_by} metadata names")
            }
            Self::Missing { file, named_by } => write!(out, "cannot find {file}, which {named_by} metadata names"),
            Self::UnsignedDelegated { role, version, by, valid, threshold } => write!(
                out,
                "cannot trust version {version} of the delegated role {role:?}: {valid} of the {threshold} signatures that {by:?} asks for are valid"
            ),
            Self::ExpiredDelegated { role, version, expired, now, clock } => {
                write!(out, "cannot trust version {version} of the delegated role {role:?}: ")?;
                tell_expiry(out, *expired, *now, *clock)
            }
            Self::TooManyDelegations { target, limit } => {
                write!(out, "cannot look for {target} in more than {limit} delegated roles")
            }
            Self::TooDeep { target, role, limit } => write!(
                out,
                "cannot look for {target} in the delegated role {role:?}: it lies more than {limit} delegations deep"
            ),
            Self::Unreachable { file, reason } => write!(out, "cannot get {file}: {reason}"),
            Self::Withdrawn { target, version } => {
                write!(
                    out,
                    "cannot trust {target}: it has been withdrawn (targets version {version}, trusted here, doesn't list it)"
                )
            }
            Self::Unlisted { target, version } => {
                write!(out, "cannot trust {target}: it is signed by nobody (targets version {version} doesn't list it)")
            }
            Self::Unknown { target, reason } => write!(out, "cannot tell whether {target} is signed: {reason}"),
            Self::Minisign { reason } => write!(out, "cannot trust SHA256SUMS: {reason}"),
        }
    }
}

fn tell_expiry(
    out: &mut fmt::Formatter<'_>,
    expired: Timestamp,
    now: Timestamp,
    clock: Option<Timestamp>,
) -> fmt::Result {
    write!(out, "it expired at {}, and it is {}", moment(expired), moment(now))?;
    let Some(clock) = clock else { return Ok(()) };
    write!(out, " by a signature that was seen here, while this host's clock shows {}", moment(clock))
}

impl std::error::Error for TrustError {}
