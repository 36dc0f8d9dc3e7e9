//! The mark file of a mirrored copy: `.sidle-mirror` lists every file that the metadata of any run named. Only these files are ever removed: the
//! directory may hold others.

use super::error::FetchError;
use crate::os::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The mark file's name.
const NAME: &str = ".sidle-mirror";
const MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const SCHEMA: u32 = 1;
/// Largest mark file read: some 100,000 files.
const BYTES_MAXIMUM: u64 = 32 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    schema: u32,
    files: BTreeSet<PathBuf>,
}

/// The files of a copy, below its directory.
#[derive(Debug, Default)]
pub(super) struct Mark {
    files: BTreeSet<PathBuf>,
}

impl Mark {
    /// Reads the mark of earlier runs; empty without one.
    pub(super) fn read(place: &Place) -> Result<Self, FetchError> {
        let Some(bytes) = place.read(NAME, BYTES_MAXIMUM)? else { return Ok(Self::default()) };
        let damaged = |reason: String| FetchError::Mark { path: place.path().join(NAME), reason };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if stored.schema != SCHEMA {
            return Err(damaged(format!("its schema is {}, and only {SCHEMA} is known", stored.schema)));
        }
        Ok(Self { files: stored.files })
    }

    /// Adds files, on the disk before they are written.
    pub(super) fn add(&mut self, place: &Place, files: impl IntoIterator<Item = PathBuf>) -> Result<(), FetchError> {
        let before = self.files.len();
        self.files.extend(files);
        if self.files.len() == before { Ok(()) } else { self.store(place) }
    }

    /// Forgets files that are gone.
    pub(super) fn forget(&mut self, place: &Place, files: &BTreeSet<PathBuf>) -> Result<(), FetchError> {
        let before = self.files.len();
        self.files.retain(|file| !files.contains(file));
        if self.files.len() == before { Ok(()) } else { self.store(place) }
    }

    /// Whether the file was ever the copy's.
    pub(super) fn has(&self, file: &Path) -> bool {
        self.files.contains(file)
    }

    /// Whether a file below the directory was ever the copy's.
    pub(super) fn has_below(&self, directory: &Path) -> bool {
        self.files.range(directory.to_owned()..).next().is_some_and(|file| file.starts_with(directory))
    }

    fn store(&self, place: &Place) -> Result<(), FetchError> {
        let stored = Stored { schema: SCHEMA, files: self.files.clone() };
        let text = serde_json::to_vec(&stored).expect("paths of a copy are text");
        Ok(place.write(NAME, &text, (MODE, DIRECTORY_MODE))?)
    }
}
