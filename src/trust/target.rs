//! The names of a release's files: as TUF targets, and as they are stored with their digest (consistent snapshots).

use crate::digest::Digest;
use crate::name::PackageName;
use crate::version::{Platform, Release};
use std::fmt;

/// The basename of every manifest target.
pub const MANIFEST: &str = "manifest.json.zst";
/// The basename of every payload target.
pub const PAYLOAD: &str = "payload.tar.zst";
/// The basename of the checksum list beside them, which is no target.
pub const SUMS: &str = "SHA256SUMS";
/// The basename of its minisign signature.
pub const SUMS_SIGNATURE: &str = "SHA256SUMS.minisig";

/// One release of a package for one platform: what has a manifest and a payload. Text form `package/release/platform`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Build {
    /// The package.
    pub package: PackageName,
    /// Its release.
    pub release: Release,
    /// The platform.
    pub platform: Platform,
}

impl fmt::Display for Build {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.package, self.release, self.platform)
    }
}

impl Build {
    /// The target name of its manifest.
    pub fn manifest_target(&self) -> String {
        format!("{self}/{MANIFEST}")
    }

    /// The target name of its payload.
    pub fn payload_target(&self) -> String {
        format!("{self}/{PAYLOAD}")
    }

    /// The build and the basename of a target name; None for a name of another form.
    pub fn of_target(name: &str) -> Option<(Self, &str)> {
        let parts: Vec<&str> = name.split('/').collect();
        let [package, release, platform, basename] = parts.as_slice() else { return None };
        let build =
            Self { package: package.parse().ok()?, release: release.parse().ok()?, platform: platform.parse().ok()? };
        Some((build, basename))
    }
}

/// The stored basename of a target: `<sha256>.manifest.json.zst`.
pub fn stored_basename(basename: &str, digest: &Digest) -> String {
    format!("{digest}.{basename}")
}
