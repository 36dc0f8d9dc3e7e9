//! Verified frames of payloads that are not installed yet: `partial/<sha256>`, for another run. They are hashed again when they are read: the
//! cache is untrusted.

use crate::digest::Digest;
use crate::os::OsError;
use crate::os::dir::{Dir, FileKind};
use crate::os::place::Place;
use crate::os::space::Demand;
use jiff::Timestamp;
use std::path::Path;

/// Most kept bytes. Stops interrupted installs of many releases from filling a small disk; several times Salt's payload.
pub(super) const BYTES_MAXIMUM: u64 = 256 << 20;

/// Bytes that stay free on the cache's file system, which logs and the journal may share.
const FREE_MINIMUM_BYTES: u64 = 64 << 20;

/// Age, in seconds, at which an unused frame is removed: its install was given up.
const AGE_MAXIMUM_SECONDS: i64 = 7 * 24 * 60 * 60;

const DIRECTORY: &str = "partial";
const MODE: u32 = 0o600;

/// Frames on disk.
#[derive(Debug)]
pub(super) struct KeptFrames {
    /// None: a dry run, which keeps nothing.
    directory: Option<Dir>,
}

/// The result of reading a kept frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeptFrame {
    Frame(Vec<u8>),
    Nothing,
    /// Other bytes; they are removed.
    Spoiled,
}

impl KeptFrames {
    /// The kept frames below the cache directory. Removes old frames, and the oldest beyond the limit.
    pub(super) fn open(cache: &Place, now: Timestamp) -> Result<Self, OsError> {
        let Some(directory) = cache.make(Path::new(DIRECTORY), 0o700)? else { return Ok(Self { directory: None }) };
        let mut frames = Vec::new();
        for (name, kind) in directory.entries()? {
            let Some(stat) = directory.stat(&name)? else { continue };
            let is_old = now.as_second().saturating_sub(stat.mtime.0) > AGE_MAXIMUM_SECONDS;
            let is_frame = name.to_str().is_some_and(|name| name.parse::<Digest>().is_ok());
            if kind != FileKind::File || is_old || !is_frame {
                directory.remove_tree(&name)?;
            } else {
                frames.push((stat.mtime, name, stat.size));
            }
        }
        frames.sort();
        let mut bytes: u64 = frames.iter().map(|(.., size)| size).sum();
        for (_, name, size) in frames {
            if bytes <= BYTES_MAXIMUM {
                break;
            }
            directory.remove_file(&name)?;
            bytes -= size;
        }
        Ok(Self { directory: Some(directory) })
    }

    /// Whether a file of this name and length is there; it may be spoiled.
    pub(super) fn seems_to_have(&self, digest: &Digest, length: u64) -> bool {
        let stat = self.directory.as_ref().map(|directory| directory.stat(digest.to_string()));
        matches!(stat, Some(Ok(Some(stat))) if stat.kind == FileKind::File && stat.size == length)
    }

    /// Whether so many bytes more can be kept, and `release` can still be installed, maybe on the same file system.
    pub(super) fn has_room(&self, bytes: u64, release: Demand) -> Result<bool, OsError> {
        let Some(directory) = &self.directory else { return Ok(false) };
        let space = directory.space()?;
        let shared = if space.device == release.device { release.bytes } else { 0 };
        Ok(space.free_bytes >= bytes.saturating_add(shared).saturating_add(FREE_MINIMUM_BYTES))
    }

    /// A kept frame, if its digest still fits.
    pub(super) fn read(&mut self, digest: &Digest, length: u64) -> KeptFrame {
        let name = digest.to_string();
        let Some(directory) = &self.directory else { return KeptFrame::Nothing };
        match directory.read_if_exists(&name, length) {
            Ok(None) => KeptFrame::Nothing,
            Ok(Some(bytes)) if bytes.len() as u64 == length && Digest::of(&bytes) == *digest => KeptFrame::Frame(bytes),
            Ok(Some(_)) | Err(_) => {
                self.forget(digest);
                KeptFrame::Spoiled
            }
        }
    }

    /// Keeps a verified frame; false without room for it.
    pub(super) fn keep(&mut self, digest: &Digest, bytes: &[u8]) -> Result<bool, OsError> {
        let Some(directory) = &self.directory else { return Ok(false) };
        if directory.space()?.free_bytes < (bytes.len() as u64).saturating_add(FREE_MINIMUM_BYTES) {
            return Ok(false);
        }
        directory.write_atomic(digest.to_string(), bytes, MODE)?;
        Ok(true)
    }

    /// Removes a frame; after a failure `open` removes it later.
    pub(super) fn forget(&mut self, digest: &Digest) {
        let _ = self.directory.as_ref().map(|directory| directory.remove_tree(digest.to_string()));
    }
}
