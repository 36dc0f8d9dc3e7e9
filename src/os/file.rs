//! Input files that a person named, and output files that a person asked for: paths as given, links followed.

use super::{OsError, Result};
use crate::effect;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Opens a regular file to read. A directory or device is refused with its kind in the message.
pub fn open(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|source| OsError::new("open", path, source))?;
    let metadata = file.metadata().map_err(|source| OsError::new("look at", path, source))?;
    if metadata.is_dir() {
        let source = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory, not a file");
        return Err(OsError::new("read", path, source));
    }
    Ok(file)
}

/// Reads a whole file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_open(open(path)?, path, limit)
}

/// Reads a whole file of at most `limit` bytes; None where there is none.
pub fn read_if_exists(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    match read(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Permission bits that a file with a secret in it must not have: others can't look into it, a group can't change it.
const SECRET_FORBIDDEN_MODE: u32 = 0o027;

/// Reads a whole file of at most `limit` bytes that has a secret in it; one that others may read is refused.
pub fn read_secret(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let mode = mode(&file, path)?;
    if mode & SECRET_FORBIDDEN_MODE != 0 {
        let reason = format!("others may read or change it (mode {mode:04o}): `chmod 600` it");
        return Err(OsError::new("use", path, io::Error::other(reason)));
    }
    read_open(file, path, limit)
}

/// The permission bits of an open file.
pub fn mode(file: &File, path: &Path) -> Result<u32> {
    let metadata = file.metadata().map_err(|source| OsError::new("look at", path, source))?;
    Ok(metadata.mode() & 0o7777)
}

/// Reads the rest of an open file, refusing more than `limit` bytes.
pub fn read_open(file: File, path: &Path, limit: u64) -> Result<Vec<u8>> {
    // Its length is a hint, not a promise: one byte more shows that it ends there.
    let length = file.metadata().map_or(0, |metadata| metadata.len().min(limit));
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| OsError::new("read", path, source))?;
    if bytes.len() as u64 > limit {
        let source = io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit} bytes"));
        return Err(OsError::new("read", path, source));
    }
    Ok(bytes)
}

/// Makes a file's content survive a power cut; its name is its directory's.
pub fn sync(file: &File) -> io::Result<()> {
    file.sync_all()?;
    effect!(Sync(std::os::fd::AsFd::as_fd(file)));
    Ok(())
}

/// The file's canonical path, links resolved.
pub fn canonical(path: &Path) -> Result<std::path::PathBuf> {
    std::fs::canonicalize(path).map_err(|source| OsError::new("resolve", path, source))
}
