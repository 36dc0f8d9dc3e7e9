//! Single frames of a bundle file, for repairs.

use super::{BundleError, BundleReader, garbled};
use crate::bundle::manifest::Frame;
use crate::bundle::member::ReleaseId;
use crate::bundle::source::{FrameSource, PayloadSource, SourceError};
use std::fs::File;
use std::io::{BufReader, Seek as _};

/// The payload of one release in a bundle file. Untrusted: the unpacker compares each frame's digest.
#[derive(Debug)]
pub struct BundledPayload {
    file: File,
    id: ReleaseId,
}

impl BundledPayload {
    /// The payload of `id` in `file`.
    pub fn new(file: File, id: ReleaseId) -> Self {
        Self { file, id }
    }
}

impl PayloadSource for BundledPayload {
    fn frames<'a>(&'a mut self, _: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError> {
        self.file.rewind().map_err(|source| BundleError::Io { verb: "read", source })?;
        let (_, mut reader) = BundleReader::open(BufReader::with_capacity(1 << 20, &self.file))?;
        while let Some(header) = reader.next_payload()? {
            if header.id == self.id {
                return Ok(Box::new(Skipping(reader)));
            }
        }
        Err(garbled(&format!("the payload of {}", self.id), "it is not in the bundle").into())
    }
}

/// A payload that skips unwanted frames.
struct Skipping<'a>(BundleReader<BufReader<&'a File>>);

impl FrameSource for Skipping<'_> {
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        self.0.skip_to(frame.offset)?;
        self.0.next(frame)
    }

    /// Bytes after the last wanted frame don't matter here.
    fn end(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}
