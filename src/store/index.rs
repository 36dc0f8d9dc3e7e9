//! The stat index of a release: the stat of every entry just after its content was verified. Compact and binary, with the names in it, so that a
//! quick check needs only the index and the present stats.

use super::{Result, StoreError};
use crate::bundle::manifest::Manifest;
use crate::digest::Digest;
use crate::os::dir::{FileKind, FileStat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A time as file systems have it: seconds since 1970, and nanoseconds.
pub type FileTime = (i64, u32);

/// First bytes of the file: format and version. A release with version 1, which had no names, is hashed once, and gets this version.
const MAGIC: &[u8; 16] = b"sidle index 2\n\0\0";
const DIGEST_BYTES: usize = 32;
/// Magic, digest of the manifest, numbers of directories and of entries, the tree's own directory.
const HEAD_BYTES: usize = ROOT_AT + STAT_BYTES;
const ROOT_AT: usize = MAGIC.len() + DIGEST_BYTES + 8;
const STAT_BYTES: usize = 52;
/// Start and length of the path.
const DIRECTORY_BYTES: usize = 8;
/// Number, directory, start and length of the name, stat.
const ENTRY_BYTES: usize = 16 + STAT_BYTES;
/// Largest index read: a quarter of a million entries with long names.
pub const INDEX_LENGTH_MAXIMUM: u64 = 64 * 1024 * 1024;

/// The compared part of a stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexed {
    /// The kind: a directory and a file can share all other numbers.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes; 0 for a directory.
    pub size: u64,
    /// Inode.
    pub inode: u64,
    /// Last change of content.
    pub mtime: FileTime,
    /// Last change of the inode.
    pub ctime: FileTime,
}

impl Indexed {
    /// The compared part of `stat`.
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
        for number in [self.size, self.inode] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for seconds in [self.mtime.0, self.ctime.0] {
            bytes.extend_from_slice(&seconds.to_le_bytes());
        }
    }

    /// Reads the bytes of `write`: at least `STAT_BYTES`.
    fn read(bytes: &[u8]) -> Self {
        let long = |at: usize| u64::from(small(bytes, at)) | u64::from(small(bytes, at + 4)) << 32;
        let seconds = |at: usize| i64::from_le_bytes(long(at).to_le_bytes());
        let mode = small(bytes, 0);
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
            size: long(20),
            inode: long(28),
            mtime: (seconds(36), small(bytes, 12)),
            ctime: (seconds(44), small(bytes, 16)),
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

/// The same as a count.
fn large(bytes: &[u8], at: usize) -> usize {
    usize::try_from(small(bytes, at)).expect("a platform that sidle runs on counts to 2^32")
}

/// An entry of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its number in the manifest.
    pub number: usize,
    /// Its directory's number here.
    pub directory: usize,
    /// Its name in its directory.
    pub name: &'a OsStr,
    /// Its stat.
    pub stat: Indexed,
}

/// All entries of a release, those of one directory together. Entries are read from the file's content on demand: a quick check reads each once,
/// on several threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Without the checksum: head, directories, entries, names.
    content: Vec<u8>,
    /// Number of directories that hold entries.
    directories: usize,
    /// Number of entries.
    entries: usize,
}

impl Index {
    /// An index of all entries; `stat` gives the stat of each entry's number.
    pub fn new(manifest: &Manifest, digest: Digest, root: Indexed, stat: impl Fn(usize) -> Indexed) -> Self {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut directories = Vec::new();
        let mut entries = Vec::with_capacity(manifest.entries.len());
        for (number, entry) in manifest.entries.iter().enumerate() {
            let (parent, name) = entry.path.split();
            let directory = *known.entry(parent).or_insert_with(|| {
                directories.push(parent);
                directories.len() - 1
            });
            entries.push((directory, number, name));
        }
        entries.sort_unstable();
        let entries: Vec<_> = entries.iter().map(|entry| (*entry, stat(entry.1))).collect();
        Self::of(digest, root, &directories, &entries)
    }

    /// Builds the file's content; `entries`: directory, number, name and stat.
    fn of(manifest: Digest, root: Indexed, directories: &[&str], entries: &[((usize, usize, &str), Indexed)]) -> Self {
        let records = directories.len() * DIRECTORY_BYTES + entries.len() * ENTRY_BYTES;
        let mut content = Vec::with_capacity(HEAD_BYTES + records);
        let mut text = String::new();
        content.extend_from_slice(MAGIC);
        content.extend_from_slice(manifest.as_bytes());
        content.extend_from_slice(&number_bytes(directories.len()));
        content.extend_from_slice(&number_bytes(entries.len()));
        root.write(&mut content);
        let mut append = |content: &mut Vec<u8>, name: &str| {
            content.extend_from_slice(&number_bytes(text.len()));
            content.extend_from_slice(&number_bytes(name.len()));
            text.push_str(name);
        };
        for path in directories {
            append(&mut content, path);
        }
        for ((directory, number, name), stat) in entries {
            content.extend_from_slice(&number_bytes(*number));
            content.extend_from_slice(&number_bytes(*directory));
            append(&mut content, name);
            stat.write(&mut content);
        }
        content.extend_from_slice(text.as_bytes());
        Self { content, directories: directories.len(), entries: entries.len() }
    }

    /// Whether these are the entries of the compressed manifest with this digest.
    pub fn is_of(&self, manifest: &Digest) -> bool {
        self.content[MAGIC.len()..].starts_with(manifest.as_bytes())
    }

    /// The tree's own directory.
    pub fn root(&self) -> Indexed {
        Indexed::read(&self.content[ROOT_AT..])
    }

    /// The number of entries.
    pub fn count(&self) -> usize {
        self.entries
    }

    /// Some of the entries, those of one directory together.
    pub fn places(&self, which: Range<usize>) -> impl Iterator<Item = Place<'_>> {
        let (records, text) = (&self.content[self.entries_at()..], self.text());
        records[which.start * ENTRY_BYTES..which.end * ENTRY_BYTES].chunks_exact(ENTRY_BYTES).map(|record| Place {
            number: large(record, 0),
            directory: large(record, 4),
            name: name(text, &record[8..]),
            stat: Indexed::read(&record[16..]),
        })
    }

    /// The path of a directory, relative to the tree; empty for the tree itself.
    pub fn directory(&self, number: usize) -> &Path {
        Path::new(name(self.text(), &self.content[HEAD_BYTES + number * DIRECTORY_BYTES..]))
    }

    /// The paths of all directories that hold entries, the tree itself among them.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        (0..self.directories).map(|number| self.directory(number))
    }

    /// The stat of each entry, by its number in the manifest.
    pub fn stats(&self) -> Vec<Indexed> {
        let mut stats = vec![self.root(); self.entries];
        for place in self.places(0..self.entries) {
            stats[place.number] = place.stat;
        }
        stats
    }

    /// Updates some entries, by their numbers, and the tree's own directory. Returns whether anything changed.
    pub fn learn(&mut self, learnt: &HashMap<usize, Indexed>, root: Option<Indexed>) -> bool {
        let news = |place: &Place<'_>| learnt.get(&place.number).copied().filter(|now| *now != place.stat);
        let places = self.places(0..self.entries).enumerate();
        let records: Vec<_> =
            places.filter_map(|(at, place)| Some((self.entries_at() + at * ENTRY_BYTES + 16, news(&place)?))).collect();
        let root = root.filter(|now| *now != self.root()).map(|now| (ROOT_AT, now));
        let mut is_news = false;
        for (at, now) in records.into_iter().chain(root) {
            let mut bytes = Vec::with_capacity(STAT_BYTES);
            now.write(&mut bytes);
            self.content[at..at + STAT_BYTES].copy_from_slice(&bytes);
            is_news = true;
        }
        is_news
    }

    fn entries_at(&self) -> usize {
        HEAD_BYTES + self.directories * DIRECTORY_BYTES
    }

    /// All paths and names, one after the other.
    fn text(&self) -> &[u8] {
        &self.content[self.entries_at() + self.entries * ENTRY_BYTES..]
    }

    /// The file's content; its last 32 bytes are the SHA-256 of what is before them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.content.len() + DIGEST_BYTES);
        bytes.extend_from_slice(&self.content);
        bytes.extend_from_slice(Digest::of(&self.content).as_bytes());
        bytes
    }

    /// Reads the file's content. `path` is for the message.
    pub fn parse(mut bytes: Vec<u8>, path: &Path) -> Result<Self> {
        let corrupt = |reason: &str| StoreError::Corrupt { path: path.to_owned(), reason: reason.to_owned() };
        let end = bytes.len().checked_sub(DIGEST_BYTES).ok_or_else(|| corrupt("it is too short"))?;
        if Digest::of(&bytes[..end]).as_bytes() != &bytes[end..] {
            return Err(corrupt("its checksum is wrong"));
        }
        bytes.truncate(end);
        Self::read(bytes).ok_or_else(|| corrupt("it is of another format"))
    }

    /// None: the numbers contradict each other.
    fn read(content: Vec<u8>) -> Option<Self> {
        let counts = content.strip_prefix(MAGIC)?.get(DIGEST_BYTES..DIGEST_BYTES + 8)?;
        let (count, entries) = (large(counts, 0), large(counts, 4));
        let rest = content.get(HEAD_BYTES..)?;
        let (directories, rest) = rest.split_at_checked(count.checked_mul(DIRECTORY_BYTES)?)?;
        let (places, text) = rest.split_at_checked(entries.checked_mul(ENTRY_BYTES)?)?;
        let is_within =
            |range: &[u8]| large(range, 0).checked_add(large(range, 4)).is_some_and(|end| end <= text.len());
        let fits = directories.chunks_exact(DIRECTORY_BYTES).all(is_within)
            && places
                .chunks_exact(ENTRY_BYTES)
                .all(|record| large(record, 0) < entries && large(record, 4) < count && is_within(&record[8..]));
        fits.then_some(Self { directories: count, entries, content })
    }
}

/// The name at a range (start and length) within the text.
fn name<'a>(text: &'a [u8], range: &[u8]) -> &'a OsStr {
    let start = large(range, 0);
    OsStr::from_bytes(&text[start..start + large(range, 4)])
}

fn number_bytes(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("a manifest's limits keep all numbers below 2^32").to_le_bytes()
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
        let names = ["one", "two", "three", "four"];
        let entries: Vec<_> = (0..4).map(|number| ((number / 2, number, names[number]), stat(number))).collect();
        let index = Index::of(Digest::of(b"manifest"), stat(1), &["", "lib"], &entries);
        assert!(index.is_of(&Digest::of(b"manifest")) && !index.is_of(&Digest::of(b"another")));
        assert_eq!((index.root(), index.stats()), (stat(1), (0..4).map(stat).collect()));
        assert_eq!(index.places(2..4).map(|place| place.name).collect::<Vec<_>>(), ["three", "four"]);
        let bytes = index.to_bytes();
        assert_eq!(Index::parse(bytes.clone(), Path::new("index")).unwrap(), index);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Index::parse(damaged, Path::new("index")).is_err(), "byte {at}");
        }
        // Without its checksum a flipped byte may make nonsense, but no panic.
        for at in 0..bytes.len() - DIGEST_BYTES {
            let mut damaged = bytes[..bytes.len() - DIGEST_BYTES].to_vec();
            damaged[at] ^= 0x80;
            if let Some(read) = Index::read(damaged) {
                let names = read.places(0..read.count()).map(|place| (place.name, read.directory(place.directory)));
                assert!(names.count() <= 4);
            }
        }
    }
}
