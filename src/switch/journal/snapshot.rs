//! Snapshots of an agent's configuration directory: taken before a trial, kept for the last switches, put back on request.
//!
//! ```text
//! instances/INSTANCE/configuration/SWITCH/index     JSON: paths with kind, mode, owner, extended attributes, digest
//!                                        /files/DIGEST
//! ```
//!
//! Only files and directories are kept. A link refuses the snapshot: its target belongs to another program, and a snapshot without it would be
//! incomplete. Only root can read the directory: configuration holds secrets.

use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::os::attributes::{self, Attributes};
use crate::os::dir::{Dir, FileKind};
use crate::os::{OsError, walk};
use crate::saved::{self, SavedError};
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name of the directory of snapshots in an instance's state directory.
pub const SNAPSHOTS_NAME: &str = "configuration";
/// Snapshots kept.
pub const SNAPSHOTS_KEPT: usize = 5;
/// Most bytes in a snapshot. A configuration directory has some hundred kilobytes; archives in it must not fill /var at every switch.
const BYTES_MAX: u64 = 32 << 20;
/// Most entries in a snapshot, for the same reason.
const ENTRIES_MAX: usize = 10_000;
const INDEX_BYTES_MAX: u64 = 16 << 20;
const SCHEMA: u32 = 1;

/// An entry of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SnapshotEntry {
    mode: u32,
    uid: u32,
    gid: u32,
    #[serde(default)]
    extended: BTreeMap<String, Vec<u8>>,
    /// The digest of the content; None: a directory.
    digest: Option<Digest>,
}

impl SnapshotEntry {
    fn attributes(&self) -> Attributes {
        Attributes { mode: self.mode, uid: self.uid, gid: self.gid, extended: self.extended.clone() }
    }
}

/// The snapshot of a configuration directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    schema: u32,
    /// The switch before which it was taken.
    pub switch: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// The release that ran then; None: no release.
    pub release: Option<Release>,
    entries: BTreeMap<String, SnapshotEntry>,
}

/// The change of one path when a snapshot is put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Its content, owner, mode or label has changed and is restored.
    Written(String),
    /// It was deleted and is made again.
    Made(String),
    /// It is new and is removed. The snapshot of the present switch keeps it.
    Removed(String),
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Written(path) => write!(formatter, "{path} as it was"),
            Self::Made(path) => write!(formatter, "{path} again"),
            Self::Removed(path) => write!(formatter, "{path} removed"),
        }
    }
}

/// The entries of a configuration directory, and the contents of its files.
#[derive(Debug, Default)]
struct ConfigurationFiles {
    entries: BTreeMap<String, SnapshotEntry>,
    contents: BTreeMap<Digest, Vec<u8>>,
    bytes: u64,
}

impl ConfigurationFiles {
    fn add(&mut self, directory: &Dir, name: &OsStr, above: &Path) -> Result<(), Report> {
        let full = directory.path().join(name);
        let relative = above.join(name);
        // A file that vanishes during the read is an editor's temporary file.
        let Some(stat) = directory.stat(name)? else { return Ok(()) };
        let Some(text) = relative.to_str() else { return Err(refused(&full, "has a name that is no UTF-8")) };
        if self.entries.len() >= ENTRIES_MAX || relative.components().count() > walk::DEPTH_MAXIMUM {
            return Err(refused(directory.path(), &format!("has more than {ENTRIES_MAX} entries, or is too deep")));
        }
        let failed = |source| Report::from(OsError::new("read the attributes of", &full, source));
        match stat.kind {
            FileKind::File => {
                if stat.size.saturating_add(self.bytes) > BYTES_MAX {
                    return Err(refused(&full, &format!("makes the snapshot larger than {} MiB", BYTES_MAX >> 20)));
                }
                let content = directory.read(name, BYTES_MAX)?;
                self.bytes += content.len() as u64;
                let digest = Digest::of(&content);
                let Attributes { mode, uid, gid, extended } =
                    attributes::of(&directory.open_file(name)?).map_err(failed)?;
                self.entries.insert(text.to_owned(), SnapshotEntry { mode, uid, gid, extended, digest: Some(digest) });
                self.contents.insert(digest, content);
            }
            FileKind::Directory => {
                let child = directory.child(name)?;
                let extended = attributes::extended(child.lock_fd()?).map_err(failed)?;
                let kept = SnapshotEntry { mode: stat.mode, uid: stat.uid, gid: stat.gid, extended, digest: None };
                self.entries.insert(text.to_owned(), kept);
                for (name, _) in child.entries()? {
                    self.add(&child, &name, &relative)?;
                }
            }
            FileKind::Symlink => return Err(refused(&full, "is a link")),
            FileKind::Other => return Err(refused(&full, "is no file and no directory")),
        }
        Ok(())
    }
}

/// The snapshots of one instance.
#[derive(Debug, Clone)]
pub struct Snapshots {
    state: PathBuf,
    /// Names at the top of the configuration directory that are not configuration of the agent: keys, files of other programs.
    except: &'static [&'static str],
}

fn refused(path: &Path, why: &str) -> Report {
    Report::of(Class::Failed, format!("cannot keep a snapshot of the configuration: {} {why}", path.display()))
        .hint("keep it elsewhere, or put a file in its place")
}

impl Snapshots {
    /// Names the snapshots below an instance's state directory.
    pub fn new(state: &Path, except: &'static [&'static str]) -> Self {
        Self { state: state.to_owned(), except }
    }

    /// Reads a configuration directory.
    fn read(&self, configuration: &Dir) -> Result<ConfigurationFiles, Report> {
        let mut seen = ConfigurationFiles::default();
        for (name, _) in configuration.entries()? {
            if !self.except.iter().any(|except| *name == **except) {
                seen.add(configuration, &name, Path::new(""))?;
            }
        }
        Ok(seen)
    }

    /// Takes the snapshot of `switch`, unless it exists, and removes the oldest snapshots.
    pub fn take(
        &self,
        configuration: &Path,
        switch: u64,
        release: Option<&Release>,
        at: Timestamp,
    ) -> Result<(), Report> {
        let Some(directory) = Dir::open_if_exists(configuration)? else { return Ok(()) };
        let place = Dir::open_or_create(&self.state.join(SNAPSHOTS_NAME), 0o700)?;
        let (name, preparing) = (switch.to_string(), format!(".{switch}.new"));
        if place.stat(&name)?.is_some() {
            return Ok(());
        }
        let ConfigurationFiles { entries, contents, .. } = self.read(&directory)?;
        place.remove_tree(&preparing)?;
        place.make_dir(&preparing, 0o700)?;
        let inside = place.child(&preparing)?;
        inside.make_dir("files", 0o700)?;
        let files = inside.child("files")?;
        for (digest, content) in &contents {
            files.write_atomic(digest.to_string(), content, 0o600)?;
        }
        let snapshot = Snapshot { schema: SCHEMA, switch, at, release: release.cloned(), entries };
        let index = serde_json::to_vec(&snapshot).expect("a snapshot's keys are strings");
        inside.write_atomic("index", &index, 0o600)?;
        place.rename(&preparing, &place, &name)?;
        place.sync()?;
        let kept = self.numbers()?;
        for old in kept.iter().rev().skip(SNAPSHOTS_KEPT) {
            place.remove_tree(old.to_string())?;
        }
        Ok(())
    }

    /// The numbers of the switches with a snapshot.
    pub fn numbers(&self) -> Result<BTreeSet<u64>, Report> {
        let Some(place) = Dir::open_if_exists(&self.state.join(SNAPSHOTS_NAME))? else { return Ok(BTreeSet::new()) };
        Ok(place.names()?.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
    }

    /// Reads the snapshot of a switch; None: there is no snapshot. A damaged snapshot is an error.
    pub fn find(&self, switch: u64) -> Result<Option<Snapshot>, Report> {
        let place = self.state.join(SNAPSHOTS_NAME).join(switch.to_string());
        let Some(directory) = Dir::open_if_exists(&place)? else { return Ok(None) };
        let bytes = directory.read("index", INDEX_BYTES_MAX)?;
        let broken = "remove that directory: a rollback then does not change the configuration, and says so";
        let corrupt = |error: SavedError| Report {
            class: Class::Failed,
            message: format!("cannot use {}: {error}", place.join("index").display()),
            causes: Vec::new(),
            lines: Vec::new(),
            hint: error.hint(broken),
        };
        saved::parse(&bytes, SCHEMA).map(Some).map_err(corrupt)
    }

    /// Reads the newest snapshot that was taken while `release` ran.
    pub fn of_release(&self, release: &Release) -> Result<Option<Snapshot>, Report> {
        for switch in self.numbers()?.into_iter().rev() {
            if let Some(found) = self.find(switch)?.filter(|found| found.release.as_ref() == Some(release)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Lists the changes that [`Self::put_back`] would make.
    pub fn changes(&self, snapshot: &Snapshot, configuration: &Path) -> Result<Vec<Change>, Report> {
        let present = match Dir::open_if_exists(configuration)? {
            Some(directory) => self.read(&directory)?.entries,
            None => BTreeMap::new(),
        };
        let mut changes = Vec::new();
        for (path, kept) in &snapshot.entries {
            match present.get(path) {
                Some(found) if found == kept => {}
                Some(_) => changes.push(Change::Written(path.clone())),
                None => changes.push(Change::Made(path.clone())),
            }
        }
        let gone = present.keys().filter(|path| !snapshot.entries.contains_key(*path));
        // The entries of a directory come before the directory.
        changes.extend(gone.rev().cloned().map(Change::Removed));
        Ok(changes)
    }

    /// Restores the configuration, each changed file atomically. May be called twice.
    pub fn put_back(&self, snapshot: &Snapshot, configuration: &Path) -> Result<Vec<Change>, Report> {
        let changes = self.changes(snapshot, configuration)?;
        let root = Dir::open_or_create(configuration, 0o755)?;
        let files = self.state.join(SNAPSHOTS_NAME).join(snapshot.switch.to_string()).join("files");
        for change in &changes {
            let (Change::Written(text) | Change::Made(text) | Change::Removed(text)) = change;
            let path = Path::new(text);
            let (Some(name), parent) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else { continue };
            let parent = root.beneath(parent)?;
            let Some(kept) = snapshot.entries.get(text) else {
                parent.remove_tree(name)?;
                continue;
            };
            let is_directory = parent.stat(name)?.map(|stat| stat.kind == FileKind::Directory);
            if is_directory.is_some_and(|is| is == kept.digest.is_some()) {
                parent.remove_tree(name)?;
            }
            if let Some(digest) = &kept.digest {
                let content = Dir::open(&files)?.read(digest.to_string(), BYTES_MAX)?;
                if Digest::of(&content) != *digest {
                    return Err(refused(&files.join(digest.to_string()), "is not what was kept"));
                }
                attributes::write_atomic(&parent, name, &content, &kept.attributes())?;
            } else {
                let child = parent.child_or_create(name, kept.mode & 0o7777)?;
                attributes::apply(child.lock_fd()?, &kept.attributes())
                    .map_err(|source| OsError::new("restore", child.path(), source))?;
            }
        }
        Ok(changes)
    }
}

/// Names the first changes, for a note.
pub fn summary(changes: &[Change]) -> String {
    const NAMED_MAX: usize = 8;
    let named: Vec<String> = changes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = changes.len().saturating_sub(NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", named.join(", "))
}
