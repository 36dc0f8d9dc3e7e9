//! Walks a tree in one order on every machine: parents before children, siblings by the bytes of their names. Links are not followed.

use crate::os::Result;
use crate::os::dir::{Dir, FileKind, FileStat};
use std::path::{Path, PathBuf};

/// An entry.
#[derive(Debug)]
pub struct Walked {
    /// Path relative to the walk's root.
    pub path: PathBuf,
    /// Its stat.
    pub stat: FileStat,
}

/// Deepest tree walked. Stops a loop that a bind mount or a broken file system makes.
pub const DEPTH_MAXIMUM: usize = 64;

/// All entries below `root`. An entry that is removed meanwhile is left out.
pub fn walk(root: &Dir) -> Result<Vec<Walked>> {
    let mut found = Vec::new();
    descend(root, Path::new(""), 0, &mut found)?;
    Ok(found)
}

fn descend(dir: &Dir, relative: &Path, depth: usize, found: &mut Vec<Walked>) -> Result<()> {
    if depth > DEPTH_MAXIMUM {
        return Err(crate::os::OsError::new("walk below", dir.path(), rustix::io::Errno::LOOP));
    }
    for (name, _) in dir.entries()? {
        let Some(stat) = dir.stat(&name)? else { continue };
        let path = relative.join(&name);
        found.push(Walked { path: path.clone(), stat });
        if stat.kind == FileKind::Directory {
            descend(&dir.child(&name)?, &path, depth + 1, found)?;
        }
    }
    Ok(())
}

/// Makes the content of every file below survive a power cut.
pub fn sync_files(root: &Dir) -> Result<()> {
    for entry in walk(root)?.into_iter().filter(|entry| entry.stat.kind == FileKind::File) {
        let parent = root.beneath(entry.path.parent().unwrap_or(Path::new("")))?;
        let name = entry.path.file_name().unwrap_or_default();
        crate::os::file::sync(&parent.open_file(name)?)
            .map_err(|source| crate::os::OsError::new("sync", &root.path().join(&entry.path), source))?;
    }
    Ok(())
}
