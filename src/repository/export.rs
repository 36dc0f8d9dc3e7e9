//! Writes published releases and the metadata that vouches for them into one bundle file.

use super::published::Published;
use super::{FILE_MODE, ReleaseFiles, Repository, RepositoryError};
use crate::bundle::file::BundleWriter;
use crate::bundle::manifest::{EntryKind, Frame, Manifest};
use crate::bundle::member::{MemberName, ReleaseFile, ReleaseId};
use crate::bundle::part::Part;
use crate::bundle::rebuild;
use crate::bundle::source::Held;
use crate::digest::{Digest, Hasher};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::place::Effect;
use crate::trust::{Expiry, Floor, MetadataFiles, Warning, by_hand, target};
use crate::version::Release;
use jiff::Timestamp;
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

/// Largest SHA256SUMS or minisig read; ours have a few hundred bytes.
const NOTE_BYTES: usize = 64 * 1024;

impl Repository {
    /// Writes published releases into the bundle file `output`, which appears whole or not at all. The content is verified first, as a host
    /// that pinned the first root would; the warnings are that host's.
    /// With releases in `since`, the file has only the frames that a host with one of these lacks.
    /// Also returns the length of the file. In a dry run the file is read together, and written nowhere.
    pub fn export(
        &self,
        ids: &[ReleaseId],
        since: &[Release],
        output: &Path,
        now: Timestamp,
    ) -> Result<(Vec<Warning>, u64), RepositoryError> {
        let published = Published::load(&self.place)?;
        let ids: BTreeSet<&ReleaseId> = ids.iter().collect();
        let find = |id: &&ReleaseId| -> Result<(ReleaseId, ReleaseFiles), RepositoryError> {
            let files = self.state.releases.get(*id).ok_or_else(|| self.unknown(id))?;
            if !published.lists(id, files) {
                return Err(RepositoryError::Unpublished { id: id.to_string() });
            }
            Ok(((*id).clone(), *files))
        };
        let releases: Vec<(ReleaseId, ReleaseFiles)> = ids.iter().map(find).collect::<Result<_, _>>()?;
        if releases.is_empty() {
            return Err(RepositoryError::NoReleases);
        }
        let chosen = |(id, files): (ReleaseId, ReleaseFiles)| {
            let pieces = if since.is_empty() { None } else { Some(self.pieces(&id, files, since)?) };
            Ok(Chosen { id, files, pieces })
        };
        let releases: Vec<Chosen> = releases.into_iter().map(chosen).collect::<Result<_, RepositoryError>>()?;
        let warnings = rehearse(&published, &releases, now)?;
        let (parent, name) = match (output.parent(), output.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            _ => return Err(RepositoryError::NoFile { path: output.to_owned() }),
        };
        let directory = Dir::open(parent)?;
        if self.place.effect() == Effect::DryRun {
            directory.check_writable().map_err(|source| OsError::new("create", output, source))?;
            let counted = self.write_bundle(Counted::default(), &published, &releases)?;
            return Ok((warnings, counted.bytes));
        }
        let temporary = format!(".{}.new", name.to_string_lossy());
        directory.remove_file(&temporary)?;
        let file = directory.create_file(&temporary, FILE_MODE)?;
        let written = self.write_bundle(file, &published, &releases);
        let written =
            written.and_then(|file| file.sync_all().map_err(|source| OsError::new("write", output, source).into()));
        if let Err(error) = written {
            directory.remove_file(&temporary)?;
            return Err(error);
        }
        directory.rename(&temporary, &directory, name)?;
        directory.sync()?;
        let bytes = directory.stat(name)?.map_or(0, |stat| stat.size);
        Ok((warnings, bytes))
    }

    fn write_bundle<W: Write>(
        &self,
        file: W,
        published: &Published,
        releases: &[Chosen],
    ) -> Result<W, RepositoryError> {
        let ids: Vec<ReleaseId> = releases.iter().map(|one| one.id.clone()).collect();
        let mut bundle = BundleWriter::new(BufWriter::with_capacity(1 << 20, file), &ids)?;
        for (name, bytes) in published.members(&ids) {
            bundle.small(&MemberName::Metadata(name), &bytes)?;
        }
        for Chosen { id, files, pieces } in releases {
            let manifest = files.manifest.sha256;
            for (kind, digest) in [
                (ReleaseFile::Manifest(manifest), Some(manifest)),
                (ReleaseFile::Checksums, None),
                (ReleaseFile::Signature, None),
            ] {
                let bytes = self.small_file(id, &kind.to_string(), digest)?;
                if digest.is_none() && bytes.len() > NOTE_BYTES {
                    let path = self.release_directory(id)?.path().join(kind.to_string());
                    return Err(RepositoryError::Damaged { path, reason: "it is too large".to_owned() });
                }
                bundle.small(&MemberName::Small(id.clone(), kind), &bytes)?;
            }
            if let Some(pieces) = pieces {
                let name = MemberName::Small(id.clone(), ReleaseFile::Frames);
                bundle.small(&name, pieces.part.to_string().as_bytes())?;
            }
        }
        for Chosen { id, files, pieces } in releases {
            let mut payload = self.release_directory(id)?.open_file(files.payload_name())?;
            let whole = files.payload.sha256;
            match pieces {
                None => bundle.payload(id, whole, files.payload.length, &mut payload)?,
                Some(Pieces { part, frames }) => {
                    let length = frames.iter().map(|frame| frame.length).sum();
                    bundle.part((id, whole), part.sha256, length, &mut FramesOf::new(payload, frames))?;
                }
            }
        }
        let buffered = bundle.finish()?;
        buffered.into_inner().map_err(|error| OsError::new("write", self.path(), error.into_error()).into())
    }

    /// The frames of a release that hosts with one of the releases `since` lack.
    fn pieces(&self, id: &ReleaseId, files: ReleaseFiles, since: &[Release]) -> Result<Pieces, RepositoryError> {
        let manifest = Manifest::decompressed(&self.manifest(id)?)?;
        let mut lacking: BTreeSet<u64> = BTreeSet::new();
        for release in since {
            let before = ReleaseId { release: release.clone(), ..id.clone() };
            if before == *id || !self.state.releases.contains_key(&before) {
                return Err(RepositoryError::NoSince { id: id.to_string(), since: before.to_string() });
            }
            let held = Contents::of(&Manifest::decompressed(&self.manifest(&before)?)?);
            lacking.extend(rebuild::wanted(&manifest, &held).iter().map(|frame| frame.offset));
        }
        let numbered = manifest.frames.iter().enumerate().filter(|(_, frame)| lacking.contains(&frame.offset));
        let (numbers, frames): (Vec<usize>, Vec<Frame>) = numbered.map(|(number, frame)| (number, *frame)).unzip();
        let payload = self.release_directory(id)?.open_file(files.payload_name())?;
        let mut hashing = Hashing(Hasher::new());
        io::copy(&mut FramesOf::new(payload, &frames), &mut hashing)
            .map_err(|source| OsError::new("read", self.path(), source))?;
        Ok(Pieces { part: Part::new(since.to_vec(), hashing.0.finish(), numbers), frames })
    }
}

/// A release to write.
struct Chosen {
    id: ReleaseId,
    files: ReleaseFiles,
    /// None: the whole payload.
    pieces: Option<Pieces>,
}

/// A part of a payload.
struct Pieces {
    part: Part,
    frames: Vec<Frame>,
}

/// The contents of a release: what a host has that has it.
struct Contents(HashSet<Digest>);

impl Contents {
    fn of(manifest: &Manifest) -> Self {
        let contents = manifest.entries.iter().filter_map(|entry| match entry.kind {
            EntryKind::File { sha256, .. } => Some(sha256),
            EntryKind::Directory { .. } | EntryKind::Link { .. } => None,
        });
        Self(contents.collect())
    }
}

impl Held for Contents {
    fn places(&self, sha256: &Digest) -> usize {
        usize::from(self.0.contains(sha256))
    }

    fn open(&self, _: &Digest, _: usize) -> Option<File> {
        None
    }
}

/// Reads frames of a payload one after another.
struct FramesOf<'a> {
    payload: File,
    frames: std::slice::Iter<'a, Frame>,
    /// What is left of the present one.
    left: u64,
}

impl<'a> FramesOf<'a> {
    fn new(payload: File, frames: &'a [Frame]) -> Self {
        Self { payload, frames: frames.iter(), left: 0 }
    }
}

impl Read for FramesOf<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some(frame) = self.frames.next() else { return Ok(0) };
            self.payload.seek(SeekFrom::Start(frame.offset))?;
            self.left = frame.length;
        }
        let count = (&self.payload).take(self.left).read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Hashes what is written, and keeps nothing.
struct Hashing(Hasher);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what is written, and keeps nothing.
#[derive(Default)]
struct Counted {
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Verifies the bundle as a fresh host would: a bundle that hosts refuse must fail here.
fn rehearse(published: &Published, releases: &[Chosen], now: Timestamp) -> Result<Vec<Warning>, RepositoryError> {
    let files: MetadataFiles = published
        .members(releases.iter().map(|one| &one.id))
        .into_iter()
        .map(|(name, bytes)| (name.to_string(), bytes))
        .collect();
    let first = published.roots.first().expect("a loaded repository has a root").clone();
    let verification = by_hand::verify(&Floor::new(first), &files, now, Expiry::BY_HAND);
    let targets = verification.targets?;
    for Chosen { id, files, .. } in releases {
        targets.require(&target::manifest(id), &files.manifest.sha256)?;
        targets.require(&target::payload(id), &files.payload.sha256)?;
    }
    Ok(verification.warnings)
}
