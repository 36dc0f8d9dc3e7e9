//! Ground: the directories and links through which a path leads. On trusted ground all of them belong to root or to this user, and no other user
//! may write there: the path leads where root meant it to. A group got its right from the owner, and is trusted.

use crate::os::dir::Dir;
use crate::os::{OsError, Result};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

const ROOT: u32 = 0;
/// Links on one path, as the kernel bounds them (`path_resolution(7)`): stops a ring of links.
const LINKS_MAXIMUM: u32 = 40;
/// Others may write.
const OTHERS_WRITE: u32 = 0o002;
/// Only the owner of an entry may replace the entry, as in `/tmp`.
const STICKY: u32 = 0o1000;

/// A path as far as its ground is trusted.
struct Split {
    /// Without links; its last part may be a stranger's, its name is not.
    known: PathBuf,
    /// The stat of `known`.
    metadata: Metadata,
    /// What is missing, or lies in a stranger's directory or behind his link.
    rest: PathBuf,
}

/// The path without links, if nobody but root and this user can change where it leads, and what is there. None: somebody can, or nothing is there.
pub fn trusted(path: &Path) -> Result<Option<PathBuf>> {
    let split = split(path)?;
    let is_trusted = split.rest.as_os_str().is_empty() && is_trusted(&split.metadata, None);
    Ok(is_trusted.then_some(split.known))
}

/// Who can change where a path leads, and what is there, beside root and this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// Nobody.
    Nobody,
    /// This one user, who owns it.
    User(u32),
    /// Anybody, or several users.
    Others,
}

/// Who keeps a file or directory, which is there.
pub fn keeper(path: &Path) -> Result<Keeper> {
    let is_open = |found: &Metadata| found.mode() & OTHERS_WRITE != 0;
    let split = split(path)?;
    if split.rest.as_os_str().is_empty() && is_trusted(&split.metadata, None) {
        return Ok(if is_open(&split.metadata) { Keeper::Others } else { Keeper::Nobody });
    }
    let user = split.metadata.uid();
    let of_user = split_of(path, Some(user))?;
    let is_kept = of_user.rest.as_os_str().is_empty() && is_trusted(&of_user.metadata, Some(user));
    Ok(if is_kept && !is_open(&of_user.metadata) { Keeper::User(user) } else { Keeper::Others })
}

/// True if nobody but root and this user can put a file into a directory: it is no place like `/tmp` either.
pub fn is_owners(directory: &Path) -> bool {
    let is_trusted =
        |found: &PathBuf| look(found).is_ok_and(|stat| stat.is_some_and(|stat| stat.mode() & OTHERS_WRITE == 0));
    trusted(directory).is_ok_and(|found| found.as_ref().is_some_and(is_trusted))
}

/// Opens a directory, or makes it with `mode`. Links of root and of this user are followed; another user's link is refused, and so is any link in
/// a directory of his.
pub fn open_or_create(path: &Path, mode: u32) -> Result<Dir> {
    let Split { known, rest, .. } = split(path)?;
    let mut directory = Dir::open(&known)?;
    for part in rest.components() {
        let Component::Normal(name) = part else { return Err(OsError::new("open directory", path, Errno::XDEV)) };
        directory = directory.child_or_create(name, mode)?;
    }
    Ok(directory)
}

/// The same without making it; None without a directory.
pub fn open_if_exists(path: &Path) -> Result<Option<Dir>> {
    let Split { known, rest, .. } = split(path)?;
    let mut directory = Dir::open(&known)?;
    for part in rest.components() {
        let Component::Normal(name) = part else { return Err(OsError::new("open directory", path, Errno::XDEV)) };
        let Some(next) = directory.child_if_exists(name)? else { return Ok(None) };
        directory = next;
    }
    Ok(Some(directory))
}

fn split(path: &Path) -> Result<Split> {
    split_of(path, None)
}

/// The same where one more user is trusted.
fn split_of(path: &Path, user: Option<u32>) -> Result<Split> {
    let absolute = std::path::absolute(path).map_err(|source| OsError::new("resolve", path, source))?;
    let mut open = parts(&absolute);
    let mut known = PathBuf::from("/");
    let mut metadata = look(&known)?.ok_or_else(|| OsError::new("look at", &known, Errno::NOENT))?;
    let mut links = 0;
    while metadata.is_dir() && is_trusted(&metadata, user) {
        let Some(name) = open.pop_front() else { break };
        let next = if name == ".." { known.parent().unwrap_or(Path::new("/")).to_owned() } else { known.join(&name) };
        let Some(found) = look(&next)? else {
            open.push_front(name);
            break;
        };
        if !found.is_symlink() {
            (known, metadata) = (next, found);
            continue;
        }
        if !is_ours(&found, user) {
            open.push_front(name);
            break;
        }
        links += 1;
        if links > LINKS_MAXIMUM {
            return Err(OsError::new("resolve", path, Errno::LOOP));
        }
        let target = std::fs::read_link(&next).map_err(|source| OsError::new("read link", &next, source))?;
        for part in parts(&target).into_iter().rev() {
            open.push_front(part);
        }
        if target.is_absolute() {
            known = PathBuf::from("/");
            metadata = look(&known)?.ok_or_else(|| OsError::new("look at", &known, Errno::NOENT))?;
        }
    }
    Ok(Split { known, metadata, rest: open.into_iter().collect() })
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let is_step = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_step).map(|part| part.as_os_str().to_owned()).collect()
}

fn look(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OsError::new("look at", path, error)),
    }
}

fn is_ours(metadata: &Metadata, user: Option<u32>) -> bool {
    Some(metadata.uid()) == user || metadata.uid() == ROOT || metadata.uid() == rustix::process::geteuid().as_raw()
}

fn is_trusted(metadata: &Metadata, user: Option<u32>) -> bool {
    let is_open = metadata.mode() & OTHERS_WRITE != 0 && !(metadata.is_dir() && metadata.mode() & STICKY != 0);
    is_ours(metadata, user) && !is_open
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn open_to_all(path: &Path) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }

    #[test]
    fn what_others_may_write_is_no_ground_and_a_path_through_it_is_none() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().canonicalize().unwrap();
        fs::create_dir(place.join("own")).unwrap();
        fs::write(place.join("own/program"), "").unwrap();
        symlink("own/../own", place.join("link")).unwrap();
        symlink("ring", place.join("ring")).unwrap();
        open_to_all(&place.join("open"));
        fs::write(place.join("open/program"), "").unwrap();
        symlink(place.join("open"), place.join("own/out")).unwrap();
        let of = |path: &str| trusted(&place.join(path)).unwrap();
        assert_eq!(of("own/program"), Some(place.join("own/program")));
        assert_eq!(of("link/program"), Some(place.join("own/program")));
        for bad in ["open", "open/program", "link/out/program", "own/missing", "own/program/below"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert!(trusted(&place.join("ring")).is_err());
        let kept = |path: &str| keeper(&place.join(path)).unwrap();
        assert_eq!((kept("link/program"), kept("open/program")), (Keeper::Nobody, Keeper::Others));
        if rustix::process::geteuid().is_root() {
            // A package's tree may belong to the package's user.
            std::os::unix::fs::chown(place.join("own"), Some(1), None).unwrap();
            assert_eq!((of("own/program"), kept("own/program")), (None, Keeper::User(1)));
            std::os::unix::fs::chown(place.join("own/program"), Some(2), None).unwrap();
            assert_eq!(kept("own/program"), Keeper::Others, "two users");
        }
    }

    #[test]
    fn a_link_in_a_directory_of_others_is_not_followed_and_roots_own_link_is() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path();
        for own in ["data", "victim"] {
            fs::create_dir(place.join(own)).unwrap();
        }
        open_to_all(&place.join("data/cache"));
        symlink("data", place.join("var")).unwrap();
        symlink(place.join("victim"), place.join("data/cache/extmods")).unwrap();
        let refused = open_or_create(&place.join("var/cache/extmods/grains"), 0o755).unwrap_err();
        assert!(refused.to_string().contains("it is a link"), "{refused}");
        assert!(open_if_exists(&place.join("var/cache/extmods")).is_err());
        assert_eq!(fs::read_dir(place.join("victim")).unwrap().count(), 0);
        open_or_create(&place.join("var/cache/other/grains"), 0o755).unwrap();
        assert!(place.join("data/cache/other/grains").is_dir());
        assert!(open_if_exists(&place.join("var/cache/other/grains")).unwrap().is_some());
        assert!(open_if_exists(&place.join("var/cache/none")).unwrap().is_none());
    }
}
