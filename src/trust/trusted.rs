//! The newest targets that a host trusts, and what they say of a target: the top-level role's, and those of the roles that it delegates to.

use super::delegation::Delegated;
use super::error::TrustError;
use super::floor::{DelegatedFiles, Floor, MetadataFiles, Warning};
use super::key::{KeyId, PublicKey};
use super::metadata::{Signed, Target, Targets};
use super::minisign;
use super::role::Role;
use super::scheme::{Key, KeyRule};
use super::search::{Goal, Listed, Search};
use super::verify::{Delegation, Workflow};
use crate::digest::Digest;
use crate::failure::Report;
use std::collections::BTreeMap;

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

/// Judges metadata against what the host trusts. The host's trust store is the only authority; the store knows only this trait.
pub trait Authority {
    /// Adopts what is newer and valid, whatever comes of the rest, and gives the targets to look things up in.
    fn judge(&self, files: &MetadataFiles) -> Result<(TrustedTargets, Vec<Warning>), Report>;
}

/// The newest targets that a host trusts. Only the workflow makes one.
#[derive(Debug, Clone)]
pub struct TrustedTargets {
    workflow: Workflow,
    older_offered: bool,
    /// What is here of delegated roles: every use verifies it again, against the delegation that leads to it.
    files: DelegatedFiles,
    /// The delegated roles that some delegation vouches for.
    delegated: BTreeMap<String, Signed<Targets>>,
    /// The keys that sign for them.
    delegated_keys: Vec<PublicKey>,
    floor: Floor,
}

impl TrustedTargets {
    /// What the workflow has come to trust, with the delegated roles that are kept or offered.
    pub(super) fn new(
        workflow: &Workflow,
        kept: &DelegatedFiles,
        offered: &MetadataFiles,
        older_offered: bool,
    ) -> Self {
        let mut files = kept.clone();
        for (role, version) in workflow.named_delegated() {
            if let Some(bytes) = offered.get(&workflow.published_name(role, version)) {
                files.insert(role.to_owned(), bytes.clone());
            }
        }
        let mut trusted = Self {
            workflow: workflow.clone(),
            older_offered,
            files,
            delegated: BTreeMap::new(),
            delegated_keys: Vec::new(),
            floor: workflow.floor(),
        };
        if let Some(targets) = trusted.workflow.trusted_targets().cloned() {
            trusted.follow(Role::Targets.as_str(), &targets);
        }
        let kept = trusted.delegated.iter().map(|(role, file)| (role.clone(), file.bytes.clone()));
        trusted.floor.delegated.extend(kept);
        trusted
    }

    /// Verifies what is here of the roles that `by` delegates to, and of those that they delegate to in turn: each role once.
    fn follow(&mut self, by: &str, targets: &Signed<Targets>) {
        let Some(delegations) = &targets.body.delegations else { return };
        let heirs: Vec<(String, KeyRule)> = match &delegations.roles {
            Delegated::Named(roles) => roles.iter().map(|role| (role.name.clone(), role.rule.clone())).collect(),
            // There may be four thousand million bins; those that are here are few.
            Delegated::Succinct { rule, name_prefix, .. } => {
                let bins = self.files.keys().filter(|name| name.starts_with(&format!("{name_prefix}-")));
                bins.map(|name| (name.clone(), rule.clone())).collect()
            }
        };
        for (role, rule) in heirs {
            if self.delegated.contains_key(&role) {
                continue;
            }
            let Some(bytes) = self.files.get(&role) else { continue };
            let delegation = Delegation { role: &role, by, rule: &rule, keys: &delegations.keys };
            let verified = match self.workflow.delegated(&delegation, bytes) {
                // Everything else of it has been verified: what it would list is refused for its date, not unknown.
                Err(TrustError::ExpiredDelegated { .. }) => Signed::parse(&role, bytes).ok(),
                verified => verified.ok(),
            };
            if let Some(file) = verified {
                self.delegated_keys.extend(public_keys(&rule, &delegations.keys));
                self.delegated.insert(role.clone(), file.clone());
                self.follow(&role, &file);
            }
        }
    }

    /// Who lists the target. `Missing` where it isn't here what a role that may list it says.
    fn search(&self, name: &str) -> Result<Option<Listed>, TrustError> {
        let mut files = self.files.clone();
        let search = Search::start(&self.workflow, Goal::Target(name.to_owned()), &mut files)?;
        match search.request() {
            Some(request) => Err(TrustError::Missing { file: request.file, named_by: Role::Snapshot }),
            None => Ok(search.listed().cloned()),
        }
    }

    /// What is known of the target of this name.
    pub fn lookup(&self, name: &str) -> Verdict {
        let Some(version) = self.version() else {
            return Verdict::Unknown {
                reason: "no targets metadata is there that the trusted snapshot names".to_owned(),
            };
        };
        match self.search(name) {
            Ok(Some(listed)) => Verdict::Listed(listed.target),
            Ok(None) if self.older_offered => Verdict::Withdrawn { version },
            Ok(None) => Verdict::Unlisted { version },
            Err(TrustError::Missing { file, .. }) => {
                Verdict::Unknown { reason: format!("{file}, whose role may list it, is not here") }
            }
            Err(error) => Verdict::Unknown { reason: error.to_string() },
        }
    }

    /// The target of this name, if it is signed with this digest. A name that is signed with another digest counts as withdrawn:
    /// the owner has replaced it.
    pub fn require(&self, name: &str, digest: &Digest) -> Result<Target, TrustError> {
        let (listed, target) = (self.find(name)?, name.to_owned());
        match listed.hashes.sha256 {
            Some(signed) if signed == *digest => return Ok(listed),
            None => {
                return Err(TrustError::Unknown { target, reason: "it is signed without a SHA-256 digest".to_owned() });
            }
            Some(_) => {}
        }
        let version = self.version().unwrap_or_default();
        Err(if self.older_offered {
            TrustError::Withdrawn { target, version }
        } else {
            TrustError::Unlisted { target, version }
        })
    }

    /// The target of this name; an error that says why there is none to trust.
    pub fn find(&self, name: &str) -> Result<Target, TrustError> {
        let target = name.to_owned();
        match self.lookup(name) {
            Verdict::Listed(listed) => Ok(listed),
            Verdict::Withdrawn { version } => Err(TrustError::Withdrawn { target, version }),
            Verdict::Unlisted { version } => Err(TrustError::Unlisted { target, version }),
            Verdict::Unknown { reason } => match self.search(name) {
                // A delegated role that isn't in order says so itself.
                Err(error) if !matches!(error, TrustError::Missing { .. }) => Err(error),
                _ => Err(TrustError::Unknown { target, reason }),
            },
        }
    }

    /// Everything that is listed, by name: what a search would find in the roles that are here.
    pub fn listed(&self) -> impl Iterator<Item = (&str, &Target)> {
        let top = self.workflow.trusted_targets().into_iter().flat_map(|targets| &targets.body.targets);
        let top = top.map(|(name, target)| (name.as_str(), target));
        let delegated = self.delegated.iter().flat_map(|(role, file)| {
            let found = |name: &str| matches!(self.search(name), Ok(Some(listed)) if listed.role == *role);
            let targets = file.body.targets.iter().filter(move |(name, _)| found(name));
            targets.map(|(name, target)| (name.as_str(), target))
        });
        top.chain(delegated)
    }

    /// The version of the top-level targets role, if it is there.
    pub fn version(&self) -> Option<u64> {
        self.workflow.trusted_targets().map(|targets| targets.header.version)
    }

    /// The metadata that authorises what is listed: what a receipt keeps.
    pub fn authority(&self) -> &Floor {
        &self.floor
    }

    /// The keys that may sign for the targets role.
    pub fn targets_keys(&self) -> Vec<PublicKey> {
        let root = &self.workflow.root().body;
        public_keys(root.rule(Role::Targets), &root.keys).collect()
    }

    /// Checks the minisign signature of a checksum list (whose text the caller has compared with the digests it must have): exactly what
    /// `repo publish` writes, by a key of the targets role or of one that it delegates to. Another key is a warning: old releases have the
    /// signature of a key that was replaced since, and what is trusted rests on the metadata alone; the list serves checks without sidle.
    pub fn check_sums_signature(&self, list: &[u8], signature: &[u8]) -> Result<Option<Warning>, TrustError> {
        let refuse = |reason: &str| TrustError::Minisign { reason: reason.to_owned() };
        let signature = minisign::Minisig::parse(signature).map_err(|reason| refuse(&reason))?;
        let keys = [self.targets_keys(), self.delegated_keys.clone()].concat();
        match keys.iter().find(|key| minisign::key_number(key) == signature.key_number()) {
            Some(key) if signature.verifies(key, list) => Ok(None),
            Some(_) => Err(refuse("its minisign signature is not valid")),
            None => Ok(Some(Warning::UnknownSumsKey)),
        }
    }
}

fn public_keys(rule: &KeyRule, keys: &BTreeMap<KeyId, Key>) -> impl Iterator<Item = PublicKey> {
    let keys = rule.keyids.iter().filter_map(|keyid| keys.get(keyid));
    keys.filter_map(|key| if let Key::Ed25519(key) = key { Some(*key) } else { None })
}
