//! What a machine of the workflow asks for, and what it is given.

use super::error::TrustError;
use super::metadata::MetaFile;
use super::role::Role;

/// A metadata file that is to be brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataRequest {
    /// Whose file: `root`, `timestamp`, `snapshot`, `targets`, or the name of a delegated role. A delegated role's name may be any text,
    /// also one with `/` and `..`.
    pub role: String,
    /// The version it must have; None: whatever there is (the timestamp).
    pub version: Option<u64>,
    /// The name under which it is published (§6.2), as text: `2.root.json`, `timestamp.json`; without a version where consistent snapshots are off.
    pub file: String,
    /// Bytes that may be read at most. A reader that meets more hands over one byte more and stops; what is too long is refused here.
    pub bytes_maximum: u64,
}

impl MetadataRequest {
    /// The file's name as one segment of a URL's path: every byte but letters, digits, `-`, `.`, `_`, `~` percent-encoded (RFC 3986 §2.3), so
    /// that no role's name leads elsewhere. `file` never is `.` or `..`.
    pub fn url_segment(&self) -> String {
        encoded(&self.file)
    }

    pub(super) fn named(role: &str, file: String, named: &MetaFile) -> Self {
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

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The file, byte for byte.
    File(&'a [u8]),
    /// It is known that there is none: HTTP 404 (or 403, as some object stores say it), no such file or member. Nothing else counts as that:
    /// an HTTP 5xx or a broken connection is not "no newer root", else whoever can disturb the way keeps a host at revoked keys.
    NotFound,
    /// It could not be found out, because of this.
    Failed(&'a str),
}

impl<'a> Answer<'a> {
    /// The file; None: there is none.
    pub(super) fn file(self, file: &str) -> Result<Option<&'a [u8]>, TrustError> {
        match self {
            Self::File(bytes) => Ok(Some(bytes)),
            Self::NotFound => Ok(None),
            Self::Failed(reason) => Err(TrustError::Unreachable { file: file.to_owned(), reason: reason.to_owned() }),
        }
    }
}
