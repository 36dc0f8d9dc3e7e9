//! Requests for metadata files, and the answers.

use crate::trust::error::TrustError;
use crate::trust::metadata::MetaFile;
use crate::trust::role::Role;

/// A metadata file to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataRequest {
    /// `root`, `timestamp`, `snapshot`, `targets`, or the name of a delegated role, which may be any text, also with `/` and `..`.
    pub role: String,
    /// The version it must have; None: any (the timestamp).
    pub version: Option<u64>,
    /// Its published name (§6.2): `2.root.json`, `timestamp.json`; without a version where consistent snapshots are off.
    pub file: String,
    /// The limit on its size. A reader stops one byte after it; the longer file is refused here.
    pub bytes_maximum: u64,
}

impl MetadataRequest {
    /// The file's name as one segment of a URL's path, so that no role's name leads elsewhere. `file` never is `.` or `..`.
    pub fn url_segment(&self) -> String {
        encoded(&self.file)
    }

    pub(in crate::trust) fn named(role: &str, file: String, named: &MetaFile) -> Self {
        let limit =
            Role::ALL.into_iter().find(|top| top.as_str() == role).unwrap_or(Role::Targets).bytes_maximum() as u64;
        let bytes_maximum = named.length.map_or(limit, |length| length.min(limit));
        Self { role: role.to_owned(), version: Some(named.version), file, bytes_maximum }
    }
}

/// Text as one segment of a URL's path, or as a file's name: percent-encoded (RFC 3986 §2.3).
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789ABCDEF"[usize::from(digit)])));
        }
    }
    encoded
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The file, byte for byte.
    File(&'a [u8]),
    /// The file does not exist: HTTP 404 (or 403, from some object stores), no such file or member. Never an HTTP 5xx or a broken
    /// connection: else an attacker on the network could keep a host at revoked keys.
    NotFound,
    /// The file could not be fetched, for this reason.
    Failed(&'a str),
}

impl<'a> Answer<'a> {
    /// The file; None: it does not exist.
    pub(in crate::trust) fn file(self, file: &str) -> Result<Option<&'a [u8]>, TrustError> {
        match self {
            Self::File(bytes) => Ok(Some(bytes)),
            Self::NotFound => Ok(None),
            Self::Failed(reason) => Err(TrustError::Unreachable { file: file.to_owned(), reason: reason.to_owned() }),
        }
    }
}
