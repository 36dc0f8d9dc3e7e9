//! Compares entries with the manifest: kind, mode, owner, content, and the names in directories.

use super::quick::Suspects;
use crate::bundle::handles::Handles;
use crate::bundle::manifest::{Entry, EntryKind, Manifest};
use crate::digest::{Digest, Hasher};
use crate::os::clock;
use crate::os::dir::{Dir, FileKind};
use crate::os::thread::helper;
use crate::store::error::{Defect, Problem};
use crate::store::index::{FileTime, Index, Indexed};
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that a thread takes at a time: few, so that no thread waits long for a large file at the end.
const BATCH_ENTRIES: usize = 16;
const READ_BYTES: usize = 128 * 1024;

/// How long ago a change must have been before what was hashed after it is remembered: file systems give changes of one moment the same time,
/// some in steps of two seconds (FAT, ext3 without nanoseconds have one).
const SETTLED: SignedDuration = SignedDuration::from_secs(2);

/// The result of comparing a tree.
#[derive(Debug, Default)]
pub struct Checked {
    /// All problems, in the order of the manifest; foreign entries come last.
    pub problems: Vec<Problem>,
    /// The stats of entries with the signed content.
    sound: HashMap<usize, Indexed>,
    /// The same of the tree's own directory.
    root: Option<Indexed>,
}

impl Checked {
    /// The index with the compared entries; None: no change. A directory with foreign entries keeps its old stat, so that it is listed again.
    /// Without a usable index a wholly sound tree makes a new one.
    pub(super) fn renewed(
        mut self,
        problems: &[Problem],
        manifest: &Manifest,
        digest: Digest,
        index: Option<Index>,
    ) -> Option<Index> {
        let foreign: HashSet<&Path> = problems
            .iter()
            .filter(|problem| matches!(problem.defect, Defect::Foreign | Defect::Stray))
            .map(|problem| problem.path.parent().unwrap_or(Path::new("")))
            .collect();
        self.sound.retain(|number, _| !foreign.contains(manifest.entries[*number].path.as_path()));
        let root = self.root.filter(|_| !foreign.contains(Path::new("")));
        let Some(mut index) = index else {
            let is_whole = problems.is_empty() && self.sound.len() == manifest.entries.len();
            let root = root.filter(|_| is_whole)?;
            return Some(Index::new(manifest, digest, root, |number| self.sound[&number]));
        };
        index.learn(&self.sound, root).then_some(index)
    }
}

/// Compares the suspected entries of a tree. An entry must have the owner that `index` has for it. Each large file is read by one thread, of
/// `threads`.
pub fn compare(tree: &Dir, manifest: &Manifest, index: Option<&Index>, suspects: &Suspects, threads: usize) -> Checked {
    let all: Vec<usize>;
    let (root, entries) = match suspects {
        Suspects::All => {
            all = (0..manifest.entries.len()).collect();
            (true, &all)
        }
        Suspects::Some { root, entries } => (*root, entries),
    };
    let known = index.map(Index::stats);
    let now = tree.stat_self().ok().map(|stat| Indexed::of(&stat));
    let owner = now.map(|now| (now.uid, now.gid));
    let look = Look { tree, manifest, known: known.as_deref(), owner };
    let mut found = Differences::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let others = threads.min(entries.len().div_ceil(BATCH_ENTRIES)).saturating_sub(1);
        let others: Vec<_> = (0..others).filter_map(|_| helper(scope, || look.at(entries, &next))).collect();
        found.append(look.at(entries, &next));
        for other in others {
            found.append(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    found.problems.sort_unstable_by_key(|(number, _)| *number);
    let path = |number: usize| manifest.entries[number].path.as_str();
    let problem = |(number, defect)| Problem { path: path(number).into(), defect };
    let mut problems: Vec<Problem> = found.problems.into_iter().map(problem).collect();
    let mut directories: Vec<&str> = found.directories.into_iter().map(path).collect();
    directories.sort_unstable();
    problems.extend(foreign(tree, manifest, directories.into_iter().chain(root.then_some(""))));
    let is_settled = |now: &Indexed| is_old(now) && tree.stat_self().is_ok_and(|again| Indexed::of(&again) == *now);
    Checked { problems, sound: found.sound, root: now.filter(|now| root && is_settled(now)) }
}

#[derive(Default)]
struct Differences {
    problems: Vec<(usize, Defect)>,
    sound: HashMap<usize, Indexed>,
    /// Directories in which a name may have been added.
    directories: Vec<usize>,
}

impl Differences {
    fn append(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.sound.extend(other.sound);
        self.directories.extend(other.directories);
    }
}

struct Look<'a> {
    tree: &'a Dir,
    manifest: &'a Manifest,
    /// The index's stat of each entry.
    known: Option<&'a [Indexed]>,
    /// User and group of the tree's own directory.
    owner: Option<(u32, u32)>,
}

impl Look<'_> {
    fn at(&self, entries: &[usize], next: &AtomicUsize) -> Differences {
        let mut found = Differences::default();
        let mut worker = Worker { handles: Handles::new(self.tree), buffer: vec![0; READ_BYTES] };
        loop {
            let start = next.fetch_add(BATCH_ENTRIES, Ordering::Relaxed).min(entries.len());
            let batch = &entries[start..entries.len().min(start + BATCH_ENTRIES)];
            if batch.is_empty() {
                return found;
            }
            for number in batch {
                if let Some(defect) = self.into(*number, &mut worker, &mut found) {
                    found.problems.push((*number, defect));
                }
            }
        }
    }

    fn into(&self, number: usize, worker: &mut Worker<'_>, found: &mut Differences) -> Option<Defect> {
        let entry = &self.manifest.entries[number];
        let path = entry.path.as_path();
        let stat = match self.tree.stat_path(path) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Some(Defect::Missing),
            Err(error) => return Some(Defect::Unreadable(error.to_string())),
        };
        if kind_of(&entry.kind) != stat.kind {
            return Some(Defect::Kind);
        }
        if stat.kind == FileKind::Directory {
            found.directories.push(number);
        }
        let now = Indexed::of(&stat);
        let defect = worker.defect(entry, stat.mode).or_else(|| self.other_owner(number, &now));
        if defect.is_none() && self.is_settled(path, &now) {
            found.sound.insert(number, now);
        }
        defect
    }

    /// An entry must have the owner of its install; if that is unknown, the owner of the tree.
    fn other_owner(&self, number: usize, now: &Indexed) -> Option<Defect> {
        let known = self.known.map(|known| &known[number]);
        let expected = known.map_or(self.owner, |known| Some((known.uid, known.gid)));
        (expected != Some((now.uid, now.gid))).then_some(Defect::Owner(now.uid, now.gid))
    }

    /// Whether the hashed file still has the stat `now`, so old that a later change has other times.
    fn is_settled(&self, path: &Path, now: &Indexed) -> bool {
        let again = self.tree.stat_path(path).ok().flatten();
        is_old(now) && again.is_some_and(|stat| Indexed::of(&stat) == *now)
    }
}

fn is_old(now: &Indexed) -> bool {
    time(now.ctime).checked_add(SETTLED).is_ok_and(|settled| settled < clock::now())
}

/// A file time as a timestamp; one that can't be expressed is in the far future.
fn time((seconds, nanoseconds): FileTime) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).ok();
    nanoseconds.and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok()).unwrap_or(Timestamp::MAX)
}

/// The signed kind of an entry.
pub(super) fn kind_of(kind: &EntryKind) -> FileKind {
    match kind {
        EntryKind::Directory { .. } => FileKind::Directory,
        EntryKind::File { .. } => FileKind::File,
        EntryKind::Link { .. } => FileKind::Symlink,
    }
}

/// A thread's handles and buffer.
struct Worker<'a> {
    handles: Handles<'a>,
    buffer: Vec<u8>,
}

impl Worker<'_> {
    fn defect(&mut self, entry: &Entry, found_mode: u32) -> Option<Defect> {
        let unreadable = |error: &dyn fmt::Display| Some(Defect::Unreadable(error.to_string()));
        let (directory, name) = match self.handles.parent(&entry.path) {
            Ok(place) => place,
            Err(error) => return unreadable(&error),
        };
        match &entry.kind {
            EntryKind::Directory { mode } => (*mode != found_mode).then_some(Defect::Mode(found_mode)),
            EntryKind::Link { target } => match directory.read_link(name) {
                Ok(Some(found)) if found == Path::new(target) => None,
                Ok(_) => Some(Defect::Content),
                Err(error) => unreadable(&error),
            },
            EntryKind::File { mode, size, sha256, .. } => match digest_of(directory, name, *size, &mut self.buffer) {
                Ok(digest) if digest != Some(*sha256) => Some(Defect::Content),
                Ok(_) => (*mode != found_mode).then_some(Defect::Mode(found_mode)),
                Err(error) => unreadable(&error),
            },
        }
    }
}

/// The digest of a file; None: it has another size.
fn digest_of(directory: &Dir, name: &str, size: u64, buffer: &mut [u8]) -> io::Result<Option<Digest>> {
    let mut file = directory.open_file(name).map_err(|error| error.answer)?;
    if file.metadata()?.len() != size {
        return Ok(None);
    }
    let mut hasher = Hasher::new();
    loop {
        match file.read(buffer)? {
            0 => return Ok(Some(hasher.finish())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Names in these directories that were not signed.
fn foreign<'a>(tree: &Dir, manifest: &Manifest, directories: impl Iterator<Item = &'a str>) -> Vec<Problem> {
    let mut directories = directories.peekable();
    if directories.peek().is_none() {
        return Vec::new();
    }
    let known: HashSet<&str> = manifest.entries.iter().map(|entry| entry.path.as_str()).collect();
    let mut problems = Vec::new();
    for parent in directories {
        let listed = tree.beneath(Path::new(parent)).and_then(|directory| directory.entries());
        // An unreadable directory is a problem of its own entry.
        let Ok(entries) = listed else { continue };
        for (name, kind) in entries {
            let path = Path::new(parent).join(&name);
            // A signed name is text.
            if !path.to_str().is_some_and(|path| known.contains(path)) {
                let is_harmless = is_harmless(&name.to_string_lossy(), kind);
                let defect = if is_harmless { Defect::Stray } else { Defect::Foreign };
                problems.push(Problem { path, defect });
            }
        }
    }
    problems
}

/// Whether no program loads a file of this name by itself: leftovers of file systems, editors, package managers and crashes. Any other foreign
/// file may be a module, a `.pth` or a library that is found before the right one.
fn is_harmless(name: &str, kind: FileKind) -> bool {
    const ENDS: [&str; 12] = [
        ".bak",
        ".dpkg-dist",
        ".dpkg-new",
        ".dpkg-old",
        ".log",
        ".orig",
        ".rpmnew",
        ".rpmorig",
        ".rpmsave",
        ".swp",
        ".tmp",
        "~",
    ];
    let is_dump = name.strip_prefix("core.").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    let is_left_over =
        ENDS.iter().any(|end| name.ends_with(end)) || name.starts_with(".nfs") || name == "core" || is_dump;
    (kind == FileKind::File && is_left_over) || (kind == FileKind::Directory && name == "lost+found")
}
