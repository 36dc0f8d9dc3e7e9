//! The stat index of a release: what the file system said of every entry just after its content had been verified. Compact and binary; a
//! quick check compares it with what the file system says now.

use super::{Result, StoreError};
use crate::digest::Digest;
use crate::os::dir::FileStat;
use std::path::Path;

/// First bytes of the file: format and version.
const MAGIC: &[u8; 16] = b"sidle index 1\n\0\0";
const ENTRY_BYTES: usize = 60;
const DIGEST_BYTES: usize = 32;
/// Largest index read: a million entries.
pub const INDEX_LENGTH_MAXIMUM: u64 = 64 * 1024 * 1024;

/// What is compared of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes; 0 for a directory, whose size is the file system's business.
    pub size: u64,
    /// Inode.
    pub inode: u64,
    /// Last change of content.
    pub mtime: (i64, u32),
    /// Last change of the inode.
    pub ctime: (i64, u32),
}

impl Indexed {
    /// What `stat` says of a file or link.
    pub fn of(stat: &FileStat) -> Self {
        let FileStat { mode, uid, gid, inode, mtime, ctime, .. } = *stat;
        let size = if stat.kind == crate::os::dir::FileKind::Directory { 0 } else { stat.size };
        Self { mode, uid, gid, size, inode, mtime, ctime }
    }
}

/// One entry per entry of the manifest, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// The entries.
    pub entries: Vec<Indexed>,
}

impl Index {
    /// The file's content; its last 32 bytes are the SHA-256 of what is before them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAGIC.len() + 8 + self.entries.len() * ENTRY_BYTES + DIGEST_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for entry in &self.entries {
            for number in [entry.mode, entry.uid, entry.gid, entry.mtime.1, entry.ctime.1, 0, 0] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for number in [entry.size, entry.inode] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            for number in [entry.mtime.0, entry.ctime.0] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        let digest = Digest::of(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    /// Reads the file's content. `path` is for the message.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let corrupt = |reason: &str| StoreError::Corrupt { path: path.to_owned(), reason: reason.to_owned() };
        let content = bytes.len().checked_sub(DIGEST_BYTES).map(|end| bytes.split_at(end));
        let (content, digest) = content.ok_or_else(|| corrupt("it is too short"))?;
        if Digest::of(content).as_bytes() != digest {
            return Err(corrupt("its checksum is wrong"));
        }
        let rest = content.strip_prefix(MAGIC).ok_or_else(|| corrupt("it is of another format"))?;
        let (count, rest) = rest.split_first_chunk::<8>().ok_or_else(|| corrupt("it is too short"))?;
        if rest.len() as u64 != u64::from_le_bytes(*count).saturating_mul(ENTRY_BYTES as u64) {
            return Err(corrupt("it has another length than it says"));
        }
        Ok(Self { entries: rest.chunks_exact(ENTRY_BYTES).map(entry).collect() })
    }
}

fn entry(bytes: &[u8]) -> Indexed {
    let small = |at: usize| {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(number)
    };
    let large = |at: usize| u64::from(small(at)) | u64::from(small(at + 4)) << 32;
    Indexed {
        mode: small(0),
        uid: small(4),
        gid: small(8),
        mtime: (large(44).cast_signed(), small(12)),
        ctime: (large(52).cast_signed(), small(16)),
        size: large(28),
        inode: large(36),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_round_trips_and_one_flipped_byte_is_seen() {
        let entry =
            Indexed { mode: 0o755, uid: 1, gid: 2, size: 1 << 40, inode: 77, mtime: (-5, 6), ctime: (1 << 33, 8) };
        let index = Index { entries: vec![entry; 3] };
        let bytes = index.to_bytes();
        assert_eq!(Index::parse(&bytes, Path::new("index")).unwrap(), index);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::parse(&damaged, Path::new("index")).is_err(), "byte {at}");
        }
    }
}
