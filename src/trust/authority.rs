//! Where the metadata that comes with a release is judged. The host's trust store is the one authority; the store knows only this.

use super::{MetadataFiles, TrustedTargets, Warning};
use crate::failure::Report;

/// Judges metadata against what the host trusts.
pub trait Authority {
    /// Adopts what is newer and valid, whatever comes of the rest, and gives the targets to look things up in.
    fn judge(&self, files: &MetadataFiles) -> Result<(TrustedTargets, Vec<Warning>), Report>;
}
