//! inotify: ends a wait when a directory changes. Only a hint: its users check by themselves, and on a timer.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Watched directories. Readable when one of them changed.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
}

impl Watch {
    /// Watches those of `directories` that exist. An error (no inotify instance left) means: use the timer alone.
    pub fn new<'a>(directories: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        for directory in directories {
            // The timer covers missing directories and a full watch table.
            let _ = inotify::add_watch(&fd, directory, flags);
        }
        Ok(Self { fd })
    }

    /// Watches all of these directories for any change of an entry, of modes and owners, too. An error: one of them could not be watched.
    pub fn of_trees<'a>(directories: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let flags = WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::ONLYDIR;
        for directory in directories {
            match inotify::add_watch(&fd, directory, flags) {
                // The caller checks now, and sees that this directory is gone; its parent is watched.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Self { fd })
    }
}

impl From<Watch> for OwnedFd {
    fn from(watch: Watch) -> Self {
        watch.fd
    }
}
