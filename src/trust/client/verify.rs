//! The TUF client workflow (specification §5), pure over bytes and a time: roots, timestamp, snapshot, top-level targets, in that order.
//! `refresh` asks for the files in this order and is given their bytes; every check is here.

use crate::trust::error::TrustError;
use crate::trust::floor::{DelegatedFiles, Expiry, Floor, Warning};
use crate::trust::key::KeyId;
use crate::trust::metadata::{Body, Header, MetaFile, Root, Signed, Snapshot, Targets, Timestamp};
use crate::trust::role::Role;
use crate::trust::scheme::{Key, KeyRule};
use jiff::Timestamp as Time;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The result of offering a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// Newer, and trusted now.
    Adopted,
    /// The trusted version.
    Same,
    /// Older. By hand that is normal; over a network it is an attack.
    #[expect(missing_docs, reason = "the fields' names say what they hold")]
    Older { trusted: u64, offered: u64 },
}

/// A delegation: the role `by` gives `role` these keys.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, Copy)]
pub struct Delegation<'a> {
    pub role: &'a str,
    pub by: &'a str,
    pub rule: &'a KeyRule,
    pub keys: &'a BTreeMap<KeyId, Key>,
}

/// The client workflow. Call `add_root` for each next root, then `close_roots`, `timestamp`, `snapshot`, `targets`.
/// After an error, `floor` still returns everything adopted before it.
#[derive(Debug, Clone)]
pub struct Workflow {
    root: Signed<Root>,
    roots_added: u64,
    timestamp: Option<Signed<Timestamp>>,
    snapshot: Option<Signed<Snapshot>>,
    targets: Option<Signed<Targets>>,
    delegated: DelegatedFiles,
    /// The clock's time, or the time of a trusted signature where that is later.
    time: Time,
    clock: Time,
    last_seen: Option<Time>,
    expiry: Expiry,
    warnings: Vec<Warning>,
}

impl Workflow {
    /// Starts from the host's floor, at the time `now`, fixed for the whole run (TUF §5.1).
    /// Unreadable metadata of the floor is an error; metadata that the present root's keys don't cover is dropped.
    pub fn start(floor: &Floor, now: Time, expiry: Expiry) -> Result<Self, TrustError> {
        let root: Signed<Root> = Signed::parse("the trusted root.json", &floor.root)?;
        verify(&root, &root)?;
        let mut workflow = Self {
            roots_added: 0,
            timestamp: stored(floor.timestamp.as_deref())?,
            snapshot: stored(floor.snapshot.as_deref())?,
            targets: stored(floor.targets.as_deref())?,
            delegated: floor.delegated.clone(),
            time: floor.last_seen.map_or(now, |seen| seen.max(now)),
            clock: now,
            last_seen: floor.last_seen,
            expiry,
            warnings: Vec::new(),
            root,
        };
        if let Some(last_seen) = floor.last_seen.filter(|seen| *seen > now) {
            workflow.warnings.push(Warning::ClockBehind { now, last_seen });
        }
        workflow.drop_uncovered();
        Ok(workflow)
    }

    /// The trusted root.
    pub fn root(&self) -> &Signed<Root> {
        &self.root
    }

    /// Takes the next root of the chain (§5.3.3 to §5.3.8).
    pub fn add_root(&mut self, bytes: &[u8]) -> Result<(), TrustError> {
        if self.roots_added == crate::trust::limits::ROOT_ROTATIONS_MAXIMUM {
            return Err(TrustError::TooManyRoots { limit: crate::trust::limits::ROOT_ROTATIONS_MAXIMUM });
        }
        let expected = self.root.header.version + 1;
        let next: Signed<Root> = Signed::parse(&format!("{expected}.root.json"), bytes)?;
        verify(&next, &self.root)?; // §5.3.4: by the old keys …
        verify(&next, &next)?; // … and by its own
        if next.header.version != expected {
            return Err(TrustError::RootVersion { expected, found: next.header.version }); // §5.3.5
        }
        if lost_a_key(&self.root.body, &next.body, Role::Timestamp)
            || lost_a_key(&self.root.body, &next.body, Role::Snapshot)
        {
            // §5.3.11, fast-forward recovery: a thief of the old key may have signed a version so high that nothing newer ever comes.
            self.timestamp = None;
            self.snapshot = None;
        }
        self.root = next;
        self.roots_added += 1;
        self.saw(self.root.header);
        Ok(())
    }

    /// Ends the chain: the newest root must not have expired (§5.3.10).
    pub fn close_roots(&mut self) -> Result<(), TrustError> {
        self.drop_uncovered();
        self.fresh(Role::Root, self.root.header)
    }

    /// Takes the offered timestamp if it is newer than the trusted one; then the trusted one must be fresh (§5.4), also an unchanged one:
    /// else an attacker could withhold newer ones for ever. Without an offer (by hand only) the trusted timestamp serves.
    pub fn timestamp(&mut self, offered: Option<&[u8]>) -> Result<Offered, TrustError> {
        let Some(bytes) = offered else {
            let trusted = self.timestamp.as_ref().filter(|_| self.expiry != Expiry::Strict);
            let header = trusted.map(|trusted| trusted.header);
            let header = header.ok_or(TrustError::Missing { file: Role::Timestamp.file(), named_by: Role::Root })?;
            return self.fresh(Role::Timestamp, header).map(|()| Offered::Same);
        };
        let new: Signed<Timestamp> = Signed::parse("timestamp.json", bytes)?;
        let signed = verify(&new, &self.root); // §5.4.2
        let Some(trusted) = &self.timestamp else {
            signed?;
            return self.adopt_timestamp(new);
        };
        let (old, offered) = (trusted.header, new.header.version);
        if offered < old.version && self.expiry != Expiry::Strict {
            // By hand, an older timestamp may be signed by a retired key: it has no effect, so its signatures don't matter.
            self.fresh(Role::Timestamp, old)?;
            return Ok(Offered::Older { trusted: old.version, offered });
        }
        signed?;
        match offered.cmp(&old.version) {
            Ordering::Greater => {
                let (trusted, offered) = (trusted.body.snapshot.version, new.body.snapshot.version);
                if offered < trusted {
                    return Err(TrustError::Rollback { file: Role::Snapshot.file(), trusted, offered }); // §5.4.3.2
                }
                self.adopt_timestamp(new)
            }
            Ordering::Equal => self.fresh(Role::Timestamp, old).map(|()| Offered::Same),
            Ordering::Less => Err(TrustError::Rollback { file: Role::Timestamp.file(), trusted: old.version, offered }), // §5.4.3.1
        }
    }

    fn adopt_timestamp(&mut self, new: Signed<Timestamp>) -> Result<Offered, TrustError> {
        self.fresh(Role::Timestamp, new.header)?; // §5.4.4
        self.timestamp = Some(new);
        Ok(Offered::Adopted)
    }

    /// The snapshot that the timestamp names; None: the trusted snapshot is that one.
    pub fn snapshot_wanted(&self) -> Option<&MetaFile> {
        let named = &self.timestamp.as_ref()?.body.snapshot;
        let is_there = self.snapshot.as_ref().is_some_and(|trusted| is_named(trusted, named));
        (!is_there).then_some(named)
    }

    /// Trusts the snapshot that the timestamp names: the present one if it fits, else the offered one (§5.5).
    pub fn snapshot(&mut self, offered: Option<&[u8]>) -> Result<(), TrustError> {
        let Some(timestamp) = &self.timestamp else {
            return Err(TrustError::Missing { file: Role::Timestamp.file(), named_by: Role::Root });
        };
        let named = timestamp.body.snapshot.clone();
        if let Some(trusted) = self.snapshot.as_ref().filter(|trusted| is_named(trusted, &named)) {
            return self.fresh(Role::Snapshot, trusted.header);
        }
        let file = self.published_name(Role::Snapshot.as_str(), named.version);
        let bytes = offered.ok_or_else(|| TrustError::Missing { file: file.clone(), named_by: Role::Timestamp })?;
        let new: Signed<Snapshot> = named_file(&file, bytes, &named, Role::Timestamp, |file| verify(file, &self.root))?;
        for (file, old) in self.snapshot.iter().flat_map(|trusted| &trusted.body.files) {
            // §5.5.5: no role may go back or vanish.
            let Some(listed) = new.body.files.get(file) else {
                return Err(TrustError::Vanished { file: file.clone() });
            };
            if listed.version < old.version {
                return Err(TrustError::Rollback { file: file.clone(), trusted: old.version, offered: listed.version });
            }
        }
        self.fresh(Role::Snapshot, new.header)?; // §5.5.6
        self.snapshot = Some(new);
        Ok(())
    }

    /// The targets file that the snapshot names; None: the trusted targets are that file.
    pub fn targets_wanted(&self) -> Option<&MetaFile> {
        let named = self.named("targets.json")?;
        if self.trusted_targets().is_some() { None } else { Some(named) }
    }

    /// The snapshot's entry of a targets file.
    pub fn named(&self, file: &str) -> Option<&MetaFile> {
        self.snapshot.as_ref()?.body.files.get(file)
    }

    /// The delegated roles of the trusted snapshot, with their versions.
    pub fn named_delegated(&self) -> impl Iterator<Item = (&str, u64)> {
        let files = self.snapshot.iter().flat_map(|snapshot| &snapshot.body.files);
        let named = files.filter_map(|(file, named)| Some((file.strip_suffix(".json")?, named.version)));
        named.filter(|(role, _)| *role != Role::Targets.as_str())
    }

    /// Checks a delegated role's file against the snapshot and the delegation (§5.6.7.2, as §5.6.2 to §5.6.5): length, digest, signatures,
    /// version, and expiry, without grace in any mode.
    pub fn delegated(&self, delegation: &Delegation<'_>, bytes: &[u8]) -> Result<Signed<Targets>, TrustError> {
        let Delegation { role, by, rule, keys } = *delegation;
        let file = format!("{role}.json");
        let Some(named) = self.named(&file) else {
            return Err(TrustError::Missing { file, named_by: Role::Snapshot });
        };
        let covers = |file: &Signed<Targets>| {
            let (valid, _) = valid_signatures(file, rule, keys);
            let (role, by, version) = (role.to_owned(), by.to_owned(), file.header.version);
            let unsigned = TrustError::UnsignedDelegated { role, version, by, valid, threshold: rule.threshold };
            if valid as u64 >= rule.threshold { Ok(()) } else { Err(unsigned) }
        };
        let file: Signed<Targets> =
            named_file(&self.published_name(role, named.version), bytes, named, Role::Snapshot, covers)?;
        let Header { version, expires: expired, .. } = file.header;
        if self.time < expired {
            return Ok(file);
        }
        let clock = self.clock_before(expired);
        Err(TrustError::ExpiredDelegated { role: role.to_owned(), version, expired, now: self.time, clock })
    }

    /// Trusts the targets file that the snapshot names, as `snapshot` does (§5.6).
    pub fn targets(&mut self, offered: Option<&[u8]>) -> Result<(), TrustError> {
        let named = self.snapshot.as_ref().and_then(|snapshot| snapshot.body.files.get("targets.json")).cloned();
        let named = named.ok_or(TrustError::Missing { file: Role::Snapshot.file(), named_by: Role::Timestamp })?;
        if let Some(trusted) = self.targets.as_ref().filter(|trusted| is_named(trusted, &named)) {
            return self.fresh(Role::Targets, trusted.header);
        }
        let file = self.published_name(Role::Targets.as_str(), named.version);
        let bytes = offered.ok_or_else(|| TrustError::Missing { file: file.clone(), named_by: Role::Snapshot })?;
        let new: Signed<Targets> = named_file(&file, bytes, &named, Role::Snapshot, |file| verify(file, &self.root))?;
        self.fresh(Role::Targets, new.header)?; // §5.6.5
        self.saw(new.header);
        self.targets = Some(new);
        Ok(())
    }

    /// The new floor, to be stored also after an error. Files of delegated roles that the snapshot no longer names are dropped.
    pub fn floor(&self) -> Floor {
        let is_named = |(role, bytes): &(&String, &Vec<u8>)| {
            let named = self.named(&format!("{role}.json"));
            named.is_some_and(|named| named.hashes.as_ref().is_none_or(|hashes| hashes.fit(bytes)))
        };
        let delegated = self.delegated.iter().filter(is_named).map(|(role, bytes)| (role.clone(), bytes.clone()));
        Floor {
            root: self.root.bytes.clone(),
            timestamp: self.timestamp.as_ref().map(|file| file.bytes.clone()),
            snapshot: self.snapshot.as_ref().map(|file| file.bytes.clone()),
            targets: self.targets.as_ref().map(|file| file.bytes.clone()),
            delegated: delegated.collect(),
            last_seen: self.last_seen,
        }
    }

    /// Warnings for the operator.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The trusted targets, if the trusted snapshot names them.
    pub fn trusted_targets(&self) -> Option<&Signed<Targets>> {
        let named = self.snapshot.as_ref()?.body.files.get("targets.json")?;
        self.targets.as_ref().filter(|trusted| is_named(trusted, named))
    }

    /// The name of this version of a role's file in the repository (§6.2). Not for root and timestamp.
    pub fn published_name(&self, role: &str, version: u64) -> String {
        if self.root.body.consistent_snapshot { format!("{version}.{role}.json") } else { format!("{role}.json") }
    }

    /// Drops files that the present root's keys don't cover: a revoked key sets no floor.
    fn drop_uncovered(&mut self) {
        self.timestamp.take_if(|file| verify(file, &self.root).is_err());
        self.snapshot.take_if(|file| verify(file, &self.root).is_err());
        self.targets.take_if(|file| verify(file, &self.root).is_err());
    }

    /// Raises last-seen by the times in root and targets only ([`Floor::last_seen`]), never by the clock: one boot in 2099 must not poison
    /// the host. A time after the root's own expiry is ignored: else every root would look expired.
    fn saw(&mut self, header: Header) {
        let limit = self.root.header.expires.min(header.expires);
        if let Some(signed) = header.signed.filter(|signed| *signed < limit) {
            self.last_seen = Some(self.last_seen.map_or(signed, |seen| seen.max(signed)));
        }
    }

    fn fresh(&mut self, role: Role, header: Header) -> Result<(), TrustError> {
        if self.time < header.expires {
            return Ok(());
        }
        let expired = header.expires;
        let grace = match (role, self.expiry) {
            (Role::Timestamp | Role::Snapshot, Expiry::ByHand { grace }) => Some(grace),
            (Role::Root | Role::Targets, Expiry::ByHand { .. }) | (_, Expiry::Strict) => None,
        };
        let refused_from = grace.map_or(expired, |grace| expired.checked_add(grace).unwrap_or(Time::MAX));
        if self.time < refused_from {
            self.warnings.push(Warning::Late { role, version: header.version, expired, refused_from });
            return Ok(());
        }
        let clock = self.clock_before(refused_from);
        Err(TrustError::Expired { role, version: header.version, expired, now: self.time, clock, grace })
    }

    /// The host's clock, where it alone would not refuse yet.
    fn clock_before(&self, refused_from: Time) -> Option<Time> {
        (self.clock < refused_from).then_some(self.clock)
    }
}

/// Parses metadata of the floor. Unreadable bytes are an error: dropping them would lower the floor.
fn stored<T: Body>(bytes: Option<&[u8]>) -> Result<Option<Signed<T>>, TrustError> {
    bytes.map(|bytes| Signed::parse(&format!("the trusted {}", T::ROLE.file()), bytes)).transpose()
}

/// Reads a file that another one names: length and digest before its content (§5.5.2 to §5.5.4, §5.6.2 to §5.6.4).
fn named_file<T: Body>(
    file: &str,
    bytes: &[u8],
    named: &MetaFile,
    named_by: Role,
    covers: impl FnOnce(&Signed<T>) -> Result<(), TrustError>,
) -> Result<Signed<T>, TrustError> {
    let mismatch = |what| TrustError::Mismatch { file: file.to_owned(), named_by, what };
    if named.length.is_some_and(|length| length != bytes.len() as u64) {
        return Err(mismatch("length"));
    }
    if named.hashes.as_ref().is_some_and(|hashes| !hashes.fit(bytes)) {
        return Err(mismatch("digest"));
    }
    let new = Signed::parse(file, bytes)?;
    covers(&new)?;
    if new.header.version != named.version {
        return Err(mismatch("version"));
    }
    Ok(new)
}

fn is_named<T>(file: &Signed<T>, named: &MetaFile) -> bool {
    file.header.version == named.version
        && named.length.is_none_or(|length| length == file.bytes.len() as u64)
        && named.hashes.as_ref().is_none_or(|hashes| hashes.fit(&file.bytes))
}

/// True when `role` lost a key: it may have been stolen.
fn lost_a_key(old: &Root, new: &Root, role: Role) -> bool {
    let known = |root: &Root| -> BTreeSet<Key> {
        let keys = root.rule(role).keyids.iter().filter_map(|keyid| root.keys.get(keyid));
        keys.filter(|key| **key != Key::Unknown).cloned().collect()
    };
    !known(old).is_subset(&known(new))
}

/// Checks that enough distinct keys of `root` signed `file`.
pub fn verify<T: Body>(file: &Signed<T>, root: &Signed<Root>) -> Result<(), TrustError> {
    let rule: &KeyRule = root.body.rule(T::ROLE);
    let (valid, missing) = valid_signatures(file, rule, &root.body.keys);
    if valid as u64 >= rule.threshold {
        return Ok(());
    }
    Err(TrustError::Unsigned {
        role: T::ROLE,
        version: file.header.version,
        root_version: root.header.version,
        valid,
        threshold: rule.threshold,
        missing: missing.iter().map(|keyid| keyid.as_str().to_owned()).collect(),
    })
}

/// The number of distinct keys of `rule` that signed `file`, and the keyids without a signature. A key counts once, under any number of
/// keyids; unknown keys, schemes and keyids never count.
pub fn valid_signatures<T>(file: &Signed<T>, rule: &KeyRule, keys: &BTreeMap<KeyId, Key>) -> (usize, BTreeSet<KeyId>) {
    let mut signers = BTreeSet::new();
    let mut missing = rule.keyids.clone();
    for signature in file.signatures.iter().filter(|signature| rule.keyids.contains(&signature.keyid)) {
        let (Some(key), Some(value)) = (keys.get(&signature.keyid), &signature.value) else { continue };
        if key.verifies(&file.canonical, value) {
            signers.insert(key);
            missing.remove(&signature.keyid);
        }
    }
    (signers.len(), missing)
}
