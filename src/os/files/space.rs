//! Free bytes and inodes of a file system.

/// What a file system has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// The device number, which two directories of one file system share.
    pub device: u64,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Inodes left; None where the file system makes them as needed (btrfs) or doesn't say.
    pub free_inodes: Option<u64>,
    /// Allocation unit, bytes.
    pub block_size: u64,
    /// True when the file system is mounted with noexec.
    pub no_exec: bool,
}

/// Bytes that are about to be written, and where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// The device number of the file system.
    pub device: u64,
    /// How many.
    pub bytes: u64,
}

impl Space {
    pub(in crate::os) fn of(fd: impl std::os::fd::AsFd) -> rustix::io::Result<Self> {
        let (stat, device) = (rustix::fs::fstatvfs(&fd)?, rustix::fs::fstat(&fd)?.st_dev);
        Ok(Self {
            device,
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            free_inodes: (stat.f_files > 0).then_some(stat.f_favail),
            block_size: stat.f_frsize,
            no_exec: stat.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC),
        })
    }
}
