//! Copies a repository into a directory, verified, and only what is missing there: for proxies, second masters, sticks. A reader finds the old
//! set or the new one at any time: targets come first, `timestamp.json` last, and what is no longer listed goes after that.

use super::error::FetchError;
use super::fetcher::{Fetcher, SMALL_TARGET_BYTES_MAXIMUM};
use super::mark::Mark;
use crate::bundle::manifest::{Manifest, decompress};
use crate::bundle::member::{ReleaseId, checksums};
use crate::bundle::unpack::FrameSource as _;
use crate::crash_point;
use crate::digest::{Digest, Hasher};
use crate::os::OsError;
use crate::os::dir::{Dir, FileKind};
use crate::os::walk;
use crate::trust::request::encoded;
use crate::trust::{MetadataFiles, Target, TrustedTargets, target};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// The name under which a payload comes; leftovers of a crash are replaced by the next run.
const INCOMING: &str = ".payload.new";
/// The directory of frames that have files of their own.
pub(super) const FRAMES: &str = "frames";
const TIMESTAMP: &str = "timestamp.json";

/// What is copied of a repository.
pub struct Wanted<'w> {
    /// Whether a release is.
    pub release: &'w dyn Fn(&ReleaseId) -> bool,
    /// Whether the frames of payloads get files of their own, for caches that don't keep ranges.
    pub frame_files: bool,
    /// Whether releases and metadata that are no longer listed, or not wanted, are removed.
    pub clean: bool,
}

/// What a copy came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mirrored {
    /// Files that were brought, below the directory.
    pub fetched: Vec<String>,
    /// Files that were there already, and are what was signed.
    pub kept: usize,
    /// Files that were removed.
    pub removed: Vec<String>,
    /// Releases whose `SHA256SUMS.minisig` no mirror has as it must be.
    pub unsigned_sums: Vec<ReleaseId>,
}

/// A copy under way.
struct Round<'r> {
    /// The directory of targets.
    place: Dir,
    targets: &'r TrustedTargets,
    frame_files: bool,
    /// What belongs there, below it.
    expected: BTreeSet<PathBuf>,
    mirrored: Mirrored,
}

impl Fetcher<'_> {
    /// Copies what `targets` lists and `wanted` wants into the directory `into`, with `metadata`: all of it, by published names, with every root.
    pub fn mirror(
        &mut self,
        into: &Dir,
        targets: &TrustedTargets,
        metadata: &MetadataFiles,
        wanted: &Wanted<'_>,
    ) -> Result<Mirrored, FetchError> {
        let place = into.child_or_create("targets", DIRECTORY_MODE)?;
        let mut round = Round {
            place,
            targets,
            frame_files: wanted.frame_files,
            expected: BTreeSet::new(),
            mirrored: Mirrored::default(),
        };
        let releases: Vec<_> = releases(targets).into_iter().filter(|(id, _)| (wanted.release)(id)).collect();
        let mut mark = Mark::read(into)?;
        mark.add(into, releases.iter().flat_map(|(id, release)| self.names(id, release)))?;
        mark.add(into, metadata.keys().map(|name| Path::new("metadata").join(encoded(name))))?;
        for (id, release) in &releases {
            self.release(&mut round, id, release)?;
        }
        let Round { expected, mut mirrored, .. } = round;
        mark.add(into, expected.iter().map(|file| Path::new("targets").join(file)))?;
        let place = into.child_or_create("metadata", DIRECTORY_MODE)?;
        let (last, first): (Vec<_>, Vec<_>) = metadata.iter().partition(|(name, _)| *name == TIMESTAMP);
        for (name, bytes) in first.into_iter().chain(last) {
            let name = encoded(name);
            if place.read_if_exists(&name, bytes.len() as u64).ok().flatten().as_ref() != Some(bytes) {
                place.write_atomic(&name, bytes, FILE_MODE)?;
                mirrored.fetched.push(format!("metadata/{name}"));
                crash_point!("mirror.metadata");
            }
        }
        if wanted.clean {
            clean(into, &mut mark, &expected, metadata, &mut mirrored)?;
        }
        Ok(mirrored)
    }

    /// The files of a release, below the directory of the copy, as far as metadata names them.
    fn names(&self, id: &ReleaseId, release: &BTreeMap<String, Target>) -> Vec<PathBuf> {
        let stored = release.iter().map(|(name, signed)| self.basename(name, signed));
        let fixed = ["SHA256SUMS", "SHA256SUMS.minisig", INCOMING].map(str::to_owned);
        stored.chain(fixed).map(|name| Path::new("targets").join(id.to_string()).join(name)).collect()
    }

    fn release(
        &mut self,
        round: &mut Round<'_>,
        id: &ReleaseId,
        release: &BTreeMap<String, Target>,
    ) -> Result<(), FetchError> {
        let mut directory = round.place.try_clone()?;
        for name in [id.package.as_str(), &id.release.to_string(), &id.platform.to_string()] {
            directory = directory.child_or_create(name, DIRECTORY_MODE)?;
        }
        let here = |name: &str| PathBuf::from(id.to_string()).join(name);
        let (payload, small): (Vec<_>, Vec<_>) = release.iter().partition(|(name, _)| **name == target::payload(id));
        for (name, signed) in small {
            let stored = self.basename(name, signed);
            round.expected.insert(here(&stored));
            if has(&directory, &stored, signed)? {
                round.mirrored.kept += 1;
                continue;
            }
            directory.write_atomic(&stored, &self.target(name, signed)?, FILE_MODE)?;
            round.mirrored.fetched.push(format!("targets/{id}/{stored}"));
            crash_point!("mirror.small");
        }
        let Some((name, payload)) = payload.into_iter().next() else { return Ok(()) };
        let manifest = self.manifest_of(&directory, id, release)?;
        let stored = self.basename(name, payload);
        round.expected.insert(here(&stored));
        if has(&directory, &stored, payload)? {
            round.mirrored.kept += 1;
        } else {
            self.payload(&directory, name, payload, &manifest, &stored)?;
            round.mirrored.fetched.push(format!("targets/{id}/{stored}"));
            crash_point!("mirror.payload");
        }
        if round.frame_files {
            write_frames(&directory, &stored, &manifest)?;
            round.expected.extend(manifest.frames.iter().map(|frame| here(&format!("{FRAMES}/{}.zst", frame.sha256))));
        }
        self.sums(round, &directory, id, release)?;
        round.expected.extend([here("SHA256SUMS"), here("SHA256SUMS.minisig")]);
        Ok(())
    }

    pub(super) fn basename(&self, name: &str, signed: &Target) -> String {
        let stored = target::stored(name, &signed.hashes, self.consistent_snapshot);
        stored.rsplit_once('/').map_or(stored.clone(), |(_, base)| base.to_owned())
    }

    fn manifest_of(
        &self,
        directory: &Dir,
        id: &ReleaseId,
        release: &BTreeMap<String, Target>,
    ) -> Result<Manifest, FetchError> {
        let name = target::manifest(id);
        let unusable = |reason: String| FetchError::Content { name: name.clone(), reason };
        let signed = release.get(&name).ok_or_else(|| unusable("it is not listed, but its payload is".to_owned()))?;
        let bytes = directory.read(self.basename(&name, signed), SMALL_TARGET_BYTES_MAXIMUM)?;
        let text = decompress(&bytes).and_then(|text| Manifest::parse(&text));
        text.map_err(|error| unusable(error.to_string()))
    }

    /// A payload, frame after frame: what a broken run has brought is not brought again.
    fn payload(
        &mut self,
        directory: &Dir,
        name: &str,
        signed: &Target,
        manifest: &Manifest,
        stored: &str,
    ) -> Result<(), FetchError> {
        directory.remove_file(INCOMING)?;
        let mut file = directory.create_file(INCOMING, FILE_MODE)?;
        let path = directory.path().join(INCOMING);
        let mut hasher = Hasher::new();
        let mut length = 0;
        let mut frames = self.frames(name, signed, &manifest.frames)?;
        for frame in &manifest.frames {
            let bytes = frames.next(frame).map_err(|error| {
                error.error.downcast::<FetchError>().map_or_else(
                    |other| FetchError::Content { name: name.to_owned(), reason: other.to_string() },
                    |error| *error,
                )
            })?;
            hasher.update(&bytes);
            length += bytes.len() as u64;
            file.write_all(&bytes).map_err(|source| OsError::new("write", &path, source))?;
        }
        drop(frames);
        let sha256 = hasher.finish();
        if length != signed.length || signed.hashes.sha256.is_some_and(|signed| signed != sha256) {
            directory.remove_file(INCOMING)?;
            let reason = "its frames, as the manifest has them, are not the payload that is listed".to_owned();
            return Err(FetchError::Content { name: name.to_owned(), reason });
        }
        file.sync_all().map_err(|source| OsError::new("write", &path, source))?;
        directory.rename(INCOMING, directory, stored)?;
        directory.sync()?;
        self.done(signed)
    }

    /// The checksum list, which says nothing that the metadata doesn't, and its signature, if a targets key has made it.
    fn sums(
        &mut self,
        round: &mut Round<'_>,
        directory: &Dir,
        id: &ReleaseId,
        release: &BTreeMap<String, Target>,
    ) -> Result<(), FetchError> {
        let digest = |name: String| release.get(&name).and_then(|signed| signed.hashes.sha256);
        let (Some(manifest), Some(payload)) = (digest(target::manifest(id)), digest(target::payload(id))) else {
            return Ok(());
        };
        let list = checksums(&manifest, &payload);
        let is_right = |bytes: &[u8]| round.targets.check_sums_signature(list.as_bytes(), bytes).is_ok();
        let there = directory.read_if_exists("SHA256SUMS.minisig", crate::bundle::limits::NOTE_MAXIMUM_BYTES)?;
        if !there.is_some_and(|bytes| is_right(&bytes)) {
            match self.note(&format!("{id}/SHA256SUMS.minisig"), &is_right) {
                Ok(bytes) => directory.write_atomic("SHA256SUMS.minisig", &bytes, FILE_MODE)?,
                Err(_) => round.mirrored.unsigned_sums.push(id.clone()),
            }
        }
        if directory.read_if_exists("SHA256SUMS", 4096)?.as_deref() != Some(list.as_bytes()) {
            directory.write_atomic("SHA256SUMS", list.as_bytes(), FILE_MODE)?;
        }
        Ok(())
    }
}

/// The listed targets by release; what lies elsewhere is none of sidle's.
pub(super) fn releases(targets: &TrustedTargets) -> BTreeMap<ReleaseId, BTreeMap<String, Target>> {
    let mut releases: BTreeMap<ReleaseId, BTreeMap<String, Target>> = BTreeMap::new();
    for (name, signed) in targets.listed() {
        let id = name.rsplit_once('/').and_then(|(directory, _)| directory.parse::<ReleaseId>().ok());
        // A name that several roles list is what the first of them says: `require` asks again.
        let Some((id, sha256)) = id.zip(signed.hashes.sha256) else { continue };
        if let Ok(signed) = targets.require(name, &sha256) {
            releases.entry(id).or_default().insert(name.to_owned(), signed);
        }
    }
    releases
}

/// True when the file is there with the signed bytes.
pub(super) fn has(directory: &Dir, name: &str, signed: &Target) -> Result<bool, FetchError> {
    let stat = directory.stat(name)?;
    if !stat.is_some_and(|stat| stat.kind == FileKind::File && stat.size == signed.length) {
        return Ok(false);
    }
    let (mut file, mut hasher) = (directory.open_file(name)?, Hasher::new());
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer).map_err(|source| OsError::new("read", &directory.path().join(name), source))? {
            0 => return Ok(signed.hashes.sha256 == Some(hasher.finish())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// The frames of a payload that is there as files of their own.
fn write_frames(directory: &Dir, payload: &str, manifest: &Manifest) -> Result<(), FetchError> {
    let frames = directory.child_or_create(FRAMES, DIRECTORY_MODE)?;
    let file = directory.open_file(payload)?;
    for frame in &manifest.frames {
        let mut bytes = Vec::new();
        let read = (&file).take(frame.length).read_to_end(&mut bytes);
        read.map_err(|source| OsError::new("read", &directory.path().join(payload), source))?;
        let name = format!("{}.zst", frame.sha256);
        if Digest::of(&bytes) == frame.sha256 && frames.stat(&name)?.is_none_or(|stat| stat.size != frame.length) {
            frames.write_atomic(&name, &bytes, FILE_MODE)?;
        }
    }
    Ok(())
}

/// Removes files of releases that are not wanted any more, and metadata that is not the newest; roots stay, and what was never the copy's.
fn clean(
    into: &Dir,
    mark: &mut Mark,
    expected: &BTreeSet<PathBuf>,
    metadata: &MetadataFiles,
    mirrored: &mut Mirrored,
) -> Result<(), FetchError> {
    let mut gone = BTreeSet::new();
    let targets = into.child("targets")?;
    for found in walk::walk(&targets)?.into_iter().rev() {
        let parent = targets.beneath(found.path.parent().unwrap_or(Path::new("")))?;
        let name = found.path.file_name().unwrap_or_default();
        let path = Path::new("targets").join(&found.path);
        let goes = match found.stat.kind {
            FileKind::Directory => mark.has_below(&path) && parent.child(name)?.names()?.is_empty(),
            FileKind::File | FileKind::Symlink | FileKind::Other => mark.has(&path) && !expected.contains(&found.path),
        };
        if goes {
            parent.remove_tree(name)?;
            mirrored.removed.push(path.display().to_string());
            gone.insert(path);
        }
    }
    let directory = into.child("metadata")?;
    let newest: BTreeSet<String> = metadata.keys().map(|name| encoded(name)).collect();
    for name in directory.names()? {
        let text = name.to_string_lossy();
        let path = Path::new("metadata").join(&name);
        if mark.has(&path) && !text.ends_with(".root.json") && !newest.contains(&*text) {
            directory.remove_file(&name)?;
            mirrored.removed.push(format!("metadata/{text}"));
            gone.insert(path);
        }
    }
    mark.forget(into, &gone)
}
