//! An open directory: its entries opened and read. Names are relative to its descriptor: a moved directory changes no operation.

pub use crate::os::file_stat::{FileKind, FileStat};
use crate::os::space::Space;
use crate::os::{OsError, Result, file};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const CHILD: OFlags = DIRECTORY.union(OFlags::NOFOLLOW);

/// An open directory and the path it was opened by (for messages only).
#[derive(Debug)]
pub struct Dir {
    pub(in crate::os) fd: OwnedFd,
    pub(in crate::os) path: PathBuf,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens a directory by a path that the caller trusts; links are followed.
    pub fn open(path: &Path) -> Result<Self> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty())
            .map_err(|errno| OsError::new("open directory", path, errno))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// The same; None without a directory.
    pub fn open_if_exists(path: &Path) -> Result<Option<Self>> {
        absent_is_none(Self::open(path))
    }

    /// The path by which the directory was opened. For messages, and for programs that need a path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second handle on the same directory.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|source| OsError::new("reopen", &self.path, source))?;
        Ok(Self { fd, path: self.path.clone() })
    }

    pub(in crate::os) fn error(&self, verb: &str, name: &OsStr, source: impl Into<io::Error>) -> OsError {
        OsError::new(verb, &self.path.join(name), source)
    }

    /// Opens the directory `name` in this one; a link is refused.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = single(name.as_ref(), &self.path)?;
        let fd = rustix::fs::openat(&self.fd, name, CHILD, Mode::empty()).map_err(|errno| {
            let is_link = matches!(self.stat(name), Ok(Some(stat)) if stat.kind == FileKind::Symlink);
            let source = if is_link { crate::os::not_a_link() } else { errno.into() };
            self.error("open directory", name, source)
        })?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// The same; None without a directory.
    pub fn child_if_exists(&self, name: impl AsRef<OsStr>) -> Result<Option<Self>> {
        absent_is_none(self.child(name))
    }

    /// Opens a directory below this one. `relative` must not leave it, and no component may be a link.
    pub fn beneath(&self, relative: &Path) -> Result<Self> {
        let path = self.path.join(relative);
        if relative.as_os_str().is_empty() {
            return self.try_clone();
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.fd, relative, DIRECTORY, Mode::empty(), resolve) {
            Ok(fd) => Ok(Self { fd, path }),
            // Old kernels lack it; seccomp filters of containers answer EPERM.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => self.beneath_step_by_step(relative),
            Err(errno) => Err(OsError::new("open directory", &path, errno)),
        }
    }

    fn beneath_step_by_step(&self, relative: &Path) -> Result<Self> {
        let mut dir = self.try_clone()?;
        for component in relative.components() {
            let Component::Normal(name) = component else {
                return Err(OsError::new("open directory", &self.path.join(relative), Errno::XDEV));
            };
            dir = dir.child(name)?;
        }
        Ok(dir)
    }

    /// Opens a file to read; a link is refused, and a pipe doesn't block.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let name = single(name.as_ref(), &self.path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|errno| self.error("open", name, errno))?;
        Ok(fd.into())
    }

    /// The same for a file below this directory. `relative` must not leave it, and no component may be a link. The time of the last access stays:
    /// to read a whole release would write to each of its inodes.
    pub fn open_file_beneath(&self, relative: &Path) -> Result<File> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOATIME;
        match rustix::fs::openat2(&self.fd, relative, flags, Mode::empty(), resolve) {
            Ok(fd) => Ok(fd.into()),
            // As in `beneath`; and only a file's owner, or root, may keep its time of access.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
                let parent = self.beneath(relative.parent().unwrap_or(Path::new("")))?;
                parent.open_file(relative.file_name().unwrap_or_default())
            }
            Err(errno) => Err(OsError::new("open", &self.path.join(relative), errno)),
        }
    }

    /// Reads a file of at most `limit` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> Result<Vec<u8>> {
        file::read_open(self.open_file(name.as_ref())?, &self.path.join(name.as_ref()), limit)
    }

    /// The same; None without a file.
    pub fn read_if_exists(&self, name: impl AsRef<OsStr>, limit: u64) -> Result<Option<Vec<u8>>> {
        absent_is_none(self.read(name, limit))
    }

    /// The target of the link `name`; None without an entry.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> Result<Option<PathBuf>> {
        let name = single(name.as_ref(), &self.path)?;
        match rustix::fs::readlinkat(&self.fd, name, Vec::new()) {
            Ok(target) => Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes())))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("read link", name, errno)),
        }
    }

    /// The stat of the entry `name`, links not followed; None without an entry.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> Result<Option<FileStat>> {
        let name = single(name.as_ref(), &self.path)?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("look at", name, errno)),
        }
    }

    /// The stat of the entry at a path of several components. Links among the parents are followed: for callers that check the parents, too.
    pub fn stat_path(&self, relative: &Path) -> Result<Option<FileStat>> {
        match rustix::fs::statat(&self.fd, relative, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(OsError::new("look at", &self.path.join(relative), errno)),
        }
    }

    /// An error if this process may not make entries here.
    pub fn check_writable(&self) -> io::Result<()> {
        let may = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        match rustix::fs::accessat(&self.fd, ".", may, AtFlags::EACCESS) {
            // Kernels below 5.8, and containers that forbid what those lack: the rights of the real user, which is the same one here.
            Err(Errno::NOSYS | Errno::PERM) => Ok(rustix::fs::accessat(&self.fd, ".", may, AtFlags::empty())?),
            result => Ok(result?),
        }
    }

    /// The stat of this directory.
    pub fn stat_self(&self) -> Result<FileStat> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| OsError::new("look at", &self.path, errno))?;
        Ok(stat.into())
    }

    /// The entries with their kinds, sorted by name.
    pub fn entries(&self) -> Result<Vec<(OsString, FileKind)>> {
        let failed = |errno: Errno| OsError::new("list", &self.path, errno);
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match self.stat(&name)? {
                    Some(stat) => stat.kind,
                    None => continue,
                },
                known => FileKind::of(known),
            };
            entries.push((name, kind));
        }
        entries.sort();
        Ok(entries)
    }

    /// The names of the entries, sorted.
    pub fn names(&self) -> Result<Vec<OsString>> {
        Ok(self.entries()?.into_iter().map(|(name, _)| name).collect())
    }

    /// Bytes and inodes left where this directory is.
    pub fn space(&self) -> Result<Space> {
        Space::of(&self.fd).map_err(|errno| OsError::new("measure the space at", &self.path, errno))
    }

    /// Bytes that the files below take, links counted as themselves.
    pub fn content_bytes(&self) -> Result<u64> {
        let failed = |error: fs_extra::error::Error| match error.kind {
            fs_extra::error::ErrorKind::Io(source) => OsError::new("measure", &self.path, source),
            _ => OsError::new("measure", &self.path, io::Error::other(error.to_string())),
        };
        fs_extra::dir::get_size(&self.path).map_err(failed)
    }

    /// A descriptor of the directory for a lock: flock needs an open file description of its own.
    pub fn lock_fd(&self) -> Result<OwnedFd> {
        rustix::fs::openat(&self.fd, ".", DIRECTORY, Mode::empty())
            .map_err(|errno| OsError::new("open", &self.path, errno))
    }
}

fn absent_is_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses all but a single path component: this keeps every operation inside its directory.
pub(in crate::os) fn single<'a>(name: &'a OsStr, directory: &Path) -> Result<&'a OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => {}
        bytes if bytes.contains(&b'/') => {}
        _ => return Ok(name),
    }
    Err(OsError::new("use as a name in its directory", &directory.join(name), Errno::INVAL))
}
