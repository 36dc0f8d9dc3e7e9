//! Single frames of a bundle file: for repairs, and of a part of a payload.

use super::{BundleError, BundleReader, garbled};
use crate::bundle::manifest::{Frame, Manifest};
use crate::bundle::member::ReleaseId;
use crate::bundle::part::Part;
use crate::bundle::source::{FrameSource, PayloadSource, SourceError};
use std::fs::File;
use std::io::{BufReader, Read, Seek as _};

/// The payload of one release in a bundle file. Untrusted: the unpacker compares each frame's digest.
#[derive(Debug)]
pub struct BundledPayload<'a> {
    file: File,
    manifest: &'a Manifest,
}

impl<'a> BundledPayload<'a> {
    /// The payload of the manifest's release in `file`.
    pub fn new(file: File, manifest: &'a Manifest) -> Self {
        Self { file, manifest }
    }
}

impl PayloadSource for BundledPayload<'_> {
    fn frames<'a>(&'a mut self, _: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError> {
        self.file.rewind().map_err(|source| BundleError::Io { verb: "read", source })?;
        let id = self.manifest.id();
        let (_, mut reader) = BundleReader::open(BufReader::with_capacity(1 << 20, &self.file))?;
        while let Some(header) = reader.next_payload()? {
            if header.id == id {
                return Ok(match &header.part {
                    None => Box::new(Skipping(reader)),
                    Some(part) => Box::new(Partial::new(reader, part, self.manifest)),
                });
            }
        }
        Err(garbled(&format!("the payload of {id}"), "it is not in the bundle").into())
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

/// The part of a payload that a file has, read to its end.
pub struct Partial<R> {
    reader: BundleReader<R>,
    id: ReleaseId,
    since: String,
    /// The frames that are still to be read.
    frames: std::vec::IntoIter<Frame>,
}

impl<R: Read> Partial<R> {
    /// The present payload of `reader`, which is this part of the manifest's.
    pub fn new(reader: BundleReader<R>, part: &Part, manifest: &Manifest) -> Self {
        let frames = part.frames(manifest).unwrap_or_default().into_iter();
        Self { reader, id: manifest.id(), since: part.since(), frames }
    }

    /// Reads the rest of the bundle, and checks it.
    pub fn finish(self) -> Result<(), BundleError> {
        self.reader.finish()
    }
}

impl<R: Read> FrameSource for Partial<R> {
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        loop {
            let there = self.frames.next().filter(|there| there.offset <= frame.offset);
            let Some(there) = there else {
                return Err(BundleError::NotInPart { id: self.id.clone(), since: self.since.clone() }.into());
            };
            let bytes = self.reader.next(&there)?;
            if there.offset == frame.offset {
                return Ok(bytes);
            }
        }
    }

    /// The rest of the bundle is read by `finish`.
    fn end(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}

impl<R: Read> PayloadSource for Partial<R> {
    fn frames<'a>(&'a mut self, _: &[Frame]) -> Result<Box<dyn FrameSource + 'a>, SourceError> {
        Ok(Box::new(self))
    }
}
