//! The TUF target names of a release's files. With consistent snapshots they are stored as `<sha256>.BASENAME` in the same directory.

use std::fmt::Display;

/// The target name of a release's manifest. `release` prints as `package/release/platform`.
pub fn manifest(release: &impl Display) -> String {
    format!("{release}/manifest.json.zst")
}

/// The target name of a release's payload.
pub fn payload(release: &impl Display) -> String {
    format!("{release}/payload.tar.zst")
}
