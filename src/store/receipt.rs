//! The receipt of an installed release: its manifest and the metadata that authorised it, verbatim, and its stat index.

use super::index::{FileTime, INDEX_LENGTH_MAXIMUM, Index};
use super::{PackageLock, Result, Store, StoreError};
use crate::bundle::limits::MANIFEST_COMPRESSED_MAXIMUM_BYTES;
use crate::bundle::manifest::{Head, Manifest, ManifestError};
use crate::crash_point;
use crate::digest::Digest;
use crate::failure::Report;
use crate::os::dir::Dir;
use crate::trust::Floor;
use crate::version::Release;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MANIFEST_NAME: &str = "manifest.json.zst";
const INDEX_NAME: &str = "index";
const FILE_MODE: u32 = 0o644;

/// The files of a receipt.
#[derive(Debug)]
pub struct Receipt<'a> {
    /// The compressed manifest as signed.
    pub manifest: &'a [u8],
    /// The metadata that authorised it.
    pub authority: &'a Floor,
    /// The stat index of the tree; None: the next check hashes everything.
    pub index: Option<&'a Index>,
}

impl Store {
    /// Writes a receipt under a temporary name and renames it: from then on the release is installed.
    pub(super) fn write_receipt(&self, _lock: &PackageLock, release: &Release, receipt: &Receipt<'_>) -> Result<()> {
        let receipts = Dir::open(&self.layout.receipts(&self.package))?;
        let (name, temporary) = (release.to_string(), format!(".{release}.new"));
        receipts.remove_tree(&temporary)?;
        receipts.make_dir(&temporary, 0o755)?;
        let directory = receipts.child(&temporary)?;
        for (role, bytes) in receipt.authority.files() {
            directory.write_atomic(role.file(), bytes, FILE_MODE)?;
        }
        for bytes in receipt.authority.delegated.values() {
            // A role's name may be any text: its digest names the file.
            directory.write_atomic(format!("{}.delegated.json", Digest::of(bytes)), bytes, FILE_MODE)?;
        }
        directory.write_atomic(MANIFEST_NAME, receipt.manifest, FILE_MODE)?;
        if let Some(index) = receipt.index {
            directory.write_atomic(INDEX_NAME, &index.to_bytes(), FILE_MODE)?;
        }
        crash_point!("receipt.written");
        receipts.rename(&temporary, &receipts, &name)?;
        receipts.sync()?;
        crash_point!("receipt.renamed");
        Ok(())
    }

    pub(super) fn receipt(&self, release: &Release) -> Result<Dir> {
        self.tree(release)?;
        Ok(Dir::open(&self.layout.receipts(&self.package))?.child(release.to_string())?)
    }

    /// The manifest of an installed release.
    pub fn manifest(&self, release: &Release) -> Result<Manifest> {
        Manifest::decompressed(&self.manifest_bytes(release)?).map_err(|error| self.corrupt(release, &error))
    }

    /// The head of an installed release's manifest: all but its entries, in a fraction of the time.
    pub fn head(&self, release: &Release) -> Result<Head> {
        Head::decompressed(&self.manifest_bytes(release)?).map_err(|error| self.corrupt(release, &error))
    }

    fn corrupt(&self, release: &Release, error: &ManifestError) -> StoreError {
        let path = self.layout.receipts(&self.package).join(release.to_string()).join(MANIFEST_NAME);
        StoreError::Corrupt { path, reason: Report::new(error.class(), error, None).to_string() }
    }

    /// The digest of the compressed manifest of an installed release.
    pub fn manifest_digest(&self, release: &Release) -> Result<Digest> {
        Ok(Digest::of(&self.manifest_bytes(release)?))
    }

    /// The compressed manifest of an installed release, as signed.
    pub fn manifest_bytes(&self, release: &Release) -> Result<Vec<u8>> {
        Ok(self.receipt(release)?.read(MANIFEST_NAME, MANIFEST_COMPRESSED_MAXIMUM_BYTES)?)
    }

    /// Stores the index after a check. After a failure the next check hashes the same files again; two writers at once may spoil the file, whose
    /// checksum then makes the next check hash everything.
    pub(super) fn renew_index(&self, release: &Release, index: &Index) {
        let _ = self.receipt(release).map(|receipt| receipt.write_atomic(INDEX_NAME, &index.to_bytes(), FILE_MODE));
    }

    /// The directories of a tree that hold entries, relative to it.
    pub fn directories(&self, release: &Release) -> Result<Vec<PathBuf>> {
        // The index is read faster than the manifest.
        if let Ok((index, _)) = self.index(release) {
            return Ok(index.directories().map(Path::to_owned).collect());
        }
        let manifest = self.manifest(release)?;
        let parents: BTreeSet<&str> = manifest.entries.iter().map(|entry| entry.path.split().0).collect();
        Ok(parents.into_iter().map(PathBuf::from).collect())
    }

    /// When a release was installed here; None: unknown.
    pub fn installed_at(&self, release: &Release) -> Result<Option<Timestamp>> {
        let Some(stat) = self.receipt(release)?.stat(MANIFEST_NAME)? else { return Ok(None) };
        let nanoseconds = i32::try_from(stat.mtime.1).ok();
        Ok(nanoseconds.and_then(|nanoseconds| Timestamp::new(stat.mtime.0, nanoseconds).ok()))
    }

    /// The index, and when it was written.
    pub(super) fn index(&self, release: &Release) -> Result<(Index, FileTime)> {
        let directory = self.receipt(release)?;
        let path = directory.path().join(INDEX_NAME);
        let missing = || StoreError::Corrupt { path: path.clone(), reason: "it is missing".to_owned() };
        // The time is read first: an index that is renewed meanwhile counts as older than it is, never as younger.
        let taken = directory.stat(INDEX_NAME)?.ok_or_else(missing)?.mtime;
        Ok((Index::parse(directory.read(INDEX_NAME, INDEX_LENGTH_MAXIMUM)?, &path)?, taken))
    }
}
