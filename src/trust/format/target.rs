//! The TUF target names of a release's files. With consistent snapshots they are stored as `<sha256>.BASENAME` in the same directory.

use crate::digest::Digest;
use crate::trust::key::to_hex;
use crate::trust::metadata::Hashes;
use std::fmt::Display;

/// The target name of a release's manifest. `release` prints as `package/release/platform`.
pub fn manifest(release: &impl Display) -> String {
    format!("{release}/manifest.json.zst")
}

/// The target name of a release's payload.
pub fn payload(release: &impl Display) -> String {
    format!("{release}/payload.tar.zst")
}

/// The target name of the patch that makes a release's manifest from the one whose compressed form has the digest `from`.
pub fn manifest_patch(release: &impl Display, from: &Digest) -> String {
    format!("{release}/manifest.from-{from}.patch.zst")
}

/// The path of a target below `targets/`: with consistent snapshots its basename carries a digest (TUF §6.2). The name is the author's
/// text: check its parts before joining it to a directory or a URL.
pub fn stored(name: &str, hashes: &Hashes, consistent_snapshot: bool) -> String {
    let digest = match (hashes.sha256, hashes.sha512) {
        (Some(digest), _) => Some(digest.to_string()),
        (None, digest) => digest.map(|digest| to_hex(&digest)),
    };
    match (digest.filter(|_| consistent_snapshot), name.rsplit_once('/')) {
        (None, _) => name.to_owned(),
        (Some(digest), None) => format!("{digest}.{name}"),
        (Some(digest), Some((directory, base))) => format!("{directory}/{digest}.{base}"),
    }
}
