//! Files with their owner, mode and extended attributes (labels, access lists): read, and written back whole.

use crate::os::dir::Dir;
use crate::os::{OsError, Result, file};
use rustix::fs::{Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;

/// More than any file's attributes come to; the kernel's own limit for one value and for the list of names.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// What belongs to a file beside its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes.
    pub extended: BTreeMap<String, Vec<u8>>,
}

/// The extended attributes of an open file or directory; none where the file system has none.
pub fn extended(file: impl AsFd) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut names = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    let length = match rustix::fs::flistxattr(&file, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(BTreeMap::new()),
        Err(errno) => return Err(errno.into()),
    };
    let mut found = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let mut value = vec![0_u8; ATTRIBUTE_BYTES_MAX];
        match rustix::fs::fgetxattr(&file, name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                found.insert(name.to_owned(), value);
            }
            // Gone between the two calls, or listed but not for this user.
            Err(Errno::NODATA | Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(found)
}

/// Replaces the file `name` atomically, with these attributes.
pub fn write_atomic(directory: &Dir, name: &OsStr, bytes: &[u8], attributes: &Attributes) -> Result<()> {
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".sidle-new");
    directory.remove_file(&temporary)?;
    let mut file = directory.create_file(&temporary, 0o600)?;
    let written = file.write_all(bytes).and_then(|()| apply(&file, attributes)).and_then(|()| file::sync(&file));
    if let Err(source) = written {
        directory.remove_file(&temporary)?;
        return Err(OsError::new("write", &directory.path().join(name), source));
    }
    directory.rename(&temporary, directory, name)?;
    directory.sync()
}

/// Gives an open file or directory these attributes. The mode comes last: a change of the owner takes bits away.
pub fn apply(file: impl AsFd, attributes: &Attributes) -> std::io::Result<()> {
    rustix::fs::fchown(&file, Some(Uid::from_raw(attributes.uid)), Some(Gid::from_raw(attributes.gid)))?;
    for (name, value) in &attributes.extended {
        rustix::fs::fsetxattr(&file, name.as_str(), value, XattrFlags::empty())?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(attributes.mode))?;
    Ok(())
}

/// What belongs to an open file beside its content.
pub fn of(file: &File) -> std::io::Result<Attributes> {
    let stat = rustix::fs::fstat(file)?;
    Ok(Attributes { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid, extended: extended(file)? })
}

/// The attribute that holds an SELinux label.
const LABEL: &str = "security.selinux";

/// Gives an entry below a directory (a link itself, not its target) this SELinux label. Nobody else may write to the directory.
pub fn set_label(directory: &Dir, relative: &Path, label: &str) -> Result<()> {
    let path = directory.path().join(relative);
    // With the zero byte at its end, as libselinux writes it.
    let value = [label.as_bytes(), b"\0"].concat();
    rustix::fs::lsetxattr(&path, LABEL, &value, XattrFlags::empty())
        .map_err(|errno| OsError::new("set the SELinux label of", &path, errno))
}

/// The SELinux label of a directory; None: it has none that can be read.
pub fn label(directory: &Dir) -> Option<String> {
    let mut value = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    let length = rustix::fs::fgetxattr(directory, LABEL, &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).trim_end_matches('\0').to_owned())
}

/// Whether the kernel or the file system does not let this process set a label.
pub fn is_refusal(error: &OsError) -> bool {
    matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported)
        || error.answer.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}
