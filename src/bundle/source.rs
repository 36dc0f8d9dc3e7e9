//! The sources of a release's content: frames of its payload, and files that this host has already.

use super::manifest::Frame;
use crate::digest::Digest;
use crate::failure::Class;
use std::error::Error;
use std::fs::File;

/// A source of frames: a bundle file, a repository, the network. Frames are requested in the manifest's order.
pub trait FrameSource {
    /// The compressed bytes of `frame`, exactly `frame.length` of them, not yet verified: the unpacker does that.
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError>;

    /// The same; may put the bytes into `room`, which is memory of an earlier frame.
    fn next_into(&mut self, frame: &Frame, room: Vec<u8>) -> Result<Vec<u8>, SourceError> {
        drop(room);
        self.next(frame)
    }

    /// Called after the last frame: an error if bytes are left over.
    fn end(&mut self) -> Result<(), SourceError>;
}

impl<S: FrameSource + ?Sized> FrameSource for &mut S {
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        (**self).next(frame)
    }

    fn next_into(&mut self, frame: &Frame, room: Vec<u8>) -> Result<Vec<u8>, SourceError> {
        (**self).next_into(frame, room)
    }

    fn end(&mut self) -> Result<(), SourceError> {
        (**self).end()
    }
}

/// The payload of one release, some of whose frames are wanted.
pub trait PayloadSource {
    /// The frames `wanted`, requested in this order.
    fn frames<'a>(&'a mut self, wanted: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError>;
}

/// Files on this host, by their content. Each is hashed as it is copied.
pub trait Held: Sync {
    /// The number of places that should have the file.
    fn places(&self, sha256: &Digest) -> usize;
    /// The file at a place; None: it is gone.
    fn open(&self, sha256: &Digest, place: usize) -> Option<File>;
}

/// Why a source can't give a frame.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SourceError {
    /// What kind of failure it is.
    pub class: Class,
    /// What happened, beginning "cannot".
    #[source]
    pub error: Box<dyn Error + Send + Sync>,
}
