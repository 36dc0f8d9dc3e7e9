//! The stat of an entry.

use rustix::fs::FileType;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Other,
}

/// The stat of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky bits included.
    pub mode: u32,
    /// Length, bytes.
    pub size: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device that holds it.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Hard links.
    pub links: u64,
    /// Last change of content: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Last change of the inode: seconds and nanoseconds.
    pub ctime: (i64, u32),
}

impl FileKind {
    pub(in crate::os) fn of(file_type: FileType) -> Self {
        match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

impl From<rustix::fs::Stat> for FileStat {
    #[cfg_attr(
        target_arch = "x86_64",
        expect(clippy::useless_conversion, reason = "the count of links has 32 bits on aarch64")
    )]
    fn from(stat: rustix::fs::Stat) -> Self {
        Self {
            kind: FileKind::of(FileType::from_raw_mode(stat.st_mode)),
            mode: stat.st_mode & 0o7777,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            uid: stat.st_uid,
            gid: stat.st_gid,
            device: stat.st_dev,
            inode: stat.st_ino,
            links: stat.st_nlink.into(),
            mtime: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            ctime: (stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        }
    }
}
