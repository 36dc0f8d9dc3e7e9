//! A mirror that is the program which started this one: it is asked on standard output, a line for each request, and answers on standard input
//! (docs/formats.md). What it sends is as untrusted as what any mirror sends.

use crate::fetch::fault::Fault;
use crate::fetch::location::FilePath;
use crate::fetch::reply::{Ask, Body, Coding, Reply, Span, Wanted};
use crate::os::{clock, standard_streams};
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Longest line before an answer. Stops a stream without an end of line.
const HEADER_BYTES_MAXIMUM: usize = 4096;
/// Bytes read at once.
const CHUNK_BYTES: u64 = 64 << 10;
/// Longest text of an error that is repeated. Stops a program that fills the log of this one.
const ERROR_CHARACTERS_MAXIMUM: usize = 300;

/// The program at the other end, for one run.
#[derive(Debug, Default)]
pub(in crate::fetch) struct Stdio {
    peer: Rc<RefCell<Peer>>,
}

#[derive(Debug, Default)]
struct Peer {
    /// Bytes of the last answer that were not read yet.
    owed: u64,
    /// Why the conversation is over: after silence, say, nobody knows to which request an answer belongs.
    over: Option<Fault>,
}

/// The line before the bytes of an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    bytes: Option<u64>,
    total: Option<u64>,
    absent: Option<bool>,
    error: Option<String>,
}

/// Bytes that come, and the size of their file, where it is known.
struct Announced {
    bytes: u64,
    total: Option<u64>,
}

/// How an answer of no bytes is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoBytes {
    /// The file ends there: its size was not told.
    End,
    /// The answer is wrong: there are more.
    Wrong,
}

impl Stdio {
    /// Asks for a file, or for a part of it.
    pub(in crate::fetch) fn get(&self, path: &FilePath, ask: &Ask) -> Result<Reply, Fault> {
        let path = path.to_string();
        let request = match &ask.wanted {
            Wanted::Whole { bytes_maximum } => json!({"ask": path, "maximum": bytes_maximum}),
            Wanted::Part(range) => part(&path, range),
        };
        let mut peer = self.peer.borrow_mut();
        let Announced { bytes, total } = peer.ask(&request, ask.patience)?;
        let (range, span, length) = match (&ask.wanted, total) {
            (Wanted::Part(range), total) => {
                // Without the size nothing is compared with it; every frame is hashed.
                let span = Span::Part { range: range.clone(), total };
                (range.clone(), span, Some(range.end - range.start))
            }
            (Wanted::Whole { bytes_maximum }, Some(total)) if total > *bytes_maximum => {
                let text = format!("it announces {total} bytes, at most {bytes_maximum} are allowed");
                return Err(peer.end(Fault::wrong(text)));
            }
            (Wanted::Whole { .. }, Some(total)) => (0..total, Span::Whole, Some(total)),
            (Wanted::Whole { bytes_maximum }, None) => (0..*bytes_maximum, Span::Whole, None),
        };
        let no_bytes = if length.is_none() { NoBytes::End } else { NoBytes::Wrong };
        let left = peer.expect(bytes, &range, no_bytes)?;
        let body = StdioBody { peer: Rc::clone(&self.peer), path, left, no_bytes };
        Ok(Reply { span, length, coding: Coding::Identity, validator: None, body: Box::new(body) })
    }
}

fn part(path: &str, range: &Range<u64>) -> Value {
    json!({"ask": path, "from": range.start, "to": range.end})
}

/// The bytes of one answer or several: an answer may be shorter than the request.
#[derive(Debug)]
struct StdioBody {
    peer: Rc<RefCell<Peer>>,
    path: String,
    /// What no answer has announced yet.
    left: Range<u64>,
    no_bytes: NoBytes,
}

impl Body for StdioBody {
    fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, Fault> {
        let mut peer = self.peer.borrow_mut();
        if peer.owed == 0 {
            if self.left.is_empty() {
                return Ok(None);
            }
            let announced = peer.ask(&part(&self.path, &self.left), patience)?;
            self.left = peer.expect(announced.bytes, &self.left, self.no_bytes)?;
            if announced.bytes == 0 {
                return Ok(None);
            }
        }
        peer.receive(patience).map(Some)
    }
}

impl Peer {
    /// One request and the line that answers it.
    fn ask(&mut self, request: &Value, patience: Duration) -> Result<Announced, Fault> {
        let deadline = clock::since_boot().saturating_add(patience);
        let left = || deadline.saturating_sub(clock::since_boot());
        if let Some(fault) = &self.over {
            return Err(fault.clone());
        }
        // Bytes that were asked for, and are not wanted any more.
        while self.owed > 0 {
            self.receive(left())?;
        }
        let sent = standard_streams::write(format!("{request}\n").as_bytes(), left());
        sent.map_err(|error| self.lost(&error, patience))?;
        let line = self.line(deadline, patience)?;
        let header = serde_json::from_slice::<Header>(&line)
            .map_err(|error| self.end(Fault::wrong(format!("the line before its answer can't be read: {error}"))))?;
        match header {
            Header { bytes: Some(bytes), total, absent: None, error: None } => Ok(Announced { bytes, total }),
            Header { bytes: None, total: None, absent: Some(true), error: None } => Err(Fault::NotFound),
            Header { bytes: None, total: None, absent: None, error: Some(reason) } => {
                Err(Fault::temporary(reason.chars().take(ERROR_CHARACTERS_MAXIMUM).collect::<String>()))
            }
            _ => {
                Err(self.end(Fault::wrong("the line before its answer says not one of `bytes`, `absent` and `error`")))
            }
        }
    }

    /// Takes note of announced bytes, where these were asked for; gives those that no answer has announced. More are refused before one is read.
    fn expect(&mut self, bytes: u64, asked: &Range<u64>, no_bytes: NoBytes) -> Result<Range<u64>, Fault> {
        let most = asked.end - asked.start;
        if bytes > most {
            return Err(self.end(Fault::wrong(format!("it announces {bytes} bytes where {most} were asked for"))));
        }
        if bytes == 0 && most > 0 && no_bytes == NoBytes::Wrong {
            return Err(self.end(Fault::wrong(format!("it announces no bytes where {most} were asked for"))));
        }
        self.owed = bytes;
        Ok(if bytes == 0 { asked.end..asked.end } else { asked.start + bytes..asked.end })
    }

    /// The next of the bytes that are owed.
    fn receive(&mut self, patience: Duration) -> Result<Vec<u8>, Fault> {
        if let Some(fault) = &self.over {
            return Err(fault.clone());
        }
        let wanted = usize::try_from(self.owed.min(CHUNK_BYTES)).unwrap_or_default();
        let mut bytes = vec![0; wanted];
        let count = self.read(&mut bytes, patience, patience)?;
        self.owed -= count as u64;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// A line, without its end. Byte after byte: what follows belongs to who reads it, also after this run.
    fn line(&mut self, deadline: Duration, patience: Duration) -> Result<Vec<u8>, Fault> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < HEADER_BYTES_MAXIMUM {
            self.read(&mut byte, deadline.saturating_sub(clock::since_boot()), patience)?;
            if byte == *b"\n" {
                return Ok(line);
            }
            line.extend(byte);
        }
        Err(self.end(Fault::wrong(format!("the line before its answer has more than {HEADER_BYTES_MAXIMUM} bytes"))))
    }

    fn read(&mut self, into: &mut [u8], within: Duration, patience: Duration) -> Result<usize, Fault> {
        match standard_streams::read(into, within) {
            Ok(0) => {
                let reason = "standard input ended: the program that started sidle has closed it, or has ended";
                Err(self.end(Fault::Refused { reason: reason.to_owned() }))
            }
            Ok(count) => Ok(count),
            Err(error) => Err(self.lost(&error, patience)),
        }
    }

    fn lost(&mut self, error: &io::Error, patience: Duration) -> Fault {
        let reason = match error.kind() {
            ErrorKind::TimedOut => format!("it was silent for {:.1} s", patience.as_secs_f64()),
            ErrorKind::BrokenPipe => "nobody reads standard output any more".to_owned(),
            _ => format!("the connection broke: {error}"),
        };
        self.end(Fault::Refused { reason })
    }

    /// Ends the conversation.
    fn end(&mut self, fault: Fault) -> Fault {
        self.over = Some(fault.clone());
        fault
    }
}
