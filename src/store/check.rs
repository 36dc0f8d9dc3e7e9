//! The check: what the signed manifest says is what lies on disk. The quick check compares the stat index and hashes what differs; the full
//! check hashes everything. Both return all problems.

use super::index::{Index, Indexed};
use super::{Result, Store, StoreError};
use crate::bundle::manifest::{Entry, EntryKind, Manifest};
use crate::digest::{Digest, Hasher};
use crate::os::dir::{Dir, FileKind};
use crate::os::host;
use crate::version::Release;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

/// One entry that is not as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, relative to the tree.
    pub path: String,
    /// What is wrong.
    pub defect: Defect,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Defect {
    /// It isn't there.
    Missing,
    /// It is a file, directory or link where another kind was signed.
    Kind,
    /// It has other permission bits.
    Mode(u32),
    /// It has other content, or points elsewhere.
    Content,
    /// It was not signed at all.
    Foreign,
    /// It could not be looked at, because of this: not bad, but not known to be good.
    Unreadable(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.defect {
            Defect::Missing => write!(formatter, "{} is missing", self.path),
            Defect::Kind => write!(formatter, "{} is of another kind", self.path),
            Defect::Mode(mode) => write!(formatter, "{} has mode {mode:04o}", self.path),
            Defect::Content => write!(formatter, "{} has other content", self.path),
            Defect::Foreign => write!(formatter, "{} does not belong there", self.path),
            Defect::Unreadable(reason) => write!(formatter, "{} could not be looked at: {reason}", self.path),
        }
    }
}

/// How thoroughly to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Stat every entry; hash those whose stat differs from the index.
    Quick,
    /// Hash every file.
    Full,
}

impl Store {
    /// Checks a release quickly; an error that holds all problems if it is damaged.
    pub fn verify(&self, release: &Release) -> Result<()> {
        let problems = self.check(release, Depth::Quick)?;
        if problems.is_empty() {
            return Ok(());
        }
        Err(StoreError::Damaged { package: self.package.clone(), release: release.clone(), problems })
    }

    /// Checks a release; all that is wrong with it, in the order of its manifest.
    pub fn check(&self, release: &Release, depth: Depth) -> Result<Vec<Problem>> {
        let (tree, manifest) = (self.tree(release)?, self.manifest(release)?);
        // Without a usable index everything is hashed: slower, and as sure.
        let index = match depth {
            Depth::Quick => self.index(release).ok().filter(|index| index.entries.len() == manifest.entries.len()),
            Depth::Full => None,
        };
        Ok(check_tree(&tree, &manifest, index.as_ref()))
    }
}

/// Compares a tree with its manifest. Entries whose stat is as in `index` count as unchanged; without one everything is hashed.
pub fn check_tree(tree: &Dir, manifest: &Manifest, index: Option<&Index>) -> Vec<Problem> {
    let entries = &manifest.entries;
    let share = entries.len().div_ceil(host::parallelism()).max(1);
    let mut problems = Vec::new();
    let mut touched_directories = Vec::new();
    std::thread::scope(|scope| {
        let looks: Vec<_> = entries
            .chunks(share)
            .enumerate()
            .map(|(number, chunk)| {
                scope.spawn(move || look_at(tree, chunk, index.map(|index| &index.entries[number * share..])))
            })
            .collect();
        for look in looks {
            let found = look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            problems.extend(found.problems);
            touched_directories.extend(found.touched_directories);
        }
    });
    problems.extend(foreign(tree, manifest, &touched_directories));
    problems
}

#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    /// Directories in which a name may have been added.
    touched_directories: Vec<String>,
}

fn look_at(tree: &Dir, entries: &[Entry], index: Option<&[Indexed]>) -> Found {
    let mut found = Found::default();
    for (number, entry) in entries.iter().enumerate() {
        let path = entry.path.as_path();
        let problem = match tree.stat_path(path) {
            Err(error) => Some(Defect::Unreadable(error.to_string())),
            Ok(None) => Some(Defect::Missing),
            Ok(Some(stat)) => {
                let unchanged = index.is_some_and(|index| index[number] == Indexed::of(&stat));
                if !unchanged && stat.kind == FileKind::Directory {
                    found.touched_directories.push(entry.path.as_str().to_owned());
                }
                // The kind is no part of the index: a directory and a file can share all other numbers.
                if kind_of(&entry.kind) != stat.kind {
                    Some(Defect::Kind)
                } else if unchanged {
                    None
                } else {
                    defect(tree, entry, stat.mode)
                }
            }
        };
        found.problems.extend(problem.map(|defect| Problem { path: entry.path.as_str().to_owned(), defect }));
    }
    found
}

fn kind_of(kind: &EntryKind) -> FileKind {
    match kind {
        EntryKind::Directory { .. } => FileKind::Directory,
        EntryKind::File { .. } => FileKind::File,
        EntryKind::Link { .. } => FileKind::Symlink,
    }
}

fn defect(tree: &Dir, entry: &Entry, found_mode: u32) -> Option<Defect> {
    let (parent, name) = entry.path.split();
    let unreadable = |error: &dyn fmt::Display| Some(Defect::Unreadable(error.to_string()));
    let directory = match tree.beneath(Path::new(parent)) {
        Ok(directory) => directory,
        Err(error) => return unreadable(&error),
    };
    match &entry.kind {
        EntryKind::Directory { mode } => (*mode != found_mode).then_some(Defect::Mode(found_mode)),
        EntryKind::Link { target } => match directory.read_link(name) {
            Ok(Some(found)) if found == Path::new(target) => None,
            Ok(_) => Some(Defect::Content),
            Err(error) => unreadable(&error),
        },
        EntryKind::File { mode, sha256, .. } => match digest_of(&directory, name) {
            Ok(digest) if digest != *sha256 => Some(Defect::Content),
            Ok(_) => (*mode != found_mode).then_some(Defect::Mode(found_mode)),
            Err(error) => unreadable(&error),
        },
    }
}

fn digest_of(directory: &Dir, name: &str) -> io::Result<Digest> {
    const READ_BYTES: usize = 128 * 1024;
    let mut file = directory.open_file(name).map_err(|error| error.source)?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Names in touched directories that were not signed: an import path would find them.
fn foreign(tree: &Dir, manifest: &Manifest, touched: &[String]) -> Vec<Problem> {
    let known: HashSet<&str> = manifest.entries.iter().map(|entry| entry.path.as_str()).collect();
    let mut problems = Vec::new();
    // The tree's own directory is no entry of the manifest, so nothing tells whether it was touched.
    for parent in touched.iter().map(String::as_str).chain([""]) {
        let listed = tree.beneath(Path::new(parent)).and_then(|directory| directory.names());
        let Ok(names) = listed else { continue };
        for name in names {
            let name = name.to_string_lossy();
            let path = if parent.is_empty() { name.into_owned() } else { format!("{parent}/{name}") };
            if !known.contains(path.as_str()) {
                problems.push(Problem { path, defect: Defect::Foreign });
            }
        }
    }
    problems
}

/// The stat index of a tree whose content was verified just now.
pub fn index_of(tree: &Dir, manifest: &Manifest) -> Result<Index> {
    let mut index = Index::default();
    for entry in &manifest.entries {
        let stat = tree.stat_path(entry.path.as_path())?.filter(|stat| stat.kind == kind_of(&entry.kind));
        let stat = stat.ok_or_else(|| StoreError::Corrupt {
            path: tree.path().join(entry.path.as_path()),
            reason: "it changed while it was being installed".to_owned(),
        })?;
        index.entries.push(Indexed::of(&stat));
    }
    Ok(index)
}
