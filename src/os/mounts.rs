//! Where a directory is mounted a second time: a bind mount keeps its files in use under another path.

use super::{OsError, Result};
use std::path::{Path, PathBuf};

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: String,
    root: PathBuf,
    point: PathBuf,
}

/// Mount points, other than the one that `directory` lies on, at which `directory` or something in it is mounted.
pub fn mounted_elsewhere(directory: &Path) -> Result<Vec<PathBuf>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = std::fs::read_to_string(path).map_err(|source| OsError::new("read", path, source))?;
    let mounts: Vec<Mount> = text.lines().filter_map(parse).collect();
    Ok(elsewhere(directory, &mounts))
}

fn elsewhere(directory: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    // The last of the longest: a later mount covers an earlier one.
    let home = mounts
        .iter()
        .filter(|mount| directory.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.components().count());
    let Some(home) = home else { return Vec::new() };
    let Ok(relative) = directory.strip_prefix(&home.point) else { return Vec::new() };
    let inside = home.root.join(relative);
    let other =
        |mount: &&Mount| mount.point != home.point && mount.device == home.device && mount.root.starts_with(&inside);
    mounts.iter().filter(other).map(|mount| mount.point.clone()).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime …`: device, root within the file system, mount point (proc(5)).
fn parse(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(2);
    let device = fields.next()?.to_owned();
    Some(Mount { device, root: unescaped(fields.next()?), point: unescaped(fields.next()?) })
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
    }
}
