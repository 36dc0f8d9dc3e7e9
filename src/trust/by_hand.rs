//! Metadata carried by hand (in a bundle file) against the host's floor: newer is adopted, older is ignored, and what the bundle carries
//! is looked up in the newest targets the host trusts.

use super::error::TrustError;
use super::floor::{Expiry, Floor, Warning};
use super::key::PublicKey;
use super::metadata::{Role, Root, Signed, Target, Targets};
use super::minisign;
use super::refresh::{Answer, Refresh};
use super::scheme::Key;
use super::verify::{Offered, Workflow};
use crate::digest::Digest;
use jiff::Timestamp as Time;
use std::collections::BTreeMap;

/// Metadata files by the name they have in a repository's `metadata/`: `1.root.json`, `timestamp.json`, …
pub type MetadataFiles = BTreeMap<String, Vec<u8>>;

/// What a look at carried metadata gave.
#[derive(Debug)]
pub struct Verification {
    /// What the host trusts from now on. It is to be stored even when `targets` is an error: newer valid metadata is adopted all the same.
    pub floor: Floor,
    /// The files that are newly adopted, oldest authority first; empty: the floor needs no storing unless `floor.last_seen` grew.
    pub adopted: Vec<String>,
    /// What to tell the operator.
    pub warnings: Vec<Warning>,
    /// The targets to look things up in.
    pub targets: Result<TrustedTargets, TrustError>,
}

/// What is known of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Signed: these are its length and digests.
    Listed(Target),
    /// The bundle's own, older metadata may list it; the host's newer targets of this version don't.
    Withdrawn {
        /// That version.
        version: u64,
    },
    /// The newest targets don't list it, and nothing older was brought that might.
    Unlisted {
        /// Their version.
        version: u64,
    },
    /// It can't be known: the role that would list it isn't there.
    Unknown {
        /// Which, and why.
        reason: String,
    },
}

/// The newest targets that a host trusts. Only the workflow makes one.
#[derive(Debug, Clone)]
pub struct TrustedTargets {
    root: Signed<Root>,
    targets: Option<Signed<Targets>>,
    older_offered: bool,
    floor: Floor,
}

/// Verifies `files` against `floor` at the time `now`, as strict about expiry as `expiry` says.
pub fn verify(floor: &Floor, files: &MetadataFiles, now: Time, expiry: Expiry) -> Verification {
    let mut refresh = match Refresh::start(floor, now, expiry) {
        Ok(refresh) => refresh,
        Err(error) => {
            return Verification {
                floor: floor.clone(),
                adopted: Vec::new(),
                warnings: Vec::new(),
                targets: Err(error),
            };
        }
    };
    let outcome = drive(&mut refresh, files);
    let new = refresh.floor();
    let mut warnings = refresh.warnings().to_vec();
    if let (Ok(_), Some(Offered::Older { trusted, offered })) = (&outcome, refresh.offered()) {
        warnings.push(Warning::OlderIgnored { trusted, offered });
    }
    Verification { adopted: adopted(floor, &new), floor: new, warnings, targets: outcome }
}

fn drive(refresh: &mut Refresh, files: &MetadataFiles) -> Result<TrustedTargets, TrustError> {
    same_repository(refresh.workflow(), files)?;
    while let Some(request) = refresh.request() {
        let Some(bytes) = files.get(&request.file) else {
            if request.role == Role::Root.as_str() {
                no_later_root(refresh.workflow(), files)?;
            }
            match refresh.answer(Answer::NotFound) {
                // An export without the role that lists a target leaves it unknown; the lookup says so.
                Err(TrustError::Missing { .. }) if request.role == Role::Targets.as_str() => break,
                answered => answered?,
            }
            continue;
        };
        refresh.answer(Answer::File(bytes))?;
    }
    let workflow = refresh.workflow();
    Ok(TrustedTargets {
        root: workflow.root().clone(),
        targets: workflow.trusted_targets().cloned(),
        older_offered: matches!(refresh.offered(), Some(Offered::Older { .. })),
        floor: workflow.floor(),
    })
}

fn same_repository(workflow: &Workflow, files: &MetadataFiles) -> Result<(), TrustError> {
    let version = workflow.root().header.version;
    let file = format!("{version}.root.json");
    let Some(bytes) = files.get(&file) else { return Ok(()) };
    let same = Signed::<Root>::parse(&file, bytes)?.canonical == workflow.root().canonical;
    if same { Ok(()) } else { Err(TrustError::OtherRepository { version }) }
}

fn no_later_root(workflow: &Workflow, files: &MetadataFiles) -> Result<(), TrustError> {
    let trusted = workflow.root().header.version;
    let later = files.keys().filter_map(|name| root_version(name)).filter(|version| *version > trusted).min();
    later.map_or(Ok(()), |offered| Err(TrustError::RootGap { trusted, offered }))
}

/// 3 for `3.root.json`; None for every other name.
pub fn root_version(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".root.json")?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
    if plain { number.parse().ok() } else { None }
}

fn adopted(old: &Floor, new: &Floor) -> Vec<String> {
    let old = old.files();
    let is_new = |(role, bytes): &(Role, &[u8])| !old.contains(&(*role, *bytes));
    new.files().iter().filter(|file| is_new(file)).map(|(role, _)| role.file()).collect()
}

impl TrustedTargets {
    /// What is known of the target of this name.
    pub fn lookup(&self, name: &str) -> Verdict {
        let Some(targets) = &self.targets else {
            return Verdict::Unknown {
                reason: "no targets metadata is there that the trusted snapshot names".to_owned(),
            };
        };
        let version = targets.header.version;
        match targets.body.targets.get(name) {
            Some(target) => Verdict::Listed(target.clone()),
            None if targets.body.delegations.is_some() => Verdict::Unknown {
                reason: "the targets role delegates to other roles, which are not followed here".to_owned(),
            },
            None if self.older_offered => Verdict::Withdrawn { version },
            None => Verdict::Unlisted { version },
        }
    }

    /// The target of this name, if it is signed with this digest. A name that is signed with another digest counts as withdrawn:
    /// the owner has replaced it.
    pub fn require(&self, name: &str, digest: &Digest) -> Result<Target, TrustError> {
        let target = name.to_owned();
        match self.lookup(name) {
            Verdict::Listed(listed) if listed.hashes.sha256.as_ref() == Some(digest) => Ok(listed),
            Verdict::Listed(Target { hashes, .. }) if hashes.sha256.is_none() => {
                Err(TrustError::Unknown { target, reason: "it is signed without a SHA-256 digest".to_owned() })
            }
            Verdict::Listed(_) => {
                let version = self.version().unwrap_or_default();
                Err(if self.older_offered {
                    TrustError::Withdrawn { target, version }
                } else {
                    TrustError::Unlisted { target, version }
                })
            }
            Verdict::Withdrawn { version } => Err(TrustError::Withdrawn { target, version }),
            Verdict::Unlisted { version } => Err(TrustError::Unlisted { target, version }),
            Verdict::Unknown { reason } => Err(TrustError::Unknown { target, reason }),
        }
    }

    /// Everything that is listed, by name.
    pub fn listed(&self) -> impl Iterator<Item = (&str, &Target)> {
        self.targets.iter().flat_map(|targets| &targets.body.targets).map(|(name, target)| (name.as_str(), target))
    }

    /// The version of the targets role, if it is there.
    pub fn version(&self) -> Option<u64> {
        self.targets.as_ref().map(|targets| targets.header.version)
    }

    /// The metadata that authorises what is listed: what a receipt keeps.
    pub fn authority(&self) -> &Floor {
        &self.floor
    }

    /// The keys that may sign for the targets role.
    pub fn targets_keys(&self) -> Vec<PublicKey> {
        let keyids = &self.root.body.rule(Role::Targets).keyids;
        let keys = keyids.iter().filter_map(|keyid| self.root.body.keys.get(keyid));
        keys.filter_map(|key| if let Key::Ed25519(key) = key { Some(*key) } else { None }).collect()
    }

    /// Checks the minisign signature of a checksum list (whose text the caller has compared with the digests it must have): exactly what
    /// `repo publish` writes, by a targets key. A key that no longer signs for this repository is a warning: what is trusted rests on the
    /// metadata alone, the list serves checks without sidle.
    pub fn check_sums_signature(&self, list: &[u8], signature: &[u8]) -> Result<Option<Warning>, TrustError> {
        let refuse = |reason: &str| TrustError::Minisign { reason: reason.to_owned() };
        let signature = minisign::Minisig::parse(signature).map_err(|reason| refuse(&reason))?;
        match self.targets_keys().iter().find(|key| minisign::key_number(key) == signature.key_number()) {
            Some(key) if signature.verifies(key, list) => Ok(None),
            Some(_) => Err(refuse("its minisign signature is not valid")),
            None => Ok(Some(Warning::OldSumsKey)),
        }
    }
}
