//! Repair: the broken entries of a tree are made anew, from files of this host by their content, then from frames of the payload. Each file
//! comes into place by one rename: processes that have the old file open keep it. Every file is hashed; foreign entries are set aside.

use super::check::Depth;
use super::error::{Defect, Problem};
use super::held::HeldFiles;
pub use super::incident::Repaired;
use super::incident::{Incident, Occasion};
use super::protection::selinux::Labels;
use super::{PackageLock, Result, Store, StoreError};
use crate::bundle::manifest::{EntryKind, Manifest};
use crate::bundle::rebuild::{copy_files, unpack_files};
use crate::bundle::source::{FrameSource, PayloadSource, SourceError};
use crate::bundle::unpack::make_directories;
use crate::crash_point;
use crate::failure::{Class, Report};
use crate::layout;
use crate::os::dir::{Dir, FileKind};
use crate::os::{OsError, host};
use crate::version::Release;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The directory beside `versions` for foreign entries of trees.
pub(super) const ASIDE: &str = "aside";
/// Most entries set aside of one release. Stops a loop that fills a disk with names.
const ASIDE_MAXIMUM: usize = 10_000;
/// Longest part of a name that an entry keeps aside: file systems take 255 bytes, with the number before it.
const NAME_BYTES_MAXIMUM: usize = 240;

/// The first free name for an entry that is set aside in `directory`.
pub(super) fn free_aside(name: &str, directory: &Path, is_free: impl Fn(&str) -> Result<bool>) -> Result<String> {
    let mut end = name.len().min(NAME_BYTES_MAXIMUM);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let name = &name[..end];
    for number in 1..=ASIDE_MAXIMUM {
        let free = format!("{number}-{name}");
        if is_free(&free)? {
            return Ok(free);
        }
    }
    Err(OsError::new("set aside into", directory, std::io::Error::from(std::io::ErrorKind::StorageFull)).into())
}

/// No payload: only files of this host are used.
#[derive(Debug, Clone, Copy)]
pub struct NoPayload;

impl PayloadSource for NoPayload {
    fn frames<'a>(
        &'a mut self,
        _: &[crate::bundle::manifest::Frame],
    ) -> std::result::Result<Box<dyn FrameSource + 'a>, SourceError> {
        let error = "cannot repair the files from this host alone: no other release has them".into();
        Err(SourceError { class: Class::Integrity, error })
    }
}

impl Store {
    /// Checks a release quickly before a start and mends it with this host's own files; an error holds the remaining problems. None: nothing was
    /// broken.
    pub fn verify_or_repair(&self, release: &Release) -> Result<Option<Repaired>> {
        let broken = match self.verify(release) {
            Ok(()) => return Ok(None),
            Err(broken @ (StoreError::Damaged { .. } | StoreError::Unchecked { .. })) => broken,
            Err(error) => return Err(error),
        };
        // Without the right to write the damage is reported. While another command is at work nobody knows what can be mended.
        let lock = match self.lock() {
            Ok(lock) => lock,
            Err(error @ StoreError::Locked { .. }) => return Err(error),
            Err(_) => return Err(broken),
        };
        let Ok(mut repaired) = self.repair(&lock, release, (Depth::Quick, Occasion::Start), &mut NoPayload) else {
            return Err(broken);
        };
        self.verdict(release, std::mem::take(&mut repaired.left))?;
        Ok(Some(repaired))
    }

    /// Checks a release, mends it with files of this host, then with `payload`, and remembers the incident.
    pub fn repair(
        &self,
        lock: &PackageLock,
        release: &Release,
        (depth, occasion): (Depth, Occasion),
        payload: &mut dyn PayloadSource,
    ) -> Result<Repaired> {
        let mut repaired = Repaired { found: self.check(release, depth)?, ..Repaired::default() };
        if repaired.found.is_empty() {
            return Ok(repaired);
        }
        let ended = self.mend(lock, release, depth, payload, &mut repaired);
        self.remember(lock, Incident::of(release, occasion, &repaired));
        ended.map(|()| repaired)
    }

    fn mend(
        &self,
        lock: &PackageLock,
        release: &Release,
        depth: Depth,
        payload: &mut dyn PayloadSource,
        repaired: &mut Repaired,
    ) -> Result<()> {
        let manifest = self.manifest(release)?;
        let bench = Bench::new(self, release, &manifest)?;
        // After a failure all problems count as left.
        repaired.left = repaired.found.clone();
        // Directories first: entries below a missing or closed directory cannot be checked.
        bench.mend_directories(&repaired.left.clone(), repaired)?;
        let mut broken = self.check(release, depth)?;
        bench.set_aside(&broken, repaired)?;
        // One entry that cannot be moved keeps nothing else from being mended.
        broken.retain(|problem| !repaired.is_stuck(&problem.path));
        let mended = bench.mend_files(&broken, payload, repaired);
        bench.mend_links(&broken, repaired)?;
        self.empty_staging(lock)?;
        mended?;
        bench.tree.sync_filesystem()?;
        crash_point!("repair.synced");
        repaired.left = self.check(release, depth)?;
        repaired.mended.sort();
        repaired.mended.dedup();
        let left = &repaired.left;
        repaired.mended.retain(|path| left.iter().all(|problem| problem.path != Path::new(path)));
        Ok(())
    }
}

/// A tree under repair.
struct Bench<'a> {
    store: &'a Store,
    release: &'a Release,
    manifest: &'a Manifest,
    tree: Dir,
    package: Dir,
    entries: HashMap<&'a str, usize>,
    labels: Option<Labels>,
}

impl<'a> Bench<'a> {
    fn new(store: &'a Store, release: &'a Release, manifest: &'a Manifest) -> Result<Self> {
        let entries = manifest.entries.iter().enumerate().map(|(index, entry)| (entry.path.as_str(), index)).collect();
        let package = Dir::open(&store.layout.package(&store.package))?;
        let labels = Labels::of(&store.layout, &store.package, release)?;
        Ok(Self { store, release, manifest, tree: store.tree(release)?, package, entries, labels })
    }

    /// The broken entries, in the manifest's order.
    fn entries(&self, problems: &[Problem]) -> Vec<usize> {
        let number = |problem: &Problem| self.entries.get(problem.path.to_str()?).copied();
        let mut entries: Vec<usize> = problems.iter().filter_map(number).collect();
        entries.sort_unstable();
        entries
    }

    /// The open directory of an entry, and its name there.
    fn place<'p>(&self, path: &'p Path) -> Result<(Dir, &'p OsStr)> {
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.tree.beneath(parent)?, path.file_name().unwrap_or_default()))
    }

    fn mend_directories(&self, problems: &[Problem], repaired: &mut Repaired) -> Result<()> {
        for index in self.entries(problems) {
            let entry = &self.manifest.entries[index];
            let EntryKind::Directory { mode } = entry.kind else { continue };
            let path = entry.path.as_path();
            if repaired.is_stuck(path) {
                continue;
            }
            let (parent, name) = self.place(path)?;
            match parent.stat(name)?.map(|stat| stat.kind) {
                Some(FileKind::Directory) => parent.set_mode(name, mode)?,
                Some(FileKind::File | FileKind::Symlink | FileKind::Other) => {
                    self.aside(path, repaired);
                    if repaired.is_stuck(path) {
                        continue;
                    }
                    parent.make_dir(name, mode)?;
                }
                None => parent.make_dir(name, mode)?,
            }
            self.own(&parent, name)?;
            self.label(&self.tree, &[index])?;
            crash_point!("repair.directory");
            repaired.mended.push(entry.path.to_string());
        }
        Ok(())
    }

    /// Moves away unsigned entries, and directories in the place of files or links.
    fn set_aside(&self, problems: &[Problem], repaired: &mut Repaired) -> Result<()> {
        for problem in problems {
            if repaired.is_stuck(&problem.path) {
                continue;
            }
            let in_the_way = match problem.defect {
                Defect::Foreign | Defect::Stray => true,
                Defect::Kind => {
                    let (parent, name) = self.place(&problem.path)?;
                    parent.stat(name)?.is_some_and(|stat| stat.kind == FileKind::Directory)
                }
                Defect::Missing | Defect::Mode(_) | Defect::Owner(..) | Defect::Content | Defect::Unreadable(_) => {
                    false
                }
            };
            if in_the_way {
                self.aside(&problem.path, repaired);
            }
        }
        Ok(())
    }

    /// Moves an entry away, or notes why that is impossible.
    fn aside(&self, path: &Path, repaired: &mut Repaired) {
        match self.move_aside(path) {
            Ok(place) => repaired.aside.push((path.to_string_lossy().into_owned(), place)),
            Err(error) => repaired.stuck.push((path.to_owned(), error.to_string())),
        }
    }

    fn move_aside(&self, path: &Path) -> Result<PathBuf> {
        let (parent, name) = self.place(path)?;
        let aside = self.package.child_or_create(ASIDE, 0o700)?.child_or_create(self.release.to_string(), 0o700)?;
        // Aside, its name is text: reports have it.
        let free = free_aside(&name.to_string_lossy(), aside.path(), |free| Ok(aside.stat(free)?.is_none()))?;
        parent.rename_exclusive(name, &aside, &free)?;
        crash_point!("repair.aside");
        Ok(aside.path().join(free))
    }

    /// Makes broken files anew in staging, then moves each into place.
    fn mend_files(&self, problems: &[Problem], payload: &mut dyn PayloadSource, repaired: &mut Repaired) -> Result<()> {
        let is_file = |index: &usize| matches!(self.manifest.entries[*index].kind, EntryKind::File { .. });
        let files: Vec<usize> = self.entries(problems).into_iter().filter(is_file).collect();
        if files.is_empty() {
            return Ok(());
        }
        let staging = self.package.child(layout::STAGING)?;
        let threads = host::parallelism();
        let own = self.workplace(&staging, "own")?;
        let held = HeldFiles::of(self.store, self.manifest)?;
        let missing = copy_files(self.manifest, &files, &held, &own, threads).map_err(Report::from)?;
        let copied: Vec<usize> = files.into_iter().filter(|index| missing.binary_search(index).is_err()).collect();
        self.move_in(&own, &copied, repaired)?;
        if missing.is_empty() {
            return Ok(());
        }
        let frames = self.workplace(&staging, "frames")?;
        match unpack_files(self.manifest, &missing, payload, &frames) {
            Ok(()) => self.move_in(&frames, &missing, repaired),
            Err(error) if error.class() == Class::NoSpace => Err(StoreError::Refused(error.into())),
            Err(error) => {
                repaired.unreachable = Some(error.into());
                Ok(())
            }
        }
    }

    /// A directory in staging with all directories of the tree.
    fn workplace(&self, staging: &Dir, purpose: &str) -> Result<Dir> {
        let name = format!("{}.{purpose}", self.release);
        staging.remove_tree(&name)?;
        staging.make_dir(&name, 0o700)?;
        let workplace = staging.child(&name)?;
        make_directories(self.manifest, &workplace)?;
        Ok(workplace)
    }

    fn move_in(&self, from: &Dir, files: &[usize], repaired: &mut Repaired) -> Result<()> {
        self.label(from, files)?;
        // A file that is renamed into a used tree must not be empty after a power cut.
        from.sync_filesystem()?;
        for index in files {
            let path = self.manifest.entries[*index].path.as_path();
            let (parent, name) = self.place(path)?;
            from.beneath(path.parent().unwrap_or(Path::new("")))?.rename(name, &parent, name)?;
            self.own(&parent, name)?;
            crash_point!("repair.file");
            repaired.mended.push(self.manifest.entries[*index].path.to_string());
        }
        Ok(())
    }

    fn mend_links(&self, problems: &[Problem], repaired: &mut Repaired) -> Result<()> {
        for index in self.entries(problems) {
            let entry = &self.manifest.entries[index];
            let EntryKind::Link { target } = &entry.kind else { continue };
            let (parent, name) = self.place(entry.path.as_path())?;
            parent.replace_symlink(Path::new(target), name)?;
            self.label(&self.tree, &[index])?;
            crash_point!("repair.link");
            repaired.mended.push(entry.path.to_string());
        }
        Ok(())
    }

    /// Gives these entries of a tree the labels of the host's policy.
    fn label(&self, tree: &Dir, entries: &[usize]) -> Result<()> {
        let Some(labels) = &self.labels else { return Ok(()) };
        Ok(labels.apply_to(tree, entries.iter().map(|index| &self.manifest.entries[*index]))?)
    }

    /// Gives an entry to the owner of the package's directory.
    fn own(&self, parent: &Dir, name: &OsStr) -> Result<()> {
        let owner = self.package.stat_self()?;
        Ok(parent.set_owner_of(name, owner.uid, owner.gid)?)
    }
}
