//! What a power cut leaves of what a program did to files: the record of `SIDLE_EFFECTS`, replayed under a model of a file system that keeps what
//! was synced, and of the rest whatever it likes. The model is as unkind as POSIX allows: a sync of a directory keeps the names in it, a sync
//! of a file its content, and nothing else is kept in any order.

use serde::Deserialize;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{Hash, Hasher as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// A line of the record.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    MakeDirectory(PathBuf, u32),
    CreateFile(PathBuf, u32),
    MakeLink(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Write(PathBuf, Vec<u8>),
    Sync(PathBuf),
    SyncAll,
}

/// What of the unsynced a power cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    Dropped,
    /// All names, and of every file nothing: what delayed allocation leaves.
    Emptied,
    /// All names, and of every file the first half.
    Halved,
    /// Any names and any files, by this seed.
    Shuffled(u64),
}

/// Which syncs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    All,
    None,
    /// Those of files and file systems do, those of directories don't.
    OfContent,
    /// Those of directories do, those of files and file systems don't.
    OfNames,
}

/// A directory, a file or a link, whatever its name.
#[derive(Debug, Clone, Hash)]
enum Kind {
    Directory,
    File,
    Link(PathBuf),
}

type Node = usize;
const ROOT: Node = 0;

/// A step of the record with what it is about, instead of names that change.
#[derive(Debug, Clone)]
enum Step {
    Name { at: (Node, String), node: Node },
    Move { from: (Node, String), to: (Node, String), node: Node },
    Forget { at: (Node, String), node: Node },
    Write { node: Node, content: Vec<u8> },
    Sync(Node),
    SyncAll,
}

/// Names and contents, as they are at some moment.
#[derive(Debug, Clone, Default, Hash)]
struct Disk {
    names: BTreeMap<Node, BTreeMap<String, Node>>,
    content: BTreeMap<Node, Vec<u8>>,
}

impl Disk {
    fn find(&self, path: &Path) -> Option<Node> {
        path.iter().try_fold(ROOT, |node, name| self.names.get(&node)?.get(name.to_str()?).copied())
    }

    fn put(&mut self, (directory, name): &(Node, String), node: Node) {
        self.names.entry(*directory).or_default().insert(name.clone(), node);
    }

    fn forget(&mut self, (directory, name): &(Node, String), node: Node) {
        let names = self.names.entry(*directory).or_default();
        if names.get(name) == Some(&node) {
            names.remove(name);
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Name { at, node } => self.put(at, *node),
            Step::Move { from, to, node } => {
                self.forget(from, *node);
                self.put(to, *node);
            }
            Step::Forget { at, node } => self.forget(at, *node),
            Step::Write { node, content } => {
                self.content.insert(*node, content.clone());
            }
            Step::Sync(_) | Step::SyncAll => {}
        }
    }
}

/// What a program did, and what lay there before.
pub struct Record {
    before: Disk,
    kinds: Vec<(Kind, u32)>,
    steps: Vec<Step>,
}

/// A state that a power cut leaves.
pub struct Left<'a> {
    record: &'a Record,
    disk: Disk,
    /// For messages: after how many steps, and how.
    pub told: String,
    /// The program had done everything, and said so.
    pub is_end: bool,
}

impl Record {
    /// Looks at `root` before anything is done.
    pub fn of(root: &Path) -> Self {
        let mut record = Self { before: Disk::default(), kinds: vec![(Kind::Directory, 0o755)], steps: Vec::new() };
        record.look(root, ROOT);
        record
    }

    fn look(&mut self, directory: &Path, node: Node) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            let metadata = fs::symlink_metadata(&path).unwrap();
            if node == ROOT && name == "run"
                || metadata.file_type().is_dir() == metadata.is_file() && !metadata.is_symlink()
            {
                continue;
            }
            let kind = match fs::read_link(&path) {
                Ok(target) => Kind::Link(target),
                Err(_) if metadata.is_dir() => Kind::Directory,
                Err(_) => Kind::File,
            };
            let child = self.node(kind, metadata.permissions().mode() & 0o7777);
            self.before.put(&(node, name), child);
            if metadata.is_dir() {
                self.look(&path, child);
            } else if metadata.is_file() {
                self.before.content.insert(child, fs::read(&path).unwrap());
            }
        }
    }

    fn node(&mut self, kind: Kind, mode: u32) -> Node {
        self.kinds.push((kind, mode));
        self.kinds.len() - 1
    }

    /// Takes what was done below `root` from its record. What lies in memory on a host (`/run`) or elsewhere is left out.
    pub fn read(&mut self, root: &Path, log: &Path) {
        let mut now = self.before.clone();
        for line in fs::read_to_string(log).unwrap_or_default().lines() {
            let line: Line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if let Some(step) = self.step(&now, root, line) {
                now.apply(&step);
                self.steps.push(step);
            }
        }
        // What no effect tells of would be in no state: then all of them would be fiction.
        let there = Self::of(root);
        assert_eq!(self.told_of(&now), there.told_of(&there.before), "the record tells of all that was done");
    }

    /// Every file and link that is sidle's, with its content.
    fn told_of(&self, disk: &Disk) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut found, mut ahead) = (BTreeMap::new(), vec![(PathBuf::new(), ROOT)]);
        while let Some((path, node)) = ahead.pop() {
            // The agent's own files, and what the test itself writes.
            if ["etc/demo-agent", "supervisor.log"].iter().any(|others| path.starts_with(others)) {
                continue;
            }
            match &self.kinds[node].0 {
                Kind::Directory => {
                    let names = disk.names.get(&node).into_iter().flatten();
                    ahead.extend(names.map(|(name, child)| (path.join(name), *child)));
                }
                Kind::File => drop(found.insert(path, disk.content.get(&node).cloned().unwrap_or_default())),
                Kind::Link(target) => drop(found.insert(path, target.clone().into_os_string().into_encoded_bytes())),
            }
        }
        found
    }

    fn step(&mut self, now: &Disk, root: &Path, line: Line) -> Option<Step> {
        let inside = |path: &Path| {
            let path = path.strip_prefix(root).ok()?.to_owned();
            (!path.starts_with("run")).then_some(path)
        };
        let at = |path: &Path| {
            let path = inside(path)?;
            Some((now.find(path.parent()?)?, path.file_name()?.to_str()?.to_owned()))
        };
        let there = |path: &Path| inside(path).and_then(|path| now.find(&path));
        Some(match line {
            Line::MakeDirectory(path, mode) => Step::Name { at: at(&path)?, node: self.node(Kind::Directory, mode) },
            Line::CreateFile(path, mode) => Step::Name { at: at(&path)?, node: self.node(Kind::File, mode) },
            Line::MakeLink(path, target) => Step::Name { at: at(&path)?, node: self.node(Kind::Link(target), 0o777) },
            Line::Rename(from, to) => Step::Move { node: there(&from)?, from: at(&from)?, to: at(&to)? },
            Line::Remove(path) => Step::Forget { node: there(&path)?, at: at(&path)? },
            Line::Write(path, content) => Step::Write { node: there(&path)?, content },
            Line::Sync(path) => Step::Sync(there(&path)?),
            Line::SyncAll => Step::SyncAll,
        })
    }

    /// How much was done.
    pub fn length(&self) -> usize {
        self.steps.len()
    }

    /// Whether the step is kept by a sync that counts and comes later, before `end`.
    fn is_kept(&self, index: usize, end: usize, syncs: Syncs) -> bool {
        let (names, content) =
            (syncs == Syncs::All || syncs == Syncs::OfNames, syncs == Syncs::All || syncs == Syncs::OfContent);
        self.steps[index..end].iter().any(|later| match (&self.steps[index], later) {
            (_, Step::SyncAll) => content,
            (Step::Name { at, .. } | Step::Forget { at, .. }, Step::Sync(node)) => names && at.0 == *node,
            // A rename is one act of the journal, whichever of its directories is synced.
            (Step::Move { from, to, .. }, Step::Sync(node)) => names && (from.0 == *node || to.0 == *node),
            (Step::Write { node, .. }, Step::Sync(synced)) => content && node == synced,
            _ => false,
        })
    }

    fn left(&self, end: usize, cut: Cut, syncs: Syncs) -> Left<'_> {
        let mut disk = self.before.clone();
        let mut dice = match cut {
            Cut::Shuffled(seed) => seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(end as u64) | 1,
            Cut::Dropped | Cut::Emptied | Cut::Halved => 1,
        };
        for index in 0..end {
            let step = &self.steps[index];
            // xorshift64: the same states in every run.
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let falls = dice.count_ones() % 2 == 0;
            if self.is_kept(index, end, syncs) {
                disk.apply(step);
                continue;
            }
            match (cut, step) {
                (Cut::Dropped, _) | (Cut::Emptied, Step::Write { .. }) => {}
                (Cut::Halved, Step::Write { node, content }) => {
                    disk.apply(&Step::Write { node: *node, content: content[..content.len() / 2].to_vec() });
                }
                (Cut::Shuffled(_), _) if falls => {}
                (Cut::Emptied | Cut::Halved | Cut::Shuffled(_), _) => disk.apply(step),
            }
        }
        let last = match self.steps[..end].last() {
            None => "nothing".to_owned(),
            Some(Step::Name { at, .. }) => format!("making {}", at.1),
            Some(Step::Move { from, to, .. }) => format!("moving {} to {}", from.1, to.1),
            Some(Step::Forget { at, .. }) => format!("removing {}", at.1),
            Some(Step::Write { content, .. }) => format!("writing {} bytes", content.len()),
            Some(Step::Sync(_)) => "a sync".to_owned(),
            Some(Step::SyncAll) => "the sync of all".to_owned(),
        };
        let told = format!("{cut:?}, cut after {end} of {} steps, the last one {last}", self.steps.len());
        Left { record: self, disk, told, is_end: end == self.steps.len() }
    }

    /// Every different state that a cut may leave: after each `stride`-th step and at the end.
    pub fn all_left(&self, cuts: &[Cut], syncs: Syncs, stride: usize) -> Vec<Left<'_>> {
        let mut seen = BTreeSet::new();
        let ends = (0..=self.steps.len()).filter(|end| end % stride == 0 || *end == self.steps.len());
        let all = ends.flat_map(|end| cuts.iter().map(move |cut| (end, *cut)));
        // The end first: what was said to be done must be.
        let all: Vec<(usize, Cut)> = all.collect();
        all.into_iter()
            .rev()
            .map(|(end, cut)| self.left(end, cut, syncs))
            .filter(|left| {
                let mut hasher = DefaultHasher::new();
                left.tree(&mut hasher, ROOT);
                seen.insert(hasher.finish())
            })
            .collect()
    }
}

impl Left<'_> {
    /// What can be reached by names: what else the model knows makes no difference.
    fn tree(&self, hasher: &mut DefaultHasher, node: Node) {
        self.record.kinds[node].0.hash(hasher);
        self.disk.content.get(&node).hash(hasher);
        for (name, child) in self.disk.names.get(&node).into_iter().flatten() {
            (name, 1).hash(hasher);
            self.tree(hasher, *child);
            2.hash(hasher);
        }
    }

    /// Makes this state below `root`, which is empty.
    pub fn make(&self, root: &Path) {
        self.make_node(root, ROOT);
    }

    fn make_node(&self, path: &Path, node: Node) {
        let (kind, mode) = &self.record.kinds[node];
        match kind {
            Kind::Directory => {
                if node != ROOT {
                    fs::create_dir(path).unwrap();
                }
                for (name, child) in self.disk.names.get(&node).into_iter().flatten() {
                    self.make_node(&path.join(name), *child);
                }
            }
            Kind::File => fs::write(path, self.disk.content.get(&node).map_or(&[][..], Vec::as_slice)).unwrap(),
            Kind::Link(target) => symlink(target, path).unwrap(),
        }
        if !matches!(kind, Kind::Link(_)) {
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
        }
    }
}
