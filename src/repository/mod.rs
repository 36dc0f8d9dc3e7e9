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
use crate::os::dir::Dir;
use crate::os::lock::{LOCK, Lock, LockFile};
use pending::Pending;
use published::Published;
use state::State;
use std::path::Path;

const METADATA: &str = "metadata";
const TARGETS: &str = "targets";
const AUTHOR: &str = "author";
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A repository directory, locked for this command.
#[derive(Debug)]
pub struct Repository {
    directory: Dir,
    state: State,
    _lock: Lock,
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
        let none = || RepositoryError::NoRepository { path: path.to_owned() };
        let directory = Dir::open_if_exists(path)?.ok_or_else(none)?;
        let metadata = directory.child_if_exists(METADATA)?.ok_or_else(none)?;
        let first = "1.root.json";
        if metadata.stat(first)?.is_none() {
            // A repository may still wait for signatures on its first root.
            let waits = directory.stat_path(&Path::new(AUTHOR).join(pending::PENDING).join(first))?;
            waits.ok_or_else(none)?;
        }
        let lock = lock(&directory)?;
        let state = State::load(&directory)?;
        Ok(Self { directory, state, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// All releases, staged and published, ascending.
    pub fn releases(&self) -> Result<Vec<Listed>, RepositoryError> {
        let published = Published::load(&self.directory)?;
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
        let published = Published::load(&self.directory)?;
        let pending = Pending::load(&self.directory, &published)?;
        Ok((published, pending))
    }

    fn unknown(&self, id: &ReleaseId) -> RepositoryError {
        RepositoryError::Unknown { path: self.path().to_owned(), id: id.to_string() }
    }

    fn remove_release(&self, id: &ReleaseId) -> Result<(), RepositoryError> {
        let release = Path::new(TARGETS).join(id.package.as_str()).join(id.release.to_string());
        Ok(self.directory.beneath(&release)?.remove_tree(id.platform.to_string())?)
    }

    fn release_directory(&self, id: &ReleaseId) -> Result<Dir, RepositoryError> {
        Ok(self.directory.beneath(&Path::new(TARGETS).join(id.to_string()))?)
    }

    /// A small file of a release, compared with its digest if known.
    fn small_file(&self, id: &ReleaseId, name: &str, digest: Option<Digest>) -> Result<Vec<u8>, RepositoryError> {
        let directory = self.release_directory(id)?;
        let bytes = directory.read(name, crate::bundle::limits::MANIFEST_COMPRESSED_MAXIMUM_BYTES)?;
        if digest.is_some_and(|digest| digest != Digest::of(&bytes)) {
            let reason = "its bytes don't match the digest in its name".to_owned();
            return Err(RepositoryError::Damaged { path: directory.path().join(name), reason });
        }
        Ok(bytes)
    }
}

/// The lock lies in `author/`, which is not served.
fn lock(directory: &Dir) -> Result<Lock, RepositoryError> {
    let author = directory.child_or_create(AUTHOR, DIRECTORY_MODE)?;
    let file = LockFile::new(&author, LOCK);
    let busy = || RepositoryError::Locked { path: directory.path().to_owned(), holder: file.holder() };
    file.try_exclusive()?.ok_or_else(busy)
}
