//! The wanted frames of a payload, in order: kept ones, ranges, the frames' own files, or parts of the whole payload.

use super::error::FetchError;
use super::fault::Fault;
use super::fetcher::{Fetcher, NEARLY_FULL, key};
use super::kept::KeptFrame;
use super::location::FilePath;
use super::mirrors::{Quest, Validators, Way};
use super::notice::{Notice, Origin};
use super::plan;
use super::reply::{Ask, Span};
use super::stream::Stream;
use crate::bundle::manifest::Frame;
use crate::bundle::unpack::{FrameSource, SourceError};
use crate::digest::Digest;
use crate::trust::Target;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Received bytes that count as progress of a failing mirror. Smaller pieces could go on for ever.
const PROGRESS_BYTES: u64 = 64 << 10;

/// A payload whose frames are wanted.
struct Payload {
    /// Its name as signed.
    name: String,
    /// Its name in the memory of broken targets.
    key: String,
    /// Its path below a mirror.
    path: FilePath,
    /// Its signed length.
    length: u64,
}

/// The wanted frames of one payload. One frame at a time is in memory.
pub struct Frames<'f, 'a> {
    fetcher: &'f mut Fetcher<'a>,
    payload: Payload,
    /// The remaining frames, in order.
    wanted: VecDeque<Frame>,
    /// An answer that is being read.
    open: Option<Open>,
    /// The payload's validator in each mirror's first answer.
    validators: BTreeMap<usize, String>,
}

/// A body that gives the payload's bytes from `position` on.
struct Open {
    mirror: usize,
    stream: Stream,
    position: u64,
    end: u64,
    /// Received since it was opened.
    received: u64,
}

/// The received bytes of a frame, and their mirrors.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    from: BTreeSet<usize>,
    /// Bytes of several mirrors did not fit together: from now on all come from one mirror, so that the wrong mirror is known.
    is_of_one: bool,
}

impl<'a> Fetcher<'a> {
    /// The `wanted` frames (ascending) of a payload, in order: a source for `unpack`. Each is verified before it is given out, and kept for
    /// another run until `done`.
    pub fn frames(&mut self, name: &str, payload: &Target, wanted: &[Frame]) -> Result<Frames<'_, 'a>, FetchError> {
        let key = key(payload);
        self.quest(name, &key)?;
        self.used.entry(key.clone()).or_default().extend(wanted.iter().map(|frame| frame.sha256));
        let path = self.path(name, payload)?;
        let payload = Payload { name: name.to_owned(), key, path, length: payload.length };
        Ok(Frames::new(self, payload, wanted))
    }
}

impl<'f, 'a> Frames<'f, 'a> {
    fn new(fetcher: &'f mut Fetcher<'a>, payload: Payload, wanted: &[Frame]) -> Self {
        Self { fetcher, payload, wanted: wanted.to_vec().into(), open: None, validators: BTreeMap::new() }
    }

    /// The bytes of `frame`, verified.
    fn bring(&mut self, frame: &Frame) -> Result<Vec<u8>, FetchError> {
        while self.wanted.front().is_some_and(|first| first.offset < frame.offset) {
            self.wanted.pop_front();
        }
        if self.wanted.front() != Some(frame) {
            self.wanted.push_front(*frame);
        }
        let bytes = match self.kept(frame) {
            Some(bytes) => bytes,
            None => self.fetch(frame)?,
        };
        self.wanted.pop_front();
        Ok(bytes)
    }

    fn kept(&mut self, frame: &Frame) -> Option<Vec<u8>> {
        match self.fetcher.kept.read(&frame.sha256, frame.length) {
            KeptFrame::Frame(bytes) => {
                self.fetcher.mirrors.tell(&Notice::Received { bytes: frame.length, from: Origin::Kept });
                Some(bytes)
            }
            KeptFrame::Nothing => None,
            KeptFrame::Spoiled => {
                self.fetcher.mirrors.tell(&Notice::Spoiled { name: frame.sha256.to_string() });
                None
            }
        }
    }

    fn fetch(&mut self, frame: &Frame) -> Result<Vec<u8>, FetchError> {
        let mut quest = self.fetcher.quest(&self.payload.name, &self.payload.key)?;
        let mut gathered = Gathered::default();
        loop {
            let open = match self.open.take().filter(|open| open.leads_to(frame, gathered.bytes.len() as u64)) {
                Some(open) => open,
                None => match self.reopen(frame, &mut gathered, &mut quest)? {
                    Some(open) => open,
                    None => continue,
                },
            };
            let mirror = open.mirror;
            gathered.from.insert(mirror);
            if let Err(fault) = self.read(open, frame, &mut gathered.bytes) {
                self.fetcher.mirrors.failed(mirror, &mut quest, &fault);
            } else if Digest::of(&gathered.bytes) == frame.sha256 {
                self.keep(frame, &gathered.bytes);
                return Ok(gathered.bytes);
            } else {
                self.open = None;
                if gathered.from.len() == 1 {
                    let reason = format!("the frame at byte {} of the payload isn't what was signed", frame.offset);
                    self.fetcher.mirrors.failed(mirror, &mut quest, &Fault::WrongBytes { reason });
                } else {
                    gathered.is_of_one = true;
                }
                gathered.clear();
            }
        }
    }

    /// Asks the next mirror for the missing bytes of `frame` and for the frames behind it. None: ask again.
    fn reopen(
        &mut self,
        frame: &Frame,
        gathered: &mut Gathered,
        quest: &mut Quest,
    ) -> Result<Option<Open>, FetchError> {
        let mirror = match self.fetcher.mirrors.choose_cheapest(quest) {
            Ok(mirror) => mirror,
            Err(FetchError::Mirrors { .. }) if self.fetcher.mirrors.are_all_wrong(quest) => {
                return Err(self.fetcher.remember_broken(quest, &self.payload.name, &self.payload.key)?);
            }
            Err(error) => return Err(error),
        };
        gathered.go_on_with(mirror);
        let opened = match self.fetcher.mirrors.way(mirror) {
            Way::Ranges => self.open_range(mirror, frame, gathered.bytes.len() as u64),
            Way::FrameFiles => {
                // A frame's file comes whole.
                gathered.clear();
                self.open_frame_file(mirror, frame)
            }
            Way::Whole => self.open_whole(mirror),
        };
        match opened {
            Ok(open) => Ok(open),
            Err(fault) => {
                self.fetcher.mirrors.failed(mirror, quest, &fault);
                Ok(None)
            }
        }
    }

    fn open_range(&mut self, mirror: usize, frame: &Frame, have: u64) -> Result<Option<Open>, Fault> {
        let kept = &self.fetcher.kept;
        let end =
            plan::end_of_run(self.wanted.make_contiguous(), |frame| kept.seems_to_have(&frame.sha256, frame.length));
        let range = frame.offset + have..end.min(self.payload.length);
        if range == (0..self.payload.length) {
            return self.open_whole(mirror);
        }
        let mirrors = &mut self.fetcher.mirrors;
        let known = self.validators.get(&mirror).filter(|_| mirrors.validators(mirror) == Validators::Used).cloned();
        let ask = Ask { if_range: known.clone(), ..Ask::part(range.clone()) };
        let reply = mirrors.ask(mirror, &self.payload.path, ask)?;
        let validator = reply.validator.clone();
        let Some(reply) = reply.part(&range, self.payload.length)? else {
            // The whole payload comes; it is not read. Either the file seems to have changed, or ranges do not get through.
            if known.is_some() && known != validator {
                mirrors.ignore_validators(mirror);
            } else {
                mirrors.fall_back(mirror);
            }
            return Ok(None);
        };
        if let Some(validator) = validator {
            self.validators.entry(mirror).or_insert(validator);
        }
        let stream = mirrors.stream(reply);
        Ok(Some(Open { mirror, stream, position: range.start, end: range.end, received: 0 }))
    }

    fn open_frame_file(&mut self, mirror: usize, frame: &Frame) -> Result<Option<Open>, Fault> {
        let path = self.payload.path.beside("frames", &format!("{}.zst", frame.sha256));
        let mirrors = &mut self.fetcher.mirrors;
        match mirrors.ask(mirror, &path, Ask::whole(frame.length)) {
            Ok(reply) => {
                let stream = mirrors.stream(reply.exactly(frame.length)?);
                let (position, end) = (frame.offset, frame.offset + frame.length);
                Ok(Some(Open { mirror, stream, position, end, received: 0 }))
            }
            Err(Fault::NotFound | Fault::Forbidden) => {
                mirrors.fall_back(mirror);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn open_whole(&mut self, mirror: usize) -> Result<Option<Open>, Fault> {
        let mirrors = &mut self.fetcher.mirrors;
        let reply =
            mirrors.ask(mirror, &self.payload.path, Ask::whole(self.payload.length))?.exactly(self.payload.length)?;
        debug_assert_eq!(reply.span, Span::Whole, "no part was asked for");
        if let Some(validator) = reply.validator.clone() {
            self.validators.entry(mirror).or_insert(validator);
        }
        let stream = mirrors.stream(reply);
        Ok(Some(Open { mirror, stream, position: 0, end: self.payload.length, received: 0 }))
    }

    /// Reads the missing bytes of `frame`; the body stays open if more of it is wanted.
    fn read(&mut self, mut open: Open, frame: &Frame, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let meter = &mut self.fetcher.mirrors.meter;
        let have = bytes.len() as u64;
        let gap = frame.offset + have - open.position;
        let mut left = gap;
        let done = open.stream.skip(meter, &mut left).and_then(|()| {
            bytes.reserve_exact(usize::try_from(frame.length - have).unwrap_or(0));
            open.stream.fill(meter, bytes, frame.length)
        });
        let received = gap - left + (bytes.len() as u64 - have);
        open.position += received;
        open.received += received;
        if done.is_ok() || open.received >= PROGRESS_BYTES {
            self.fetcher.mirrors.succeeded(open.mirror);
        }
        done?;
        if open.position == open.end {
            open.stream.finish();
        } else {
            self.open = Some(open);
        }
        Ok(())
    }

    /// Keeps a verified frame for another run. A failure stops nothing.
    fn keep(&mut self, frame: &Frame, bytes: &[u8]) {
        let kept = if self.fetcher.keeps { self.fetcher.kept.keep(&frame.sha256, bytes) } else { Ok(true) };
        let reason = match kept {
            Ok(true) => None,
            Ok(false) => Some(NEARLY_FULL.to_owned()),
            Err(error) => Some(error.to_string()),
        };
        let mirrors = &self.fetcher.mirrors;
        if let Some(reason) = reason {
            mirrors.tell(&Notice::NotKept { reason });
        }
        mirrors.tell(&Notice::Received { bytes: frame.length, from: Origin::Mirror });
    }
}

impl Open {
    /// Whether the open body has the bytes of `frame` from `have` on.
    fn leads_to(&self, frame: &Frame, have: u64) -> bool {
        self.position <= frame.offset + have && frame.offset + frame.length <= self.end
    }
}

impl Gathered {
    fn clear(&mut self) {
        self.bytes.clear();
        self.from.clear();
    }

    /// The next bytes are `mirror`'s.
    fn go_on_with(&mut self, mirror: usize) {
        if self.is_of_one && !self.from.contains(&mirror) {
            self.clear();
        }
    }
}

impl FrameSource for Frames<'_, '_> {
    /// A verified frame.
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        Ok(self.bring(frame)?)
    }

    /// Every frame is verified by itself: no proof is left for the end.
    fn end(&mut self) -> Result<(), SourceError> {
        self.open = None;
        Ok(())
    }
}
