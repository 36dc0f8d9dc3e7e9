//! The check: what the signed manifest says is what lies on disk. The quick check compares the stat index and hashes what differs; the full
//! check hashes everything. Both return all problems.

use super::index::{Index, Indexed};
use super::{Result, Store, StoreError};
use crate::bundle::manifest::{Entry, EntryKind, Manifest};
use crate::digest::{Digest, Hasher};
use crate::os::dir::{Dir, FileKind};
use crate::os::{clock, host};
use crate::version::Release;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;

/// How long ago a change must have been before what was hashed after it is remembered: file systems give changes of one moment the same time,
/// some in steps of two seconds (FAT, ext3 without nanoseconds have one).
const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// The step in which the kernel counts file times: at most a hundredth of a second (`CONFIG_HZ` is 100 or more).
const TICK: SignedDuration = SignedDuration::from_millis(10);

/// A time as file systems have it: seconds since 1970, and nanoseconds.
pub type FileTime = (i64, u32);

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
    /// It belongs to another user or group: these.
    Owner(u32, u32),
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
            Defect::Owner(user, group) => write!(formatter, "{} belongs to user {user}, group {group}", self.path),
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

    /// Checks a release quickly and writes nothing, not even what was learnt. With its manifest: all that is wrong with it.
    pub fn look(&self, release: &Release) -> Result<(Manifest, Vec<Problem>)> {
        let (manifest, _, checked) = self.compare(release, Depth::Quick)?;
        Ok((manifest, checked.problems))
    }

    fn compare(&self, release: &Release, depth: Depth) -> Result<(Manifest, Option<Index>, Checked)> {
        let (tree, manifest) = (self.tree(release)?, self.manifest(release)?);
        // Without a usable index everything is hashed: slower, and as sure.
        let index = self.index(release).ok().filter(|index| index.entries.len() == manifest.entries.len());
        let taken = self.index_time(release);
        let checked = check_tree(&tree, &manifest, index.as_ref().zip(taken), depth);
        Ok((manifest, index, checked))
    }

    /// Checks a release; all that is wrong with it, in the order of its manifest.
    pub fn check(&self, release: &Release, depth: Depth) -> Result<Vec<Problem>> {
        let (manifest, index, checked) = self.compare(release, depth)?;
        if let Some(index) = checked.renewed(&manifest, index) {
            self.renew_index(release, &index);
        }
        Ok(checked.problems)
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Checked {
    /// All that is wrong, in the order of the manifest; what doesn't belong there comes last.
    pub problems: Vec<Problem>,
    /// Entries whose stat differs from the index, and whose content is as it was signed all the same.
    sound: Vec<(usize, Indexed)>,
}

impl Checked {
    /// The index with the entries that were looked into; None: nothing new was learnt. A directory in which something doesn't belong stays as
    /// it was: it is listed again the next time. Without a usable index the whole tree must have been sound, and makes a new one.
    fn renewed(&self, manifest: &Manifest, index: Option<Index>) -> Option<Index> {
        let Some(mut index) = index else {
            let entries: Vec<Indexed> = self.sound.iter().map(|(_, now)| *now).collect();
            let whole = self.problems.is_empty() && entries.len() == manifest.entries.len();
            return whole.then_some(Index { entries });
        };
        let foreign: HashSet<&str> = self
            .problems
            .iter()
            .filter(|problem| problem.defect == Defect::Foreign)
            .map(|problem| problem.path.rsplit_once('/').map_or("", |(parent, _)| parent))
            .collect();
        let fit = |(number, _): &&(usize, Indexed)| !foreign.contains(manifest.entries[*number].path.as_str());
        let new: Vec<_> =
            self.sound.iter().filter(fit).filter(|(number, now)| index.entries[*number] != *now).collect();
        for (number, now) in &new {
            index.entries[*number] = *now;
        }
        (!new.is_empty()).then_some(index)
    }
}

/// Compares a tree with its manifest. In a quick check entries whose stat is as in `index`, which was written at that time, count as unchanged;
/// without one everything is hashed.
pub fn check_tree(tree: &Dir, manifest: &Manifest, index: Option<(&Index, FileTime)>, depth: Depth) -> Checked {
    let entries = &manifest.entries;
    let share = entries.len().div_ceil(host::parallelism()).max(1);
    let owner = tree.stat_self().ok().map(|stat| (stat.uid, stat.gid));
    let mut checked = Checked::default();
    let mut touched_directories = Vec::new();
    std::thread::scope(|scope| {
        let looks: Vec<_> = entries
            .chunks(share)
            .enumerate()
            .map(|(number, chunk)| {
                let look = Look { tree, index, depth, owner, first: number * share };
                scope.spawn(move || look.at(chunk))
            })
            .collect();
        for look in looks {
            let found = look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            checked.problems.extend(found.problems);
            checked.sound.extend(found.sound);
            touched_directories.extend(found.touched_directories);
        }
    });
    checked.problems.extend(foreign(tree, manifest, &touched_directories));
    checked
}

#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    sound: Vec<(usize, Indexed)>,
    /// Directories in which a name may have been added.
    touched_directories: Vec<String>,
}

/// One thread's share of a check.
struct Look<'a> {
    tree: &'a Dir,
    index: Option<(&'a Index, FileTime)>,
    depth: Depth,
    /// User and group of the tree's own directory.
    owner: Option<(u32, u32)>,
    /// Index of its first entry.
    first: usize,
}

impl Look<'_> {
    fn at(&self, entries: &[Entry]) -> Found {
        let mut found = Found::default();
        for (number, entry) in entries.iter().enumerate() {
            let number = self.first + number;
            let path = entry.path.as_path();
            let problem = match self.tree.stat_path(path) {
                Err(error) => Some(Defect::Unreadable(error.to_string())),
                Ok(None) => Some(Defect::Missing),
                Ok(Some(stat)) => {
                    let known = self.index.map(|(index, _)| &index.entries[number]);
                    let now = Indexed::of(&stat);
                    let unchanged = self.depth == Depth::Quick && known == Some(&now) && !self.is_too_young(&now);
                    let directory = (kind_of(&entry.kind), stat.kind) == (FileKind::Directory, FileKind::Directory);
                    if !unchanged && directory {
                        found.touched_directories.push(entry.path.as_str().to_owned());
                    }
                    // The kind is no part of the index: a directory and a file can share all other numbers.
                    if kind_of(&entry.kind) != stat.kind {
                        Some(Defect::Kind)
                    } else if unchanged {
                        None
                    } else {
                        let defect = defect(self.tree, entry, stat.mode).or_else(|| self.other_owner(known, &now));
                        if defect.is_none() && self.is_settled(path, &now) {
                            found.sound.push((number, now));
                        }
                        defect
                    }
                }
            };
            found.problems.extend(problem.map(|defect| Problem { path: entry.path.as_str().to_owned(), defect }));
        }
        found
    }

    /// The owner that an entry had when it was installed is the one that it must have; where that is not known, the owner of the tree.
    fn other_owner(&self, known: Option<&Indexed>, now: &Indexed) -> Option<Defect> {
        let expected = known.map_or(self.owner, |known| Some((known.uid, known.gid)));
        (expected != Some((now.uid, now.gid))).then_some(Defect::Owner(now.uid, now.gid))
    }

    /// A change just before the index was written may hide another one just after it, with the same times.
    fn is_too_young(&self, now: &Indexed) -> bool {
        self.index.is_none_or(|(_, taken)| time(now.ctime).checked_add(TICK).is_ok_and(|end| end >= time(taken)))
    }

    /// Whether what was hashed is what `now` speaks of: its stat is still the same, and so old that a later change can't share its times.
    fn is_settled(&self, path: &Path, now: &Indexed) -> bool {
        let settled = time(now.ctime).checked_add(SETTLED).is_ok_and(|settled| settled < clock::now());
        let again = self.tree.stat_path(path).ok().flatten();
        settled && again.is_some_and(|stat| Indexed::of(&stat) == *now)
    }
}

fn time((seconds, nanoseconds): FileTime) -> Timestamp {
    Timestamp::new(seconds, nanoseconds.cast_signed()).unwrap_or(Timestamp::MAX)
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
