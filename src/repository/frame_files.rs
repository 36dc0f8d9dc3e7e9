//! The frames of a payload as files, named by their digests: for caches that don't keep ranges, such as the Squid of Uyuni's proxies. The
//! manifest has every frame's digest, so they need no signature.

use super::{DIRECTORY_MODE, FILE_MODE, Repository, RepositoryError};
use crate::bundle::manifest::{self, Manifest};
use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::os::OsError;
use crate::os::place::Effect;
use std::io::Read as _;

/// The directory beside a payload.
const FRAMES: &str = "frames";

impl Repository {
    /// Writes each frame of a release's payload as `frames/<sha256>.zst` beside it. Returns the number of new files.
    pub fn write_frame_files(&self, id: &ReleaseId) -> Result<usize, RepositoryError> {
        let files = *self.state.releases.get(id).ok_or_else(|| self.unknown(id))?;
        let manifest = Manifest::parse(&manifest::decompress(&self.manifest(id)?)?)?;
        if self.place.effect() == Effect::DryRun {
            return Ok(manifest.frames.len());
        }
        let directory = self.release_directory(id)?;
        let frames = directory.child_or_create(FRAMES, DIRECTORY_MODE)?;
        let name = files.payload_name();
        let mut payload = directory.open_file(&name)?;
        let path = directory.path().join(&name);
        let mut written = 0;
        for frame in &manifest.frames {
            let mut bytes = Vec::new();
            let read = payload.by_ref().take(frame.length).read_to_end(&mut bytes);
            read.map_err(|source| OsError::new("read", &path, source))?;
            if Digest::of(&bytes) != frame.sha256 {
                let reason = "its bytes differ from its manifest".to_owned();
                return Err(RepositoryError::Damaged { path, reason });
            }
            let name = format!("{}.zst", frame.sha256);
            if frames.stat(&name)?.is_none_or(|stat| stat.size != frame.length) {
                frames.write_atomic(&name, &bytes, FILE_MODE)?;
                written += 1;
            }
        }
        Ok(written)
    }
}
