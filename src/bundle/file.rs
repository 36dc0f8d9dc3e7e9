//! The bundle file: releases for carrying by hand, in one canonical USTAR. The reader checks form alone and believes nothing: what the metadata,
//! manifests and payloads mean is for trust and the manifest to say.

use super::limits::{
    BUNDLE_HEAD_MAXIMUM_BYTES, BUNDLE_METADATA_MAXIMUM, BUNDLE_RELEASES_MAXIMUM, MANIFEST_COMPRESSED_MAXIMUM_BYTES,
    METADATA_MAXIMUM_BYTES, NOTE_MAXIMUM_BYTES, PAYLOAD_MAXIMUM_BYTES,
};
use super::manifest::{Frame, Manifest};
use super::member::{HINT_FIRST_LINE, MemberName, MetadataName, ReleaseFile, ReleaseId, hint, payload_of_checksums};
use super::unpack::{FrameSource, SourceError};
use super::ustar::{self, Kind, Member};
use crate::digest::{Digest, Hasher};
use crate::failure::Class;
use std::fmt;
use std::io::{self, Read, Write};

/// Mode of every member.
const MODE: u32 = 0o644;
/// Time of every member: a bundle is the same file whenever it is written.
const MTIME: u64 = 0;

/// Why a bundle file can't be read or written.
#[derive(Debug)]
pub enum BundleError {
    /// It is something else altogether.
    NotABundle,
    /// It ends too early.
    Truncated {
        /// The member in which it ends.
        member: String,
    },
    /// Bytes are not what they must be.
    Garbled {
        /// The member, or the place between members.
        member: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A member is larger than its kind may be, or there are too many.
    TooLarge {
        /// The member.
        member: String,
    },
    /// The file can't be read or written.
    Io {
        /// `read` or `write`.
        verb: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The writer was given members out of order, or a payload of another length or digest than announced.
    Misuse {
        /// The member.
        member: String,
    },
}

impl BundleError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::NotABundle | Self::Truncated { .. } | Self::Garbled { .. } | Self::TooLarge { .. } => {
                Class::Integrity
            }
            Self::Io { source, .. } if crate::os::is_no_space(source) => Class::NoSpace,
            Self::Io { .. } | Self::Misuse { .. } => Class::Failed,
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotABundle => Some("name a file that `sidle export` or `sidle pack --repo` wrote".to_owned()),
            Self::Truncated { .. } | Self::Garbled { .. } => {
                Some("the file was damaged on its way: copy it again, and compare its size".to_owned())
            }
            Self::TooLarge { .. } | Self::Io { .. } | Self::Misuse { .. } => None,
        }
    }
}

impl fmt::Display for BundleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotABundle => formatter.write_str("cannot read the file as a bundle: it is not a sidle bundle"),
            Self::Truncated { member } => write!(formatter, "cannot read the bundle: it ends too early, in {member}"),
            Self::Garbled { member, what } => write!(formatter, "cannot read the bundle: {member}: {what}"),
            Self::TooLarge { member } => write!(formatter, "cannot read the bundle: {member} is larger than it may be"),
            Self::Io { verb, source } => write!(formatter, "cannot {verb} the bundle: {source}"),
            Self::Misuse { member } => write!(formatter, "cannot write the bundle: {member} is not what was announced"),
        }
    }
}

impl std::error::Error for BundleError {}

/// Everything before the first payload, in the order of the file. Nothing of it has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Metadata members.
    pub metadata: Vec<(MetadataName, Vec<u8>)>,
    /// The releases, ascending. Their payloads follow in this order.
    pub releases: Vec<BundledRelease>,
}

/// The small files of one release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundledRelease {
    /// The directory it lies in; the manifest must say the same.
    pub id: ReleaseId,
    /// Digest of the compressed manifest. The bytes have it; whether it is the signed one is for trust to say.
    pub manifest_digest: Digest,
    /// The compressed manifest.
    pub manifest: Vec<u8>,
    /// Digest of the payload, as SHA256SUMS names it.
    pub payload_digest: Digest,
    /// SHA256SUMS.
    pub checksums: Vec<u8>,
    /// SHA256SUMS.minisig.
    pub signature: Vec<u8>,
}

/// A payload that the reader has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadHeader {
    /// Whose payload it is.
    pub id: ReleaseId,
    /// The digest that its name, and SHA256SUMS, promise. Compared at its end.
    pub digest: Digest,
    /// Its length as the header has it.
    pub length: u64,
}

impl PayloadHeader {
    /// Compares it with what the manifest says of it.
    pub fn check(&self, manifest: &Manifest) -> Result<(), BundleError> {
        let bad = |what| Err(BundleError::Garbled { member: format!("payload of {}", self.id), what });
        if self.id != manifest.id() {
            return bad("its manifest describes another release");
        }
        if self.length != manifest.payload.length {
            return bad("it has not the length that its manifest says");
        }
        if self.digest != manifest.payload.sha256 {
            return bad("it has not the digest that its manifest says");
        }
        Ok(())
    }
}

/// Writes a bundle, member by member, in the one order there is.
pub struct BundleWriter<W> {
    writer: W,
    last: MemberName,
}

impl<W: Write> BundleWriter<W> {
    /// Starts a bundle with these releases, which must be ascending.
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

    /// Copies a payload of exactly `length` bytes, and compares its digest with the one in its name.
    pub fn payload(
        &mut self,
        id: &ReleaseId,
        digest: Digest,
        length: u64,
        from: &mut dyn Read,
    ) -> Result<(), BundleError> {
        let name = MemberName::Payload(id.clone(), digest);
        self.follow(&name)?;
        self.header(&name, length)?;
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

    /// Ends the bundle. Syncing the file is the caller's.
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

/// Bytes copied or skipped at a time.
const COPY_BYTES: usize = 1 << 18;

fn header_of(name: &MemberName, size: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(512);
    let path = name.to_string();
    Member { path: &path, kind: Kind::File(size), mode: MODE, mtime: MTIME }.write_header(&mut header);
    header
}

fn padding(size: u64) -> usize {
    usize::try_from(ustar::padding(size)).unwrap_or(0)
}

/// Reads a bundle in one pass, from anything that can be read: also from a pipe.
pub struct BundleReader<R> {
    reader: R,
    /// The header of the member after the head, read already: the first payload's, or the end's.
    header: Option<[u8; 512]>,
    /// The payloads still to come.
    awaited: std::vec::IntoIter<(ReleaseId, Digest)>,
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
    /// Reads the head of a bundle: all but the payloads.
    pub fn open(mut reader: R) -> Result<(Head, Self), BundleError> {
        let hint = read_hint(&mut reader)?;
        let mut head = HeadBuilder::default();
        let header = loop {
            let header = read_header(&mut reader, "the header of a member")?;
            let (name, size) = match member_of(&header)? {
                Some((MemberName::Payload(..), _)) | None => break header,
                Some(member) => member,
            };
            head.admit(&name, size)?;
            let bytes = read_bytes(&mut reader, &name.to_string(), size)?;
            head.add(name, bytes)?;
        };
        let head = head.finish()?;
        if hint != super::member::hint(head.releases.iter().map(|release| &release.id)).as_bytes() {
            return Err(garbled("sidle-bundle", "it names other releases than the bundle has"));
        }
        let awaited: Vec<_> =
            head.releases.iter().map(|release| (release.id.clone(), release.payload_digest)).collect();
        Ok((head, Self { reader, header: Some(header), awaited: awaited.into_iter(), current: None }))
    }

    /// Goes to the next payload; what is left of the one before it is read, and compared with its digest. None after the last one.
    pub fn next_payload(&mut self) -> Result<Option<PayloadHeader>, BundleError> {
        self.end_payload()?;
        let Some((id, digest)) = self.awaited.next() else { return Ok(None) };
        let name = MemberName::Payload(id.clone(), digest);
        let header = match self.header.take() {
            Some(header) => header,
            None => read_header(&mut self.reader, &name.to_string())?,
        };
        let length = match member_of(&header)? {
            Some((found, length)) if found == name && length <= PAYLOAD_MAXIMUM_BYTES => length,
            _ => return Err(garbled(&name.to_string(), "another member is in its place")),
        };
        let current = Current { name: name.to_string(), digest, length, remaining: length, hasher: Hasher::new() };
        self.current = Some(current);
        Ok(Some(PayloadHeader { id, digest, length }))
    }

    /// Proves that all payloads were there and are what their names say, that the end is the end, and that nothing follows it.
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

    /// Reads the rest of the current payload, compares its digest, and its padding.
    fn end_payload(&mut self) -> Result<(), BundleError> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let mut buffer = vec![0; COPY_BYTES];
        while current.remaining > 0 {
            let wanted = usize::try_from(current.remaining).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            current.read(&mut self.reader, &mut buffer[..wanted])?;
        }
        read_padding(&mut self.reader, &current.name, current.length)?;
        if current.hasher.finish() != current.digest {
            return Err(garbled(&current.name, "its bytes are not what its name promises"));
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
    /// A frame of the payload that `next_payload` went to.
    fn next(&mut self, frame: &Frame) -> Result<Vec<u8>, SourceError> {
        let Some(current) = self.current.as_mut().filter(|current| current.remaining >= frame.length) else {
            return Err(garbled("payload", "it ends before its last frame").into());
        };
        let length = usize::try_from(frame.length).map_err(|_| garbled(&current.name, "a frame is too long"))?;
        let mut bytes = vec![0; length];
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

#[derive(Default)]
struct HeadBuilder {
    last: Option<MemberName>,
    bytes: u64,
    metadata: Vec<(MetadataName, Vec<u8>)>,
    releases: Vec<PartialRelease>,
}

struct PartialRelease {
    id: ReleaseId,
    manifest: Option<(Digest, Vec<u8>)>,
    checksums: Option<Vec<u8>>,
    signature: Option<Vec<u8>>,
}

impl HeadBuilder {
    /// Whether a member of this name and size may come now.
    fn admit(&mut self, name: &MemberName, size: u64) -> Result<(), BundleError> {
        if self.last.as_ref().is_some_and(|last| last >= name) || *name == MemberName::Hint {
            return Err(garbled(&name.to_string(), "it is out of order"));
        }
        self.last = Some(name.clone());
        self.bytes = self.bytes.saturating_add(size);
        let limit = match name {
            MemberName::Metadata(_) => METADATA_MAXIMUM_BYTES,
            MemberName::Small(_, ReleaseFile::Manifest(_)) => MANIFEST_COMPRESSED_MAXIMUM_BYTES,
            MemberName::Small(..) | MemberName::Hint | MemberName::Payload(..) => NOTE_MAXIMUM_BYTES,
        };
        let full = self.metadata.len() > BUNDLE_METADATA_MAXIMUM || self.releases.len() > BUNDLE_RELEASES_MAXIMUM;
        if size > limit || self.bytes > BUNDLE_HEAD_MAXIMUM_BYTES || full {
            return Err(BundleError::TooLarge { member: name.to_string() });
        }
        Ok(())
    }

    fn add(&mut self, name: MemberName, bytes: Vec<u8>) -> Result<(), BundleError> {
        let member = name.to_string();
        match name {
            MemberName::Metadata(name) => self.metadata.push((name, bytes)),
            MemberName::Small(id, file) => {
                if self.releases.last().is_none_or(|last| last.id != id) {
                    self.releases.push(PartialRelease { id, manifest: None, checksums: None, signature: None });
                }
                let Some(release) = self.releases.last_mut() else { return Ok(()) };
                match file {
                    ReleaseFile::Manifest(_) if release.manifest.is_some() => {
                        return Err(garbled(&member, "its release has two manifests"));
                    }
                    ReleaseFile::Manifest(digest) if Digest::of(&bytes) != digest => {
                        return Err(garbled(&member, "its bytes are not what its name promises"));
                    }
                    ReleaseFile::Manifest(digest) => release.manifest = Some((digest, bytes)),
                    ReleaseFile::Checksums => release.checksums = Some(bytes),
                    ReleaseFile::Signature => release.signature = Some(bytes),
                }
            }
            MemberName::Hint | MemberName::Payload(..) => return Err(garbled(&member, "it is out of order")),
        }
        Ok(())
    }

    fn finish(self) -> Result<Head, BundleError> {
        if self.releases.is_empty() {
            return Err(garbled("the bundle", "it holds no release"));
        }
        let releases: Result<Vec<_>, _> = self.releases.into_iter().map(PartialRelease::finish).collect();
        Ok(Head { metadata: self.metadata, releases: releases? })
    }
}

impl PartialRelease {
    fn finish(self) -> Result<BundledRelease, BundleError> {
        let name = self.id.to_string();
        let (Some((manifest_digest, manifest)), Some(checksums), Some(signature)) =
            (self.manifest, self.checksums, self.signature)
        else {
            return Err(garbled(&name, "its manifest, SHA256SUMS or signature is missing"));
        };
        let Some(payload_digest) = payload_of_checksums(&checksums, &manifest_digest) else {
            return Err(garbled(&name, "its SHA256SUMS does not name its manifest and a payload"));
        };
        Ok(BundledRelease { id: self.id, manifest_digest, manifest, payload_digest, checksums, signature })
    }
}

fn garbled(member: &str, what: &'static str) -> BundleError {
    BundleError::Garbled { member: member.to_owned(), what }
}

/// The name and size of the member whose header this is, which must be the one that a writer gives it; None for a block of zeros.
fn member_of(header: &[u8; 512]) -> Result<Option<(MemberName, u64)>, BundleError> {
    if *header == [0; 512] {
        return Ok(None);
    }
    let unreadable = || garbled("the header of a member", "it is not the header of a bundle's member");
    let (name, size) = ustar::announced(header).ok_or_else(unreadable)?;
    let name: MemberName = name.parse().map_err(|_| unreadable())?;
    if header_of(&name, size) != header { Err(unreadable()) } else { Ok(Some((name, size))) }
}

fn read_hint(reader: &mut impl Read) -> Result<Vec<u8>, BundleError> {
    let mut header = [0; 512];
    let mut filled = 0;
    while filled < header.len() {
        match read_some(reader, &mut header[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    let name = MemberName::Hint.to_string();
    // What begins with the name was a bundle once; anything else never was one.
    if !header.starts_with(name.as_bytes()) {
        return Err(BundleError::NotABundle);
    }
    if filled < header.len() {
        return Err(BundleError::Truncated { member: name });
    }
    let Some((MemberName::Hint, size)) = member_of(&header)? else { return Err(BundleError::NotABundle) };
    if size > NOTE_MAXIMUM_BYTES {
        return Err(BundleError::TooLarge { member: name });
    }
    let hint = read_bytes(reader, &name, size)?;
    if hint.starts_with(HINT_FIRST_LINE.as_bytes()) {
        Ok(hint)
    } else {
        Err(garbled(&name, "its first line is not `sidle bundle 1`"))
    }
}

fn read_header(reader: &mut impl Read, member: &str) -> Result<[u8; 512], BundleError> {
    let mut header = [0; 512];
    read_exact(reader, &mut header, member)?;
    Ok(header)
}

fn read_bytes(reader: &mut impl Read, member: &str, size: u64) -> Result<Vec<u8>, BundleError> {
    let mut bytes = Vec::new();
    let read = reader.by_ref().take(size).read_to_end(&mut bytes);
    read.map_err(|source| BundleError::Io { verb: "read", source })?;
    if bytes.len() as u64 != size {
        return Err(BundleError::Truncated { member: member.to_owned() });
    }
    read_padding(reader, member, size)?;
    Ok(bytes)
}

fn read_padding(reader: &mut impl Read, member: &str, size: u64) -> Result<(), BundleError> {
    let mut bytes = [0; 512];
    let bytes = &mut bytes[..padding(size)];
    read_exact(reader, bytes, member)?;
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(garbled(member, "its padding is not zeros")) }
}

fn read_exact(reader: &mut impl Read, buffer: &mut [u8], member: &str) -> Result<(), BundleError> {
    reader.read_exact(buffer).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => BundleError::Truncated { member: member.to_owned() },
        _ => BundleError::Io { verb: "read", source },
    })
}

fn read_some(reader: &mut impl Read, buffer: &mut [u8]) -> Result<usize, BundleError> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map_err(|source| BundleError::Io { verb: "read", source }),
        }
    }
}
