//! Moves rebuilt extras into place. The files that mark a package as installed are moved last, so that no crash leaves a package that looks complete
//! and is not. Of what is there it removes the files of an earlier version that a package no longer has, and nothing else.

use crate::os::OsError;
use crate::os::dir::{Dir, FileKind};
use crate::rehearsal::extras::Building;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Largest list of a package's files that is read: two hundred thousand files.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Refuses a place to which nothing in `work` can be moved by a rename, before anything is built.
pub(super) fn refuse_other_file_system(work: &Dir, into: &Path) -> Result<(), String> {
    let devices = || {
        for path in into.ancestors() {
            if let Some(there) = Dir::open_if_exists(path)? {
                return Ok((there.stat_self()?.device, work.stat_self()?.device));
            }
        }
        let device = work.stat_self()?.device;
        Ok((device, device))
    };
    let (there, here) = devices().map_err(|error: OsError| error.to_string())?;
    if there == here {
        return Ok(());
    }
    let (into, work) = (into.display(), work.path().display());
    Err(format!("{into} lies on another file system than {work}, from where the packages are moved there at once"))
}

/// Moves the extras into place: in one step if the place does not exist, else entry by entry, with the seals last.
pub(super) fn lay(work: &Dir, building: &Building, former: &Path) -> Result<(), OsError> {
    let name = |path: &Path| path.file_name().map(OsStr::to_owned).unwrap_or_default();
    let built = work.child(name(&building.built))?;
    // Files must be on disk before a seal marks them as complete.
    built.sync_filesystem()?;
    let parent = building.into.parent().unwrap_or_else(|| Path::new("/"));
    let parent = Dir::open_or_create(parent, 0o755)?;
    // A link at this place is not followed: it may belong to another user.
    if let Some(there) = parent.child_if_exists(name(&building.into))? {
        return merge_all(&built, &there, building);
    }
    let owner = Dir::open(former)?.stat_self()?.uid;
    if building.keeps_owner && owner != built.stat_self()?.uid {
        built.set_owner(owner)?;
    }
    work.rename_exclusive(name(&building.built), &parent, name(&building.into))?;
    parent.sync()
}

fn merge_all(built: &Dir, there: &Dir, building: &Building) -> Result<(), OsError> {
    let (seals, others): (Vec<_>, Vec<_>) = built.names()?.into_iter().partition(|name| is_seal(building, name));
    // Under names that no tool takes for a package: if this ends half way, nothing looks complete, and the next attempt has the lists of files.
    for earlier in earlier_seals(there, building, &seals)? {
        let aside = stale_name(&earlier);
        there.remove_tree(&aside)?;
        there.rename(&earlier, there, &aside)?;
    }
    there.sync()?;
    let stale = stale_seals(there, building, &seals)?;
    for earlier in &stale {
        remove_stale(built, there, building, earlier)?;
    }
    for name in &others {
        merge(built, there, name)?;
    }
    there.sync()?;
    for earlier in &stale {
        there.remove_tree(earlier)?;
    }
    for name in &seals {
        merge(built, there, name)?;
    }
    there.sync()
}

fn is_seal(building: &Building, name: &OsStr) -> bool {
    building.seals.iter().any(|end| name.to_string_lossy().ends_with(end))
}

/// Whether a name is the seal of a package of the new seals, whatever its version.
fn is_of(building: &Building, name: &OsStr, seals: &[OsString]) -> bool {
    let package =
        |name: &OsStr| name.to_string_lossy().split('-').next().unwrap_or_default().to_lowercase().replace('.', "_");
    is_seal(building, name) && seals.iter().any(|seal| package(seal) == package(name))
}

fn earlier_seals(there: &Dir, building: &Building, seals: &[OsString]) -> Result<Vec<OsString>, OsError> {
    Ok(there.names()?.into_iter().filter(|name| is_of(building, name, seals)).collect())
}

const STALE_END: &str = ".stale";

fn stale_name(seal: &OsStr) -> OsString {
    OsString::from(format!(".{}{STALE_END}", seal.to_string_lossy()))
}

/// The same of those that this or an earlier attempt has put aside.
fn stale_seals(there: &Dir, building: &Building, seals: &[OsString]) -> Result<Vec<OsString>, OsError> {
    let mut found = Vec::new();
    for name in there.names()? {
        let seal = name.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(STALE_END));
        if seal.is_some_and(|seal| is_of(building, OsStr::new(seal), seals)) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Removes the files of an earlier version that no new package has: the agent would load them as modules of the new version. No link is followed.
fn remove_stale(built: &Dir, there: &Dir, building: &Building, seal: &OsStr) -> Result<(), OsError> {
    if there.stat(seal)?.is_none_or(|stat| stat.kind != FileKind::Directory) {
        return Ok(());
    }
    let Some(record) = there.child(seal)?.read_if_exists(building.record, RECORD_BYTES_MAX)? else { return Ok(()) };
    for path in String::from_utf8_lossy(&record).lines().filter_map(listed) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let is_of_seal = path.iter().next().is_some_and(|first| is_seal(building, first));
        let has = |dir: &Dir| dir.beneath(parent).and_then(|inner| inner.stat(name)).ok().flatten();
        let is_file = has(there).is_some_and(|stat| [FileKind::File, FileKind::Symlink].contains(&stat.kind));
        let is_replaced = has(built).is_some_and(|stat| stat.kind != FileKind::Directory);
        if is_of_seal || !is_file || is_replaced {
            continue;
        }
        there.beneath(parent)?.remove_file(name)?;
        remove_empty(there, parent)?;
    }
    Ok(())
}

/// Removes a directory, and those above it, if they are empty: an empty one can be imported, too.
fn remove_empty(there: &Dir, directory: &Path) -> Result<(), OsError> {
    for directory in directory.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if !there.beneath(directory)?.names()?.is_empty() {
            break;
        }
        let parent = there.beneath(directory.parent().unwrap_or_else(|| Path::new("")))?;
        parent.remove_tree(directory.file_name().unwrap_or_default())?;
    }
    Ok(())
}

/// The path in a line of a list of files (CSV, as pip writes RECORD); None: it leads elsewhere.
fn listed(line: &str) -> Option<PathBuf> {
    let path = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\",")?.0.replace("\"\"", "\""),
        None => line.split(',').next()?.to_owned(),
    };
    let path = PathBuf::from(path);
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_inside && !path.as_os_str().is_empty()).then_some(path)
}

/// Moves an entry; merges it into an existing directory. An existing file is replaced: it belongs to an incomplete or an earlier package.
fn merge(from: &Dir, to: &Dir, name: &OsStr) -> Result<(), OsError> {
    let is_directory = |dir: &Dir| Ok(dir.stat(name)?.is_some_and(|stat| stat.kind == FileKind::Directory));
    if !(is_directory(from)? && is_directory(to)?) {
        return from.rename(name, to, name);
    }
    let (inner, there) = (from.child(name)?, to.child(name)?);
    for entry in inner.names()? {
        merge(&inner, &there, &entry)?;
    }
    there.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_another_file_system_is_refused_before_anything_is_built() {
        let work = tempfile::tempdir().unwrap();
        let dir = Dir::open(work.path()).unwrap();
        refuse_other_file_system(&dir, &work.path().join("not/yet")).unwrap();
        let refused = refuse_other_file_system(&dir, Path::new("/proc/none/extras")).unwrap_err();
        assert!(refused.starts_with("/proc/none/extras lies on another file system than /"), "{refused}");
    }
}
