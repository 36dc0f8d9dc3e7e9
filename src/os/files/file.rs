//! Files by their paths, links followed: settings, and inputs and outputs that a person named.

use crate::effect;
use crate::os::file_stat::FileStat;
use crate::os::{OsError, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

/// Opens a regular file to read: settings, keys, sidle's own files. Other kinds are refused by name; a pipe is not waited for.
pub fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        // open(2) of a socket.
        Err(Errno::NXIO) => return Err(not_a_file(path, io::ErrorKind::InvalidInput, "socket or device")),
        Err(errno) => return Err(OsError::new("open", path, errno)),
    };
    require_file(&file, path)?;
    Ok(file)
}

/// Opens an input that a person named: a file, or a pipe, whose writer is waited for.
pub fn open_input(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(|source| OsError::new("open", path, source))?;
    match require_file(&file, path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Err(error),
        _ => Ok(file),
    }
}

/// Reads an input that a person named: a file or a pipe, of at most `limit` bytes.
pub fn read_input(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_rest(open_input(path)?, path, limit)
}

/// An error if this process may not write to the file.
pub fn check_writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

/// The stat of `path`, links followed; None without an entry.
pub fn stat(path: &Path) -> Result<Option<FileStat>> {
    match rustix::fs::stat(path) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(OsError::new("look at", path, errno)),
    }
}

/// Whether `path` may be read as an input: it exists and is no directory.
pub fn is_input(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_dir())
}

fn require_file(file: &File, path: &Path) -> Result<()> {
    let kind = file.metadata().map_err(|source| OsError::new("look at", path, source))?.file_type();
    let (error, found) = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => (io::ErrorKind::IsADirectory, "directory"),
        kind if kind.is_fifo() => (io::ErrorKind::InvalidInput, "pipe"),
        kind if kind.is_socket() => (io::ErrorKind::InvalidInput, "socket"),
        _ => (io::ErrorKind::InvalidInput, "device"),
    };
    Err(not_a_file(path, error, found))
}

fn not_a_file(path: &Path, kind: io::ErrorKind, found: &str) -> OsError {
    OsError::new("read", path, io::Error::new(kind, format!("it is a {found}, not a file")))
}

/// Reads a whole file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    read_rest(open(path)?, path, limit)
}

/// The same; None without a file.
pub fn read_if_exists(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    match read(path, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the end of a file, at most `limit` bytes: a log grows without bound. None without a file.
pub fn read_end_if_exists(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let failed = |source| OsError::new("read", path, source);
    let length = file.metadata().map_err(failed)?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(limit))).map_err(failed)?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Forbidden permission bits of a secret file: others may not read it, a group may not write it.
const SECRET_FORBIDDEN_MODE: u32 = 0o027;

/// Reads a secret file of at most `limit` bytes; refuses a file that others may read.
pub fn read_secret(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let mode = mode(&file, path)?;
    if mode & SECRET_FORBIDDEN_MODE != 0 {
        let reason = format!("other users may read or change it (mode {mode:04o}): `chmod 600` it");
        return Err(OsError::new("use", path, io::Error::other(reason)));
    }
    read_rest(file, path, limit)
}

/// The permission bits of an open file.
pub fn mode(file: &File, path: &Path) -> Result<u32> {
    let metadata = file.metadata().map_err(|source| OsError::new("look at", path, source))?;
    Ok(metadata.mode() & 0o7777)
}

/// Reads the rest of an open regular file, refusing more than `limit` bytes.
pub fn read_open(file: File, path: &Path, limit: u64) -> Result<Vec<u8>> {
    require_file(&file, path)?;
    read_rest(file, path, limit)
}

fn read_rest(file: File, path: &Path, limit: u64) -> Result<Vec<u8>> {
    // The length is only a hint: one byte more shows that the file ends there.
    let length = file.metadata().map_or(0, |metadata| metadata.len().min(limit));
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0).saturating_add(1));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| OsError::new("read", path, source))?;
    if bytes.len() as u64 > limit {
        let source = io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit} bytes"));
        return Err(OsError::new("read", path, source));
    }
    Ok(bytes)
}

/// What a file was when another one began to share its blocks.
pub struct Cloned(FileStat);

impl Cloned {
    /// Whether nobody has written to the file since: what is read of it is what was cloned.
    pub fn is_unchanged(&self, file: &File) -> bool {
        let stat = rustix::fs::fstat(file).map(FileStat::from);
        stat.is_ok_and(|now| (now.size, now.mtime, now.ctime) == (self.0.size, self.0.mtime, self.0.ctime))
    }
}

/// Gives the empty file `into` the content of `from`, by sharing its blocks; None: their file system can't, and nothing was done.
pub fn clone(from: &File, into: &File) -> Option<Cloned> {
    let stat = rustix::fs::fstat(from).ok()?;
    rustix::fs::ioctl_ficlone(into, from).ok()?;
    Some(Cloned(stat.into()))
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
