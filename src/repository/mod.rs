//! The author's repository directory: signed, and served as plain static files.
//!
//! ```text
//! REPO/author/repository.json   the releases to publish (schema 1); clients never read it
//! REPO/author/pending/          files that wait for signatures: N.ROLE.json, N.ROLE.KEYID.sig
//! REPO/metadata/                N.root.json, N.targets.json, N.ROLE.json, N.snapshot.json, timestamp.json
//! REPO/targets/PACKAGE/RELEASE/PLATFORM/   <sha256>.manifest.json.zst, <sha256>.payload.tar.zst, SHA256SUMS, SHA256SUMS.minisig
//! ```
//!
//! `add` copies a packed release; `stage` drafts the files to sign; each person's `sign` adds a signature; `publish` publishes complete
//! files, and signs snapshot and timestamp; `export` writes published releases into one file. With one key `publish` does all of it. Until
//! `timestamp.json` is replaced, files are only added: a reader sees the old set or the new one.

mod add;
mod changes;
mod error;
mod export;
mod frame_files;
mod init;
mod publish;
mod published;
mod signing;
mod state;
mod status;
mod withdraw;

use signing::{at_once, chosen, pending, role, rotate, rule, sign, stage};

pub use add::Added;
pub use at_once::PackedRelease;
pub use changes::Change;
pub use error::RepositoryError;
pub use publish::{Publication, PublishKeys, Renewal};
pub use role::{RoleName, SignedRole};
pub use rotate::{RotatedRole, Rotation};
pub use sign::SignedNow;
pub use stage::{Discarded, Need, Waiting};
pub use state::{Delegation, FileInfo, ManifestPatch, ReleaseFiles, Withdrawn};
pub use status::{PublishedFile, Status};
pub use withdraw::Withdrawal;

use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::lock::{LOCK, LockFile};
use crate::os::place::{Effect, Held, Place};
use pending::Pending;
use published::Published;
use state::State;
use std::io;
use std::path::{Path, PathBuf};

const METADATA: &str = "metadata";
const TARGETS: &str = "targets";
const AUTHOR: &str = "author";
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// Of a file, and of a directory that is made for it.
const MODES: (u32, u32) = (FILE_MODE, DIRECTORY_MODE);

/// A repository directory, locked for this command.
#[derive(Debug)]
pub struct Repository {
    place: Place,
    state: State,
    _lock: Held,
}

/// A release in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub id: ReleaseId,
    /// Its files.
    pub files: ReleaseFiles,
    /// True when the newest metadata lists it; false: only staged.
    pub is_published: bool,
}

impl Repository {
    /// Opens the repository at `path` and takes its lock.
    pub fn open(path: &Path) -> Result<Self, RepositoryError> {
        Self::open_for(path, Effect::Apply)
    }

    /// The same; in a dry run every change stays in memory, where this value finds it.
    pub fn open_for(path: &Path, effect: Effect) -> Result<Self, RepositoryError> {
        let none = || RepositoryError::NoRepository { path: path.to_owned() };
        let place = Place::open(path, effect)?.ok_or_else(none)?;
        place.directory(Path::new(METADATA))?.ok_or_else(none)?;
        if !has_first_root(&place)? {
            return Err(none());
        }
        let lock = lock(&place)?;
        let state = State::load(&place)?;
        Ok(Self { place, state, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// All releases, staged and published, ascending.
    pub fn releases(&self) -> Result<Vec<Listed>, RepositoryError> {
        let published = Published::load(&self.place)?;
        let listed = |(id, files): (&ReleaseId, &ReleaseFiles)| Listed {
            id: id.clone(),
            files: *files,
            is_published: published.lists(id, files),
        };
        Ok(self.state.releases.iter().map(listed).collect())
    }

    /// The compressed manifest of a release, for the next `pack` to compare with.
    pub fn manifest(&self, id: &ReleaseId) -> Result<Vec<u8>, RepositoryError> {
        let files = self.state.releases.get(id).ok_or_else(|| self.unknown(id))?;
        self.small_file(id, &files.manifest_name(), Some(files.manifest.sha256))
    }

    /// The published files, and the files that wait for signatures.
    fn load(&self) -> Result<(Published, Pending), RepositoryError> {
        let published = Published::load(&self.place)?;
        let pending = Pending::load(&self.place, &published)?;
        Ok((published, pending))
    }

    fn unknown(&self, id: &ReleaseId) -> RepositoryError {
        RepositoryError::Unknown { path: self.path().to_owned(), id: id.to_string() }
    }

    fn remove_release(&self, id: &ReleaseId) -> Result<(), RepositoryError> {
        Ok(self.place.remove(release_path(id))?)
    }

    /// The release's directory as it is on disk.
    fn release_directory(&self, id: &ReleaseId) -> Result<Dir, RepositoryError> {
        let path = release_path(id);
        let missing =
            || OsError::new("open directory", &self.path().join(&path), io::Error::from(io::ErrorKind::NotFound));
        Ok(self.place.directory(&path)?.ok_or_else(missing)?)
    }

    /// Writes a small file of the repository.
    fn write_file(&self, file: &Path, bytes: &[u8]) -> Result<(), RepositoryError> {
        Ok(self.place.write(file, bytes, MODES)?)
    }

    /// A small file of a release, compared with its digest if known.
    fn small_file(&self, id: &ReleaseId, name: &str, digest: Option<Digest>) -> Result<Vec<u8>, RepositoryError> {
        let file = release_path(id).join(name);
        let bytes = self.place.read_existing(&file, crate::bundle::limits::MANIFEST_COMPRESSED_MAXIMUM_BYTES)?;
        if digest.is_some_and(|digest| digest != Digest::of(&bytes)) {
            let reason = "its bytes don't match the digest in its name".to_owned();
            return Err(RepositoryError::Damaged { path: self.path().join(file), reason });
        }
        Ok(bytes)
    }
}

/// The lock lies in `author/`, which is not served.
fn lock(place: &Place) -> Result<Held, RepositoryError> {
    let author = Path::new(AUTHOR);
    if let Some(held) = place.lock(author, DIRECTORY_MODE, LOCK)? {
        return Ok(held);
    }
    let holder = place.directory(author)?.and_then(|author| LockFile::new(&author, LOCK).holder());
    Err(RepositoryError::Locked { path: place.path().to_owned(), holder })
}

/// True for a repository: it has its first root, or a first root that waits for signatures.
fn has_first_root(place: &Place) -> Result<bool, RepositoryError> {
    let first = SignedRole::Root.file(1);
    let waits = Path::new(AUTHOR).join(pending::PENDING).join(&first);
    Ok(place.length(Path::new(METADATA).join(&first))?.is_some() || place.length(waits)?.is_some())
}

/// The directory of a release's files, below the repository.
fn release_path(id: &ReleaseId) -> PathBuf {
    Path::new(TARGETS).join(id.to_string())
}
