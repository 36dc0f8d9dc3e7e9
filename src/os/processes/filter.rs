//! Programs that are given bytes and print an answer, within bounds.

use super::program::{Input, Program};
use crate::os::{OsError, Result, clock};
use std::io::{Read as _, Seek as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

/// How often it is looked whether the program has ended.
const INTERVAL: Duration = Duration::from_millis(10);

/// What came of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It printed this, and exited with 0.
    Printed(Vec<u8>),
    /// It exited with something else.
    Failed,
    /// It printed more than it may.
    TooLong,
    /// It took too long, and was ended.
    TooLate,
}

/// Runs the program; it reads `input`, for as long as `patience` and for at most `bytes_maximum` of output.
/// Its errors go where this process's go, and it stays in this process's group: it may ask at the terminal.
pub fn answer(program: &Program, input: &[u8], patience: Duration, bytes_maximum: usize) -> Result<Answer> {
    let failed = |source| OsError::new("run", &program.path, source);
    // A file in memory, not a pipe: a program that doesn't read it blocks nobody, and some want to know its size.
    let memory = rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC);
    let mut memory = std::fs::File::from(memory.map_err(|errno| failed(errno.into()))?);
    memory.write_all(input).and_then(|()| memory.rewind()).map_err(failed)?;
    let mut command = program.command(Input::Null);
    command.stdin(memory).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let output = child.stdout.take().expect("its output is a pipe");
    let (sender, printed) = mpsc::channel();
    // Ends with the program, or with this process if something that the program started holds on to the pipe.
    let reader = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(bytes_maximum as u64 + 1).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes)); // nobody waits any more: then it is too late anyway
    });
    if let Err(source) = reader {
        child.kill().and_then(|()| child.wait()).map_err(failed)?;
        return Err(failed(source));
    }
    let deadline = clock::since_boot().saturating_add(patience);
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if clock::since_boot() >= deadline => {
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                return Ok(Answer::TooLate);
            }
            None => clock::sleep(INTERVAL),
        }
    };
    let Ok(bytes) = printed.recv_timeout(deadline.saturating_sub(clock::since_boot())) else {
        return Ok(Answer::TooLate);
    };
    let bytes = bytes.map_err(failed)?;
    Ok(match (bytes.len() > bytes_maximum, status.success()) {
        (true, _) => Answer::TooLong, // closing its pipe may have made it fail
        (false, true) => Answer::Printed(bytes),
        (false, false) => Answer::Failed,
    })
}
