//! Writes published releases and the metadata that vouches for them into one bundle file.

use super::published::Published;
use super::{FILE_MODE, ReleaseFiles, Repository, RepositoryError};
use crate::bundle::file::BundleWriter;
use crate::bundle::member::{MemberName, ReleaseFile, ReleaseId};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::place::Effect;
use crate::trust::{Expiry, Floor, MetadataFiles, Warning, by_hand, target};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Largest SHA256SUMS or minisig read; ours have a few hundred bytes.
const NOTE_BYTES: usize = 64 * 1024;

impl Repository {
    /// Writes published releases into the bundle file `output`, which appears whole or not at all. The content is verified first, as a host
    /// that pinned the first root would; the warnings are that host's.
    /// Also returns the length of the file. In a dry run the file is read together, and written nowhere.
    pub fn export(
        &self,
        ids: &[ReleaseId],
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
        releases: &[(ReleaseId, ReleaseFiles)],
    ) -> Result<W, RepositoryError> {
        let ids: Vec<ReleaseId> = releases.iter().map(|(id, _)| id.clone()).collect();
        let mut bundle = BundleWriter::new(BufWriter::with_capacity(1 << 20, file), &ids)?;
        for (name, bytes) in published.members(&ids) {
            bundle.small(&MemberName::Metadata(name), &bytes)?;
        }
        for (id, files) in releases {
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
        }
        for (id, files) in releases {
            let mut payload = self.release_directory(id)?.open_file(files.payload_name())?;
            bundle.payload(id, files.payload.sha256, files.payload.length, &mut payload)?;
        }
        let buffered = bundle.finish()?;
        buffered.into_inner().map_err(|error| OsError::new("write", self.path(), error.into_error()).into())
    }
}

/// Counts what is written, and keeps nothing.
#[derive(Default)]
struct Counted {
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Verifies the bundle as a fresh host would: a bundle that hosts refuse must fail here.
fn rehearse(
    published: &Published,
    releases: &[(ReleaseId, ReleaseFiles)],
    now: Timestamp,
) -> Result<Vec<Warning>, RepositoryError> {
    let files: MetadataFiles = published
        .members(releases.iter().map(|(id, _)| id))
        .into_iter()
        .map(|(name, bytes)| (name.to_string(), bytes))
        .collect();
    let first = published.roots.first().expect("a loaded repository has a root").clone();
    let verification = by_hand::verify(&Floor::new(first), &files, now, Expiry::BY_HAND);
    let targets = verification.targets?;
    for (id, files) in releases {
        targets.require(&target::manifest(id), &files.manifest.sha256)?;
        targets.require(&target::payload(id), &files.payload.sha256)?;
    }
    Ok(verification.warnings)
}
