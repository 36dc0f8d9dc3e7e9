//! One repository behind its mirrors, for one run: metadata and small files; frames and whole copies are `frames` and `mirror`.

use super::broken::Broken;
use super::error::FetchError;
use super::fault::Fault;
use super::kept::KeptFrames;
use super::location::FilePath;
use super::metadata::{self, Refreshed};
use super::mirrors::{Mirrors, Quest};
use super::notice::{Notice, Origin};
use super::settings::DownloadSettings;
use crate::bundle::limits::{MANIFEST_COMPRESSED_MAXIMUM_BYTES, NOTE_MAXIMUM_BYTES};
use crate::digest::Digest;
use crate::name::PackageName;
use crate::os::dir::Dir;
use crate::os::{clock, random};
use crate::trust::{Floor, Role, Target, target};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Largest target that is fetched into memory at once: a manifest. Stops signed metadata that announces a terabyte from filling it.
pub(super) const SMALL_TARGET_BYTES_MAXIMUM: u64 = MANIFEST_COMPRESSED_MAXIMUM_BYTES;

/// One repository behind its mirrors, for one run: it waits on the calling thread, which must not be one of tokio's.
pub struct Fetcher<'a> {
    pub(super) mirrors: Mirrors<'a>,
    pub(super) kept: KeptFrames,
    pub(super) broken: Broken,
    splay: Duration,
    pub(super) consistent_snapshot: bool,
    /// The frames that each payload of this run is made of.
    pub(super) used: BTreeMap<String, Vec<Digest>>,
}

impl<'a> Fetcher<'a> {
    /// A repository as the settings have it; `cache` (`/var/cache/sidle`) keeps what another run goes on with. Nothing is asked yet. `Settings`
    /// when credentials or certificates can't be used.
    pub fn new(settings: &DownloadSettings, cache: &Dir, tell: &'a dyn Fn(&Notice)) -> Result<Self, FetchError> {
        let now = clock::now();
        Ok(Self {
            mirrors: Mirrors::new(settings, tell)?,
            kept: KeptFrames::open(cache, now)?,
            broken: Broken::open(cache, now)?,
            splay: settings.splay,
            consistent_snapshot: true,
            used: BTreeMap::new(),
        })
    }

    /// Waits for a random part of the settings' splay. For runs that nobody waits for, before their first request.
    pub fn splay(&mut self) {
        let most = u64::try_from(self.splay.as_millis()).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(random::up_to(most).unwrap_or(most));
        if !pause.is_zero() {
            self.mirrors.tell(&Notice::Waiting { pause });
            clock::sleep(pause);
            // The time for everything begins with the first request.
            self.mirrors.meter.extend(pause);
        }
    }

    /// Brings the metadata that is newer than `floor`, at the time `now`, and every delegated role that may speak for names below
    /// `PACKAGE/`; what has expired is refused. Each mirror starts from the same floor; one whose metadata is refused is named and the next is
    /// tried. Whatever comes of it, `files` are for the host's trust_store to judge and adopt.
    pub fn refresh(&mut self, floor: &Floor, package: Option<&PackageName>, now: Timestamp) -> Refreshed {
        self.refresh_below(floor, package.map(PackageName::as_str), now)
    }

    /// The same, with every delegated role there is.
    pub fn refresh_everything(&mut self, floor: &Floor, now: Timestamp) -> Refreshed {
        self.refresh_below(floor, Some(""), now)
    }

    fn refresh_below(&mut self, floor: &Floor, directory: Option<&str>, now: Timestamp) -> Refreshed {
        let refreshed = metadata::refresh(&mut self.mirrors, floor, directory, now);
        if let Ok(fresh) = &refreshed.outcome {
            self.consistent_snapshot = fresh.consistent_snapshot;
        }
        refreshed
    }

    /// The root of this version, if `is_right` says so of it; no metadata promises one.
    pub fn root(&mut self, version: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, FetchError> {
        let name = format!("{version}.root.json");
        let (mut quest, limit) = (Quest::new(&name), Role::Root.bytes_maximum() as u64);
        self.small(&mut quest, &name, &FilePath::metadata_file(&name), limit, is_right)
    }

    /// A small file beside a target, if `is_right` says so of it; no metadata promises one.
    pub(super) fn note(&mut self, path: &str, is_right: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, FetchError> {
        self.small(&mut Quest::new(path), path, &FilePath::target(path)?, NOTE_MAXIMUM_BYTES, is_right)
    }

    /// A small file of the next mirror that gives it as it must be.
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

    /// A small target (a manifest) whole, with the signed length and digests. `NotFound` when every mirror says that it has no such file. Which
    /// name it is stored by was told by the last refresh; before one, names carry their digest.
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

    /// The release is installed: what was kept of its payload in this run is removed.
    pub fn done(&mut self, payload: &Target) -> Result<(), FetchError> {
        for digest in self.used.remove(&key(payload)).unwrap_or_default() {
            self.kept.forget(&digest);
        }
        self.broken.forget(&key(payload))
    }

    /// Forgets that a target was broken (`--refetch`): it is fetched again now.
    pub fn forget_broken(&mut self, target: &Target) -> Result<(), FetchError> {
        self.broken.forget(&key(target))
    }

    /// Body bytes received so far.
    pub fn wire_bytes(&self) -> u64 {
        self.mirrors.meter.wire_bytes()
    }

    pub(super) fn path(&self, name: &str, signed: &Target) -> Result<FilePath, FetchError> {
        FilePath::target(&target::stored(name, &signed.hashes, self.consistent_snapshot))
    }

    /// A quest for a target, without the mirrors that are known not to have what was signed; `Broken` where that is all of them.
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

    /// Remembers the mirrors that this quest found to have other bytes.
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

/// The digest by which a target is remembered.
pub(super) fn key(target: &Target) -> String {
    let other = || target.hashes.sha512.map(|digest| Digest::of(&digest));
    target.hashes.sha256.or_else(other).map_or_else(String::new, |digest| digest.to_string())
}
