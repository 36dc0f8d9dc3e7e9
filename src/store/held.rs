//! The files of installed releases by their content: the next release need not fetch them.

use super::{Result, Store, packages};
use crate::bundle::manifest::{EntryKind, Manifest};
use crate::bundle::path::BundlePath;
use crate::bundle::source::Held;
use crate::digest::Digest;
use crate::os::dir::Dir;
use std::collections::HashMap;
use std::fs::File;

/// Most places of one content per release: every release has hundreds of empty files. The limit is per release, so that a damaged release
/// cannot hide the places of the others.
const PLACES_MAXIMUM: usize = 16;

/// Files of all installed releases that the release to install has, too.
#[derive(Debug, Default)]
pub struct HeldFiles {
    trees: Vec<Dir>,
    files: HashMap<Digest, Vec<(usize, BundlePath)>>,
}

impl HeldFiles {
    /// The files of `manifest` that the store holds. A release with an unreadable receipt or tree is skipped.
    pub fn of(store: &Store, manifest: &Manifest) -> Result<Self> {
        let wanted = manifest.entries.iter().filter_map(|entry| match &entry.kind {
            EntryKind::File { sha256, .. } => Some((*sha256, Vec::new())),
            EntryKind::Directory { .. } | EntryKind::Link { .. } => None,
        });
        let mut held = Self { trees: Vec::new(), files: wanted.collect() };
        for package in packages(store.layout())? {
            let store = Store::new(store.layout(), &package);
            // The newest first: it is the least likely to be removed meanwhile.
            for release in store.releases()?.into_iter().rev() {
                if let (Ok(tree), Ok(manifest)) = (store.tree(&release), store.manifest(&release)) {
                    held.add(tree, manifest);
                }
            }
        }
        Ok(held)
    }

    fn add(&mut self, tree: Dir, manifest: Manifest) {
        for entry in manifest.entries {
            if let EntryKind::File { sha256, .. } = entry.kind {
                let Some(places) = self.files.get_mut(&sha256) else { continue };
                let here = places.iter().rev().take_while(|(tree, _)| *tree == self.trees.len()).count();
                if here < PLACES_MAXIMUM {
                    places.push((self.trees.len(), entry.path));
                }
            }
        }
        self.trees.push(tree);
    }
}

impl Held for HeldFiles {
    fn places(&self, sha256: &Digest) -> usize {
        self.files.get(sha256).map_or(0, Vec::len)
    }

    fn open(&self, sha256: &Digest, place: usize) -> Option<File> {
        let (tree, path) = self.files.get(sha256)?.get(place)?;
        self.trees.get(*tree)?.open_file_beneath(path.as_path()).ok()
    }
}
