//! Reads a bundle file in one pass.

use super::head::{Head, HeadBuilder};
use super::input::{member_of, read_bytes, read_exact, read_header, read_hint, read_padding, read_some};
use super::{BundleError, COPY_BYTES, garbled};
use crate::bundle::limits::PAYLOAD_MAXIMUM_BYTES;
use crate::bundle::manifest::{Frame, Manifest};
use crate::bundle::member::{self, MemberName, ReleaseId};
use crate::bundle::part::Part;
use crate::bundle::source::{FrameSource, SourceError};
use crate::digest::{Digest, Hasher};
use std::io::Read;

/// The next payload in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadHeader {
    /// Its release.
    pub id: ReleaseId,
    /// The digest in its name and in SHA256SUMS; of a whole payload it is compared at the end.
    pub digest: Digest,
    /// The length in its header.
    pub length: u64,
    /// The part of the payload that the file has; None: all of it.
    pub part: Option<Part>,
}

impl PayloadHeader {
    /// Compares it with the manifest.
    pub fn check(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let bad = |what| Err(BundleError::Garbled { member: format!("payload of {}", self.id), what });
        if self.id != manifest.id() {
            return bad("its manifest describes another release");
        }
        let length = match &self.part {
            None => Some(manifest.payload.length),
            Some(part) => part.frames(manifest).map(|frames| frames.iter().map(|frame| frame.length).sum()),
        };
        if length != Some(self.length) {
            return bad("its length differs from its manifest");
        }
        if self.digest != manifest.payload.sha256 {
            return bad("its digest differs from its manifest");
        }
        Ok(())
    }
}

/// Reads a bundle in one pass, also from a pipe.
pub struct BundleReader<R> {
    reader: R,
    /// The header after the head, already read: the first payload's, or the end's.
    header: Option<[u8; 512]>,
    /// The payloads still to come.
    awaited: std::vec::IntoIter<(ReleaseId, Digest, Option<Part>)>,
    current: Option<Current>,
}

/// The payload that is being read.
struct Current {
    name: String,
    digest: Digest,
    length: u64,
    remaining: u64,
    hasher: Hasher,
}

impl<R: Read> BundleReader<R> {
    /// Reads the head: all members before the payloads.
    pub fn open(mut reader: R) -> Result<(Head, Self), BundleError> {
        let hint = read_hint(&mut reader)?;
        let mut head = HeadBuilder::default();
        let header = loop {
            let header = read_header(&mut reader, "the header of a member")?;
            let (name, size) = match member_of(&header)? {
                Some((MemberName::Payload(..) | MemberName::Part(..), _)) | None => break header,
                Some(member) => member,
            };
            head.admit(&name, size)?;
            let bytes = read_bytes(&mut reader, &name.to_string(), size)?;
            head.add(name, bytes)?;
        };
        let head = head.finish()?;
        if hint != member::hint(head.releases.iter().map(|release| &release.id)).as_bytes() {
            return Err(garbled("sidle-bundle", "it names other releases than the bundle has"));
        }
        let awaited =
            head.releases.iter().map(|release| (release.id.clone(), release.payload_digest, release.part.clone()));
        let awaited: Vec<_> = awaited.collect();
        Ok((head, Self { reader, header: Some(header), awaited: awaited.into_iter(), current: None }))
    }

    /// Goes to the next payload, after reading the rest of the present one and comparing its digest. None after the last.
    pub fn next_payload(&mut self) -> Result<Option<PayloadHeader>, BundleError> {
        self.end_payload()?;
        let Some((id, digest, part)) = self.awaited.next() else { return Ok(None) };
        let (name, of_bytes) = match &part {
            None => (MemberName::Payload(id.clone(), digest), digest),
            Some(part) => (MemberName::Part(id.clone(), digest), part.sha256),
        };
        let header = match self.header.take() {
            Some(header) => header,
            None => read_header(&mut self.reader, &name.to_string())?,
        };
        let length = match member_of(&header)? {
            Some((found, length)) if found == name && length <= PAYLOAD_MAXIMUM_BYTES => length,
            _ => return Err(garbled(&name.to_string(), "another member is in its place")),
        };
        let (name, hasher) = (name.to_string(), Hasher::new());
        self.current = Some(Current { name, digest: of_bytes, length, remaining: length, hasher });
        Ok(Some(PayloadHeader { id, digest, length, part }))
    }

    /// Skips to `offset` bytes into the current payload.
    pub(super) fn skip_to(&mut self, offset: u64) -> Result<(), BundleError> {
        let ends = || garbled("payload", "it ends before a frame of it");
        let current = self.current.as_mut().ok_or_else(ends)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut missing = (current.remaining + offset).checked_sub(current.length).ok_or_else(ends)?;
        while missing > 0 {
            let wanted = usize::try_from(missing.min(COPY_BYTES as u64)).unwrap_or(COPY_BYTES);
            if current.remaining < wanted as u64 {
                return Err(ends());
            }
            current.read(&mut self.reader, &mut buffer[..wanted])?;
            missing -= wanted as u64;
        }
        Ok(())
    }

    /// Checks that every payload was there with the digest of its name, and that nothing follows the end.
    pub fn finish(mut self) -> Result<(), BundleError> {
        const END: &str = "the end of the bundle";
        while self.next_payload()?.is_some() {}
        let first = match self.header.take() {
            Some(header) => header,
            None => read_header(&mut self.reader, END)?,
        };
        let second = read_header(&mut self.reader, END)?;
        if first != [0; 512] || second != [0; 512] {
            return Err(garbled(END, "it is not two blocks of zeros"));
        }
        match read_some(&mut self.reader, &mut [0])? {
            0 => Ok(()),
            _ => Err(garbled(END, "bytes follow it")),
        }
    }

    /// Reads the rest of the current payload and its padding, and compares its digest.
    fn end_payload(&mut self) -> Result<(), BundleError> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let mut buffer = vec![0; COPY_BYTES];
        while current.remaining > 0 {
            let wanted = usize::try_from(current.remaining).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            current.read(&mut self.reader, &mut buffer[..wanted])?;
        }
        read_padding(&mut self.reader, &current.name, current.length)?;
        if current.hasher.finish() != current.digest {
            return Err(garbled(&current.name, "its bytes don't match their digest"));
        }
        Ok(())
    }
}

impl Current {
    fn read(&mut self, reader: &mut impl Read, buffer: &mut [u8]) -> Result<(), BundleError> {
        read_exact(reader, buffer, &self.name)?;
        self.remaining -= buffer.len() as u64;
        self.hasher.update(buffer);
        Ok(())
    }
}

impl<R: Read> FrameSource for BundleReader<R> {
    /// The next frame of the current payload.
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        self.next_into(frame, Vec::new())
    }

    fn next_into(&mut self, frame: &Frame, mut bytes: Vec<u8>) -> Result<Vec<u8>, SourceError> {
        let Some(current) = self.current.as_mut().filter(|current| current.remaining >= frame.length) else {
            return Err(garbled("payload", "it ends before its last frame").into());
        };
        let length = usize::try_from(frame.length).map_err(|_| garbled(&current.name, "a frame is too long"))?;
        if bytes.capacity() < length {
            bytes = vec![0; length];
        }
        bytes.resize(length, 0);
        current.read(&mut self.reader, &mut bytes)?;
        Ok(bytes)
    }

    fn end(&mut self) -> Result<(), SourceError> {
        if self.current.as_ref().is_some_and(|current| current.remaining > 0) {
            return Err(garbled("payload", "bytes follow its last frame").into());
        }
        Ok(self.end_payload()?)
    }
}

impl From<BundleError> for SourceError {
    fn from(error: BundleError) -> Self {
        Self { class: error.class(), error: Box::new(error) }
    }
}
