//! A program that is talked to through its standard streams, with bounds on the silence in both directions, on the time in all, and on what is kept of
//! its output. Nothing of it can ask a person: it has no terminal.

use super::process::{Input, Program, end_group};
use crate::os::{OsError, Result, clock};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of standard error that are kept, the last ones: a program that complains without end must not fill the memory.
const STDERR_BYTES_MAXIMUM: usize = 64 << 10;
/// How often a wait checks whether the program has ended, once its outputs are closed.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// A running program.
#[derive(Debug)]
pub struct Dialogue {
    path: PathBuf,
    child: Child,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    received: VecDeque<u8>,
    stderr_tail: VecDeque<u8>,
    patience: Patience,
    has_ended: bool,
}

/// How long a program is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The longest wait for its next byte, in either direction.
    pub silence: Duration,
    /// The time since boot at which each wait ends: a program that sends a byte now and then must not go on for ever.
    pub end_at: Duration,
}

impl Patience {
    /// This silence, and `total` from now on.
    pub fn new(silence: Duration, total: Duration) -> Self {
        Self { silence, end_at: clock::since_boot().saturating_add(total) }
    }

    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        clock::since_boot() >= self.end_at
    }

    /// The longest wait from now on.
    fn left(&self) -> Duration {
        self.silence.min(self.end_at.saturating_sub(clock::since_boot()))
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Its exit code; None: a signal ended it.
    pub code: Option<i32>,
    /// The end of what it wrote to standard error.
    pub errors: String,
}

impl Program {
    /// Starts it in a session of its own, without a terminal, with pipes for its streams. A wait that `patience` ends gives
    /// [`ErrorKind::TimedOut`].
    #[expect(unsafe_code, reason = "only a new session has no terminal that a password could be asked at")]
    pub fn converse(&self, patience: Patience) -> Result<Dialogue> {
        let failed = |source: io::Error| OsError::new("start", &self.path, source);
        let mut command = self.command(Input::Pipe);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let leave = || rustix::process::setsid().map(drop).map_err(io::Error::from);
        // SAFETY: between fork and exec it makes one system call and nothing else: it takes no lock and no memory.
        unsafe { command.pre_exec(leave) };
        let mut child = command.spawn().map_err(failed)?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let fds = [input.as_ref().map(AsFd::as_fd), output.as_ref().map(AsFd::as_fd), errors.as_ref().map(AsFd::as_fd)];
        for fd in fds.into_iter().flatten() {
            rustix::io::ioctl_fionbio(fd, true).map_err(|errno| failed(errno.into()))?;
        }
        let path = self.path.clone();
        let (received, stderr_tail) = (VecDeque::new(), VecDeque::new());
        Ok(Dialogue { path, child, input, output, errors, received, stderr_tail, patience, has_ended: false })
    }
}

impl Dialogue {
    /// Writes all of `bytes`, and tells `sent` how many went after each part. False: the program takes no more. What it prints meanwhile is kept; more
    /// than `received_bytes_maximum` is an error: a program that prints without end, and takes nothing, must not fill the memory.
    pub fn say(&mut self, bytes: &[u8], received_bytes_maximum: usize, sent: &mut dyn FnMut(u64)) -> Result<bool> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.input.is_none() {
                return Ok(false);
            }
            if self.received.len() > received_bytes_maximum {
                return Err(
                    self.error(io::Error::new(ErrorKind::InvalidData, "it prints too much before it takes its input"))
                );
            }
            self.turn(&mut rest, sent)?;
        }
        Ok(true)
    }

    /// The next line without its end; None: the program has closed its output. A longer line than `bytes_maximum` is an error.
    pub fn line(&mut self, bytes_maximum: usize) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.received.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            if self.received.len() > bytes_maximum {
                return Err(self.error(io::Error::new(ErrorKind::InvalidData, "it sent a line that is too long")));
            }
            if self.output.is_none() {
                let rest: Vec<u8> = self.received.drain(..).collect();
                return Ok((!rest.is_empty()).then_some(rest));
            }
            self.turn(&mut &b""[..], &mut |_| {})?;
        }
    }

    /// All that is still written to standard output, of at most `bytes_maximum`.
    pub fn rest(&mut self, bytes_maximum: usize) -> Result<Vec<u8>> {
        while self.output.is_some() {
            if self.received.len() > bytes_maximum {
                return Err(self.error(io::Error::new(ErrorKind::InvalidData, "its output is too long")));
            }
            self.turn(&mut &b""[..], &mut |_| {})?;
        }
        Ok(self.received.drain(..).collect())
    }

    /// Ends its input: it reads the end of the file.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Ends its input, and waits for its end for as long as for one byte; what it still prints is dropped, and gives it no more time.
    pub fn end(mut self) -> Result<End> {
        self.close_input();
        let give_up_at = clock::since_boot().saturating_add(self.patience.silence).min(self.patience.end_at);
        self.patience.end_at = give_up_at;
        while self.output.is_some() || self.errors.is_some() {
            self.received.clear();
            self.turn(&mut &b""[..], &mut |_| {})?;
        }
        loop {
            if let Some(status) =
                self.child.try_wait().map_err(|source| OsError::new("wait for", &self.path, source))?
            {
                self.has_ended = true;
                return Ok(End { code: status.code(), errors: self.stderr_tail() });
            }
            if clock::since_boot() >= give_up_at {
                return Err(self.error(ErrorKind::TimedOut.into()));
            }
            clock::sleep(END_INTERVAL);
        }
    }

    /// The end of what it has written to standard error so far.
    pub fn stderr_tail(&self) -> String {
        let bytes: Vec<u8> = self.stderr_tail.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    fn error(&self, source: io::Error) -> OsError {
        OsError::new("talk to", &self.path, source)
    }

    /// Waits until a stream is ready, and takes or gives what it can.
    fn turn(&mut self, rest: &mut &[u8], sent: &mut dyn FnMut(u64)) -> Result<()> {
        // Also where bytes come all the time.
        if self.patience.is_over() {
            return Err(self.error(ErrorKind::TimedOut.into()));
        }
        let (mut speaks, mut hears, mut complains) = (false, false, false);
        {
            let mut polled = Vec::with_capacity(3);
            let mut marks = Vec::with_capacity(3);
            if let Some(input) = self.input.as_ref().filter(|_| !rest.is_empty()) {
                polled.push(PollFd::new(input, PollFlags::OUT));
                marks.push(&mut speaks);
            }
            if let Some(output) = &self.output {
                polled.push(PollFd::new(output, PollFlags::IN));
                marks.push(&mut hears);
            }
            if let Some(errors) = &self.errors {
                polled.push(PollFd::new(errors, PollFlags::IN));
                marks.push(&mut complains);
            }
            let patience = Timespec::try_from(self.patience.left()).ok();
            match rustix::event::poll(&mut polled, patience.as_ref()) {
                Ok(0) => return Err(self.error(ErrorKind::TimedOut.into())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(self.error(errno.into())),
            }
            for (fd, mark) in polled.iter().zip(marks) {
                *mark = !fd.revents().is_empty();
            }
        }
        if hears {
            read_into(&mut self.output, &mut self.received);
        }
        if complains {
            read_into(&mut self.errors, &mut self.stderr_tail);
            let surplus = self.stderr_tail.len().saturating_sub(STDERR_BYTES_MAXIMUM);
            self.stderr_tail.drain(..surplus);
        }
        if let Some(input) = self.input.as_mut().filter(|_| speaks) {
            match input.write(&rest[..rest.len().min(CHUNK_BYTES)]) {
                Ok(count) => {
                    *rest = &rest[count..];
                    sent(count as u64);
                }
                Err(error) if is_not_ready(&error) => {}
                // It reads no more; its exit code and its words say why.
                Err(_) => self.input = None,
            }
        }
        Ok(())
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = end_group(&mut self.child);
        }
    }
}

/// Reads what is there; a stream that has ended is closed.
fn read_into<R: Read>(stream: &mut Option<R>, into: &mut VecDeque<u8>) {
    let Some(open) = stream else { return };
    let mut buffer = vec![0; CHUNK_BYTES];
    match open.read(&mut buffer) {
        Ok(count) if count > 0 => into.extend(&buffer[..count]),
        Err(error) if is_not_ready(&error) => {}
        Ok(_) | Err(_) => *stream = None,
    }
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, silence: Duration) -> Dialogue {
        let patience = Patience::new(silence, Duration::from_secs(60));
        Program::new("/bin/sh").argument("-c").argument(script).converse(patience).unwrap()
    }

    #[test]
    fn more_than_a_pipe_holds_goes_both_ways_at_once() {
        let mut dialogue = shell("cat; echo bad >&2; exit 7", Duration::from_secs(60));
        let bytes = vec![b'x'; 3 << 20];
        let mut sent = 0;
        assert!(dialogue.say(&bytes, 4 << 20, &mut |count| sent += count).unwrap());
        assert!(dialogue.say(b"\nlast", 4 << 20, &mut |count| sent += count).unwrap());
        dialogue.close_input();
        assert_eq!(sent, (3 << 20) + 5);
        assert_eq!(dialogue.line(4 << 20).unwrap().unwrap(), bytes);
        assert_eq!(dialogue.rest(100).unwrap(), b"last");
        assert_eq!(dialogue.end().unwrap(), End { code: Some(7), errors: "bad".to_owned() });
    }

    #[test]
    fn silence_ends_a_wait_and_an_ended_reader_is_noticed() {
        let mut silent = shell("exec sleep 60", Duration::from_millis(50));
        assert_eq!(silent.line(100).unwrap_err().kind(), ErrorKind::TimedOut);
        let mut deaf = shell("exec <&-; echo gone", Duration::from_secs(60));
        assert_eq!(deaf.line(100).unwrap().unwrap(), b"gone");
        assert!(!deaf.say(&vec![0; 1 << 20], 100, &mut |_| {}).unwrap());
        let mut endless = shell("head -c 100000 /dev/zero; sleep 60", Duration::from_secs(60));
        assert_eq!(endless.line(1000).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_program_that_prints_and_takes_nothing_fills_no_memory() {
        let mut flood = shell("exec cat /dev/zero", Duration::from_secs(60));
        let failed = flood.say(&vec![0; 1 << 20], 1 << 20, &mut |_| {}).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::InvalidData, "{failed}");
        assert!(flood.received.len() <= (1 << 20) + CHUNK_BYTES, "{}", flood.received.len());
    }

    /// Each prints for ever: to its output, only to its standard error, or a byte now and then.
    #[test]
    fn a_program_that_never_stops_printing_is_given_up() {
        let scripts = ["exec yes", "exec yes >&2", "while :; do echo x; sleep 0.01; done"];
        for script in scripts {
            let patience = Patience::new(Duration::from_millis(200), Duration::from_secs(60));
            let ended = Program::new("/bin/sh").argument("-c").argument(script).converse(patience).unwrap().end();
            assert_eq!(ended.unwrap_err().kind(), ErrorKind::TimedOut, "{script}");
        }
        // Who prints to its standard error alone has closed its output: there is no line to wait for.
        for script in [scripts[0], scripts[2]] {
            let patience = Patience::new(Duration::from_secs(60), Duration::from_millis(200));
            let mut dialogue = Program::new("/bin/sh").argument("-c").argument(script).converse(patience).unwrap();
            let failed = std::iter::repeat_with(|| dialogue.line(1 << 20)).find_map(Result::err).unwrap();
            assert!(failed.kind() == ErrorKind::TimedOut && patience.is_over(), "{script}: {failed}");
        }
    }

    #[test]
    fn it_has_no_terminal_to_ask_a_person_at() {
        let mut dialogue =
            shell("if (: </dev/tty) 2>/dev/null; then echo asks; else echo none; fi", Duration::from_secs(60));
        assert_eq!(dialogue.line(100).unwrap().unwrap(), b"none");
    }
}
