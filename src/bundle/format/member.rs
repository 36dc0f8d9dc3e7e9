//! The members of a bundle file. A member's name gives its meaning and its place; a bundle has no other members.

use crate::digest::Digest;
use crate::name::PackageName;
use crate::version::{Platform, Release};
use std::fmt;
use std::str::FromStr;

/// One release of one package for one platform; its text names the directory of its targets.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseId {
    pub package: PackageName,
    pub release: Release,
    pub platform: Platform,
}

impl fmt::Display for ReleaseId {
    /// The path below `targets/`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.package, self.release, self.platform)
    }
}

impl FromStr for ReleaseId {
    type Err = UnknownMember;
    fn from_str(text: &str) -> Result<Self, UnknownMember> {
        let unknown = || UnknownMember { name: text.to_owned() };
        let parts: Vec<&str> = text.split('/').collect();
        let [package, release, platform] = parts.as_slice() else { return Err(unknown()) };
        Ok(Self {
            package: package.parse().map_err(|_| unknown())?,
            release: release.parse().map_err(|_| unknown())?,
            platform: platform.parse().map_err(|_| unknown())?,
        })
    }
}

/// A metadata member, in the order in which a client reads them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetadataName {
    /// `N.root.json`, every one from 1 on.
    Root(u64),
    /// `timestamp.json`.
    Timestamp,
    /// `N.snapshot.json`.
    Snapshot(u64),
    /// `N.targets.json`.
    Targets(u64),
    /// `N.ROLE.json` of a delegated role.
    Delegated(String, u64),
}

/// A file of a release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseFile {
    /// `<sha256>.manifest.json.zst`.
    Manifest(Digest),
    /// `SHA256SUMS`.
    Checksums,
    /// `SHA256SUMS.minisig`.
    Signature,
    /// `FRAMES`: the file has a part of the payload, these frames.
    Frames,
}

/// A member of a bundle file, ordered as in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberName {
    /// `sidle-bundle`: a few lines for people.
    Hint,
    /// Below `metadata/`.
    Metadata(MetadataName),
    /// Below `targets/`: the small files of a release.
    Small(ReleaseId, ReleaseFile),
    /// Below `targets/`: `<sha256>.payload.tar.zst`.
    Payload(ReleaseId, Digest),
    /// Below `targets/`: `<sha256>.payload.part`, frames of the payload with this digest.
    Part(ReleaseId, Digest),
}

/// A name that no member of a bundle has.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {name:?}: no member of a bundle has this name")]
pub struct UnknownMember {
    pub name: String,
}

const HINT: &str = "sidle-bundle";
const CHECKSUMS: &str = "SHA256SUMS";
const SIGNATURE: &str = "SHA256SUMS.minisig";
const FRAMES: &str = "FRAMES";
const MANIFEST_SUFFIX: &str = ".manifest.json.zst";
const PAYLOAD_SUFFIX: &str = ".payload.tar.zst";
const PART_SUFFIX: &str = ".payload.part";

impl fmt::Display for MetadataName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(version) => write!(formatter, "{version}.root.json"),
            Self::Timestamp => formatter.write_str("timestamp.json"),
            Self::Snapshot(version) => write!(formatter, "{version}.snapshot.json"),
            Self::Targets(version) => write!(formatter, "{version}.targets.json"),
            Self::Delegated(role, version) => write!(formatter, "{version}.{role}.json"),
        }
    }
}

impl FromStr for MetadataName {
    type Err = UnknownMember;
    fn from_str(text: &str) -> Result<Self, UnknownMember> {
        let parsed = || {
            let stem = text.strip_suffix(".json")?;
            if stem == "timestamp" {
                return Some(Self::Timestamp);
            }
            let (version, role) = stem.split_once('.')?;
            let version: u64 = version.parse().ok().filter(|version| *version > 0)?;
            match role {
                "root" => Some(Self::Root(version)),
                "snapshot" => Some(Self::Snapshot(version)),
                "targets" => Some(Self::Targets(version)),
                // A delegated role with a top-level role's name would be taken for it.
                _ if is_role_name(role) => Some(Self::Delegated(role.to_owned(), version)),
                _ => None,
            }
        };
        // A member has one name: `01.root.json` is refused.
        parsed().filter(|name| name.to_string() == text).ok_or_else(|| UnknownMember { name: text.to_owned() })
    }
}

/// Longest name of a delegated role in a bundle: it is part of a member's name.
const ROLE_NAME_BYTES_MAXIMUM: usize = 64;

/// True for a delegated role's name that a bundle can carry: `[a-z0-9._-]`, at most 64 characters, no leading dot, no top-level role's
/// name.
pub fn is_role_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    !["root", "targets", "snapshot", "timestamp"].contains(&text)
        && !text.is_empty()
        && text.len() <= ROLE_NAME_BYTES_MAXIMUM
        && !text.starts_with('.')
        && text.bytes().all(plain)
}

impl ReleaseFile {
    fn parse(text: &str) -> Option<Self> {
        match text {
            CHECKSUMS => Some(Self::Checksums),
            SIGNATURE => Some(Self::Signature),
            FRAMES => Some(Self::Frames),
            _ => text.strip_suffix(MANIFEST_SUFFIX)?.parse().ok().map(Self::Manifest),
        }
    }
}

impl fmt::Display for ReleaseFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(digest) => write!(formatter, "{digest}{MANIFEST_SUFFIX}"),
            Self::Checksums => formatter.write_str(CHECKSUMS),
            Self::Signature => formatter.write_str(SIGNATURE),
            Self::Frames => formatter.write_str(FRAMES),
        }
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hint => formatter.write_str(HINT),
            Self::Metadata(name) => write!(formatter, "metadata/{name}"),
            Self::Small(id, file) => write!(formatter, "targets/{id}/{file}"),
            Self::Payload(id, digest) => write!(formatter, "targets/{id}/{digest}{PAYLOAD_SUFFIX}"),
            Self::Part(id, digest) => write!(formatter, "targets/{id}/{digest}{PART_SUFFIX}"),
        }
    }
}

impl FromStr for MemberName {
    type Err = UnknownMember;
    fn from_str(text: &str) -> Result<Self, UnknownMember> {
        let parsed = || {
            if text == HINT {
                return Some(Self::Hint);
            }
            if let Some(name) = text.strip_prefix("metadata/") {
                return name.parse().ok().map(Self::Metadata);
            }
            let (directory, name) = text.strip_prefix("targets/")?.rsplit_once('/')?;
            let id = directory.parse().ok()?;
            if let Some(file) = ReleaseFile::parse(name) {
                return Some(Self::Small(id, file));
            }
            match name.strip_suffix(PART_SUFFIX) {
                Some(digest) => Some(Self::Part(id, digest.parse().ok()?)),
                None => Some(Self::Payload(id, name.strip_suffix(PAYLOAD_SUFFIX)?.parse().ok()?)),
            }
        };
        parsed().ok_or_else(|| UnknownMember { name: text.to_owned() })
    }
}

/// First line of the hint; it tells a bundle from any other tar file.
pub const HINT_FIRST_LINE: &str = "sidle bundle 1\n";

/// The text of the hint of a bundle with these releases.
pub fn hint<'a>(releases: impl IntoIterator<Item = &'a ReleaseId>) -> String {
    let mut text = HINT_FIRST_LINE.to_owned();
    for ReleaseId { package, release, platform } in releases {
        text.extend([package.as_str(), " ", &release.to_string(), " ", &platform.to_string(), "\n"]);
    }
    text.push_str("install: sidle install FILE\n");
    text
}

/// The text of SHA256SUMS, for `sha256sum -c` in the directory of the two files.
pub fn checksums(manifest: &Digest, payload: &Digest) -> String {
    format!("{manifest}  {manifest}{MANIFEST_SUFFIX}\n{payload}  {payload}{PAYLOAD_SUFFIX}\n")
}

/// The payload that a SHA256SUMS names beside `manifest`; None unless the text is exactly as [`checksums`] writes it.
pub fn payload_of_checksums(text: &[u8], manifest: &Digest) -> Option<Digest> {
    let text = std::str::from_utf8(text).ok()?;
    let payload = text.lines().nth(1)?.get(..64)?.parse().ok()?;
    (checksums(manifest, &payload) == text).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_spelling_and_one_place() {
        let digest = Digest::of(b"x");
        let id = "salt-minion/3007.17-1/linux-x86_64-glibc2.28";
        let later = "salt-minion/3007.17-2/linux-x86_64-glibc2.28";
        let ordered = [
            "sidle-bundle".to_owned(),
            "metadata/1.root.json".to_owned(),
            "metadata/2.root.json".to_owned(),
            "metadata/10.root.json".to_owned(),
            "metadata/timestamp.json".to_owned(),
            "metadata/7.snapshot.json".to_owned(),
            "metadata/3.targets.json".to_owned(),
            "metadata/1.site-a.json".to_owned(),
            "metadata/12.site.b_2.json".to_owned(),
            format!("targets/{id}/{digest}.manifest.json.zst"),
            format!("targets/{id}/SHA256SUMS"),
            format!("targets/{id}/SHA256SUMS.minisig"),
            format!("targets/{id}/FRAMES"),
            format!("targets/{later}/SHA256SUMS"),
            format!("targets/{id}/{digest}.payload.tar.zst"),
            format!("targets/{id}/{digest}.payload.part"),
        ];
        let names: Vec<MemberName> = ordered.iter().map(|name| name.parse().unwrap()).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
        for (name, text) in names.iter().zip(&ordered) {
            assert_eq!(name.to_string(), *text);
        }
        for bad in [
            "",
            "sidle-bundle/",
            "metadata/0.root.json",
            "metadata/01.root.json",
            "metadata/+1.root.json",
            "metadata/1.timestamp.json",
            "metadata/root.json",
            "metadata/1..json",
            "metadata/1...json",
            "metadata/1..site.json",
            "metadata/1.Site.json",
            "metadata/../x",
            "targets/salt-minion/3007.17-1/SHA256SUMS",
            "targets/salt-minion/3007.17-1/linux-x86_64/../SHA256SUMS",
            "targets/salt-minion/3007.17-1/linux-x86_64/payload.tar.zst",
            "/etc/passwd",
        ] {
            assert!(bad.parse::<MemberName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn checksums_are_read_only_as_they_are_written() {
        let (manifest, payload) = (Digest::of(b"m"), Digest::of(b"p"));
        let text = checksums(&manifest, &payload);
        assert_eq!(payload_of_checksums(text.as_bytes(), &manifest), Some(payload));
        for position in 0..text.len() {
            let mut flipped = text.clone().into_bytes();
            flipped[position] ^= 1;
            assert_eq!(payload_of_checksums(&flipped, &manifest), None, "{position}");
        }
    }
}
