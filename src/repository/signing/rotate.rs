//! Changes the keys and thresholds of roles, and the delegated roles. A next root waits for signatures by the old root's keys and by its
//! own.

use crate::repository::init::check_keys;
use crate::repository::pending::Draft;
use crate::repository::role::{RoleName, SignedRole};
use crate::repository::stage::Discarded;
use crate::repository::state::Delegation;
use crate::repository::{Repository, RepositoryError};
use crate::trust::metadata::{Root, Signed};
use crate::trust::publish::{Edition, Lifetimes, RoleKeys, root};
use crate::trust::scheme::Key;
use crate::trust::{KeyId, PublicKey, Role};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The role whose keys change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotatedRole {
    /// One top-level role, or snapshot and timestamp together (`online`).
    Top(Vec<Role>),
    /// A delegated role, whose keys the targets role names.
    Delegated(RoleName),
}

impl FromStr for RotatedRole {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match Role::ALL.into_iter().find(|role| role.as_str() == text) {
            Some(role) => Ok(Self::Top(vec![role])),
            None if text == "online" => Ok(Self::Top(vec![Role::Snapshot, Role::Timestamp])),
            None => text.parse().map(Self::Delegated),
        }
    }
}

/// A change of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The role.
    pub role: RotatedRole,
    /// The keys to add.
    pub add: Vec<PublicKey>,
    /// The keys to remove.
    pub remove: Vec<KeyId>,
    /// The new threshold; None: as before.
    pub threshold: Option<u64>,
}

impl Repository {
    /// Drafts the change on top of earlier drafts, whose signatures become void. Without a change of keys the root is renewed.
    pub fn rotate(
        &mut self,
        rotation: &Rotation,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Vec<Discarded>, RepositoryError> {
        match &rotation.role {
            RotatedRole::Top(roles) => self.rotate_root(roles, rotation, lifetimes, now),
            RotatedRole::Delegated(name) => {
                let found = self.state.delegations.iter_mut().find(|one| one.name == *name);
                let delegation = found.ok_or_else(|| RepositoryError::NoRole { role: name.to_string() })?;
                delegation.keys = rotated(name.as_str(), &delegation.keys, rotation)?;
                self.state.store(&self.place)?;
                self.stage(lifetimes, now)
            }
        }
    }

    fn rotate_root(
        &mut self,
        rotated_roles: &[Role],
        rotation: &Rotation,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Vec<Discarded>, RepositoryError> {
        let (published, mut pending) = self.load()?;
        let base = pending.root.as_ref().map(|draft| &draft.file).or(published.root.as_ref());
        let base = base.ok_or_else(|| RepositoryError::NoRepository { path: self.path().to_owned() })?;
        let mut roles = BTreeMap::new();
        for role in Role::ALL {
            let keys = role_keys(base, role)?;
            let is_rotated = rotated_roles.contains(&role);
            roles.insert(role, if is_rotated { rotated(role.as_str(), &keys, rotation)? } else { keys });
        }
        let version = published.root_version() + 1;
        let edition = Edition { version, signed: now, lifetime: lifetimes.root };
        let file = SignedRole::Root.file(version);
        let draft = Draft::new(&file, &root(edition, &roles, &[])?)?;
        let mut discarded = Vec::new();
        if let Some(old) = pending.root.replace(draft).filter(|old| !old.signatures.is_empty()) {
            discarded.push(Discarded { file, keys: old.signatures.into_keys().collect() });
        }
        // Targets that need signatures by the new keys wait from now on, too.
        if published.set.is_some() || !pending.targets.is_empty() {
            discarded.extend(self.draft(&published, &mut pending, lifetimes, now)?);
        }
        pending.store(&self.place)?;
        Ok(discarded)
    }

    /// Lets a role sign the targets of its patterns from the next publish on, or changes the role of this name. Fitting releases move into
    /// it.
    pub fn delegate(&mut self, delegation: Delegation) -> Result<(), RepositoryError> {
        check_keys(delegation.name.as_str(), &delegation.keys)?;
        if delegation.paths.is_empty() {
            return Err(RepositoryError::NoPaths { role: delegation.name.to_string() });
        }
        match self.state.delegations.iter_mut().find(|one| one.name == delegation.name) {
            Some(there) => *there = delegation,
            None => self.state.delegations.push(delegation),
        }
        self.state.store(&self.place)
    }

    /// Removes a delegated role from the next publish on. Its releases move back to the next fitting role.
    pub fn undelegate(&mut self, name: &RoleName) -> Result<(), RepositoryError> {
        let place = self.state.delegations.iter().position(|one| one.name == *name);
        self.state.delegations.remove(place.ok_or_else(|| RepositoryError::NoRole { role: name.to_string() })?);
        self.state.store(&self.place)
    }

    /// The delegations, in order of precedence.
    pub fn delegations(&self) -> &[Delegation] {
        &self.state.delegations
    }
}

/// The keys of a role, if this program can write them.
fn role_keys(base: &Signed<Root>, role: Role) -> Result<RoleKeys, RepositoryError> {
    let old = base.body.rule(role);
    let key = |keyid: &KeyId| match base.body.keys.get(keyid) {
        Some(Key::Ed25519(key)) => Ok(*key),
        _ => Err(RepositoryError::Keys {
            role: role.to_string(),
            reason: format!("its key {keyid} is not Ed25519, the only kind that sidle writes"),
        }),
    };
    Ok(RoleKeys { keys: old.keyids.iter().map(key).collect::<Result<_, _>>()?, threshold: old.threshold })
}

fn rotated(role: &str, old: &RoleKeys, rotation: &Rotation) -> Result<RoleKeys, RepositoryError> {
    let mut keys = old.keys.clone();
    for keyid in &rotation.remove {
        let place = keys.iter().position(|key| key.keyid() == *keyid);
        let reason =
            || RepositoryError::Keys { role: role.to_owned(), reason: format!("{keyid} is not one of its keys") };
        keys.remove(place.ok_or_else(reason)?);
    }
    keys.extend(rotation.add.iter().copied());
    let rotated = RoleKeys { keys, threshold: rotation.threshold.unwrap_or(old.threshold) };
    check_keys(role, &rotated)?;
    Ok(rotated)
}
