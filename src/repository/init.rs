//! Makes a repository: its first root, which hosts pin.

use super::pending::{Draft, Pending};
use super::role::SignedRole;
use super::rule::Rule;
use super::state::State;
use super::{DIRECTORY_MODE, METADATA, MODES, Repository, RepositoryError, TARGETS, has_first_root, lock};
use crate::digest::Digest;
use crate::os::place::{Effect, Place};
use crate::trust::publish::{Edition, Lifetimes, RoleKeys, root};
use crate::trust::{PublicKey, Role, Signer};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

impl Repository {
    /// Makes a repository at `path` whose first root gives the roles these keys. `signers` sign it; without enough root keys it waits for
    /// more signatures, and has no fingerprint yet. A dry run makes it in memory only. Returns the root's fingerprint: SHA-256 of
    /// `metadata/1.root.json`, which hosts pin.
    pub fn init(
        path: &Path,
        roles: &BTreeMap<Role, RoleKeys>,
        signers: &[&dyn Signer],
        (lifetimes, now): (&Lifetimes, Timestamp),
        effect: Effect,
    ) -> Result<(Self, Option<Digest>), RepositoryError> {
        for (role, keys) in roles {
            check_keys(role.as_str(), keys)?;
        }
        let edition = Edition { version: 1, signed: now, lifetime: lifetimes.root };
        let name = SignedRole::Root.file(1);
        let mut draft = Draft::new(&name, &root(edition, roles, &[])?)?;
        let rule = Rule::of_root(&draft.file, Role::Root);
        for signer in signers {
            draft.sign_root(*signer, &rule)?;
        }
        let place = Place::open_or_create(path, DIRECTORY_MODE, effect)?;
        let lock = lock(&place)?;
        place.make(Path::new(METADATA), DIRECTORY_MODE)?;
        if has_first_root(&place)? {
            return Err(RepositoryError::Exists { path: path.to_owned() });
        }
        place.make(Path::new(TARGETS), DIRECTORY_MODE)?;
        let state = State::default();
        state.store(&place)?;
        // Last: a directory with a root is a repository.
        let fingerprint = if draft.is_complete(std::slice::from_ref(&rule)) {
            let bytes = draft.assembled(std::slice::from_ref(&rule)).bytes;
            place.write(Path::new(METADATA).join(&name), &bytes, MODES)?;
            Some(Digest::of(&bytes))
        } else {
            Pending { root: Some(draft), ..Pending::default() }.store(&place)?;
            None
        };
        Ok((Self { place, state, _lock: lock }, fingerprint))
    }
}

/// Refuses a threshold of zero, or of more signatures than there are keys.
pub(super) fn check_keys(role: &str, keys: &RoleKeys) -> Result<(), RepositoryError> {
    let distinct: BTreeSet<&PublicKey> = keys.keys.iter().collect();
    let role = role.to_owned();
    if distinct.len() != keys.keys.len() {
        return Err(RepositoryError::Keys { role, reason: "one key is given twice".to_owned() });
    }
    if keys.threshold == 0 || keys.threshold > distinct.len() as u64 {
        let reason = format!("{} signatures by {} keys are impossible", keys.threshold, distinct.len());
        return Err(RepositoryError::Keys { role, reason });
    }
    Ok(())
}
