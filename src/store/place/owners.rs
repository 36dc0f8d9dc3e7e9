//! The owners of sidle's directories. A file that another user owns or may write to can have any content when it is used.

use crate::layout::{self, Layout};
use crate::os::dir::{Dir, FileKind, FileStat};
use crate::os::{OsError, file, process};
use std::fmt;
use std::path::{Path, PathBuf};

const ROOT: u32 = 0;
const GROUP: &str = "a group";
/// Mode of a private directory.
const CLOSED_DIRECTORY: u32 = 0o700;
/// In such a directory each user may remove only his own entries (`inode(7)`).
const STICKY: u32 = 0o1000;

/// A place that another user controls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// Its owner is neither root nor the caller.
    Owner { name: String, number: u32 },
    /// Others may write to it.
    Writable { by: &'static str, mode: u32 },
}

impl Foreign {
    /// Whether sidle refuses to work there. A group got its right from the owner: that is only reported.
    pub fn is_refused(&self) -> bool {
        !matches!(self.why, Why::Writable { by: GROUP, .. })
    }

    /// The remedy.
    pub fn remedy(&self) -> String {
        let path = self.path.display();
        match &self.why {
            Why::Owner { .. } => format!("check its content, then `chown root: {path}`"),
            Why::Writable { .. } => format!("check its content, then `chmod go-w {path}`"),
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Owner { name, number } => write!(formatter, "{path} belongs to {name} (user {number})"),
            Why::Writable { by, mode } => write!(formatter, "{path} may be written to by {by} (mode {mode:04o})"),
        }
    }
}

/// All of sidle's places below the root that another user controls.
pub fn check(layout: &Layout) -> Result<Vec<Foreign>, OsError> {
    let mut foreign = Vec::new();
    for path in places(layout)? {
        foreign.extend(check_one(&path)?);
    }
    Ok(foreign)
}

/// The same for one place; None also if it does not exist.
pub fn check_one(path: &Path) -> Result<Option<Foreign>, OsError> {
    let why = file::stat(path)?.and_then(|stat| judge(&stat, process::user(), process::group()));
    Ok(why.map(|why| Foreign { path: path.to_owned(), why }))
}

/// A place of this user or root, or a directory above it, that another user controls. Links must be resolved already. A directory in which
/// everybody may write, and remove only his own entries (`/tmp`), is no danger to what is below it.
pub fn check_way(path: &Path) -> Result<Option<Foreign>, OsError> {
    for (number, part) in path.ancestors().enumerate() {
        let found = file::stat(part)?.and_then(|stat| judge_way(number == 0, &stat, process::user(), process::group()));
        if let Some(why) = found {
            return Ok(Some(Foreign { path: part.to_owned(), why }));
        }
    }
    Ok(None)
}

/// Makes the staging directories private again.
pub fn close_staging(layout: &Layout) -> Result<(), OsError> {
    for package in directories_in(&layout.packages())? {
        let staging = package.join(layout::STAGING);
        let open = file::stat(&staging)?.filter(|stat| stat.uid == process::user() && stat.mode != CLOSED_DIRECTORY);
        if open.is_some_and(|stat| stat.kind == FileKind::Directory) {
            Dir::open(&package)?.child(layout::STAGING)?.set_own_mode(CLOSED_DIRECTORY)?;
        }
    }
    Ok(())
}

/// A group's right to write counts as another user's, except for root's own group, and for a plain caller's own group.
fn judge(stat: &FileStat, user: u32, group: u32) -> Option<Why> {
    let mode = stat.mode;
    if stat.uid != ROOT && stat.uid != user {
        return Some(Why::Owner { name: process::user_name(stat.uid), number: stat.uid });
    }
    if mode & 0o002 != 0 {
        return Some(Why::Writable { by: "everybody", mode });
    }
    let is_own_group = stat.gid == ROOT || (user != ROOT && stat.gid == group);
    (mode & 0o020 != 0 && !is_own_group).then_some(Why::Writable { by: GROUP, mode })
}

fn judge_way(is_last: bool, stat: &FileStat, user: u32, group: u32) -> Option<Why> {
    if is_last && stat.uid != user {
        return Some(Why::Owner { name: process::user_name(stat.uid), number: stat.uid });
    }
    let is_shared = !is_last && stat.mode & STICKY != 0;
    judge(stat, user, group).filter(|why| !(is_shared && matches!(why, Why::Writable { .. })))
}

fn places(layout: &Layout) -> Result<Vec<PathBuf>, OsError> {
    let state = layout.state();
    let mut places = vec![layout.settings(), layout.packages(), layout.trust(), layout.cache()];
    places.push(layout.settings_file().map_or_else(|| layout.main_settings(), Path::to_owned));
    for fragments in layout.fragments() {
        let of_settings = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
        places.extend(entries_in(&fragments)?.into_iter().filter(of_settings));
        places.push(fragments);
    }
    for package in directories_in(&layout.packages())? {
        places.extend([layout::VERSIONS, layout::STAGING].map(|name| package.join(name)));
        places.push(package);
    }
    places.extend(directories_in(&state)?);
    places.extend(directories_in(&layout.instances())?);
    let run = layout.root().join("run/sidle");
    places.extend(directories_in(&run)?);
    places.extend([state, run]);
    places.sort();
    places.dedup();
    Ok(places)
}

fn entries_in(path: &Path) -> Result<Vec<PathBuf>, OsError> {
    let Some(directory) = Dir::open_if_exists(path)? else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    for path in directory.names()?.into_iter().map(|name| path.join(name)) {
        // A link to /dev/null masks a fragment; everybody may write to that device.
        if file::stat(&path)?.is_none_or(|stat| stat.kind != FileKind::Other) {
            entries.push(path);
        }
    }
    Ok(entries)
}

fn directories_in(path: &Path) -> Result<Vec<PathBuf>, OsError> {
    let Some(directory) = Dir::open_if_exists(path)? else { return Ok(Vec::new()) };
    let directories = directory.entries()?.into_iter().filter(|(_, kind)| *kind == FileKind::Directory);
    Ok(directories.map(|(name, _)| path.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> FileStat {
        FileStat {
            kind: FileKind::Directory,
            mode: 0o755,
            size: 0,
            uid: 0,
            gid: 0,
            device: 0,
            inode: 0,
            links: 1,
            mtime: (0, 0),
            ctime: (0, 0),
        }
    }

    #[test]
    fn the_way_to_a_private_directory_is_in_nobody_elses_hands() {
        let stat = |uid, mode| FileStat { mode, uid, ..directory() };
        for (is_last, good, stat) in [
            (true, true, stat(1000, 0o700)),
            (true, false, stat(0, 0o755)),
            (true, false, stat(1001, 0o700)),
            (true, false, stat(1000, 0o777)),
            (true, false, stat(1000, 0o1777)),
            (false, true, stat(0, 0o755)),
            (false, true, stat(1000, 0o755)),
            (false, true, stat(0, 0o1777)),
            (false, false, stat(0, 0o777)),
            (false, false, stat(1001, 0o755)),
            (false, false, stat(1001, 0o1777)),
        ] {
            assert_eq!(judge_way(is_last, &stat, 1000, 1000).is_none(), good, "{is_last} {stat:?}");
        }
        for (good, stat) in [(true, stat(0, 0o700)), (false, stat(1000, 0o700))] {
            assert_eq!(judge_way(true, &stat, 0, 0).is_none(), good, "root: {stat:?}");
            assert_eq!(judge_way(false, &stat, 0, 0).is_none(), good, "root: {stat:?}");
        }
    }

    #[test]
    fn roots_own_group_and_a_users_own_group_may_write_and_nobody_else() {
        let stat = |uid, gid, mode| FileStat { mode, uid, gid, ..directory() };
        for (good, stat) in [
            (true, stat(0, 0, 0o755)),
            (true, stat(0, 0, 0o775)),
            (true, stat(0, 100, 0o755)),
            (false, stat(0, 100, 0o775)),
            (false, stat(0, 0, 0o757)),
            (false, stat(1000, 0, 0o755)),
        ] {
            assert_eq!(judge(&stat, 0, 0).is_none(), good, "root: {stat:?}");
        }
        for (good, stat) in [
            (true, stat(1000, 1000, 0o775)),
            (true, stat(0, 0, 0o755)),
            (false, stat(1000, 100, 0o775)),
            (false, stat(1000, 1000, 0o777)),
            (false, stat(1001, 1000, 0o755)),
        ] {
            assert_eq!(judge(&stat, 1000, 1000).is_none(), good, "a plain user: {stat:?}");
        }
    }
}
