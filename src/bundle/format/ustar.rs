//! The canonical USTAR member: one byte sequence per meaning. Writers write it; readers regenerate it and compare.
//!
//! Owner and group are 0 and nameless, devices 0; mode and time are given. Only a name that doesn't fit USTAR's fields is in a PAX record
//! before the member. Names are split at the first `/` that leaves at most 100 bytes behind it.

use std::borrow::Cow;
use tar::{EntryType, Header};

/// The unit of a tar file, bytes.
pub const BLOCK: u64 = 512;

/// The end of a tar file: two blocks of zeros.
pub const END: [u8; 1024] = [0; 1024];

const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A directory.
    Directory,
    /// A file of this size.
    File(u64),
    /// A link to this target.
    Link(&'a str),
}

/// One member of a tar file, as in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its path, without a directory's final `/`.
    pub path: &'a str,
    /// Its kind.
    pub kind: Kind<'a>,
    /// Its permission bits.
    pub mode: u32,
    /// Its time, seconds since 1970.
    pub mtime: u64,
}

/// Zeros between content of `size` bytes and the next block.
pub fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK) - size
}

impl Member<'_> {
    /// Its path in the archive: a directory's ends with `/`.
    fn name(&self) -> Cow<'_, str> {
        match self.kind {
            Kind::Directory => Cow::Owned(format!("{}/", self.path)),
            Kind::File(_) | Kind::Link(_) => Cow::Borrowed(self.path),
        }
    }

    fn long_target(&self) -> Option<&str> {
        match self.kind {
            Kind::Link(target) if target.len() > NAME_BYTES => Some(target),
            Kind::Link(_) | Kind::Directory | Kind::File(_) => None,
        }
    }

    /// Bytes of its header blocks, PAX records included.
    pub fn header_length(&self) -> u64 {
        let records = self.records();
        let extra = if records.is_empty() { 0 } else { BLOCK + (records.len() as u64).next_multiple_of(BLOCK) };
        BLOCK + extra
    }

    /// Bytes of its content, without padding.
    pub fn content_length(&self) -> u64 {
        match self.kind {
            Kind::File(size) => size,
            Kind::Directory | Kind::Link(_) => 0,
        }
    }

    /// Its PAX records, in the order of their keys; nearly always none.
    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        if let Some(target) = self.long_target() {
            push_record(&mut records, "linkpath", target);
        }
        let name = self.name();
        if split(&name).is_none() {
            push_record(&mut records, "path", &name);
        }
        records
    }

    /// Appends its header blocks to `bytes`.
    pub fn write_header(&self, bytes: &mut Vec<u8>) {
        let records = self.records();
        if !records.is_empty() {
            let size = records.len() as u64;
            bytes.extend_from_slice(block("PaxHeader", "", EntryType::XHeader, 0o644, self.mtime, size, "").as_bytes());
            bytes.extend_from_slice(&records);
            bytes.resize(bytes.len() + usize::try_from(padding(size)).unwrap_or(0), 0);
        }
        let name = self.name();
        // A name in a PAX record is cut in the field, for tools that don't know PAX.
        let (prefix, name) = split(&name).unwrap_or_else(|| ("", cut(&name)));
        let (entry_type, size, target) = match self.kind {
            Kind::Directory => (EntryType::Directory, 0, ""),
            Kind::File(size) => (EntryType::Regular, size, ""),
            Kind::Link(target) => (EntryType::Symlink, 0, cut(target)),
        };
        let header = block(name, prefix, entry_type, self.mode, self.mtime, size, target);
        bytes.extend_from_slice(header.as_bytes());
    }
}

/// The parts of `name` for USTAR's prefix and name fields; None if no `/` splits it to fit.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= NAME_BYTES {
        return Some(("", name));
    }
    let from = name.len() - NAME_BYTES - 1;
    let slash = from + name.as_bytes()[from..].iter().position(|byte| *byte == b'/')?;
    // The part after a directory's final slash would be an empty name.
    (slash <= PREFIX_BYTES && slash > 0 && slash + 1 < name.len()).then(|| (&name[..slash], &name[slash + 1..]))
}

/// The beginning of `text` that fits a name field.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// One PAX record: `<length> <key>=<value>\n`, where the length counts itself.
fn push_record(records: &mut Vec<u8>, key: &str, value: &str) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
}

fn block(name: &str, prefix: &str, entry_type: EntryType, mode: u32, mtime: u64, size: u64, target: &str) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(entry_type);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(mtime);
    if let Some(ustar) = header.as_ustar_mut() {
        ustar.name[..name.len()].copy_from_slice(name.as_bytes());
        ustar.prefix[..prefix.len()].copy_from_slice(prefix.as_bytes());
        ustar.linkname[..target.len()].copy_from_slice(target.as_bytes());
        ustar.set_device_major(0);
        ustar.set_device_minor(0);
    }
    header.set_cksum();
    header
}

/// The name and size in a regular file's header block. Untrusted until the regenerated header is the same.
pub fn announced(header: &[u8; 512]) -> Option<(String, u64)> {
    let header = Header::from_byte_slice(header);
    let size = header.entry_size().ok()?;
    let name = String::from_utf8(header.path_bytes().into_owned()).ok()?;
    Some((name, size))
}

/// Whether a header block has the sum of its bytes that it says: a damaged one has not. The sum's own field counts as blanks (pax, "ustar
/// Interchange Format").
pub fn has_right_sum(header: &[u8; 512]) -> bool {
    const FIELD: std::ops::Range<usize> = 148..156;
    let bytes = header.iter().enumerate().map(|(at, byte)| if FIELD.contains(&at) { b' ' } else { *byte });
    let sum: u32 = bytes.map(u32::from).sum();
    Header::from_byte_slice(header).cksum().is_ok_and(|said| said == sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read as _;

    fn file(path: &str, size: u64) -> Member<'_> {
        Member { path, kind: Kind::File(size), mode: 0o644, mtime: 1 }
    }

    #[test]
    fn only_names_that_do_not_fit_cost_a_record() {
        let base = "n".repeat(100);
        let prefix = "p".repeat(155);
        assert_eq!(file(&base, 0).header_length(), 512);
        assert_eq!(file(&format!("{prefix}/{base}"), 0).header_length(), 512);
        assert_eq!(file(&format!("{base}n"), 0).header_length(), 1536);
        assert_eq!(file(&format!("{prefix}p/{base}"), 0).header_length(), 1536);
        let directory = Member { kind: Kind::Directory, ..file(&base, 0) };
        assert_eq!(directory.header_length(), 1536, "the slash of a directory is the 101st byte");
        let link = Member { kind: Kind::Link(&base), ..file("l", 0) };
        assert_eq!(link.header_length(), 512);
        let target = format!("{base}n");
        assert_eq!(Member { kind: Kind::Link(&target), ..file("l", 0) }.header_length(), 1536);
    }

    proptest! {
        #[test]
        fn the_tar_crate_reads_what_is_written(
            components in prop::collection::vec("[a-zé]{1,90}", 1..6), size in 0_u64..700, kind in 0..3,
        ) {
            let path = components.join("/");
            let kind = match kind { 0 => Kind::Directory, 1 => Kind::File(size), _ => Kind::Link(&path) };
            let member = Member { path: &path, kind, mode: 0o755, mtime: 1_700_000_000 };
            let mut bytes = Vec::new();
            member.write_header(&mut bytes);
            prop_assert_eq!(bytes.len() as u64, member.header_length());
            let content_length = member.content_length().next_multiple_of(BLOCK);
            bytes.resize(bytes.len() + usize::try_from(content_length).unwrap(), 0);
            bytes.extend_from_slice(&END);
            let mut archive = tar::Archive::new(bytes.as_slice());
            let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
            let found = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
            prop_assert_eq!(found, path.as_str());
            prop_assert_eq!(entry.header().mode().unwrap(), 0o755);
            match kind {
                Kind::Directory => prop_assert!(entry.header().entry_type().is_dir()),
                Kind::File(size) => {
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content).unwrap();
                    prop_assert_eq!(content.len() as u64, size);
                }
                Kind::Link(target) => {
                    let found = entry.link_name().unwrap().unwrap().into_owned();
                    prop_assert_eq!(found.to_str(), Some(target));
                }
            }
        }
    }
}
