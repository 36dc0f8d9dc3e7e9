//! Signs the waiting files with one person's key. A copy of `author/` and `metadata/` is enough: only the `.sig` files come back.

use crate::bundle::member::{ReleaseId, checksums};
use crate::repository::pending::{Draft, Note, Pending};
use crate::repository::published::Published;
use crate::repository::role::SignedRole;
use crate::repository::rule::Rule;
use crate::repository::stage::{Waiting, root_rules};
use crate::repository::{Repository, RepositoryError, TARGETS, release_path};
use crate::trust::metadata::Body;
use crate::trust::{PublicKey, Role, Signer, minisign};
use std::collections::BTreeMap;
use std::path::Path;

/// The result of signing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNow {
    /// The new signature files below `author/pending/`.
    pub files: Vec<String>,
    /// All waiting files, with the new signatures.
    pub waiting: Vec<Waiting>,
}

impl Repository {
    /// Signs every waiting file for which the key counts, once. A key that counts for no file is refused.
    pub fn sign(&mut self, signer: &dyn Signer) -> Result<SignedNow, RepositoryError> {
        let (published, mut pending) = self.load()?;
        if pending.root.is_none() && pending.targets.is_empty() {
            return Err(RepositoryError::NothingWaits { path: self.path().to_owned() });
        }
        let public = signer.public();
        if !self.waiting_rules(&published, &pending).iter().flatten().any(|rule| rule.counts(&public)) {
            return Err(Self::wrong_key(&published, &pending, &public));
        }
        let files = self.sign_drafts(&published, &mut pending, signer)?;
        pending.store(&self.place)?;
        Ok(SignedNow { files, waiting: self.waiting_in(&published, &pending) })
    }

    /// Signs in memory; returns the names of the signed files.
    pub(in crate::repository) fn sign_drafts(
        &self,
        published: &Published,
        pending: &mut Pending,
        signer: &dyn Signer,
    ) -> Result<Vec<String>, RepositoryError> {
        let public = signer.public();
        let mut files = Vec::new();
        let roles: Vec<SignedRole> = pending.targets.keys().cloned().collect();
        for role in roles {
            let needed = self.signing_rules(&role, published, pending);
            let draft = pending.targets.get_mut(&role).expect("the roles are its keys");
            if draft.may_take(&public, &needed) {
                let sums = self.sums(&role, published, &needed, signer)?;
                draft.sign(signer, sums)?;
                files.push(role.file(draft.file.header.version));
            }
        }
        if let Some(draft) = &mut pending.root {
            if draft.may_take(&public, &root_rules(published, &draft.file)) {
                draft.sign(signer, BTreeMap::new())?;
                files.push(SignedRole::Root.file(draft.file.header.version));
            }
        }
        Ok(files)
    }

    /// The rules under which a signature on a role's next file may count: the waiting root may never be published.
    fn signing_rules(&self, role: &SignedRole, published: &Published, pending: &Pending) -> Vec<Rule> {
        let mut rules = self.rules(role, published, pending);
        if *role == SignedRole::Targets {
            rules.extend(published.root.as_ref().map(|root| Rule::of_root(root, Role::Targets)));
        }
        rules
    }

    /// The rules of all waiting files.
    fn waiting_rules(&self, published: &Published, pending: &Pending) -> Vec<Vec<Rule>> {
        let root = pending.root.as_ref().map(|draft| root_rules(published, &draft.file));
        let others = pending.targets.keys().map(|role| self.signing_rules(role, published, pending));
        root.into_iter().chain(others).collect()
    }

    /// The error for a key that counts for no waiting file; it names the file that lists the right keys.
    pub(in crate::repository) fn wrong_key(
        published: &Published,
        pending: &Pending,
        key: &PublicKey,
    ) -> RepositoryError {
        let role = match (&pending.root, pending.targets.keys().next()) {
            (_, Some(role)) => role.clone(),
            (Some(_), None) => SignedRole::Root,
            (None, None) => SignedRole::Targets,
        };
        let root = pending.root.as_ref().map_or(published.root_version(), |draft| draft.file.header.version);
        RepositoryError::WrongKey {
            role: role.to_string(),
            keyid: key.keyid(),
            root_version: root,
            file: Role::Root.file(),
        }
    }

    /// Signatures for the checksum lists of the role's releases, where they are missing.
    fn sums(
        &self,
        role: &SignedRole,
        published: &Published,
        rules: &[Rule],
        signer: &dyn Signer,
    ) -> Result<BTreeMap<ReleaseId, String>, RepositoryError> {
        let mut sums = BTreeMap::new();
        let all_there = self.place.directory(Path::new(TARGETS))?.is_some();
        for (id, files) in self.state.releases_of(role) {
            let list = checksums(&files.manifest.sha256, &files.payload.sha256);
            // Without `targets/` (a copy), sign for the new releases.
            let has = if all_there { self.has_sums(id, &list, rules)? } else { published.lists(id, files) };
            if !has {
                sums.insert(id.clone(), minisign::sign(signer, list.as_bytes())?);
            }
        }
        Ok(sums)
    }

    /// True when the release is here with a checksum list that a key of these rules has signed.
    pub(in crate::repository) fn has_sums(
        &self,
        id: &ReleaseId,
        list: &str,
        rules: &[Rule],
    ) -> Result<bool, RepositoryError> {
        let directory = release_path(id);
        if self.place.read(directory.join(CHECKSUMS), 4096)?.as_deref() != Some(list.as_bytes()) {
            return Ok(false);
        }
        let Some(signature) = self.place.read(directory.join(CHECKSUMS_SIGNATURE), 4096)? else { return Ok(false) };
        Ok(fits(&signature, list, rules))
    }
}

pub(in crate::repository) const CHECKSUMS: &str = "SHA256SUMS";
pub(in crate::repository) const CHECKSUMS_SIGNATURE: &str = "SHA256SUMS.minisig";

/// True when `signature` on the list is by a key of these rules.
pub(in crate::repository) fn fits(signature: &[u8], list: &str, rules: &[Rule]) -> bool {
    let Ok(signature) = minisign::Minisig::parse(signature) else { return false };
    rules
        .iter()
        .flat_map(Rule::public_keys)
        .any(|key| minisign::key_number(&key) == signature.key_number() && signature.verifies(&key, list.as_bytes()))
}

impl<T: Body> Draft<T> {
    fn may_take(&self, key: &PublicKey, rules: &[Rule]) -> bool {
        !self.signatures.contains_key(key) && rules.iter().any(|rule| rule.counts(key))
    }

    /// Signs a first root, if the key counts for it.
    pub(in crate::repository) fn sign_root(&mut self, signer: &dyn Signer, rule: &Rule) -> Result<(), RepositoryError> {
        if self.may_take(&signer.public(), std::slice::from_ref(rule)) {
            self.sign(signer, BTreeMap::new())?;
        }
        Ok(())
    }

    fn sign(&mut self, signer: &dyn Signer, sums: BTreeMap<ReleaseId, String>) -> Result<(), RepositoryError> {
        let value = signer.sign(&self.file.canonical)?;
        let public = signer.public();
        if !public.verifies(&self.file.canonical, &value) {
            return Err(RepositoryError::BadSignature { keyid: public.keyid() });
        }
        self.signatures.insert(public, Note { value, sums });
        Ok(())
    }
}
