//! The stat index of a release: what the file system said of every entry just after its content had been verified. Compact and binary, with
//! the names in it, so that a quick check needs nothing else: it compares the index with what the file system says now.

use super::{Result, StoreError};
use crate::bundle::manifest::Manifest;
use crate::digest::Digest;
use crate::os::dir::{FileKind, FileStat};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// First bytes of the file: format and version. Version 1 had no names; a release that has one is hashed once, and gets this one.
const MAGIC: &[u8; 16] = b"sidle index 2\n\0\0";
const DIGEST_BYTES: usize = 32;
/// Magic, digest of the manifest, numbers of directories and of entries, the tree's own directory.
const HEAD_BYTES: usize = MAGIC.len() + DIGEST_BYTES + 8 + STAT_BYTES;
const STAT_BYTES: usize = 52;
/// Number, directory, start and length of the name, stat.
const ENTRY_BYTES: usize = 16 + STAT_BYTES;
/// Largest index read: a quarter of a million entries with long names.
pub const INDEX_LENGTH_MAXIMUM: u64 = 64 * 1024 * 1024;

/// What is compared of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// What it is: a directory and a file can share all other numbers.
    pub kind: FileKind,
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
    /// What `stat` says of an entry.
    pub fn of(stat: &FileStat) -> Self {
        let FileStat { kind, mode, uid, gid, inode, mtime, ctime, .. } = *stat;
        let size = if kind == FileKind::Directory { 0 } else { stat.size };
        Self { kind, mode, uid, gid, size, inode, mtime, ctime }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let kind = match self.kind {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
            FileKind::Other => 3,
        };
        for number in [self.mode | kind << KIND_SHIFT, self.uid, self.gid, self.mtime.1, self.ctime.1] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.size, self.inode, self.mtime.0.cast_unsigned(), self.ctime.0.cast_unsigned()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads what `write` has written; `bytes` has at least `STAT_BYTES`.
    fn read(bytes: &[u8]) -> Self {
        let (mode, large) =
            (small(bytes, 0), |at: usize| u64::from(small(bytes, at)) | u64::from(small(bytes, at + 4)) << 32);
        let kind = match mode >> KIND_SHIFT {
            0 => FileKind::File,
            1 => FileKind::Directory,
            2 => FileKind::Symlink,
            _ => FileKind::Other,
        };
        Self {
            kind,
            mode: mode & ((1 << KIND_SHIFT) - 1),
            uid: small(bytes, 4),
            gid: small(bytes, 8),
            size: large(20),
            inode: large(28),
            mtime: (large(36).cast_signed(), small(bytes, 12)),
            ctime: (large(44).cast_signed(), small(bytes, 16)),
        }
    }
}

/// The kind lies above the permission bits.
const KIND_SHIFT: u32 = 16;

fn small(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// An entry of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its number in the manifest.
    pub number: usize,
    /// Its directory's number here.
    pub directory: usize,
    /// What is known of it.
    pub stat: Indexed,
    name: Range<usize>,
}

/// All entries of a release, those of one directory beside each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The digest of the compressed manifest whose entries these are.
    manifest: Digest,
    /// The tree's own directory.
    pub root: Indexed,
    /// Paths of directories that hold entries.
    directories: Vec<Range<usize>>,
    places: Vec<Place>,
    /// All paths and names, one after the other.
    text: String,
}

impl Index {
    /// An index of all entries, each with what `stat` says of its number.
    pub fn new(manifest: &Manifest, digest: Digest, root: Indexed, stat: impl Fn(usize) -> Indexed) -> Self {
        let mut index =
            Self { manifest: digest, root, directories: Vec::new(), places: Vec::new(), text: String::new() };
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (number, entry) in manifest.entries.iter().enumerate() {
            let (parent, name) = entry.path.split();
            let directory = *known.entry(parent).or_insert_with(|| {
                let path = append(&mut index.text, parent);
                index.directories.push(path);
                index.directories.len() - 1
            });
            let name = append(&mut index.text, name);
            index.places.push(Place { number, directory, stat: stat(number), name });
        }
        index.places.sort_by_key(|place| (place.directory, place.number));
        index
    }

    /// Whether these are the entries of the compressed manifest with this digest.
    pub fn is_of(&self, manifest: &Digest) -> bool {
        self.manifest == *manifest
    }

    /// The entries, those of one directory beside each other.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The path of a directory, relative to the tree; empty for the tree itself.
    pub fn directory(&self, number: usize) -> &str {
        &self.text[self.directories[number].clone()]
    }

    /// The paths of all directories that hold entries, the tree itself among them.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.directories.iter().map(|path| &self.text[path.clone()])
    }

    /// The name of an entry in its directory.
    pub fn name(&self, place: &Place) -> &str {
        &self.text[place.name.clone()]
    }

    /// What is known of each entry, by its number in the manifest.
    pub fn stats(&self) -> Vec<Indexed> {
        let mut stats = vec![self.root; self.places.len()];
        for place in &self.places {
            stats[place.number] = place.stat;
        }
        stats
    }

    /// Takes what was learnt of some entries, by their numbers. Gives whether that is news.
    pub fn learn(&mut self, learnt: &HashMap<usize, Indexed>) -> bool {
        let mut is_news = false;
        for place in &mut self.places {
            if let Some(now) = learnt.get(&place.number).filter(|now| **now != place.stat) {
                place.stat = *now;
                is_news = true;
            }
        }
        is_news
    }

    /// The file's content; its last 32 bytes are the SHA-256 of what is before them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let records = self.directories.len() * 8 + self.places.len() * ENTRY_BYTES;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + records + self.text.len() + DIGEST_BYTES);
        let number = |number: usize| {
            u32::try_from(number).expect("a manifest's limits keep all numbers below 2^32").to_le_bytes()
        };
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.manifest.as_bytes());
        bytes.extend_from_slice(&number(self.directories.len()));
        bytes.extend_from_slice(&number(self.places.len()));
        self.root.write(&mut bytes);
        for path in &self.directories {
            bytes.extend_from_slice(&number(path.start));
            bytes.extend_from_slice(&number(path.len()));
        }
        for place in &self.places {
            for part in [place.number, place.directory, place.name.start, place.name.len()] {
                bytes.extend_from_slice(&number(part));
            }
            place.stat.write(&mut bytes);
        }
        bytes.extend_from_slice(self.text.as_bytes());
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
        Self::read(content).ok_or_else(|| corrupt("it is of another format"))
    }

    /// None: the numbers don't fit each other.
    fn read(content: &[u8]) -> Option<Self> {
        let rest = content.strip_prefix(MAGIC)?;
        let (manifest, rest) = rest.split_first_chunk::<DIGEST_BYTES>()?;
        let (counts, rest) = rest.split_first_chunk::<8>()?;
        let (root, rest) = rest.split_first_chunk::<STAT_BYTES>()?;
        let count = |at: usize| usize::try_from(small(counts, at)).ok();
        let (directories, rest) = rest.split_at_checked(count(0)?.checked_mul(8)?)?;
        let all = count(4)?;
        let (places, rest) = rest.split_at_checked(all.checked_mul(ENTRY_BYTES)?)?;
        let text = String::from_utf8(rest.to_vec()).ok()?;
        let within = |bytes: &[u8], at: usize| {
            let start = usize::try_from(small(bytes, at)).ok()?;
            let range = start..start.checked_add(usize::try_from(small(bytes, at + 4)).ok()?)?;
            text.get(range.clone()).map(|_| range)
        };
        let directories = directories.chunks_exact(8).map(|bytes| within(bytes, 0)).collect::<Option<Vec<_>>>()?;
        let place = |bytes: &[u8]| {
            let number = usize::try_from(small(bytes, 0)).ok().filter(|number| *number < all)?;
            let directory = usize::try_from(small(bytes, 4)).ok().filter(|number| *number < directories.len())?;
            Some(Place { number, directory, name: within(bytes, 8)?, stat: Indexed::read(&bytes[16..]) })
        };
        let places = places.chunks_exact(ENTRY_BYTES).map(place).collect::<Option<Vec<_>>>()?;
        Some(Self { manifest: Digest::from_bytes(*manifest), root: Indexed::read(root), directories, places, text })
    }
}

fn append(text: &mut String, more: &str) -> Range<usize> {
    let start = text.len();
    text.push_str(more);
    start..text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_round_trips_and_one_flipped_byte_is_seen() {
        let stat = |number: usize| Indexed {
            kind: [FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Other][number % 4],
            mode: 0o7755,
            uid: 1,
            gid: 2,
            size: 1 << 40,
            inode: number as u64,
            mtime: (-5, 6),
            ctime: (1 << 33, 8),
        };
        let mut index = Index {
            manifest: Digest::of(b"manifest"),
            root: stat(1),
            directories: Vec::new(),
            places: Vec::new(),
            text: String::new(),
        };
        for (number, name) in ["one", "two", "three", "four"].into_iter().enumerate() {
            let path = append(&mut index.text, ["", "lib"][number / 2]);
            index.directories.push(path);
            let name = append(&mut index.text, name);
            index.places.push(Place { number, directory: number / 2, stat: stat(number), name });
        }
        let bytes = index.to_bytes();
        assert_eq!(Index::parse(&bytes, Path::new("index")).unwrap(), index);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::parse(&damaged, Path::new("index")).is_err(), "byte {at}");
        }
        // Without its checksum a flipped byte may make nonsense, but no panic.
        for at in 0..bytes.len() - DIGEST_BYTES {
            let mut damaged = bytes[..bytes.len() - DIGEST_BYTES].to_vec();
            damaged[at] ^= 0x80;
            if let Some(read) = Index::read(&damaged) {
                let names = read.places().iter().map(|place| (read.name(place), read.directory(place.directory)));
                assert!(names.count() <= 4);
            }
        }
    }
}
