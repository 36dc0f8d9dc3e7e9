//! One repository behind its mirrors, for one run: metadata and small files; frames and whole copies are `frames` and `mirror`.

use super::broken::Broken;
use super::error::FetchError;
use super::fault::Fault;
use super::kept::KeptFrames;
use super::location::FilePath;
use super::metadata::{self, Objection, Refreshed};
use super::mirrors::{Mirrors, Quest};
use super::notice::{Notice, Origin};
use super::settings::DownloadSettings;
use crate::bundle::limits::{MANIFEST_COMPRESSED_MAXIMUM_BYTES, NOTE_MAXIMUM_BYTES};
use crate::bundle::manifest::Frame;
use crate::digest::Digest;
use crate::name::PackageName;
use crate::os::place::Place;
use crate::os::space::Demand;
use crate::os::{clock, random};
use crate::trust::{Expiry, Floor, Role, Target, target};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Largest target that is fetched into memory: a manifest. Stops signed metadata that announces a terabyte.
pub(super) const SMALL_TARGET_BYTES_MAXIMUM: u64 = MANIFEST_COMPRESSED_MAXIMUM_BYTES;

/// Why frames are not kept.
pub(super) const NEARLY_FULL: &str = "its file system is nearly full";

/// One repository, for one run. Blocks the calling thread, which must not be one of tokio's.
pub struct Fetcher<'a> {
    pub(super) mirrors: Mirrors<'a>,
    pub(super) kept: KeptFrames,
    /// Whether frames are kept for another run.
    pub(super) keeps: bool,
    pub(super) broken: Broken,
    splay: Duration,
    pub(super) consistent_snapshot: bool,
    /// The frames of each payload of this run.
    pub(super) used: BTreeMap<String, Vec<Digest>>,
}

impl<'a> Fetcher<'a> {
    /// The repository of `settings`; `cache` (`/var/cache/sidle`) keeps frames for other runs; in a dry run it stays as it is. Asks no mirror yet. Fails with `Settings` for
    /// unusable credentials or certificates.
    pub fn new(settings: &DownloadSettings, cache: &Place, tell: &'a dyn Fn(&Notice)) -> Result<Self, FetchError> {
        let now = clock::now();
        Ok(Self {
            mirrors: Mirrors::new(settings, tell)?,
            kept: KeptFrames::open(cache, now)?,
            keeps: true,
            broken: Broken::open(cache, now)?,
            splay: settings.splay,
            consistent_snapshot: true,
            used: BTreeMap::new(),
        })
    }

    /// Waits for a random part of the settings' splay: for unattended runs, before their first request.
    pub fn splay(&mut self) {
        let most = u64::try_from(self.splay.as_millis()).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(random::up_to(most).unwrap_or(most));
        if !pause.is_zero() {
            self.mirrors.tell(&Notice::Waiting { pause });
            clock::sleep(pause);
            // The run's time limit counts from the first request.
            self.mirrors.meter.extend(pause);
        }
    }

    /// Fetches the metadata that is newer than `floor` and at `now` as fresh as `expiry` says, with every delegated role for names below `PACKAGE/`. Each
    /// mirror starts from the same floor; after untrusted metadata the next mirror is asked. In any case `files` are for the trust store.
    pub fn refresh(
        &mut self,
        floor: &Floor,
        package: Option<&PackageName>,
        now: Timestamp,
        expiry: Expiry,
    ) -> Refreshed {
        self.refresh_below(floor, package.map(PackageName::as_str), (now, expiry), &|_| None)
    }

    /// The same, unexpired and with every delegated role, of the first mirror to whose metadata there is no `objection`.
    pub fn refresh_everything(&mut self, floor: &Floor, now: Timestamp, objection: Objection<'_>) -> Refreshed {
        self.refresh_below(floor, Some(""), (now, Expiry::Strict), objection)
    }

    fn refresh_below(
        &mut self,
        floor: &Floor,
        directory: Option<&str>,
        (now, expiry): (Timestamp, Expiry),
        objection: Objection<'_>,
    ) -> Refreshed {
        let refreshed = metadata::refresh(&mut self.mirrors, floor, directory, (now, expiry), objection);
        if let Ok(fresh) = &refreshed.outcome {
            self.consistent_snapshot = fresh.consistent_snapshot;
        }
        refreshed
    }

    /// The root of this version that `is_right` accepts; no metadata lists it.
    pub fn root(&mut self, version: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, FetchError> {
        let name = format!("{version}.root.json");
        let (mut quest, limit) = (Quest::new(&name), Role::Root.bytes_maximum() as u64);
        self.small(&mut quest, &name, &FilePath::metadata_file(&name), limit, is_right)
    }

    /// A small file next to a target that `is_right` accepts; no metadata lists it.
    pub(super) fn note(&mut self, path: &str, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, FetchError> {
        self.small(&mut Quest::new(path), path, &FilePath::target(path)?, NOTE_MAXIMUM_BYTES, is_right)
    }

    /// A small file from the first mirror whose bytes `is_right` accepts.
    fn small(
        &mut self,
        quest: &mut Quest,
        name: &str,
        path: &FilePath,
        bytes_maximum: u64,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, FetchError> {
        loop {
            let index = self.mirrors.choose(quest)?;
            let fault = match self.mirrors.small_file(index, path, bytes_maximum) {
                Ok(bytes) if is_right(&bytes) => {
                    self.mirrors.succeeded(index);
                    self.mirrors.tell(&Notice::Received { bytes: bytes.len() as u64, from: Origin::Mirror });
                    return Ok(bytes);
                }
                Ok(_) => Fault::WrongBytes { reason: format!("{name} isn't what was signed") },
                Err(fault) => fault,
            };
            self.mirrors.failed(index, quest, &fault);
        }
    }

    /// A small target (a manifest) with the signed length and digests. Fails with `NotFound` when no mirror has the file. The last refresh says
    /// whether stored names carry their digest; before a refresh they do.
    pub fn target(&mut self, name: &str, signed: &Target) -> Result<Vec<u8>, FetchError> {
        let path = self.path(name, signed)?;
        let key = key(signed);
        let mut quest = self.quest(name, &key)?;
        if signed.length > SMALL_TARGET_BYTES_MAXIMUM {
            return Err(FetchError::TooLarge { name: name.to_owned(), limit_bytes: SMALL_TARGET_BYTES_MAXIMUM });
        }
        let is_right = |bytes: &[u8]| bytes.len() as u64 == signed.length && signed.hashes.fit(bytes);
        match self.small(&mut quest, name, &path, signed.length, &is_right) {
            Err(FetchError::Mirrors { .. }) if self.mirrors.are_all_wrong(&quest) => {
                Err(self.remember_broken(&quest, name, &key)?)
            }
            brought => brought,
        }
    }

    /// Whether every mirror is a directory of this host. Then nothing travels: copies of frames would be written and read for nothing.
    pub fn is_local(&self) -> bool {
        self.mirrors.are_directories()
    }

    /// True if a person brings the repository (`stdio:by-hand`): metadata that is older than known, or expired, is accepted as from a bundle file.
    pub fn is_by_hand(&self) -> bool {
        self.mirrors.by_hand
    }

    /// From now on frames are read, and no copies of them are kept.
    pub fn keep_nothing(&mut self) {
        self.keeps = false;
    }

    /// Whether the cache has room for these frames, so that `release` can be installed from them: both may be on one file system. If not, no
    /// frame is kept from now on.
    pub fn can_keep(&mut self, frames: &[Frame], release: Demand) -> Result<bool, FetchError> {
        let lacking = frames.iter().filter(|frame| !self.kept.seems_to_have(&frame.sha256, frame.length));
        let bytes = lacking.map(|frame| frame.length).sum();
        let can = self.kept.has_room(bytes, release)?;
        if !can {
            self.keep_nothing();
            self.mirrors.tell(&Notice::NotKept { reason: NEARLY_FULL.to_owned() });
        }
        Ok(can)
    }

    /// Removes the kept frames of an installed release's payload.
    pub fn done(&mut self, payload: &Target) -> Result<(), FetchError> {
        for digest in self.used.remove(&key(payload)).unwrap_or_default() {
            self.kept.forget(&digest);
        }
        self.broken.forget(&key(payload))
    }

    /// Forgets that mirrors had wrong bytes of a target (`--refetch`).
    pub fn forget_broken(&mut self, target: &Target) -> Result<(), FetchError> {
        self.broken.forget(&key(target))
    }

    /// Received body bytes so far.
    pub fn wire_bytes(&self) -> u64 {
        self.mirrors.meter.wire_bytes()
    }

    pub(super) fn path(&self, name: &str, signed: &Target) -> Result<FilePath, FetchError> {
        FilePath::target(&target::stored(name, &signed.hashes, self.consistent_snapshot))
    }

    /// A quest for a target, without the mirrors that had wrong bytes; `Broken` if all of them had.
    pub(super) fn quest(&self, name: &str, key: &str) -> Result<Quest, FetchError> {
        let (mut quest, now) = (Quest::new(name), clock::now());
        let mut earliest = None;
        for index in 0..self.mirrors.count() {
            let Some(until) = self.broken.until(key, self.mirrors.name(index), now)? else { continue };
            self.mirrors.leave_out(index, &mut quest, until);
            earliest = Some(earliest.map_or(until, |earliest: Timestamp| earliest.min(until)));
        }
        match earliest {
            Some(until) if quest.left_out() == self.mirrors.count() => {
                Err(FetchError::Broken { name: name.to_owned(), until })
            }
            _ => Ok(quest),
        }
    }

    /// Remembers the mirrors that sent wrong bytes in this quest.
    pub(super) fn remember_broken(&self, quest: &Quest, name: &str, key: &str) -> Result<FetchError, FetchError> {
        let now = clock::now();
        let mut until = now;
        for index in quest.wrong() {
            if self.broken.until(key, self.mirrors.name(index), now)?.is_none() {
                until = until.max(self.broken.add(key, self.mirrors.name(index), now)?);
            }
        }
        Ok(FetchError::Broken { name: name.to_owned(), until })
    }
}

/// The digest that names a target in the cache.
pub(super) fn key(target: &Target) -> String {
    let other = || target.hashes.sha512.map(|digest| Digest::of(&digest));
    target.hashes.sha256.or_else(other).map_or_else(String::new, |digest| digest.to_string())
}
