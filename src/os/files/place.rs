//! A directory whose small files are changed; in a dry run the changes stay in memory, where later reads of the same command find them.

use crate::os::dir::Dir;
use crate::os::lock::{Lock, LockFile};
use crate::os::{OsError, Result};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Whether to change anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Write.
    Apply,
    /// Only report (dry run).
    DryRun,
}

/// What a dry run would have made of a file.
#[derive(Debug, Clone)]
enum Draft {
    Written(Vec<u8>),
    /// A large file of this length, whose bytes are not kept.
    Copied(u64),
    Gone,
}

/// A directory to change.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// None: missing, in a dry run.
    directory: Option<Dir>,
    /// The changes of a dry run by their path; None: changes are written.
    drafts: Option<RefCell<BTreeMap<PathBuf, Draft>>>,
}

impl Place {
    /// An existing directory; None without one.
    pub fn open(path: &Path, effect: Effect) -> Result<Option<Self>> {
        Ok(Dir::open_if_exists(path)?.map(|directory| Self::new(path, Some(directory), effect)))
    }

    /// The same; makes a missing directory with `mode`, unless this is a dry run.
    pub fn open_or_create(path: &Path, mode: u32, effect: Effect) -> Result<Self> {
        let directory = match effect {
            Effect::Apply => Some(Dir::open_or_create(path, mode)?),
            Effect::DryRun => Dir::open_if_exists(path)?,
        };
        Ok(Self::new(path, directory, effect))
    }

    fn new(path: &Path, directory: Option<Dir>, effect: Effect) -> Self {
        let drafts = (effect == Effect::DryRun).then(RefCell::default);
        Self { path: path.to_owned(), directory, drafts }
    }

    /// The path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether changes are written.
    pub fn effect(&self) -> Effect {
        if self.drafts.is_some() { Effect::DryRun } else { Effect::Apply }
    }

    /// The directory `relative` as it is on disk, links refused; None without one.
    pub fn directory(&self, relative: &Path) -> Result<Option<Dir>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        match directory.beneath(relative) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The directory `relative`, made with `mode` where it is missing; None: this is a dry run.
    pub fn make(&self, relative: &Path, mode: u32) -> Result<Option<Dir>> {
        let Some(directory) = self.directory.as_ref().filter(|_| self.drafts.is_none()) else { return Ok(None) };
        let mut child = directory.try_clone()?;
        for name in relative {
            child = child.child_or_create(name, mode)?;
        }
        Ok(Some(child))
    }

    /// Reads a file of at most `limit` bytes; None without one.
    pub fn read(&self, file: impl AsRef<Path>, limit: u64) -> Result<Option<Vec<u8>>> {
        match self.draft(file.as_ref()) {
            Some(Draft::Written(bytes)) => return Ok(Some(bytes)),
            Some(Draft::Gone) => return Ok(None),
            Some(Draft::Copied(_)) | None => {}
        }
        let (parent, name) = split(file.as_ref());
        match self.directory(parent)? {
            Some(directory) => directory.read_if_exists(name, limit),
            None => Ok(None),
        }
    }

    /// Reads a file that has to be there.
    pub fn read_existing(&self, file: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>> {
        let missing = || OsError::new("open", &self.path.join(file.as_ref()), io::Error::from(io::ErrorKind::NotFound));
        self.read(file.as_ref(), limit)?.ok_or_else(missing)
    }

    /// The length of a file; None without one.
    pub fn length(&self, file: impl AsRef<Path>) -> Result<Option<u64>> {
        match self.draft(file.as_ref()) {
            Some(Draft::Written(bytes)) => return Ok(Some(bytes.len() as u64)),
            Some(Draft::Copied(length)) => return Ok(Some(length)),
            Some(Draft::Gone) => return Ok(None),
            None => {}
        }
        let (parent, name) = split(file.as_ref());
        let Some(directory) = self.directory(parent)? else { return Ok(None) };
        Ok(directory.stat(name)?.map(|stat| stat.size))
    }

    /// The names in the directory `relative` that are text, sorted; None without such a directory.
    pub fn names(&self, relative: impl AsRef<Path>) -> Result<Option<Vec<String>>> {
        let relative = relative.as_ref();
        let found = self.directory(relative)?;
        let is_there = found.is_some();
        let entries = found.map_or(Ok(Vec::new()), |directory| directory.names())?;
        let mut names: BTreeSet<String> = entries.into_iter().filter_map(|name| name.into_string().ok()).collect();
        let mut drafted = false;
        for (path, draft) in self.drafts.iter().flat_map(|drafts| drafts.borrow().clone()) {
            let Some(name) = path.strip_prefix(relative).ok().and_then(|below| below.iter().next()?.to_str()) else {
                continue;
            };
            match draft {
                Draft::Gone if path == relative.join(name) => drop(names.remove(name)),
                Draft::Gone => {}
                Draft::Written(_) | Draft::Copied(_) => {
                    drafted = true;
                    names.insert(name.to_owned());
                }
            }
        }
        Ok((is_there || drafted).then(|| names.into_iter().collect()))
    }

    /// Replaces a file, whole or not at all; missing directories are made with `directory_mode`.
    pub fn write(&self, file: impl AsRef<Path>, bytes: &[u8], (mode, directory_mode): (u32, u32)) -> Result<()> {
        let (parent, name) = split(file.as_ref());
        match self.make(parent, directory_mode)? {
            Some(directory) => directory.write_atomic(name, bytes, mode),
            None => self.note(file.as_ref(), Draft::Written(bytes.to_vec())),
        }
    }

    /// Notes a large file of a dry run, so that later reads of its length find it.
    pub fn note_copy(&self, file: impl AsRef<Path>, length: u64) -> Result<()> {
        self.note(file.as_ref(), Draft::Copied(length))
    }

    /// Removes an entry, if there is one, and everything below it.
    pub fn remove(&self, entry: impl AsRef<Path>) -> Result<()> {
        let entry = entry.as_ref();
        if let Some(drafts) = &self.drafts {
            drafts.borrow_mut().retain(|path, _| !path.starts_with(entry));
            return self.note(entry, Draft::Gone);
        }
        let (parent, name) = split(entry);
        let directory = self.directory(parent)?;
        directory.map_or(Ok(()), |directory| directory.remove_tree(name))
    }

    /// Takes the lock file `name` of the directory `relative`; None: another process holds it. A dry run neither makes nor changes the file.
    pub fn lock(&self, relative: &Path, mode: u32, name: &str) -> Result<Option<Held>> {
        if let Some(directory) = self.make(relative, mode)? {
            return Ok(LockFile::new(&directory, name).try_exclusive()?.map(|lock| Held { _lock: Some(lock) }));
        }
        match self.directory(relative)? {
            Some(directory) => Ok(LockFile::new(&directory, name).look()?.map(|lock| Held { _lock: lock })),
            None => Ok(Some(Held { _lock: None })),
        }
    }

    fn draft(&self, path: &Path) -> Option<Draft> {
        let drafts = self.drafts.as_ref()?.borrow();
        let above = path.ancestors().skip(1).any(|parent| matches!(drafts.get(parent), Some(Draft::Gone)));
        drafts.get(path).cloned().or_else(|| above.then_some(Draft::Gone))
    }

    /// Refuses what the real run could not write either.
    fn note(&self, path: &Path, draft: Draft) -> Result<()> {
        let Some(drafts) = &self.drafts else { return Ok(()) };
        let whole = self.path.join(path);
        let parents = whole.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        for parent in parents.chain([Path::new(".")]) {
            if let Some(directory) = Dir::open_if_exists(parent)? {
                directory.check_writable().map_err(|source| OsError::new("create", &whole, source))?;
                break;
            }
        }
        drafts.borrow_mut().insert(path.to_owned(), draft);
        Ok(())
    }
}

/// The lock on a place; None: a dry run of a place without a lock file.
#[derive(Debug)]
pub struct Held {
    _lock: Option<Lock>,
}

fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_reads_what_it_would_have_written_and_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(directory.path().join("a/old"), "old").unwrap();
        let place = Place::open(directory.path(), Effect::DryRun).unwrap().unwrap();
        let modes = (0o644, 0o755);
        place.write("a/new", b"new", modes).unwrap();
        place.write("b/c", b"c", modes).unwrap();
        place.note_copy("b/large", 7).unwrap();
        assert_eq!(place.read("a/new", 9).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(place.names("a").unwrap().unwrap(), ["new", "old"]);
        assert_eq!(place.names("b").unwrap().unwrap(), ["c", "large"]);
        assert_eq!((place.length("b/large").unwrap(), place.length("a/old").unwrap()), (Some(7), Some(3)));
        assert_eq!(place.names("z").unwrap(), None);
        place.remove("a").unwrap();
        assert_eq!((place.read("a/old", 9).unwrap(), place.read("a/new", 9).unwrap()), (None, None));
        place.write("a/new", b"2", modes).unwrap();
        assert_eq!(place.read("a/new", 9).unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(directory.path().join("a")).unwrap().count(), 1);
    }
}
