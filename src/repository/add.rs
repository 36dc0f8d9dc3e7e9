//! Takes a packed release into a repository: copied, compared with its manifest, staged.

use super::{
    DIRECTORY_MODE, FILE_MODE, FileInfo, ManifestPatch, ReleaseFiles, Repository, RepositoryError, release_path,
};
use crate::bundle::manifest::{self, Manifest};
use crate::bundle::member::ReleaseId;
use crate::crash_point;
use crate::digest::{Digest, Hasher};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::trust::target;
use std::io::{self, Read, Write};
use std::path::Path;

/// The name of a payload while it is copied; the next `add` replaces the leftover of a crash.
const INCOMING: &str = ".payload.new";

/// The result of adding a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// Staged now.
    Staged(ReleaseId),
    /// Already there, with the same bytes.
    Already(ReleaseId),
}

impl Repository {
    /// Stages a packed release. The payload must have its manifest's length and digest. The same release with other bytes is a conflict,
    /// also after it was withdrawn: hosts may have it.
    pub fn add(&mut self, manifest_bytes: &[u8], payload: &mut dyn Read) -> Result<Added, RepositoryError> {
        let text = manifest::decompress(manifest_bytes)?;
        let manifest = Manifest::parse(&text)?;
        let id = manifest.id();
        let files = ReleaseFiles {
            manifest: FileInfo { length: manifest_bytes.len() as u64, sha256: Digest::of(manifest_bytes) },
            payload: FileInfo { length: manifest.payload.length, sha256: manifest.payload.sha256 },
            patch: None,
        };
        match self.state.releases.get(&id) {
            Some(known) if known.are(&files) => return Ok(Added::Already(id)),
            Some(_) => return Err(RepositoryError::Conflict { path: self.path().to_owned(), id: id.to_string() }),
            None => {}
        }
        if self.state.withdrawn.get(&id).is_some_and(|withdrawn| !withdrawn.files.are(&files)) {
            return Err(RepositoryError::Conflict { path: self.path().to_owned(), id: id.to_string() });
        }
        let place = release_path(&id);
        match self.place.make(&place, DIRECTORY_MODE)? {
            Some(directory) => copy_payload(&directory, payload, &files)?,
            None => self.read_payload(&place, payload, &files)?,
        }
        crash_point!("repository.payload_copied");
        self.write_file(&place.join(files.manifest_name()), manifest_bytes)?;
        let patch = self.patch(&id, &text)?;
        self.state.releases.insert(id.clone(), ReleaseFiles { patch, ..files });
        self.state.store(&self.place)?;
        Ok(Added::Staged(id))
    }

    /// Compares a payload with its manifest, for a dry run.
    fn read_payload(&self, path: &Path, payload: &mut dyn Read, files: &ReleaseFiles) -> Result<(), RepositoryError> {
        let read = copy(payload, &mut io::sink(), files.payload.length);
        if read.map_err(|source| OsError::new("read the payload for", path, source))?
            != (files.payload.length, files.payload.sha256)
        {
            return Err(RepositoryError::OtherPayload);
        }
        Ok(self.place.note_copy(path.join(files.payload_name()), files.payload.length)?)
    }

    /// Writes the patch from the newest older manifest of the same platform, which most hosts have, to `text`, the manifest of `id`. None:
    /// no older release, or too little saved for a second request.
    fn patch(&self, id: &ReleaseId, text: &[u8]) -> Result<Option<ManifestPatch>, RepositoryError> {
        let same = |other: &&ReleaseId| other.package == id.package && other.platform == id.platform;
        let older = self.state.releases.keys().filter(same).filter(|other| other.release < id.release);
        let Some(older) = older.max_by_key(|other| &other.release) else { return Ok(None) };
        let bytes = self.manifest(older)?;
        let patch = manifest::patch(&manifest::decompress(&bytes)?, text)?;
        if patch.len() > bytes.len() / 2 {
            return Ok(None);
        }
        let file = FileInfo { length: patch.len() as u64, sha256: Digest::of(&patch) };
        let from = Digest::of(&bytes);
        let name = target::manifest_patch(id, &from);
        let name = name.rsplit_once('/').map_or(name.as_str(), |(_, name)| name);
        self.write_file(&release_path(id).join(format!("{}.{name}", file.sha256)), &patch)?;
        Ok(Some(ManifestPatch { from, file }))
    }
}

fn copy_payload(directory: &Dir, payload: &mut dyn Read, files: &ReleaseFiles) -> Result<(), RepositoryError> {
    directory.remove_file(INCOMING)?;
    let mut file = directory.create_file(INCOMING, FILE_MODE)?;
    let copied = copy(payload, &mut file, files.payload.length).and_then(|copied| file.sync_all().map(|()| copied));
    match copied {
        Ok(copied) if copied == (files.payload.length, files.payload.sha256) => {
            directory.rename(INCOMING, directory, files.payload_name())?;
            Ok(directory.sync()?)
        }
        Ok(_) => {
            directory.remove_file(INCOMING)?;
            Err(RepositoryError::OtherPayload)
        }
        Err(source) => {
            directory.remove_file(INCOMING)?;
            Err(OsError::new("copy the payload to", directory.path(), source).into())
        }
    }
}

/// Copies at most one byte more than `length`; returns the length and digest of the copy.
fn copy(from: &mut dyn Read, into: &mut dyn Write, length: u64) -> io::Result<(u64, Digest)> {
    let mut from = from.take(length.saturating_add(1));
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut copied = 0;
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok((copied, hasher.finish()));
        }
        hasher.update(&buffer[..count]);
        into.write_all(&buffer[..count])?;
        copied += count as u64;
    }
}
