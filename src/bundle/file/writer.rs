//! Writes a bundle file.

use super::{BundleError, COPY_BYTES, header_of, padding};
use crate::bundle::member::{MemberName, ReleaseId, hint};
use crate::bundle::ustar;
use crate::digest::{Digest, Hasher};
use std::io::{Read, Write};

/// Writes a bundle, member by member, in the canonical order.
pub struct BundleWriter<W> {
    writer: W,
    last: MemberName,
}

impl<W: Write> BundleWriter<W> {
    /// Starts a bundle with these ascending releases.
    pub fn new(writer: W, releases: &[ReleaseId]) -> Result<Self, BundleError> {
        let mut bundle = Self { writer, last: MemberName::Hint };
        bundle.bytes(&MemberName::Hint, hint(releases).as_bytes())?;
        Ok(bundle)
    }

    /// Writes a metadata member or a small file of a release.
    pub fn small(&mut self, name: &MemberName, bytes: &[u8]) -> Result<(), BundleError> {
        self.follow(name)?;
        self.bytes(name, bytes)
    }

    /// Copies a payload of exactly `length` bytes, and compares its digest.
    pub fn payload(
        &mut self,
        id: &ReleaseId,
        digest: Digest,
        length: u64,
        from: &mut dyn Read,
    ) -> Result<(), BundleError> {
        self.content(&MemberName::Payload(id.clone(), digest), digest, length, from)
    }

    /// The same with a part of the payload `whole`; the bytes have this digest.
    pub fn part(
        &mut self,
        (id, whole): (&ReleaseId, Digest),
        digest: Digest,
        length: u64,
        from: &mut dyn Read,
    ) -> Result<(), BundleError> {
        self.content(&MemberName::Part(id.clone(), whole), digest, length, from)
    }

    fn content(
        &mut self,
        name: &MemberName,
        digest: Digest,
        length: u64,
        from: &mut dyn Read,
    ) -> Result<(), BundleError> {
        self.follow(name)?;
        self.header(name, length)?;
        let mut hasher = Hasher::new();
        let mut from = from.take(length.saturating_add(1));
        let mut buffer = vec![0; COPY_BYTES];
        let mut copied = 0;
        loop {
            let count =
                from.read(&mut buffer).map_err(|source| BundleError::Io { verb: "read the payload for", source })?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            copied += count as u64;
            self.write(&buffer[..count])?;
        }
        if copied != length || hasher.finish() != digest {
            return Err(BundleError::Misuse { member: name.to_string() });
        }
        self.pad(length)
    }

    /// Ends the bundle; the caller syncs the file.
    pub fn finish(mut self) -> Result<W, BundleError> {
        self.write(&ustar::END)?;
        self.writer.flush().map_err(|source| BundleError::Io { verb: "write", source })?;
        Ok(self.writer)
    }

    fn follow(&mut self, name: &MemberName) -> Result<(), BundleError> {
        if *name <= self.last {
            return Err(BundleError::Misuse { member: name.to_string() });
        }
        self.last = name.clone();
        Ok(())
    }

    fn bytes(&mut self, name: &MemberName, bytes: &[u8]) -> Result<(), BundleError> {
        self.header(name, bytes.len() as u64)?;
        self.write(bytes)?;
        self.pad(bytes.len() as u64)
    }

    fn header(&mut self, name: &MemberName, size: u64) -> Result<(), BundleError> {
        let header = header_of(name, size);
        // Readers take single headers: a package whose names need PAX records can't be carried by hand.
        if header.len() as u64 != ustar::BLOCK {
            return Err(BundleError::Misuse { member: name.to_string() });
        }
        self.write(&header)
    }

    fn pad(&mut self, size: u64) -> Result<(), BundleError> {
        self.write(&ustar::END[..padding(size)])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.writer.write_all(bytes).map_err(|source| BundleError::Io { verb: "write", source })
    }
}
