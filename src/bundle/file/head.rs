//! The head of a bundle file: the small members, held in memory until they are verified.

use super::{BundleError, garbled};
use crate::bundle::limits::{
    BUNDLE_HEAD_MAXIMUM_BYTES, BUNDLE_METADATA_MAXIMUM, BUNDLE_METADATA_MAXIMUM_BYTES, BUNDLE_RELEASES_MAXIMUM,
    MANIFEST_COMPRESSED_MAXIMUM_BYTES, NOTE_MAXIMUM_BYTES, ROOT_MAXIMUM_BYTES, SNAPSHOT_MAXIMUM_BYTES,
    TARGETS_MAXIMUM_BYTES, TIMESTAMP_MAXIMUM_BYTES,
};
use crate::bundle::member::{MemberName, MetadataName, ReleaseFile, ReleaseId, payload_of_checksums};
use crate::bundle::part::Part;
use crate::digest::Digest;

/// All members before the first payload, in the file's order, not verified.
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
    /// The directory of its members; the manifest must name the same.
    pub id: ReleaseId,
    /// Digest of the compressed manifest, compared with the bytes. Only metadata says whether it is signed.
    pub manifest_digest: Digest,
    /// The compressed manifest.
    pub manifest: Vec<u8>,
    /// Digest of the payload, from SHA256SUMS.
    pub payload_digest: Digest,
    /// SHA256SUMS.
    pub checksums: Vec<u8>,
    /// SHA256SUMS.minisig.
    pub signature: Vec<u8>,
    /// The part of the payload that the file has; None: all of it.
    pub part: Option<Part>,
}

/// Takes the members of a head in their order.
#[derive(Default)]
pub(super) struct HeadBuilder {
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
    part: Option<Part>,
}

impl HeadBuilder {
    /// Refuses a member of this name and size if it may not come now.
    pub(super) fn admit(&mut self, name: &MemberName, size: u64) -> Result<(), BundleError> {
        if self.last.as_ref().is_some_and(|last| last >= name) || *name == MemberName::Hint {
            return Err(garbled(&name.to_string(), "it is out of order"));
        }
        self.last = Some(name.clone());
        self.bytes = self.bytes.saturating_add(size);
        let (limit, together) = match name {
            MemberName::Metadata(name) => (metadata_maximum_bytes(name), BUNDLE_METADATA_MAXIMUM_BYTES),
            MemberName::Small(_, ReleaseFile::Manifest(_)) => {
                (MANIFEST_COMPRESSED_MAXIMUM_BYTES, BUNDLE_HEAD_MAXIMUM_BYTES)
            }
            MemberName::Small(..) | MemberName::Hint | MemberName::Payload(..) | MemberName::Part(..) => {
                (NOTE_MAXIMUM_BYTES, BUNDLE_HEAD_MAXIMUM_BYTES)
            }
        };
        let full = self.metadata.len() > BUNDLE_METADATA_MAXIMUM || self.releases.len() > BUNDLE_RELEASES_MAXIMUM;
        if size > limit || self.bytes > together || full {
            return Err(BundleError::TooLarge { member: name.to_string() });
        }
        Ok(())
    }

    /// Takes a member that was admitted.
    pub(super) fn add(&mut self, name: MemberName, bytes: Vec<u8>) -> Result<(), BundleError> {
        let member = name.to_string();
        match name {
            MemberName::Metadata(name) => self.metadata.push((name, bytes)),
            MemberName::Small(id, file) => {
                if self.releases.last().is_none_or(|last| last.id != id) {
                    self.releases.push(PartialRelease {
                        id,
                        manifest: None,
                        checksums: None,
                        signature: None,
                        part: None,
                    });
                }
                let Some(release) = self.releases.last_mut() else { return Ok(()) };
                match file {
                    ReleaseFile::Manifest(_) if release.manifest.is_some() => {
                        return Err(garbled(&member, "its release has two manifests"));
                    }
                    ReleaseFile::Manifest(digest) if Digest::of(&bytes) != digest => {
                        return Err(garbled(&member, "its bytes don't match the digest in its name"));
                    }
                    ReleaseFile::Manifest(digest) => release.manifest = Some((digest, bytes)),
                    ReleaseFile::Checksums => release.checksums = Some(bytes),
                    ReleaseFile::Signature => release.signature = Some(bytes),
                    ReleaseFile::Frames => {
                        let part = Part::parse(&bytes);
                        release.part = Some(part.map_err(|_| garbled(&member, "it is no list of frames"))?);
                    }
                }
            }
            MemberName::Hint | MemberName::Payload(..) | MemberName::Part(..) => {
                return Err(garbled(&member, "it is out of order"));
            }
        }
        Ok(())
    }

    /// The head, if it is complete.
    pub(super) fn finish(self) -> Result<Head, BundleError> {
        if self.releases.is_empty() {
            return Err(garbled("the bundle", "it holds no release"));
        }
        let releases: Result<Vec<_>, _> = self.releases.into_iter().map(PartialRelease::finish).collect();
        Ok(Head { metadata: self.metadata, releases: releases? })
    }
}

/// The size limit of a metadata file, by its role.
fn metadata_maximum_bytes(name: &MetadataName) -> u64 {
    match name {
        MetadataName::Root(_) => ROOT_MAXIMUM_BYTES,
        MetadataName::Timestamp => TIMESTAMP_MAXIMUM_BYTES,
        MetadataName::Snapshot(_) => SNAPSHOT_MAXIMUM_BYTES,
        MetadataName::Targets(_) | MetadataName::Delegated(..) => TARGETS_MAXIMUM_BYTES,
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
        let (id, part) = (self.id, self.part);
        Ok(BundledRelease { id, manifest_digest, manifest, payload_digest, checksums, signature, part })
    }
}
