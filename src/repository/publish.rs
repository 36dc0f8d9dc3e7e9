//! Publishes the files with enough signatures, and renews files halfway to their expiry. Readers see the old set until `timestamp.json` is
//! replaced.

use super::chosen::Chosen;
use super::pending::Pending;
use super::published::{Listing, Published, path};
use super::role::SignedRole;
use super::rule::Rule;
use super::sign::{CHECKSUMS, CHECKSUMS_SIGNATURE, fits};
use super::stage::{Discarded, Waiting, is_due};
use super::{Repository, RepositoryError, release_path};
use crate::bundle::member::{ReleaseId, checksums};
use crate::crash_point;
use crate::trust::metadata::{Body, MetaFile, Root, Signed, Snapshot, Timestamp as TimestampFile};
use crate::trust::publish::{self, Edition, Lifetimes, describe};
use crate::trust::{Role, Signer, minisign};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The signing keys, perhaps the same: for the targets, and for snapshot and timestamp.
#[derive(Clone, Copy)]
pub struct PublishKeys<'a> {
    /// Signs the targets.
    pub targets: &'a dyn Signer,
    /// Signs snapshot and timestamp.
    pub online: &'a dyn Signer,
}

/// The result of publishing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Publication {
    /// The newly published releases.
    pub added: Vec<ReleaseId>,
    /// The newly withdrawn releases.
    pub withdrawn: Vec<ReleaseId>,
    /// The written metadata files, in this order. Empty: nothing to do.
    pub signed: Vec<String>,
    /// The files that wait for more signatures.
    pub waiting: Vec<Waiting>,
    /// Signatures that are void because their file has changed.
    pub discarded: Vec<Discarded>,
}

/// When an online role's file is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// After half of its lifetime.
    WhenDue,
    /// Now.
    Always,
}

/// The files to write, in their order.
type NewFiles = Vec<(String, Vec<u8>)>;

impl Repository {
    /// Publishes with one key for the targets and one for the online roles. If the targets need more signatures, this one is kept and the
    /// missing ones are reported. Writes nothing when the published set is as wanted and far from its expiry.
    pub fn publish(
        &mut self,
        keys: PublishKeys<'_>,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Publication, RepositoryError> {
        self.publish_with(&[keys.targets], &[keys.online], lifetimes, now)
    }

    /// Publishes the complete files. `people` sign waiting files first, as [`Repository::sign`] does; `online` sign snapshot and timestamp.
    pub fn publish_with(
        &mut self,
        people: &[&dyn Signer],
        online: &[&dyn Signer],
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Publication, RepositoryError> {
        let (published, mut pending) = self.load()?;
        let was_waiting = pending != Pending::default();
        self.may_sign(&published, &pending, people)?;
        let discarded = self.draft(&published, &mut pending, lifetimes, now)?;
        for signer in people {
            self.sign_drafts(&published, &mut pending, *signer)?;
        }
        let chosen = self.choose(&published, &pending)?;
        let plan = plan(&published, &chosen, online, lifetimes, Renewal::WhenDue, now)?;
        let rules = self.sums_rules(&chosen);
        self.write_checksums(&pending, &rules, people)?;
        let mut left = pending.clone();
        left.drop_published(&chosen);
        if was_waiting || left != Pending::default() {
            // Stored before publishing, and dropped after it: a crash loses no signature.
            pending.store(&self.place)?;
        }
        self.write(&plan)?;
        left.store(&self.place)?;
        let after = Published::load(&self.place)?;
        let waiting = self.waiting_in(&after, &left);
        let came = |(id, files)| !published.lists(id, files) && after.lists(id, files);
        let added = self.state.releases.iter().filter(|one| came(*one)).map(|(id, _)| id.clone()).collect();
        let withdrawn = self.state.withdrawn.iter().filter(|(id, one)| {
            !self.state.releases.contains_key(id) && published.lists(id, &one.files) && !after.lists(id, &one.files)
        });
        let withdrawn = withdrawn.map(|(id, _)| id.clone()).collect();
        let signed = plan.into_iter().map(|(name, _)| name).collect();
        Ok(Publication { added, withdrawn, signed, waiting, discarded })
    }

    /// Renews only snapshot and timestamp. Empty: they are far from their expiry.
    pub fn refresh(
        &mut self,
        online: &[&dyn Signer],
        renewal: Renewal,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Vec<String>, RepositoryError> {
        let published = Published::load(&self.place)?;
        let (Some(root), Some(set)) = (&published.root, &published.set) else {
            return Err(RepositoryError::NothingPublished { path: self.path().to_owned() });
        };
        let chosen = Chosen { root: root.clone(), listing: Some(set.listing.clone()) };
        let plan = plan(&published, &chosen, online, lifetimes, renewal, now)?;
        self.write(&plan)?;
        Ok(plan.into_iter().map(|(name, _)| name).collect())
    }

    fn write(&self, plan: &NewFiles) -> Result<(), RepositoryError> {
        for (name, bytes) in plan {
            self.write_file(&path(name), bytes)?;
            crash_point!("repository.metadata_written");
        }
        Ok(())
    }

    /// Refuses a key that counts for nothing, before it signs anything.
    pub(super) fn may_sign(
        &self,
        published: &Published,
        pending: &Pending,
        people: &[&dyn Signer],
    ) -> Result<(), RepositoryError> {
        let mut rules: Vec<Rule> = self.rules(&SignedRole::Targets, published, pending);
        for root in published.root.iter().chain(pending.root.as_ref().map(|draft| &draft.file)) {
            rules.push(Rule::of_root(root, Role::Targets));
            if pending.root.is_some() {
                rules.push(Rule::of_root(root, Role::Root));
            }
        }
        rules.extend(self.state.delegations.iter().map(|one| Rule::of_keys("targets", &one.keys)));
        match people.iter().map(|signer| signer.public()).find(|key| !rules.iter().any(|rule| rule.counts(key))) {
            Some(key) => Err(Self::wrong_key(published, &Pending::default(), &key)),
            None => Ok(()),
        }
    }

    /// The rules for the checksum lists of each role's releases.
    fn sums_rules(&self, chosen: &Chosen) -> BTreeMap<SignedRole, Vec<Rule>> {
        let delegated = self
            .state
            .delegations
            .iter()
            .map(|one| (SignedRole::Delegated(one.name.clone()), vec![Rule::of_keys("targets", &one.keys)]));
        let targets = (SignedRole::Targets, vec![Rule::of_root(&chosen.root, Role::Targets)]);
        std::iter::once(targets).chain(delegated).collect()
    }

    /// Writes `SHA256SUMS` and its signature beside each release, by a key of the release's role.
    fn write_checksums(
        &self,
        pending: &Pending,
        rules: &BTreeMap<SignedRole, Vec<Rule>>,
        people: &[&dyn Signer],
    ) -> Result<(), RepositoryError> {
        for (id, files) in &self.state.releases {
            let directory = release_path(id);
            for (name, length) in
                [(files.manifest_name(), files.manifest.length), (files.payload_name(), files.payload.length)]
            {
                if self.place.length(directory.join(&name))? != Some(length) {
                    let reason = "it is missing, or its size has changed since it was added".to_owned();
                    return Err(RepositoryError::Damaged { path: self.path().join(directory).join(name), reason });
                }
            }
            let role = self.state.role_of(id);
            let rules = &rules[&role];
            let list = checksums(&files.manifest.sha256, &files.payload.sha256);
            if self.has_sums(id, &list, rules)? {
                continue;
            }
            if self.place.read(directory.join(CHECKSUMS), 4096)?.as_deref() != Some(list.as_bytes()) {
                self.write_file(&directory.join(CHECKSUMS), list.as_bytes())?;
            }
            let notes = pending.targets.get(&role).into_iter().flat_map(|draft| draft.signatures.values());
            let mut brought = notes.filter_map(|note| note.sums.get(id));
            let signer = people.iter().find(|signer| rules.iter().any(|rule| rule.counts(&signer.public())));
            let signature = match (brought.find(|text| fits(text.as_bytes(), &list, rules)), signer) {
                (Some(text), _) => text.clone(),
                (None, Some(signer)) => minisign::sign(*signer, list.as_bytes())?,
                (None, None) => continue,
            };
            self.write_file(&directory.join(CHECKSUMS_SIGNATURE), signature.as_bytes())?;
        }
        Ok(())
    }
}

impl Pending {
    /// Drops the files of the chosen set.
    fn drop_published(&mut self, chosen: &Chosen) {
        self.root.take_if(|draft| draft.file.header.version <= chosen.root.header.version);
        let Some(Listing { targets, delegated }) = &chosen.listing else { return };
        self.targets.retain(|role, draft| match role {
            SignedRole::Root => false,
            SignedRole::Targets => draft.file.canonical != targets.canonical,
            SignedRole::Delegated(name) => {
                delegated.get(name).is_none_or(|file| file.canonical != draft.file.canonical)
            }
        });
    }
}

/// The files to write, in order: each names earlier ones, and the file that readers start from comes last.
fn plan(
    published: &Published,
    chosen: &Chosen,
    online: &[&dyn Signer],
    lifetimes: &Lifetimes,
    renewal: Renewal,
    now: Timestamp,
) -> Result<NewFiles, RepositoryError> {
    let mut plan = NewFiles::new();
    let root = (chosen.root.header.version > published.root_version())
        .then(|| (SignedRole::Root.file(chosen.root.header.version), chosen.root.bytes.clone()));
    let Some(listing) = &chosen.listing else { return Ok(root.into_iter().collect()) };
    for role in [Role::Snapshot, Role::Timestamp] {
        may_sign_online(&chosen.root, role, online)?;
    }
    let old = published.set.as_ref();
    let delegated = listing.delegated.iter().map(|(name, file)| (SignedRole::Delegated(name.clone()), file));
    let mut files = old.map(|set| set.snapshot.body.files.clone()).unwrap_or_default();
    for (role, file) in delegated.chain([(SignedRole::Targets, &listing.targets)]) {
        let version = file.header.version;
        if version > published.version(&role) {
            files.insert(format!("{role}.json"), describe(version, &file.bytes));
            plan.push((role.file(version), file.bytes.clone()));
        }
    }
    let signers = counting(published.root.as_ref(), &chosen.root, online);
    let edition =
        |role, old: Option<u64>| Edition { version: old.unwrap_or(0) + 1, signed: now, lifetime: lifetimes.of(role) };
    let is_current = |is_trusted: bool, header, lifetime| {
        renewal == Renewal::WhenDue && is_trusted && !is_due(header, lifetime, now)
    };
    let current = old.filter(|set| {
        plan.is_empty() && is_current(is_trusted(&chosen.root, &set.snapshot), set.snapshot.header, lifetimes.snapshot)
    });
    let mut names_new_snapshot = false;
    let named: MetaFile = if let Some(set) = current {
        set.timestamp.body.snapshot.clone()
    } else {
        let edition = edition(Role::Snapshot, old.map(|set| set.snapshot.header.version));
        let bytes = publish::snapshot(edition, &files, &signers)?;
        names_new_snapshot = true;
        let named = describe(edition.version, &bytes);
        plan.push((format!("{}.snapshot.json", edition.version), bytes));
        named
    };
    let current = !names_new_snapshot
        && old.is_some_and(|set| {
            is_current(is_trusted(&chosen.root, &set.timestamp), set.timestamp.header, lifetimes.timestamp)
        });
    let last = if current {
        None
    } else {
        let edition = edition(Role::Timestamp, old.map(|set| set.timestamp.header.version));
        Some((Role::Timestamp.file(), publish::timestamp(edition, &named, &signers)?))
    };
    // In between, a reader finds the new set under the old root, or the old set under the new root. Where it would refuse both, only two
    // renames separate them.
    let is_trusted_before = published.root.as_ref().is_some_and(|old| trusts(old, listing, &plan, last.as_ref()));
    if is_trusted_before {
        plan.extend(last.into_iter().chain(root));
    } else {
        plan.extend(root.into_iter().chain(last));
    }
    Ok(plan)
}

/// True when a client that knows only this root trusts the planned set.
fn trusts(root: &Signed<Root>, listing: &Listing, plan: &NewFiles, timestamp: Option<&(String, Vec<u8>)>) -> bool {
    let snapshot = plan.iter().find(|(name, _)| name.ends_with(".snapshot.json"));
    let snapshot = snapshot
        .is_none_or(|(name, bytes)| Signed::<Snapshot>::parse(name, bytes).is_ok_and(|file| is_trusted(root, &file)));
    let timestamp = timestamp.is_none_or(|(name, bytes)| {
        Signed::<TimestampFile>::parse(name, bytes).is_ok_and(|file| is_trusted(root, &file))
    });
    snapshot && timestamp && is_trusted(root, &listing.targets)
}

fn is_trusted<T: Body>(root: &Signed<Root>, file: &Signed<T>) -> bool {
    Rule::of_root(root, T::ROLE).is_met_in(file)
}

/// The online keys that count under the old or the new root: signing with both leaves no moment in which a reader refuses the set.
fn counting<'a>(old: Option<&Signed<Root>>, new: &Signed<Root>, online: &[&'a dyn Signer]) -> Vec<&'a dyn Signer> {
    let roots = || old.into_iter().chain([new]);
    let rules: Vec<Rule> = [Role::Snapshot, Role::Timestamp]
        .into_iter()
        .flat_map(|role| roots().map(move |root| Rule::of_root(root, role)))
        .collect();
    let counts = |signer: &&&dyn Signer| rules.iter().any(|rule| rule.counts(&signer.public()));
    online.iter().filter(counts).copied().collect()
}

/// Refuses online keys that don't count, before they sign anything.
pub(super) fn may_sign_online(root: &Signed<Root>, role: Role, online: &[&dyn Signer]) -> Result<(), RepositoryError> {
    let needed = Rule::of_root(root, role);
    let keys: Vec<_> = online.iter().map(|signer| signer.public()).collect();
    if needed.is_met_by(&keys) {
        return Ok(());
    }
    match keys.iter().find(|key| !needed.counts(key)) {
        Some(key) if !keys.iter().any(|key| needed.counts(key)) => Err(RepositoryError::WrongKey {
            role: role.to_string(),
            keyid: key.keyid(),
            root_version: root.header.version,
            file: Root::ROLE.file(),
        }),
        _ => Err(RepositoryError::Threshold { role, threshold: needed.threshold() }),
    }
}
