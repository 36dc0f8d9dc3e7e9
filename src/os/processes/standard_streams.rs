//! Standard input and standard output as a conversation with the program that started this process: bytes as they are, within time limits.

use crate::os::clock;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Bytes that a pipe takes without waiting once it takes any (pipe(7)).
const PIECE_BYTES: usize = 4096;

/// Reads from standard input what is there, at most the size of `into`; 0 at its end. `TimedOut` if nothing comes for `patience`. Nothing is
/// read ahead: what is behind stays for the next read.
pub fn read(into: &mut [u8], patience: Duration) -> io::Result<usize> {
    attempt(io::stdin().as_fd(), PollFlags::IN, deadline(patience), || rustix::io::read(io::stdin(), &mut *into))
}

/// Writes bytes to standard output. `TimedOut` if they are not taken within `patience`.
pub fn write(bytes: &[u8], patience: Duration) -> io::Result<()> {
    let (deadline, mut left) = (deadline(patience), bytes);
    while !left.is_empty() {
        let piece = &left[..left.len().min(PIECE_BYTES)];
        let count = attempt(io::stdout().as_fd(), PollFlags::OUT, deadline, || rustix::io::write(io::stdout(), piece))?;
        left = &left[count..];
    }
    Ok(())
}

fn deadline(patience: Duration) -> Duration {
    clock::since_boot().saturating_add(patience)
}

/// Waits until the stream is ready, then acts on it.
fn attempt(
    stream: BorrowedFd<'_>,
    ready: PollFlags,
    deadline: Duration,
    mut act: impl FnMut() -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    loop {
        let left = Timespec::try_from(deadline.saturating_sub(clock::since_boot())).ok();
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(stream, ready)], left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        match act() {
            // A stream that does not block may have been emptied by another reader.
            Err(Errno::INTR | Errno::AGAIN) => {}
            done => return Ok(done?),
        }
    }
}
