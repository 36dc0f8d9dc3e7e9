//! The keys whose signatures a file needs, and how many of them.

use crate::repository::role::RoleName;
use crate::trust::delegation::Delegated;
use crate::trust::metadata::{Body, Root, Signed, Targets};
use crate::trust::publish::RoleKeys;
use crate::trust::scheme::{Key, KeyRule};
use crate::trust::verify::valid_signatures;
use crate::trust::{KeyId, PublicKey, Role};
use std::collections::{BTreeMap, BTreeSet};

/// The signatures that a file needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repository) struct Rule {
    /// The source of the rule: `root version 1`.
    pub(in crate::repository) by: String,
    needed: KeyRule,
    keys: BTreeMap<KeyId, Key>,
}

impl Rule {
    /// A root's rule for a top-level role.
    pub(in crate::repository) fn of_root(root: &Signed<Root>, role: Role) -> Self {
        let by = format!("root version {}", root.header.version);
        Self { by, needed: root.body.rule(role).clone(), keys: root.body.keys.clone() }
    }

    /// The author's rule for a delegated role.
    pub(in crate::repository) fn of_keys(by: &str, keys: &RoleKeys) -> Self {
        let needed = KeyRule { keyids: keys.keys.iter().map(PublicKey::keyid).collect(), threshold: keys.threshold };
        let keys = keys.keys.iter().map(|key| (key.keyid(), Key::Ed25519(*key))).collect();
        Self { by: by.to_owned(), needed, keys }
    }

    /// A targets file's rule for a role that it delegates to by name.
    pub(in crate::repository) fn of_delegation(targets: &Signed<Targets>, name: &RoleName) -> Option<Self> {
        let delegations = targets.body.delegations.as_ref()?;
        let Delegated::Named(roles) = &delegations.roles else { return None };
        let role = roles.iter().find(|role| role.name == name.as_str())?;
        let by = format!("targets version {}", targets.header.version);
        Some(Self { by, needed: role.rule.clone(), keys: delegations.keys.clone() })
    }

    /// The keyids under which a signature of this key counts.
    pub(in crate::repository) fn keyids(&self, key: &PublicKey) -> impl Iterator<Item = &KeyId> {
        let key = Key::Ed25519(*key);
        self.needed.keyids.iter().filter(move |keyid| self.keys.get(*keyid) == Some(&key))
    }

    /// True when a signature of this key counts.
    pub(in crate::repository) fn counts(&self, key: &PublicKey) -> bool {
        self.keyids(key).next().is_some()
    }

    /// The keys that count.
    pub(in crate::repository) fn public_keys(&self) -> BTreeSet<PublicKey> {
        let keys = self.needed.keyids.iter().filter_map(|keyid| self.keys.get(keyid));
        keys.filter_map(|key| if let Key::Ed25519(key) = key { Some(*key) } else { None }).collect()
    }

    /// The number of signatures that are needed.
    pub(in crate::repository) fn threshold(&self) -> u64 {
        self.needed.threshold
    }

    /// True when enough of these keys have signed.
    pub(in crate::repository) fn is_met_by<'a>(&self, signers: impl IntoIterator<Item = &'a PublicKey>) -> bool {
        let signed: BTreeSet<&PublicKey> = signers.into_iter().filter(|key| self.counts(key)).collect();
        signed.len() as u64 >= self.needed.threshold
    }

    /// True when the file carries enough valid signatures.
    pub(in crate::repository) fn is_met_in<T: Body>(&self, file: &Signed<T>) -> bool {
        valid_signatures(file, &self.needed, &self.keys).0 as u64 >= self.needed.threshold
    }
}
