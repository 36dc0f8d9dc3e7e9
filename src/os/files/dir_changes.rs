//! Changes below an open directory: entries made, replaced, moved and removed, and made to survive a power cut.

use crate::os::dir::{Dir, single};
use crate::os::file_stat::{FileKind, FileStat};
use crate::os::{OsError, Result, account, file, process, random};
use crate::{crash_point, effect};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
#[cfg(feature = "crash-points")]
use std::os::fd::AsFd as _;
use std::path::Path;

/// Mode of missing parents.
const PARENT_MODE: u32 = 0o755;
/// So many levels of a tree are emptied at a time; a process may have a thousand descriptors.
const EMPTIED_LEVELS: u32 = 64;
/// A tree is not deeper than so many times that.
const EMPTYING_ROUNDS: u32 = 100_000;

impl Dir {
    /// Opens a directory, or makes it with `mode`. Missing parents are readable by all, as the system's own are.
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

    /// Opens the directory `name`, or makes it with exactly `mode`.
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
        // The final mode from the first instant, if the umask allows: a crash before the next call leaves it usable.
        let created = rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode));
        created.map_err(|errno| self.error("create directory", name, errno))?;
        effect!(MakeDirectory(self.as_fd(), name, mode));
        if self.stat(name)?.is_some_and(|stat| stat.kind == FileKind::Directory && stat.mode == mode) {
            return Ok(());
        }
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

    /// Makes a file that must not exist yet, with exactly `mode`, whatever the umask.
    pub fn create_file(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<File> {
        let name = single(name.as_ref(), &self.path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))
            .map_err(|errno| self.error("create", name, errno))?;
        // The umask, or the directory's default ACL, may have made another mode of it. To look costs less than to set it.
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.error("look at", name, errno))?;
        if Mode::from_raw_mode(stat.st_mode) != Mode::from_raw_mode(mode) {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))
                .map_err(|errno| self.error("set the mode of", name, errno))?;
        }
        effect!(CreateFile(self.as_fd(), name, mode, fd.as_fd()));
        Ok(fd.into())
    }

    /// Replaces the file `name`: a reader, or a crash at any point, finds the whole old or the whole new content.
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

    /// Points the link `name` at `target`: a reader, or a crash at any point, finds the old or the new link.
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

    /// Moves the entry `from` to `to` in another directory of the same file system, replacing what a rename replaces.
    pub fn rename(&self, from: impl AsRef<OsStr>, directory: &Self, to: impl AsRef<OsStr>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        if self.rename_directory(from, directory, to)? { Ok(()) } else { Err(self.error("move", from, Errno::XDEV)) }
    }

    /// The same of a directory; false: the other directory is on another file system, or it lies in a lower layer of an overlay, such as the image of a
    /// container, from where the kernel moves no directory (renaming directories in the kernel's `filesystems/overlayfs.rst`).
    pub fn rename_directory(&self, from: impl AsRef<OsStr>, directory: &Self, to: impl AsRef<OsStr>) -> Result<bool> {
        let from = single(from.as_ref(), &self.path)?;
        let to = single(to.as_ref(), &directory.path)?;
        match rustix::fs::renameat(&self.fd, from, &directory.fd, to) {
            Ok(()) => {
                effect!(Rename((self.as_fd(), from), (directory.as_fd(), to)));
                Ok(true)
            }
            Err(Errno::XDEV) => Ok(false),
            Err(errno) => Err(self.error("move", from, errno)),
        }
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

    /// Gives this directory exactly `mode`.
    pub fn set_own_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
            .map_err(|errno| OsError::new("set the mode of", &self.path, errno))
    }

    /// Removes a file or link, if there is one.
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

    /// Removes an entry, if there is one, and everything below it. Links are removed, never followed.
    pub fn remove_tree(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        let Some(stat) = self.stat(name)? else { return Ok(()) };
        if stat.kind != FileKind::Directory {
            return self.unlink(name, AtFlags::empty());
        }
        let top = self.opened_to_empty(name, &stat)?;
        for _ in 0..EMPTYING_ROUNDS {
            top.empty(&top, EMPTIED_LEVELS)?;
            if top.names()?.is_empty() {
                break;
            }
        }
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    /// Removes what is below this directory, so many levels of it, since each holds a descriptor; what is deeper comes into `top`.
    fn empty(&self, top: &Self, levels: u32) -> Result<()> {
        for (name, kind) in self.entries()? {
            match (kind, self.stat(&name)?) {
                (_, None) => {}
                (FileKind::Directory, Some(_)) if levels == 0 => {
                    self.rename(&name, top, format!(".deep-{:016x}", random::up_to(u64::MAX)?))?;
                }
                (FileKind::Directory, Some(stat)) => {
                    self.opened_to_empty(&name, &stat)?.empty(top, levels - 1)?;
                    self.unlink(&name, AtFlags::REMOVEDIR)?;
                }
                (FileKind::File | FileKind::Symlink | FileKind::Other, _) => self.unlink(&name, AtFlags::empty())?,
            }
        }
        Ok(())
    }

    /// Opens a directory that is to be emptied. Its owner may have no right to write there. Root needs none, and never changes a mode by a name: another
    /// user may have put a link there meanwhile.
    fn opened_to_empty(&self, name: &OsStr, stat: &FileStat) -> Result<Self> {
        if stat.mode & 0o700 != 0o700 && process::user() != account::ROOT {
            let _ = rustix::fs::chmodat(&self.fd, name, Mode::from_raw_mode(0o700), AtFlags::empty());
        }
        self.child(name)
    }

    /// Makes changes of names in this directory survive a power cut.
    pub fn sync(&self) -> Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // Some file systems refuse to sync a directory: they have no need to.
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

    /// Lets the system write what it holds of this file system, and promises nothing: an error is left to `sync_filesystem`, which sees it, too. The
    /// kernel reports an error once to each open file that was there before it: this one is opened anew, and that one is this directory's own.
    pub fn begin_to_sync_filesystem(&self) {
        let _ = self.lock_fd().map(rustix::fs::syncfs);
    }

    /// Sets the permission bits of the entry `name`, which must not be a link.
    pub fn set_mode(&self, name: impl AsRef<OsStr>, mode: u32) -> Result<()> {
        let name = single(name.as_ref(), &self.path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|errno| self.error("open", name, errno))?;
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).map_err(|errno| self.error("set the mode of", name, errno))
    }

    /// Gives the entry `name` (a link itself, not its target) to a user and a group, unless it is theirs.
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

/// The one name under which the next content of `name` is prepared; leftovers of a crash are replaced by the next writer.
fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    temporary
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each level took a descriptor: a tree of ten thousand levels, which any user can make, stayed for ever.
    #[test]
    fn a_tree_is_removed_however_deep_it_is() {
        let place = tempfile::tempdir().unwrap();
        let top = Dir::open(place.path()).unwrap();
        top.make_dir("tree", 0o700).unwrap();
        let mut at = top.child("tree").unwrap();
        for level in 0..3 * EMPTIED_LEVELS {
            for name in ["below", "beside"] {
                at.make_dir(name, if name == "beside" { 0o500 } else { 0o700 }).unwrap();
            }
            at.replace_symlink(Path::new("/"), "link").unwrap();
            at = at.child("below").unwrap_or_else(|error| panic!("level {level}: {error}"));
        }
        top.remove_tree("tree").unwrap();
        assert!(top.names().unwrap().is_empty());
    }
}
