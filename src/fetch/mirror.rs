//! Copies a repository into a directory, verified, and only what is missing there: for proxies, second masters, sticks. A reader finds the old
//! set or the new one at any time: targets come first, `timestamp.json` last, and what is no longer listed goes after that. A dry run fetches and
//! judges the metadata, fetches no targets, and writes nothing.

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
use crate::os::place::Place;
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
const FRAMES: &str = "frames";
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
    /// Bytes of the targets that were brought, or would be brought.
    pub lacking_bytes: u64,
}

/// A copy under way.
struct Round<'r> {
    into: &'r Place,
    targets: &'r TrustedTargets,
    frame_files: bool,
    /// What belongs there, below it.
    expected: BTreeSet<PathBuf>,
    mirrored: Mirrored,
}

impl Round<'_> {
    /// True if the signed bytes of a file are not `found` there, so that it has to be fetched.
    fn lacks(
        &mut self,
        found: Option<&Dir>,
        id: &ReleaseId,
        stored: &str,
        signed: &Target,
    ) -> Result<bool, FetchError> {
        let is_there = found.map_or(Ok(false), |found| has(found, stored, signed))?;
        if is_there {
            self.mirrored.kept += 1;
        } else {
            self.mirrored.fetched.push(format!("targets/{id}/{stored}"));
            self.mirrored.lacking_bytes += signed.length;
        }
        self.expected.insert(PathBuf::from(id.to_string()).join(stored));
        Ok(!is_there)
    }
}

impl Fetcher<'_> {
    /// Copies what `targets` lists and `wanted` wants into the directory `into`, with `metadata`: all of it, by published names, with every root.
    pub fn mirror(
        &mut self,
        into: &Place,
        targets: &TrustedTargets,
        metadata: &MetadataFiles,
        wanted: &Wanted<'_>,
    ) -> Result<Mirrored, FetchError> {
        let mut round = Round {
            into,
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
        let (last, first): (Vec<_>, Vec<_>) = metadata.iter().partition(|(name, _)| *name == TIMESTAMP);
        for (name, bytes) in first.into_iter().chain(last) {
            let file = Path::new("metadata").join(encoded(name));
            if into.read(&file, bytes.len() as u64).ok().flatten().as_ref() != Some(bytes) {
                into.write(&file, bytes, (FILE_MODE, DIRECTORY_MODE))?;
                mirrored.fetched.push(file.display().to_string());
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
        let below = Path::new("targets").join(id.to_string());
        // None: a dry run.
        let made = round.into.make(&below, DIRECTORY_MODE)?;
        let found = round.into.directory(&below)?;
        let (payload, small): (Vec<_>, Vec<_>) = release.iter().partition(|(name, _)| **name == target::payload(id));
        for (name, signed) in small {
            let stored = self.basename(name, signed);
            if let (true, Some(directory)) = (round.lacks(found.as_ref(), id, &stored, signed)?, &made) {
                directory.write_atomic(&stored, &self.target(name, signed)?, FILE_MODE)?;
                crash_point!("mirror.small");
            }
        }
        let Some((name, payload)) = payload.into_iter().next() else { return Ok(()) };
        let here = |name: &str| PathBuf::from(id.to_string()).join(name);
        round.expected.extend([here("SHA256SUMS"), here("SHA256SUMS.minisig")]);
        let stored = self.basename(name, payload);
        let manifest = made.as_ref().map(|directory| self.manifest_of(directory, id, release)).transpose()?;
        let lacks = round.lacks(found.as_ref(), id, &stored, payload)?;
        let (Some(directory), Some(manifest)) = (made, manifest) else {
            // The real run keeps the frames that are there, or writes them again.
            let frames = if round.frame_files { round.into.names(below.join(FRAMES))? } else { None };
            round.expected.extend(frames.into_iter().flatten().map(|name| here(&format!("{FRAMES}/{name}"))));
            return Ok(());
        };
        if lacks {
            self.payload(&directory, name, payload, &manifest, &stored)?;
            crash_point!("mirror.payload");
        }
        if round.frame_files {
            write_frames(&directory, &stored, &manifest)?;
            round.expected.extend(manifest.frames.iter().map(|frame| here(&format!("{FRAMES}/{}.zst", frame.sha256))));
        }
        self.sums(round, &directory, id, release)
    }

    fn basename(&self, name: &str, signed: &Target) -> String {
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
fn releases(targets: &TrustedTargets) -> BTreeMap<ReleaseId, BTreeMap<String, Target>> {
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
fn has(directory: &Dir, name: &str, signed: &Target) -> Result<bool, FetchError> {
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
    into: &Place,
    mark: &mut Mark,
    expected: &BTreeSet<PathBuf>,
    metadata: &MetadataFiles,
    mirrored: &mut Mirrored,
) -> Result<(), FetchError> {
    let mut gone = BTreeSet::new();
    let targets = into.directory(Path::new("targets"))?.map_or(Ok(Vec::new()), |targets| walk::walk(&targets))?;
    // The directories that something stays in, or comes into.
    let mut full: BTreeSet<PathBuf> =
        expected.iter().flat_map(|file| file.ancestors().skip(1)).map(Into::into).collect();
    for found in targets.into_iter().rev() {
        let path = Path::new("targets").join(&found.path);
        let goes = match found.stat.kind {
            FileKind::Directory => mark.has_below(&path) && !full.contains(&found.path),
            FileKind::File | FileKind::Symlink | FileKind::Other => mark.has(&path) && !expected.contains(&found.path),
        };
        if goes {
            gone.insert(path);
        } else {
            full.extend(found.path.parent().map(Into::into));
        }
    }
    let newest: BTreeSet<String> = metadata.keys().map(|name| encoded(name)).collect();
    for name in into.names("metadata")?.into_iter().flatten() {
        let path = Path::new("metadata").join(&name);
        if mark.has(&path) && !name.ends_with(".root.json") && !newest.contains(&name) {
            gone.insert(path);
        }
    }
    for path in gone.iter().rev() {
        into.remove(path)?;
        mirrored.removed.push(path.display().to_string());
    }
    mark.forget(into, &gone)
}
