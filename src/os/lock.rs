//! flock: the lock that the kernel drops when its last holder is gone, however it went.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What came of trying to lock.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is held until the value is dropped (or, inherited through exec, until the last holder is gone).
    Held(Lock),
    /// Somebody else holds it.
    Busy,
    /// The file system can't lock (NFS without a lock daemon). Unknown means no: treat it as held by somebody.
    Unsupported(io::Error),
}

/// A lock that is held.
#[derive(Debug)]
pub struct Lock {
    fd: OwnedFd,
}

impl Lock {
    /// Lets the lock outlive exec: the program that this process becomes, and all its forks, go on holding it.
    pub fn keep_across_exec(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.fd, rustix::io::FdFlags::empty())?)
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Tries to lock `fd` together with others who share it. Never waits.
pub fn try_shared(fd: OwnedFd) -> io::Result<Attempt> {
    attempt(fd, FlockOperation::NonBlockingLockShared)
}

/// Tries to lock `fd` for itself alone. Never waits.
pub fn try_exclusive(fd: OwnedFd) -> io::Result<Attempt> {
    attempt(fd, FlockOperation::NonBlockingLockExclusive)
}

/// A lock that some process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Held by one alone.
    pub exclusive: bool,
    /// Who took it; it may have gone since, and left the lock to what it had started. None: not of this process's world.
    pub pid: Option<u32>,
}

/// The locks on a file, as the kernel lists them: looking takes none, so that nobody who wants one is kept from it.
pub fn held(identity: super::proc_fs::FileIdentity) -> super::Result<Vec<Found>> {
    let path = std::path::Path::new("/proc/locks");
    let text = std::fs::read_to_string(path).map_err(|source| super::OsError::new("read", path, source))?;
    Ok(text.lines().filter_map(|line| parse(line, identity)).collect())
}

/// `1: FLOCK  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF` (`proc_locks(5)`); one that waits has an arrow.
fn parse(line: &str, (device, inode): super::proc_fs::FileIdentity) -> Option<Found> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let (exclusive, pid) = (fields.nth(1)? == "WRITE", fields.next()?.parse().ok().filter(|pid| *pid > 0));
    let mut place = fields.next()?.split(':');
    let number = |text: Option<&str>| u32::from_str_radix(text?, 16).ok();
    let found = rustix::fs::makedev(number(place.next())?, number(place.next())?);
    ((found, place.next()?.parse().ok()?) == (device, inode)).then_some(Found { exclusive, pid })
}

fn attempt(fd: OwnedFd, operation: FlockOperation) -> io::Result<Attempt> {
    loop {
        return match rustix::fs::flock(&fd, operation) {
            Ok(()) => Ok(Attempt::Held(Lock { fd })),
            Err(Errno::WOULDBLOCK) => Ok(Attempt::Busy),
            Err(Errno::INTR) => continue,
            Err(errno @ (Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
                Ok(Attempt::Unsupported(errno.into()))
            }
            Err(errno) => Err(errno.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_seen_from_outside() {
        let directory = tempfile::tempdir().unwrap();
        let dir = super::super::dir::Dir::open(directory.path()).unwrap();
        let stat = dir.stat_self().unwrap();
        let seen = || held((stat.device, stat.inode)).unwrap();
        assert_eq!(seen(), []);
        let lock = try_exclusive(dir.lock_fd().unwrap()).unwrap();
        assert_eq!(seen(), [Found { exclusive: true, pid: Some(std::process::id()) }]);
        drop(lock);
        assert_eq!(seen(), []);
    }
}
