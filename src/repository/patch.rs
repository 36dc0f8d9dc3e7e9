//! Patches of manifests: most hosts have the release before, and its manifest differs in little.

use super::{FILE_MODE, FileInfo, ManifestPatch, Repository, RepositoryError};
use crate::bundle::manifest;
use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::os::dir::Dir;
use crate::trust::target;

impl Repository {
    /// Writes the patch that makes `text`, the manifest of `id`, out of the newest older release's for the same platform; None: there is none,
    /// or a patch would save nothing worth a second request.
    pub(super) fn patch(
        &self,
        id: &ReleaseId,
        text: &[u8],
        directory: &Dir,
    ) -> Result<Option<ManifestPatch>, RepositoryError> {
        let same = |other: &&ReleaseId| other.package == id.package && other.platform == id.platform;
        let older = self.state.releases.keys().filter(same).filter(|other| other.release < id.release);
        let Some(older) = older.max_by_key(|other| &other.release) else { return Ok(None) };
        let bytes = self.manifest(older)?;
        let patch = manifest::patch(&manifest::decompress(&bytes)?, text)?;
        if patch.len() > bytes.len() / 2 {
            return Ok(None);
        }
        let file = FileInfo { length: patch.len() as u64, sha256: Digest::of(&patch) };
        let from = Digest::of(&bytes);
        let name = target::manifest_patch(id, &from);
        let name = name.rsplit_once('/').map_or(name.as_str(), |(_, name)| name);
        directory.write_atomic(format!("{}.{name}", file.sha256), &patch, FILE_MODE)?;
        Ok(Some(ManifestPatch { from, file }))
    }
}
