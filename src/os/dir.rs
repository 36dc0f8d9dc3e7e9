//! An open directory. All names are relative to its descriptor, so that nobody can move the ground under an operation.

pub use super::file_stat::{FileKind, FileStat};
use super::space::Space;
use super::{OsError, Result, file};
use crate::{crash_point, effect};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Mode of directories that are made on the way to one that is wanted.
const PARENT_MODE: u32 = 0o755;

const CHILD: OFlags = DIRECTORY.union(OFlags::NOFOLLOW);

/// An open directory and the path it was opened by (for messages only).
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
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

    /// Opens a directory by a path that the caller trusts; None where there is none.
    pub fn open_if_exists(path: &Path) -> Result<Option<Self>> {
        absent_is_none(Self::open(path))
    }

    /// Opens a directory, making it with `mode` where it is missing. Missing parents are open to all, as a system's own are: what is private
    /// makes nothing private above it.
    pub fn open_or_create(path: &Path, mode: u32) -> Result<Self> {
        if let Some(dir) = Self::open_if_exists(path)? {
            return Ok(dir);
        }
        let name = path.file_name().ok_or_else(|| OsError::new("create", path, Errno::INVAL))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => Self::open_or_create(parent, PARENT_MODE)?,
            _ => Self::open(Path::new("."))?,
        };
        parent.child_or_create(name, mode)
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

    fn error(&self, verb: &str, name: &OsStr, source: impl Into<io::Error>) -> OsError {
        OsError::new(verb, &self.path.join(name), source)
    }

    /// Opens the directory `name` in this one; a link is refused.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = single(name.as_ref(), &self.path)?;
        let fd = rustix::fs::openat(&self.fd, name, CHILD, Mode::empty()).map_err(|errno| {
            let is_link = matches!(self.stat(name), Ok(Some(stat)) if stat.kind == FileKind::Symlink);
            let source = if is_link { super::not_a_link() } else { errno.into() };
            self.error("open directory", name, source)
        })?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// Opens the directory `name`, None where there is none.
    pub fn child_if_exists(&self, name: impl AsRef<OsStr>) -> Result<Option<Self>> {
        absent_is_none(self.child(name))
    }

    /// Opens the directory `name`, making it with exactly `mode` where it is missing.
    pub fn child_or_create(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<Self> {
        match self.make_dir(name.as_ref(), mode) {
            Ok(()) => self.sync()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        self.child(name)
    }

    /// Makes the directory `name` with exactly `mode`, whatever the umask; an existing one is an error.
    pub fn make_dir(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        // Its final mode from the first instant, where the umask allows: a crash before the next call leaves it usable.
        let created = rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode));
        created.map_err(|errno| self.error("create directory", name, errno))?;
        effect!(MakeDirectory(self.as_fd(), name, mode));
        let child = match self.child(name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // The umask took even its owner's rights away.
                rustix::fs::chmodat(&self.fd, name, Mode::from_raw_mode(mode), AtFlags::empty())
                    .map_err(|errno| self.error("set the mode of", name, errno))?;
                self.child(name)?
            }
            child => child?,
        };
        child.set_own_mode(mode)
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
            // Old kernels don't have it; seccomp filters of containers answer EPERM.
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

    /// Makes a file that must not exist yet, with exactly `mode`, whatever the umask.
    pub fn create_file(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File> {
        let name = single(name.as_ref(), &self.path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|errno| self.error("create", name, errno))?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))
            .map_err(|errno| self.error("set the mode of", name, errno))?;
        effect!(CreateFile(self.as_fd(), name, mode, fd.as_fd()));
        Ok(fd.into())
    }

    /// Opens a file to read; a link is refused, and a pipe doesn't block.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let name = single(name.as_ref(), &self.path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|errno| self.error("open", name, errno))?;
        Ok(fd.into())
    }

    /// Reads a file of at most `limit` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> Result<Vec<u8>> {
        file::read_open(self.open_file(name.as_ref())?, &self.path.join(name.as_ref()), limit)
    }

    /// Reads a file of at most `limit` bytes; None where there is none.
    pub fn read_if_exists(&self, name: impl AsRef<OsStr>, limit: u64) -> Result<Option<Vec<u8>>> {
        absent_is_none(self.read(name, limit))
    }

    /// Replaces the file `name` so that a reader, and a crash at any point, sees the old content or the new, whole.
    pub fn write_atomic(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        let temporary = temporary_name(name);
        self.remove_file(&temporary)?;
        let mut file = self.create_file(&temporary, mode)?;
        crash_point!("write_atomic.created");
        let written = file.write_all(bytes).and_then(|()| file::sync(&file));
        if let Err(source) = written {
            self.remove_file(&temporary)?;
            return Err(self.error("write", name, source));
        }
        crash_point!("write_atomic.written");
        self.rename(&temporary, self, name)?;
        crash_point!("write_atomic.renamed");
        self.sync()
    }

    /// Points the link `name` at `target` so that a reader, and a crash at any point, sees the old link or the new.
    pub fn replace_symlink(&self, target: &Path, name: impl AsRef<OsStr>) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        let temporary = temporary_name(name);
        self.remove_file(&temporary)?;
        self.make_symlink(target, &temporary)?;
        crash_point!("replace_symlink.made");
        self.rename(&temporary, self, name)?;
        crash_point!("replace_symlink.renamed");
        self.sync()
    }

    /// Makes the link `name` to `target`; an existing entry is an error.
    pub fn make_symlink(&self, target: &Path, name: impl AsRef<OsStr>) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        rustix::fs::symlinkat(target, &self.fd, name).map_err(|errno| self.error("create link", name, errno))?;
        effect!(MakeLink(self.as_fd(), name, target));
        Ok(())
    }

    /// Where the link `name` points; None where there is no entry.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> Result<Option<PathBuf>> {
        let name = single(name.as_ref(), &self.path)?;
        match rustix::fs::readlinkat(&self.fd, name, Vec::new()) {
            Ok(target) => Ok(Some(PathBuf::from(OsString::from_vec(target.into_bytes())))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("read link", name, errno)),
        }
    }

    /// Moves the entry `from` to `to` in another directory of the same file system, replacing what a rename replaces.
    pub fn rename(&self, from: impl AsRef<OsStr>, directory: &Self, to: impl AsRef<OsStr>) -> Result<()> {
        let from = single(from.as_ref(), &self.path)?;
        let to = single(to.as_ref(), &directory.path)?;
        rustix::fs::renameat(&self.fd, from, &directory.fd, to).map_err(|errno| self.error("move", from, errno))?;
        effect!(Rename((self.as_fd(), from), (directory.as_fd(), to)));
        Ok(())
    }

    /// Moves the entry `from` to a name that must be free.
    pub fn rename_exclusive(&self, from: impl AsRef<OsStr>, directory: &Self, to: impl AsRef<OsStr>) -> Result<()> {
        let from = single(from.as_ref(), &self.path)?;
        let to = single(to.as_ref(), &directory.path)?;
        match rustix::fs::renameat_with(&self.fd, from, &directory.fd, to, RenameFlags::NOREPLACE) {
            // Old kernels and some file systems lack it; the callers hold the package lock, so look-then-move is safe.
            Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                if directory.stat(to)?.is_some() {
                    return Err(directory.error("create", to, Errno::EXIST));
                }
                self.rename(from, directory, to)
            }
            Err(Errno::EXIST) => Err(directory.error("create", to, Errno::EXIST)),
            result => {
                result.map_err(|errno| self.error("move", from, errno))?;
                effect!(Rename((self.as_fd(), from), (directory.as_fd(), to)));
                Ok(())
            }
        }
    }

    /// What the entry `name` is, links not followed; None where there is none.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> Result<Option<FileStat>> {
        let name = single(name.as_ref(), &self.path)?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("look at", name, errno)),
        }
    }

    /// What the entry at a path of several components is. Only the last component is not followed: for callers who check the parents, too.
    pub fn stat_path(&self, relative: &Path) -> Result<Option<FileStat>> {
        match rustix::fs::statat(&self.fd, relative, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(OsError::new("look at", &self.path.join(relative), errno)),
        }
    }

    /// Gives this directory exactly `mode`.
    pub fn set_own_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|errno| OsError::new("set the mode of", &self.path, errno))
    }

    /// What this directory itself is.
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

    /// Removes a file or link; one that isn't there is fine.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.unlink(single(name.as_ref(), &self.path)?, AtFlags::empty())
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, flags) {
            Ok(()) => {
                effect!(Remove(self.as_fd(), name));
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error("remove", name, errno)),
        }
    }

    /// Removes an entry with all that is below it. Links are removed, never followed; one that isn't there is fine.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        let Some(stat) = self.stat(name)? else { return Ok(()) };
        if stat.kind != FileKind::Directory {
            return self.unlink(name, AtFlags::empty());
        }
        if stat.mode & 0o700 != 0o700 {
            // A tree may hold directories that its owner can't write; only root could remove below them.
            let _ = rustix::fs::chmodat(&self.fd, name, Mode::from_raw_mode(0o700), AtFlags::empty());
        }
        let child = self.child(name)?;
        for (entry, kind) in child.entries()? {
            match kind {
                FileKind::Directory => child.remove_tree(&entry)?,
                FileKind::File | FileKind::Symlink | FileKind::Other => child.unlink(&entry, AtFlags::empty())?,
            }
        }
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    /// Makes changes of names in this directory survive a power cut.
    pub fn sync(&self) -> Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // Some file systems have nothing to sync for a directory and say so.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(errno) => return Err(OsError::new("sync", &self.path, errno)),
        }
        effect!(Sync(self.as_fd()));
        Ok(())
    }

    /// Makes all of this file system survive a power cut.
    pub fn sync_filesystem(&self) -> Result<()> {
        rustix::fs::syncfs(&self.fd).map_err(|errno| OsError::new("sync the file system of", &self.path, errno))?;
        effect!(SyncAll);
        Ok(())
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

    /// A descriptor of the directory for a lock: an open file description of its own, because flock belongs to that.
    pub fn lock_fd(&self) -> Result<OwnedFd> {
        rustix::fs::openat(&self.fd, ".", DIRECTORY, Mode::empty())
            .map_err(|errno| OsError::new("open", &self.path, errno))
    }

    /// Sets the permission bits of the entry `name`, which must not be a link.
    pub fn set_mode(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|errno| self.error("open", name, errno))?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).map_err(|errno| self.error("set the mode of", name, errno))
    }
}

impl Dir {
    /// Gives the entry `name` to a user and a group; a link itself, not what it points to. Nothing is done where it is theirs already.
    pub fn set_owner_of(&self, name: impl AsRef<OsStr>, user: u32, group: u32) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        if self.stat(name)?.is_some_and(|stat| (stat.uid, stat.gid) == (user, group)) {
            return Ok(());
        }
        let (user, group) = (rustix::fs::Uid::from_raw(user), rustix::fs::Gid::from_raw(group));
        rustix::fs::chownat(&self.fd, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.error("change the owner of", name, errno))
    }

    /// Gives this directory to `user`.
    pub fn set_owner(&self, user: u32) -> Result<()> {
        rustix::fs::fchown(&self.lock_fd()?, Some(rustix::fs::Uid::from_raw(user)), None)
            .map_err(|errno| OsError::new("change the owner of", &self.path, errno))
    }
}

fn absent_is_none<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// One path component and nothing else: what keeps every operation inside its directory.
fn single<'a>(name: &'a OsStr, directory: &Path) -> Result<&'a OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => {}
        bytes if bytes.contains(&b'/') => {}
        _ => return Ok(name),
    }
    Err(OsError::new("use as a name in its directory", &directory.join(name), Errno::INVAL))
}

/// The one name under which the next content of `name` is prepared; leftovers of a crash are replaced by the next writer.
fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    temporary
}
