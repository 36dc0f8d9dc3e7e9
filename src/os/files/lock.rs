//! flock: the lock that the kernel drops when its last holder is gone, however it went.
//!
//! Any process that can open a file can lock it: flock(2) asks for no right to write. So sidle waits for, or believes, only locks on files
//! that are closed to everybody who may not change their directory.

use crate::effect;
use crate::os::dir::{Dir, FileKind};
use crate::os::proc_fs::{self, FileIdentity};
use crate::os::{OsError, clock, process};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// The name of a directory's own lock file.
pub const LOCK: &str = "lock";

/// Somebody who deletes a lock file again and again must not keep a command for ever.
const ATTEMPTS_MAXIMUM: usize = 16;

/// Who may change everybody's files.
const ROOT: u32 = 0;

/// How often a wait for a lock tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Repeats `attempt` until it gives a value; None after `limit`.
pub fn wait<T, E>(
    limit: Duration,
    mut attempt: impl FnMut() -> std::result::Result<Option<T>, E>,
) -> std::result::Result<Option<T>, E> {
    let give_up_at = clock::since_boot().saturating_add(limit);
    loop {
        let found = attempt()?;
        if found.is_some() || clock::since_boot() >= give_up_at {
            return Ok(found);
        }
        clock::sleep(RETRY_INTERVAL);
    }
}

/// A lock, held until the value is dropped or, inherited through exec, until the last holder is gone.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
}

impl Lock {
    /// Lets the lock outlive exec: the new program, and all its forks, hold it too.
    pub fn keep_across_exec(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.fd, rustix::io::FdFlags::empty())?)
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Process number.
    pub pid: u32,
    /// Command line.
    pub title: String,
    /// User name.
    pub user: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} ({}) of user {}", self.pid, self.title, self.user)
    }
}

/// `, process 7 (sidle install …) of user root`, for the end of a message; empty for an unknown holder.
pub fn by(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(", {holder}"))
}

/// A lock file that only its owner can open, and its group where the directory's group may write.
#[derive(Debug)]
pub struct LockFile<'a> {
    directory: &'a Dir,
    name: String,
}

impl<'a> LockFile<'a> {
    /// The lock file `name` of `directory`. Touches nothing.
    pub fn new(directory: &'a Dir, name: impl Into<String>) -> Self {
        Self { directory, name: name.into() }
    }

    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Tries to share the lock; None while a process holds it alone. Never waits; makes the file.
    pub fn try_shared(&self) -> crate::os::Result<Option<Lock>> {
        self.attempt(FlockOperation::NonBlockingLockShared)
    }

    /// Tries to hold the lock alone; None while another process holds it. Never waits; makes the file.
    /// An error of kind `Unsupported` where the file system can't lock (NFS without a lock daemon).
    pub fn try_exclusive(&self) -> crate::os::Result<Option<Lock>> {
        self.attempt(FlockOperation::NonBlockingLockExclusive)
    }

    /// Tries to hold the lock alone, without making or changing the file: for dry runs. None while another process holds it; Some(None) without a
    /// file.
    pub fn look(&self) -> crate::os::Result<Option<Option<Lock>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::openat(self.directory, self.name.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(Some(None)),
            Err(errno) => Err(self.error("open", errno)),
            Ok(fd) => {
                let held = attempt(fd, FlockOperation::NonBlockingLockExclusive);
                Ok(held.map_err(|source| self.error("lock", source))?.map(Some))
            }
        }
    }

    /// Device and inode; None without a file.
    pub fn identity(&self) -> crate::os::Result<Option<FileIdentity>> {
        Ok(self.directory.stat(&self.name)?.map(|stat| (stat.device, stat.inode)))
    }

    /// The other processes that hold or inherited the lock; the processes that took it come first.
    pub fn holders(&self) -> crate::os::Result<Vec<Holder>> {
        let Some(identity) = self.identity()? else { return Ok(Vec::new()) };
        let takers: Vec<u32> = held(identity)?.iter().filter_map(|found| found.pid).collect();
        let own = std::process::id();
        let mut found: Vec<Holder> = proc_fs::holders(identity)?
            .into_iter()
            .filter(|(pid, _)| *pid != own)
            .map(|(pid, title)| Holder {
                pid,
                title,
                user: proc_fs::user(pid).map_or_else(unknown, process::user_name),
            })
            .collect();
        found.sort_by_key(|holder| !takers.contains(&holder.pid));
        Ok(found)
    }

    /// The holder to name in a message, where it can be seen.
    pub fn holder(&self) -> Option<Holder> {
        self.holders().unwrap_or_default().into_iter().next()
    }

    fn attempt(&self, operation: FlockOperation) -> crate::os::Result<Option<Lock>> {
        for _ in 0..ATTEMPTS_MAXIMUM {
            let fd = self.open()?;
            let stat = rustix::fs::fstat(&fd).map_err(|errno| self.error("look at", errno))?;
            let attempt = attempt(fd, operation).map_err(|source| self.error("lock", source))?;
            // A file that was deleted meanwhile locks nothing: the next one makes another.
            if self.identity()? == Some((stat.st_dev, stat.st_ino)) {
                return Ok(attempt);
            }
        }
        Err(self.error("lock", Errno::BUSY))
    }

    fn error(&self, verb: &str, source: impl Into<io::Error>) -> OsError {
        OsError::new(verb, &self.path(), source)
    }

    /// A file system that is read-only or full still has the file that was made before.
    fn open(&self) -> crate::os::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open =
            |more| rustix::fs::openat(self.directory, self.name.as_str(), flags | more, Mode::from_raw_mode(0o600));
        let fd = match open(OFlags::empty()) {
            Err(Errno::NOENT) => {
                let made = open(OFlags::CREATE).map_err(|errno| self.error("create", errno))?;
                effect!(CreateFile(self.directory.as_fd(), self.name.as_ref(), 0o600, made.as_fd()));
                made
            }
            found => found.map_err(|errno| self.error("open", errno))?,
        };
        self.close_to_others(&fd)?;
        Ok(fd)
    }

    fn close_to_others(&self, fd: &OwnedFd) -> crate::os::Result<()> {
        let stat = rustix::fs::fstat(fd).map_err(|errno| self.error("look at", errno))?;
        let parent = self.directory.stat_self()?;
        if FileKind::of(rustix::fs::FileType::from_raw_mode(stat.st_mode)) != FileKind::File {
            return Err(self.error("lock", Errno::INVAL));
        }
        let own = process::user();
        if ![own, parent.uid].contains(&stat.st_uid) {
            let owner = process::user_name(stat.st_uid);
            return Err(self.error("lock", io::Error::other(format!("it belongs to {owner}: remove it"))));
        }
        let wanted = 0o600 | if parent.mode & 0o020 == 0 { 0 } else { 0o060 };
        if stat.st_mode & 0o7777 != wanted && (stat.st_uid == own || own == ROOT) {
            // The group that may write in the directory is the directory's. Where the file can't be given to it, it is its owner's alone: the
            // maker's own group may be everybody's.
            let is_the_directorys = stat.st_gid == parent.gid
                || rustix::fs::fchown(fd, None, Some(rustix::fs::Gid::from_raw(parent.gid))).is_ok();
            let wanted = if is_the_directorys { wanted } else { 0o600 };
            let changed = rustix::fs::fchmod(fd, Mode::from_raw_mode(wanted));
            changed.map_err(|errno| self.error("set the mode of", errno))?;
        }
        Ok(())
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Tries to share a lock on `fd`, which other users may be able to open: only a sign for other programs. Never waits.
pub fn try_shared(fd: OwnedFd) -> io::Result<Option<Lock>> {
    attempt(fd, FlockOperation::NonBlockingLockShared)
}

/// A lock that some process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlockHolder {
    /// Held by one alone.
    pub exclusive: bool,
    /// Who took it; it may have gone since, and left the lock to what it had started. None: not of this process's world.
    pub pid: Option<u32>,
}

/// The locks on a file, as the kernel lists them: looking takes none, so that nobody who wants one is kept from it.
pub fn held(identity: FileIdentity) -> crate::os::Result<Vec<FlockHolder>> {
    let path = std::path::Path::new("/proc/locks");
    let text = std::fs::read_to_string(path).map_err(|source| crate::os::OsError::new("read", path, source))?;
    Ok(text.lines().filter_map(|line| parse(line, identity)).collect())
}

/// `1: FLOCK  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF` (`proc_locks(5)`); one that waits has an arrow.
fn parse(line: &str, (device, inode): FileIdentity) -> Option<FlockHolder> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let (exclusive, pid) = (fields.nth(1)? == "WRITE", fields.next()?.parse().ok().filter(|pid| *pid > 0));
    let mut place = fields.next()?.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let found = rustix::fs::makedev(number(place.next())?, number(place.next())?);
    ((found, place.next()?.parse().ok()?) == (device, inode)).then_some(FlockHolder { exclusive, pid })
}

fn attempt(fd: OwnedFd, operation: FlockOperation) -> io::Result<Option<Lock>> {
    loop {
        return match rustix::fs::flock(&fd, operation) {
            Ok(()) => Ok(Some(Lock { fd })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(errno @ (Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, io::Error::from(errno).to_string()))
            }
            Err(errno) => Err(errno.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &std::path::Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// Where only its owner may write, whatever the umask of who tests is.
    fn own_directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        directory
    }

    #[test]
    fn a_lock_is_seen_from_outside_and_its_file_is_closed_to_others() {
        let directory = own_directory();
        let dir = Dir::open(directory.path()).unwrap();
        let file = LockFile::new(&dir, LOCK);
        assert_eq!(file.identity().unwrap(), None);
        let lock = file.try_exclusive().unwrap().unwrap();
        let seen = || held(file.identity().unwrap().unwrap()).unwrap();
        assert_eq!(seen(), [FlockHolder { exclusive: true, pid: Some(std::process::id()) }]);
        assert_eq!(mode(&file.path()), 0o600);
        assert!(file.try_shared().unwrap().is_none(), "another description of the same file");
        drop(lock);
        assert_eq!(seen(), []);
    }

    #[test]
    fn a_lock_file_that_others_could_open_is_closed_and_one_that_is_no_file_is_refused() {
        let directory = own_directory();
        let dir = Dir::open(directory.path()).unwrap();
        std::fs::write(directory.path().join(LOCK), "").unwrap();
        std::fs::set_permissions(directory.path().join(LOCK), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(LockFile::new(&dir, LOCK).try_exclusive().unwrap().is_some());
        assert_eq!(mode(&directory.path().join(LOCK)), 0o600);
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o775)).unwrap();
        assert!(LockFile::new(&dir, "team").try_exclusive().unwrap().is_some());
        assert_eq!(mode(&directory.path().join("team")), 0o660);
        std::os::unix::fs::symlink("/etc/passwd", directory.path().join("link")).unwrap();
        assert!(LockFile::new(&dir, "link").try_exclusive().is_err());
        std::fs::create_dir(directory.path().join("directory")).unwrap();
        assert!(LockFile::new(&dir, "directory").try_exclusive().is_err());
    }
}
