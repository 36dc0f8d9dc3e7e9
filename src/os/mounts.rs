//! What is mounted where: the file system that a directory lies on, and a bind mount that keeps its files in use under another path.

use super::{OsError, Result};
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    root: PathBuf,
    point: PathBuf,
    options: Vec<String>,
    kind: String,
}

/// The file system that a directory lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its kind: `ext4`.
    pub kind: String,
    /// Nobody may write.
    pub read_only: bool,
    /// Nobody may run programs from it.
    pub no_exec: bool,
}

/// The file system that `directory` (a real path) lies on; None where this process sees no mounts.
pub fn file_system(directory: &Path) -> Result<Option<FileSystem>> {
    Ok(home(directory, &all()?).map(|mount| {
        let has = |option: &str| mount.options.iter().any(|found| found == option);
        FileSystem {
            point: mount.point.clone(),
            kind: mount.kind.clone(),
            read_only: has("ro"),
            no_exec: has("noexec"),
        }
    }))
}

fn all() -> Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = std::fs::read_to_string(path).map_err(|source| OsError::new("read", path, source))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// Mount points, other than the one that `directory` lies on, at which `directory` or something in it is mounted.
pub fn mounted_elsewhere(directory: &Path) -> Result<Vec<PathBuf>> {
    Ok(elsewhere(directory, &all()?))
}

/// The mount that a directory lies on: the last of the longest, as a later mount covers an earlier one.
fn home<'a>(directory: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| directory.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

fn elsewhere(directory: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(home) = home(directory, mounts) else { return Vec::new() };
    let Ok(relative) = directory.strip_prefix(&home.point) else { return Vec::new() };
    let inside = home.root.join(relative);
    let other =
        |mount: &&Mount| mount.point != home.point && mount.device == home.device && mount.root.starts_with(&inside);
    mounts.iter().filter(other).map(|mount| mount.point.clone()).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime … - ext3 /dev/root rw`: device, root within the file system, mount point, the mount's options, after a
/// hyphen the kind, the source and the file system's options (proc(5)).
fn parse(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let mut behind = file_system.split(' ');
    let (device, root, point) = (fields.next()?.to_owned(), unescaped(fields.next()?), unescaped(fields.next()?));
    let options = fields.next()?.split(',').chain(behind.clone().nth(2).unwrap_or_default().split(','));
    let options = options.map(str::to_owned).collect();
    Some(Mount { device, root, point, options, kind: behind.next()?.to_owned() })
}

/// Blanks and backslashes are written as octal numbers.
fn unescaped(text: &str) -> PathBuf {
    PathBuf::from(text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_mount_of_a_part_is_found_and_the_home_mount_is_not() {
        let text = "1 0 254:0 / / rw - ext4 /dev/vda rw\n\
                    2 1 254:0 /opt/sidle/p/versions/1-1/lib /srv/b\\040c rw - ext4 /dev/vda rw\n\
                    3 1 0:5 / /opt/other rw - tmpfs tmpfs rw";
        let mounts: Vec<Mount> = text.lines().filter_map(parse).collect();
        assert_eq!(elsewhere(Path::new("/opt/sidle/p/versions/1-1"), &mounts), [PathBuf::from("/srv/b c")]);
        assert_eq!(elsewhere(Path::new("/opt/sidle/p/versions/2-1"), &mounts), Vec::<PathBuf>::new());
        let home = home(Path::new("/opt/other/x"), &mounts).unwrap();
        assert_eq!((home.kind.as_str(), home.options.contains(&"rw".to_owned())), ("tmpfs", true));
    }
}
