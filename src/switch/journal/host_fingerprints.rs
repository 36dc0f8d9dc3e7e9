//! The host fingerprints of proven releases: the host libraries at the time of their probation.

use crate::saved::{self, SavedError};
use crate::store::host_fingerprint::HostFingerprint;
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The file's name in the instance's state directory.
pub const HOST_FINGERPRINTS_NAME: &str = "host-fingerprints";
/// Longest file read: several releases with several libraries each.
pub const HOST_FINGERPRINTS_LENGTH_MAXIMUM: u64 = 1024 * 1024;

const SCHEMA: u32 = 1;

/// The fingerprints of proven releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFingerprints {
    schema: u32,
    releases: BTreeMap<Release, HostFingerprint>,
}

impl Default for HostFingerprints {
    fn default() -> Self {
        Self { schema: SCHEMA, releases: BTreeMap::new() }
    }
}

impl HostFingerprints {
    /// The fingerprint of a release at its last probation; None: an older sidle, which kept no fingerprints, proved it.
    pub fn of(&self, release: &Release) -> Option<&HostFingerprint> {
        self.releases.get(release)
    }

    /// Adds the fingerprint of a release that was proven now; drops releases that `is_kept` refuses.
    #[must_use]
    pub fn with(mut self, release: &Release, fingerprint: HostFingerprint, is_kept: impl Fn(&Release) -> bool) -> Self {
        self.releases.retain(|release, _| is_kept(release));
        self.releases.insert(release.clone(), fingerprint);
        self
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a release is written as text, so every key of a map is one")
    }

    /// Reads the file's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, SavedError> {
        saved::parse(bytes, SCHEMA)
    }
}
