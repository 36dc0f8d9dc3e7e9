//! SELinux labels of files, which the kernel keeps in an extended attribute.

use crate::os::dir::Dir;
use crate::os::{OsError, Result};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;

/// The kernel's own limit for the value of an attribute.
const LABEL_BYTES_MAX: usize = 64 << 10;

/// The attribute that holds an SELinux label.
const LABEL: &str = "security.selinux";

/// Gives an entry below a directory (a link itself, not its target) this SELinux label. Nobody else may write to the directory.
pub fn set(directory: &Dir, relative: &Path, label: &str) -> Result<()> {
    let path = directory.path().join(relative);
    // With the zero byte at its end, as libselinux writes it.
    let value = [label.as_bytes(), b"\0"].concat();
    rustix::fs::lsetxattr(&path, LABEL, &value, XattrFlags::empty())
        .map_err(|errno| OsError::new("set the SELinux label of", &path, errno))
}

/// The SELinux label of a directory; None: it has none that can be read.
pub fn of(directory: &Dir) -> Option<String> {
    let mut value = vec![0_u8; LABEL_BYTES_MAX];
    let length = rustix::fs::fgetxattr(directory, LABEL, &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).trim_end_matches('\0').to_owned())
}

/// Whether the kernel or the file system does not let this process set a label.
pub fn is_refusal(error: &OsError) -> bool {
    matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported)
        || error.answer.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}
