//! The newest targets that a host trusts, of the top-level role and its delegated roles, and lookups in them.

use crate::digest::Digest;
use crate::failure::Report;
use crate::trust::delegation::Delegated;
use crate::trust::error::TrustError;
use crate::trust::floor::{DelegatedFiles, Floor, MetadataFiles, Warning};
use crate::trust::key::{KeyId, PublicKey};
use crate::trust::metadata::{Signed, Target, Targets};
use crate::trust::minisign;
use crate::trust::role::Role;
use crate::trust::scheme::{Key, KeyRule};
use crate::trust::search::{Goal, Held, Listed, Search};
use crate::trust::verify::{Delegation, Workflow};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Signed, with this length and digests.
    Listed(Target),
    /// The bundle's own, older metadata may list it; the host's newer targets don't.
    Withdrawn {
        /// The version of the newer targets.
        version: u64,
    },
    /// The newest targets don't list it, and no older metadata was brought.
    Unlisted {
        /// Their version.
        version: u64,
    },
    /// The role that would list it isn't here.
    Unknown {
        /// The role, and why.
        reason: String,
    },
}

/// Judges metadata against what the host trusts. The host's trust store is the only authority; the store knows only this trait.
pub trait Authority {
    /// Adopts newer valid metadata, also before an error, and returns the targets for lookups.
    fn judge(&self, files: &MetadataFiles) -> Result<(TrustedTargets, Vec<Warning>), Report>;
}

/// The newest targets that a host trusts. Only the workflow makes them.
#[derive(Debug, Clone)]
pub struct TrustedTargets {
    workflow: Workflow,
    older_offered: bool,
    /// Files of delegated roles. Each counts for the delegation that leads to it, and is verified against that.
    held: Held,
    /// The delegated roles that a delegation vouches for.
    delegated: BTreeMap<String, Arc<Signed<Targets>>>,
    /// Their keys.
    delegated_keys: Vec<PublicKey>,
    floor: Floor,
}

impl TrustedTargets {
    /// The workflow's result, with the kept and the offered delegated roles.
    pub(in crate::trust) fn new(
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
            held: Held::new(files),
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

    /// Verifies the files of the roles that `by` delegates to, and of their delegated roles in turn: each role once.
    fn follow(&mut self, by: &str, targets: &Signed<Targets>) {
        let Some(delegations) = &targets.body.delegations else { return };
        let heirs: Vec<(String, KeyRule)> = match &delegations.roles {
            Delegated::Named(roles) => roles.iter().map(|role| (role.name.clone(), role.rule.clone())).collect(),
            // There may be four thousand million bins; few of them are here.
            Delegated::Succinct { rule, name_prefix, .. } => {
                let bins = self.held.files().keys().filter(|name| name.starts_with(&format!("{name_prefix}-")));
                bins.map(|name| (name.clone(), rule.clone())).collect()
            }
        };
        for (role, rule) in heirs {
            if self.delegated.contains_key(&role) {
                continue;
            }
            let Some(bytes) = self.held.files().get(&role) else { continue };
            let delegation = Delegation { role: &role, by, rule: &rule, keys: &delegations.keys };
            let verified = match self.held.verified(&self.workflow, &delegation) {
                // Only its date is wrong: its targets are refused as expired, not unknown.
                Err(TrustError::ExpiredDelegated { .. }) => Signed::parse(&role, bytes).ok().map(Arc::new),
                verified => verified.ok(),
            };
            if let Some(file) = verified {
                self.delegated_keys.extend(public_keys(&rule, &delegations.keys));
                self.delegated.insert(role.clone(), Arc::clone(&file));
                self.follow(&role, &file);
            }
        }
    }

    /// The role and entry of the target. `Missing` where the file of a role that may list it isn't here.
    fn search(&self, name: &str) -> Result<Option<Listed>, TrustError> {
        let mut brought = DelegatedFiles::new();
        let goal = Goal::Target(name.to_owned());
        let search = Search::start(&self.workflow, goal, &mut brought, Some(&self.held))?;
        match search.request() {
            Some(request) => Err(TrustError::Missing { file: request.file, named_by: Role::Snapshot }),
            None => Ok(search.listed().cloned()),
        }
    }

    /// Looks up a target.
    pub fn lookup(&self, name: &str) -> Verdict {
        let Some(version) = self.version() else {
            return Verdict::Unknown {
                reason: "the targets metadata that the trusted snapshot names is missing".to_owned(),
            };
        };
        match self.search(name) {
            Ok(Some(listed)) => Verdict::Listed(listed.target),
            Ok(None) if self.older_offered => Verdict::Withdrawn { version },
            Ok(None) => Verdict::Unlisted { version },
            Err(TrustError::Missing { file, .. }) => {
                Verdict::Unknown { reason: format!("{file}, whose role may list it, is missing") }
            }
            Err(error) => Verdict::Unknown { reason: error.to_string() },
        }
    }

    /// The target, if it is signed with this digest. With another digest it counts as withdrawn: the owner has replaced it.
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

    /// The target; an error says why it is not trusted.
    pub fn find(&self, name: &str) -> Result<Target, TrustError> {
        let target = name.to_owned();
        match self.lookup(name) {
            Verdict::Listed(listed) => Ok(listed),
            Verdict::Withdrawn { version } => Err(TrustError::Withdrawn { target, version }),
            Verdict::Unlisted { version } => Err(TrustError::Unlisted { target, version }),
            Verdict::Unknown { reason } => match self.search(name) {
                // A broken delegated role has an error of its own.
                Err(error) if !matches!(error, TrustError::Missing { .. }) => Err(error),
                _ => Err(TrustError::Unknown { target, reason }),
            },
        }
    }

    /// All listed targets by name, in the roles that are here.
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

    /// The version of the top-level targets role.
    pub fn version(&self) -> Option<u64> {
        self.workflow.trusted_targets().map(|targets| targets.header.version)
    }

    /// The metadata that authorises the targets: a receipt keeps it.
    pub fn authority(&self) -> &Floor {
        &self.floor
    }

    /// The keys of the targets role.
    pub fn targets_keys(&self) -> Vec<PublicKey> {
        let root = &self.workflow.root().body;
        public_keys(root.rule(Role::Targets), &root.keys).collect()
    }

    /// Checks the minisign signature of a checksum list, whose digests the caller has compared: it must be exactly as `repo publish` writes
    /// it. An unknown key is only a warning: old releases have signatures of keys that were replaced since, and trust rests on the metadata
    /// alone.
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
