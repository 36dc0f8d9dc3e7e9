//! The manifest: every byte of a release, and its requirements of a host. A [`Manifest`] that exists has been judged: its paths stay
//! inside, its sums agree, its frames tile the payload.

use crate::agent::AgentKind;
use crate::bundle::compression::{self, CompressionError, Expected};
use crate::bundle::contents::{Extra, Kept, Offers, Sbom};
use crate::bundle::frames::{self, BadCut, Group, Shape};
use crate::bundle::host_versions::SymbolVersions;
use crate::bundle::limits::{
    BLOCK_BYTES, FRAMES_MAXIMUM, GENERATIONS_MAXIMUM, LIST_MAXIMUM, MANIFEST_COMPRESSED_MAXIMUM_BYTES,
    MANIFEST_MAXIMUM_BYTES,
};
use crate::bundle::member::ReleaseId;
use crate::bundle::path::BundlePath;
use crate::bundle::problems::Problems;
use crate::bundle::{ustar, wire};
use crate::digest::Digest;
use crate::failure::Class;
use crate::name::PackageName;
use crate::version::{KernelVersion, LibcVersion, Platform, Release, Version};
use serde::ser::SerializeSeq as _;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::Path;

/// The schema that this sidle writes and reads.
pub const SCHEMA: u32 = 1;

/// zstd level of manifests: Salt's 2.3 MB take a fifth of a second; higher levels save a few kilobytes and cost seconds.
const MANIFEST_LEVEL: i32 = 15;

/// The description of a release. Its JSON is compact, with its fields in this order; unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    /// Everything but the entries and offers.
    #[serde(flatten)]
    pub head: Head,
    /// What each kind of its loader offers. Older manifests say nothing of it.
    #[serde(skip_serializing_if = "Offers::is_empty")]
    pub offers: Offers,
    /// Directories by path, files by generation and path, links by path: the order of the payload's members.
    pub entries: Vec<Entry>,
}

impl Deref for Manifest {
    type Target = Head;
    fn deref(&self) -> &Head {
        &self.head
    }
}

/// A manifest without its entries and offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Version of the format.
    pub schema: u32,
    /// The package.
    pub package: PackageName,
    /// The version as published.
    pub version: Version,
    /// The rebuild of this version, from 1.
    pub revision: u32,
    /// The platform it runs on.
    pub platform: Platform,
    /// The implementation that supervises it.
    pub agent: AgentKind,
    /// The oldest glibc it runs with; None: it needs none.
    pub libc_floor: Option<LibcVersion>,
    /// Libraries that the host must have: sonames, sorted, without glibc's own.
    #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub host_libraries: Vec<String>,
    /// The symbol versions that these libraries must define, by soname.
    #[serde(default, deserialize_with = "wire::unique_map", skip_serializing_if = "BTreeMap::is_empty")]
    pub host_versions: BTreeMap<String, SymbolVersions>,
    /// The oldest kernel it runs with; None: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_floor: Option<KernelVersion>,
    /// The level of x86-64 that it needs of a processor, from 2 on; None: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x86_64_level: Option<u8>,
    /// The oldest counterpart (a Salt master) it works with.
    pub masters: Option<Version>,
    /// Time of every member of the payload, seconds since 1970.
    pub source_date_epoch: u64,
    /// Its disk and memory.
    pub space: Space,
    /// Commands for `sidle run`, and their files.
    #[serde(deserialize_with = "wire::unique_map")]
    pub commands: BTreeMap<String, BundlePath>,
    /// Its service.
    pub service: Service,
    /// The guard that gives each job to one of two processes, if it has one.
    #[serde(default)]
    pub guard: Option<Guard>,
    /// Packages that its recipe added to the agent's own.
    #[serde(default, deserialize_with = "wire::list_or_null")]
    pub extras: Vec<Extra>,
    /// Modules of an older release that the agent itself no longer has.
    #[serde(default, deserialize_with = "wire::list_or_null")]
    pub kept: Vec<Kept>,
    /// The bill of materials; None: the release does not say.
    #[serde(default)]
    pub sbom: Option<Sbom>,
    /// The payload as a whole.
    pub payload: Payload,
    /// The releases in which contents first appeared, ascending, this release included.
    #[serde(deserialize_with = "wire::list::<_, _, GENERATIONS_MAXIMUM>")]
    pub generations: Vec<Release>,
    /// The frames, in the order in which they tile the payload.
    #[serde(deserialize_with = "wire::list::<_, _, FRAMES_MAXIMUM>")]
    pub frames: Vec<Frame>,
}

/// Disk and memory of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes of all files.
    pub content_bytes: u64,
    /// Bytes on a disk with blocks of 4096: files rounded up, a block per directory.
    pub allocated_bytes: u64,
    /// The number of entries: inodes.
    pub inodes: u64,
    /// Memory of a second process during an overlap; 0: unknown.
    pub overlap_memory_bytes: u64,
}

/// The part of an agent that gives each job to one of two processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Its version of the gate's protocol; 0: a protocol that this sidle can't read.
    #[serde(default)]
    pub protocol: u32,
    /// The prefixes of the agent's versions that it was tried with: `3006` means 3006.0 up to 3007. No other version may run beside another
    /// process. Empty: any version.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub tried: Vec<String>,
}

impl Guard {
    /// True when it was tried with this version of the agent.
    pub fn is_tried_with(&self, version: &str) -> bool {
        let fits = |tried: &String| {
            version.strip_prefix(tried.as_str()).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        self.tried.is_empty() || self.tried.iter().any(fits)
    }
}

/// The service of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// A name in `commands`, and arguments; `{config}` stands for the configuration directory.
    #[serde(deserialize_with = "wire::list::<_, _, LIST_MAXIMUM>")]
    pub command: Vec<String>,
    /// The configuration directory, unless the host's settings name one.
    pub config: String,
    /// Variables of its environment.
    #[serde(deserialize_with = "wire::unique_map")]
    pub environment: BTreeMap<String, String>,
}

impl Service {
    /// Expands `{config}` in a word of the command, or in a value of the environment.
    pub fn expanded(word: &str, configuration: &Path) -> OsString {
        let mut parts = word.split("{config}");
        let mut whole = OsString::from(parts.next().unwrap_or_default());
        for part in parts {
            whole.push(configuration);
            whole.push(part);
        }
        whole
    }
}

/// The payload as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Its length, bytes.
    pub length: u64,
    /// Its digest.
    pub sha256: Digest,
}

/// One independent zstd frame of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its place in the payload.
    pub offset: u64,
    /// Its compressed length, bytes.
    pub length: u64,
    /// Digest of its compressed bytes: compared before they are decompressed.
    pub sha256: Digest,
    /// Tar bytes in it.
    pub content_length: u64,
    /// Index into `generations`.
    pub generation: u32,
}

/// One file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path.
    pub path: BundlePath,
    /// Its kind.
    pub kind: EntryKind,
}

/// The kind of an entry.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory { mode: u32 },
    /// A regular file.
    File {
        mode: u32,
        size: u64,
        sha256: Digest,
        /// Index of the frame with its content, or with the first part.
        frame: u32,
    },
    /// A symbolic link.
    Link {
        /// Relative to the link's directory; never out of the tree.
        target: String,
    },
}

/// Why a manifest can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is larger than any manifest may be.
    #[error("cannot read the manifest: it has more than {MANIFEST_MAXIMUM_BYTES} bytes")]
    TooLarge,
    /// It can't be decompressed.
    #[error("cannot read the manifest: {0}")]
    Compression(CompressionError),
    /// It can't be compressed or written as JSON.
    #[error("cannot write the manifest: {0}")]
    Write(String),
    /// Not JSON, or not of this shape.
    #[error("cannot read the manifest: {0}")]
    Json(serde_json::Error),
    /// A schema that this sidle doesn't know.
    #[error("cannot read the manifest: it has schema {0}, this sidle reads {SCHEMA}")]
    Schema(u32),
    /// It describes a tree that no host may unpack.
    #[error("cannot accept the manifest: {0}")]
    Unsafe(#[source] Problems),
}

impl ManifestError {
    /// The kind of failure. A manifest is read after its digest has been compared, so its faults were signed.
    pub fn class(&self) -> Class {
        match self {
            Self::Write(_) => Class::Failed,
            Self::TooLarge | Self::Compression(_) | Self::Json(_) | Self::Schema(_) | Self::Unsafe(_) => {
                Class::NotTrusted
            }
        }
    }

    /// A remedy for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Schema(_) => Some("install a newer sidle on this host".to_owned()),
            Self::TooLarge | Self::Compression(_) | Self::Write(_) | Self::Json(_) | Self::Unsafe(_) => None,
        }
    }
}

/// The compressed form of a manifest's text.
pub fn compress(text: &[u8]) -> Result<Vec<u8>, ManifestError> {
    compression::compress(text, MANIFEST_LEVEL).map_err(|error| ManifestError::Write(error.to_string()))
}

/// Decompresses a manifest whose digest has been compared: no unverified byte reaches the decompressor.
pub fn decompress(bytes: &[u8]) -> Result<Vec<u8>, ManifestError> {
    if bytes.len() as u64 > MANIFEST_COMPRESSED_MAXIMUM_BYTES {
        return Err(ManifestError::TooLarge);
    }
    compression::decompress(bytes, Expected::AtMost(MANIFEST_MAXIMUM_BYTES)).map_err(ManifestError::Compression)
}

/// The patch from an older manifest's text to a newer one's.
pub fn patch(old: &[u8], new: &[u8]) -> Result<Vec<u8>, ManifestError> {
    compression::compress_after(old, new).map_err(|error| ManifestError::Write(error.to_string()))
}

/// Applies a patch to the older text `old`, both verified, and compresses the result. It equals the published manifest only if this sidle
/// compresses as its author's did: the caller compares digests, and else fetches the whole manifest.
pub fn apply(old: &[u8], patch: &[u8]) -> Result<Vec<u8>, ManifestError> {
    let text = compression::decompress_after(old, patch, Expected::AtMost(MANIFEST_MAXIMUM_BYTES));
    compress(&text.map_err(ManifestError::Compression)?)
}

impl Head {
    /// The release: version and revision.
    pub fn release(&self) -> Release {
        Release { version: self.version.clone(), revision: self.revision }
    }

    /// Package, release and platform.
    pub fn id(&self) -> ReleaseId {
        ReleaseId { package: self.package.clone(), release: self.release(), platform: self.platform.clone() }
    }
}

impl Manifest {
    /// The manifest's text: compact JSON, the same bytes for the same manifest.
    pub fn to_json(&self) -> Result<Vec<u8>, ManifestError> {
        serde_json::to_vec(self).map_err(|error| ManifestError::Write(error.to_string()))
    }

    /// The content of each frame.
    pub fn layout(&self) -> Vec<frames::Holds> {
        self.cut().expect("a manifest that exists has been judged, its cut included")
    }

    /// The content of each frame, of a manifest that is still to be judged.
    pub(in crate::bundle) fn cut(&self) -> Result<Vec<frames::Holds>, BadCut> {
        let mtime = self.source_date_epoch;
        // The layout depends on lengths alone, so one group serves.
        let shape = |entry: &Entry| Shape::of(&entry.member(mtime), Group::Directories);
        let shapes: Vec<Shape> = self.entries.iter().map(shape).collect();
        let lengths: Vec<u64> = self.frames.iter().map(|frame| frame.content_length).collect();
        frames::layout(&shapes, &lengths)
    }
}

impl Entry {
    /// Its tar member.
    pub fn member(&self, mtime: u64) -> ustar::Member<'_> {
        let (kind, mode) = match &self.kind {
            EntryKind::Directory { mode } => (ustar::Kind::Directory, *mode),
            EntryKind::File { mode, size, .. } => (ustar::Kind::File(*size), *mode),
            EntryKind::Link { target } => (ustar::Kind::Link(target), LINK_MODE),
        };
        ustar::Member { path: self.path.as_str(), kind, mode, mtime }
    }

    /// Bytes of its content.
    pub fn size(&self) -> u64 {
        match self.kind {
            EntryKind::File { size, .. } => size,
            EntryKind::Directory { .. } | EntryKind::Link { .. } => 0,
        }
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut elements = serializer.serialize_seq(None)?;
        elements.serialize_element(&self.path)?;
        match &self.kind {
            EntryKind::Directory { mode } => {
                elements.serialize_element("d")?;
                elements.serialize_element(mode)?;
            }
            EntryKind::File { mode, size, sha256, frame } => {
                elements.serialize_element("f")?;
                elements.serialize_element(mode)?;
                elements.serialize_element(size)?;
                elements.serialize_element(sha256)?;
                elements.serialize_element(frame)?;
            }
            EntryKind::Link { target } => {
                elements.serialize_element("l")?;
                elements.serialize_element(target)?;
            }
        }
        elements.end()
    }
}

/// The mode in a link's header, as Linux shows it for every link.
pub const LINK_MODE: u32 = 0o777;

impl Space {
    /// The sums of `entries`.
    pub fn of(entries: &[Entry], overlap_memory_bytes: u64) -> Self {
        let mut space =
            Self { content_bytes: 0, allocated_bytes: 0, inodes: entries.len() as u64, overlap_memory_bytes };
        for entry in entries {
            match &entry.kind {
                EntryKind::Directory { .. } => space.allocated_bytes += BLOCK_BYTES,
                EntryKind::File { size, .. } => {
                    space.content_bytes += size;
                    space.allocated_bytes += size.next_multiple_of(BLOCK_BYTES);
                }
                EntryKind::Link { .. } => {}
            }
        }
        space
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_tried_with_the_versions_that_begin_with_what_it_names() {
        let tried =
            |parts: &[&str]| Guard { protocol: 1, tried: parts.iter().map(|part| (*part).to_owned()).collect() };
        let guard = tried(&["3006", "3007.1"]);
        assert!(
            ["3006", "3006.30", "3006.0rc1", "3007.1", "3007.1.2"].iter().all(|version| guard.is_tried_with(version))
        );
        assert!(["3007.17", "3008.5", "30060.1", "300"].iter().all(|version| !guard.is_tried_with(version)));
        assert!(tried(&[]).is_tried_with("1.0"), "an agent that brings its own");
    }
}
