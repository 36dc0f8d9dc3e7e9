//! The host fingerprints of proven releases: the host libraries at the time of their probation.

use crate::saved::Saved;
use crate::store::host_fingerprint::HostFingerprint;
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fingerprints of proven releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFingerprints {
    schema: u32,
    releases: BTreeMap<Release, HostFingerprint>,
}

impl Default for HostFingerprints {
    fn default() -> Self {
        Self { schema: Self::SCHEMA, releases: BTreeMap::new() }
    }
}

impl Saved for HostFingerprints {
    const NAME: &'static str = "host-fingerprints";
    // several releases with several libraries each.
    const LENGTH_MAXIMUM: u64 = 1024 * 1024;
    const REMEDY: &'static str = "move the file away: the next switch writes a new file";
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
}
