//! Standard error as a place for log lines: each is written whole or not at all, and a supervisor is held up by nobody who fails to read.

use crate::os::{clock, environment};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What systemd sets where it has connected standard output or standard error to its journal: device and inode (systemd.exec(5)).
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";
/// How long a line waits for a reader that is slow. After one that did not come in time no line waits, until one is read again.
const READER_WAIT: Duration = Duration::from_millis(100);

/// Whether the writer waits for a slow reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The writer waits: a person pages through what a command says.
    IsWaitedFor,
    /// Nobody waits long: a supervisor has more to do than to be read, and loses lines instead.
    MayMissLines,
}

/// Standard error.
#[derive(Debug)]
pub struct StandardError {
    kind: Kind,
    /// Somebody read the line before.
    is_read: bool,
}

#[derive(Debug)]
enum Kind {
    /// Whatever it is, it is waited for.
    Blocking,
    /// The journal, say.
    Socket,
    /// A description of its own, which never blocks. The one that was inherited is shared with the agent, which may expect it to block.
    Pipe(OwnedFd),
    /// A file or a terminal.
    Other,
}

impl StandardError {
    /// This process's.
    pub fn new(reader: Reader) -> Self {
        if reader == Reader::IsWaitedFor {
            return Self { kind: Kind::Blocking, is_read: true };
        }
        let kind = match rustix::fs::fstat(io::stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::Fifo) => own_pipe().map_or(Kind::Other, Kind::Pipe),
            Ok(_) | Err(_) => Kind::Other,
        };
        Self { kind, is_read: true }
    }

    /// Writes some bytes that end with a newline, no more than a pipe takes at once (4096, pipe(7)); false: they are lost.
    pub fn write(&mut self, line: &[u8]) -> bool {
        if matches!(self.kind, Kind::Blocking) {
            return io::stderr().write_all(line).is_ok();
        }
        let give_up_at = clock::since_boot().saturating_add(if self.is_read { READER_WAIT } else { Duration::ZERO });
        self.is_read = loop {
            match self.try_write(line) {
                Ok(count) => break count == line.len(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.is_ready(give_up_at.saturating_sub(clock::since_boot())) => {}
                // Whoever read has gone, or the disk is full: no reason to end for.
                Err(_) => break false,
            }
            if clock::since_boot() >= give_up_at {
                break false;
            }
        };
        self.is_read
    }

    fn try_write(&self, line: &[u8]) -> rustix::io::Result<usize> {
        match &self.kind {
            Kind::Socket => rustix::net::send(io::stderr(), line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Kind::Pipe(pipe) => rustix::io::write(pipe, line),
            Kind::Blocking | Kind::Other if self.is_ready(Duration::ZERO) => rustix::io::write(io::stderr(), line),
            Kind::Blocking | Kind::Other => Err(Errno::AGAIN),
        }
    }

    /// Waits until something can be written; false: not in this time.
    fn is_ready(&self, patience: Duration) -> bool {
        let stderr = io::stderr();
        let fd = match &self.kind {
            Kind::Pipe(pipe) => pipe.as_fd(),
            Kind::Socket | Kind::Blocking | Kind::Other => stderr.as_fd(),
        };
        let patience = Timespec::try_from(patience).ok();
        let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::OUT)], patience.as_ref());
        ready.is_ok_and(|count| count > 0)
    }
}

fn own_pipe() -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/fd/2", flags, Mode::empty()).ok()
}

/// True where standard error is the journal's, which reads a level in front of each line (sd-daemon(3)). The variable alone does not say so: it
/// is inherited by what has been given another standard error.
pub fn is_journal() -> bool {
    let Some(named) = environment::variable(JOURNAL_STREAM) else { return false };
    let stat = rustix::fs::fstat(io::stderr());
    stat.is_ok_and(|stat| named.to_str() == Some(format!("{}:{}", stat.st_dev, stat.st_ino).as_str()))
}
