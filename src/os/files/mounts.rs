//! Mounts: the mount of a path, and further mounts of a directory, whose files a bind mount keeps in use under another path.

use crate::os::{OsError, Result};
use std::path::{Path, PathBuf};

/// A mount (proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    device: String,
    /// The directory of its file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The type of its file system: `ext4`, `tmpfs`, `fuse.sshfs`.
    pub kind: String,
    /// Of an overlay: the directory that takes what is written, as whoever mounted it named it.
    pub upper: Option<PathBuf>,
    /// Mounted read-only.
    pub is_read_only: bool,
    /// Mounted with noexec.
    pub is_no_exec: bool,
}

/// The mount of a canonical path; None: unknown, as below a chroot whose root is no mount.
pub fn mount_of(path: &Path) -> Result<Option<Mount>> {
    Ok(home(path, &all("self")?).cloned())
}

/// The mount of the first process's `/`; None: unknown.
pub fn mount_of_first_root() -> Option<Mount> {
    home(Path::new("/"), &all("1").ok()?).cloned()
}

fn all(process: &str) -> Result<Vec<Mount>> {
    let path = Path::new("/proc").join(process).join("mountinfo");
    let text = std::fs::read_to_string(&path).map_err(|source| OsError::new("read", &path, source))?;
    Ok(text.lines().filter_map(Mount::of_line).collect())
}

/// The last of the longest: a later mount covers an earlier one.
fn home<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// The mount points that keep `directory` in use: where it, or something in it, is mounted a second time, and those inside it, whose files would be deleted with it.
pub fn holding(directory: &Path) -> Result<Vec<PathBuf>> {
    let mounts = all("self")?;
    Ok([elsewhere(directory, &mounts), inside(directory, &mounts)].concat())
}

fn inside(directory: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let is_inside = |mount: &&Mount| mount.point != directory && mount.point.starts_with(directory);
    mounts.iter().filter(is_inside).map(|mount| mount.point.clone()).collect()
}

fn elsewhere(directory: &Path, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(home) = home(directory, mounts) else { return Vec::new() };
    let Ok(relative) = directory.strip_prefix(&home.point) else { return Vec::new() };
    let inside = home.root.join(relative);
    let other =
        |mount: &&Mount| mount.point != home.point && mount.device == home.device && mount.root.starts_with(&inside);
    mounts.iter().filter(other).map(|mount| mount.point.clone()).collect()
}

impl Mount {
    /// Reads a line of mountinfo, `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`: device, root within the file system, mount
    /// point, options; behind the dash the type, the source and the file system's own options (proc(5)). None: it is no such line.
    pub fn of_line(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let device = fields.next()?.to_owned();
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let options = fields.next()?.split(',').chain(system.split(' ').nth(2).unwrap_or("").split(','));
        let has = |wanted: &str| options.clone().any(|option| option == wanted);
        let (is_read_only, is_no_exec) = (has("ro"), has("noexec"));
        let upper = options.clone().find_map(|option| option.strip_prefix("upperdir=")).map(unescaped);
        Some(Self { device, root, point, kind: system.split(' ').next()?.to_owned(), upper, is_read_only, is_no_exec })
    }
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
        let text = "1 0 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                    2 1 254:0 /opt/sidle/p/versions/1-1/lib /srv/b\\040c rw - ext4 /dev/vda rw\n\
                    3 1 0:5 / /opt/other rw - tmpfs tmpfs rw";
        let mounts: Vec<Mount> = text.lines().filter_map(Mount::of_line).collect();
        assert_eq!(elsewhere(Path::new("/opt/sidle/p/versions/1-1"), &mounts), [PathBuf::from("/srv/b c")]);
        assert_eq!(elsewhere(Path::new("/opt/sidle/p/versions/2-1"), &mounts), Vec::<PathBuf>::new());
        assert_eq!(inside(Path::new("/opt"), &mounts), [PathBuf::from("/opt/other")]);
        assert!(inside(Path::new("/opt/other"), &mounts).is_empty() && inside(Path::new("/op"), &mounts).is_empty());
        let home = home(Path::new("/opt/other/x"), &mounts).unwrap();
        assert_eq!((home.kind.as_str(), home.is_read_only, home.is_no_exec), ("tmpfs", false, false));
    }

    #[test]
    fn a_mount_tells_its_type_and_whether_it_can_be_written() {
        let text = "1 0 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
                    2 1 254:0 /@/.snapshots/7/snapshot /a ro,relatime - btrfs /dev/vda rw,subvol=/x\n\
                    3 1 0:5 / /a/b rw - fuse.sshfs host:/b rw,user_id=0\n\
                    4 1 0:6 / /c rw,noexec - nfs4 host:/c ro,vers=4";
        let mounts: Vec<Mount> = text.lines().filter_map(Mount::of_line).collect();
        let told = |path: &str| home(Path::new(path), &mounts).map(|mount| (mount.kind.as_str(), mount.is_read_only));
        let overlay =
            "1 0 0:5 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/run/live/a\\040b,workdir=/run/live/w";
        assert_eq!(Mount::of_line(overlay).unwrap().upper, Some(PathBuf::from("/run/live/a b")));
        assert_eq!(mounts[0].upper, None);
        assert_eq!(told("/opt"), Some(("ext4", false)));
        assert_eq!(told("/a/x"), Some(("btrfs", true)));
        assert_eq!(told("/a/b/c"), Some(("fuse.sshfs", false)));
        assert_eq!(told("/c"), Some(("nfs4", true)));
        assert!(home(Path::new("/c"), &mounts).unwrap().is_no_exec);
        assert_eq!(home(Path::new("/a"), &mounts).unwrap().root, Path::new("/@/.snapshots/7/snapshot"));
    }
}
