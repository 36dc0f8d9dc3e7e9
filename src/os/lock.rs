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

    /// Gives the lock to whoever the descriptor goes to.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
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
