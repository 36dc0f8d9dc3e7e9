//! Unpacks a payload into an empty directory: each frame's digest is compared before decompression, each header is regenerated and
//! compared, each file is hashed as it is written. The store syncs later, once.

use super::compression::{self, CompressionError, Expected};
use super::file::BundleError;
use super::frames::Holds;
use super::handles::Handles;
use super::manifest::{EntryKind, Frame, Manifest};
use super::memory::{Memory, Taken};
use super::parallel::THREADS_MAXIMUM;
pub use super::source::{FrameSource, Held, PayloadSource, SourceError};
use super::ustar;
use super::writeback::Writeback;
use crate::crash_point;
use crate::digest::{Digest, Hasher};
use crate::failure::Class;
use crate::os::thread::helper;
use crate::os::{OsError, dir::Dir};
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

/// Why a payload can't be unpacked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum UnpackError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The source has no more frames.
    #[error(transparent)]
    Source(SourceError),
    /// A frame's bytes are not what the manifest says; nothing of it was decompressed.
    #[error("cannot unpack frame {index} of the payload: its bytes differ from the signed manifest")]
    Frame { index: usize },
    /// A frame with the right digest does not hold what the manifest says.
    #[error("cannot unpack frame {index} of the payload: {error}")]
    Content { index: usize, error: CompressionError },
    /// A member's header (or the end of the archive) is not the one that its entry gives.
    #[error("cannot unpack {path}: its header differs from the manifest")]
    Header { path: String },
    /// A file's content has another digest than its entry.
    #[error("cannot unpack {path}: its content differs from the manifest")]
    Digest { path: String },
}

impl UnpackError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Source(error) => error.class,
            Self::Frame { .. } | Self::Content { .. } | Self::Header { .. } | Self::Digest { .. } => Class::Integrity,
        }
    }

    /// A remedy for the operator.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Source(error) => error.error.downcast_ref::<BundleError>().and_then(BundleError::hint),
            Self::Frame { .. } => Some("the file was damaged in transit: fetch it again".to_owned()),
            Self::Content { .. } | Self::Header { .. } | Self::Digest { .. } => {
                Some("the release was signed with this fault: ask its author".to_owned())
            }
        }
    }
}

/// Unpacks the payload of `manifest` into the empty directory `into`. The calling thread reads, `threads` others unpack (1: the calling
/// thread alone); at most `FRAMES_MEMORY_BYTES` of frames and contents are in memory. `progress` gets the bytes taken so far, and their
/// total.
pub fn unpack(
    manifest: &Manifest,
    source: &mut dyn FrameSource,
    into: &Dir,
    threads: usize,
    progress: &dyn Fn(u64, u64),
) -> Result<(), UnpackError> {
    make_directories(manifest, into)?;
    crash_point!("unpack.directories");
    let all: Vec<usize> = (0..manifest.frames.len()).collect();
    let layout = manifest.layout();
    Writeback::beside(into, |writeback| {
        let job = Job::new(manifest, &layout, &all, into, writeback);
        unpack_frames(&job, source, threads, progress)
    })?;
    crash_point!("unpack.files");
    make_links(manifest, into)?;
    source.end().map_err(UnpackError::Source)
}

/// Makes the directories of a tree in the empty directory `into`.
pub fn make_directories(manifest: &Manifest, into: &Dir) -> Result<(), OsError> {
    let mut handles = Handles::new(into);
    for entry in &manifest.entries {
        if let EntryKind::Directory { mode } = entry.kind {
            let (parent, name) = handles.parent(&entry.path)?;
            parent.make_dir(name, mode)?;
        }
    }
    Ok(())
}

/// Links come last: while files are written, no path can lead through a link.
pub(super) fn make_links(manifest: &Manifest, into: &Dir) -> Result<(), OsError> {
    let mut handles = Handles::new(into);
    for entry in &manifest.entries {
        if let EntryKind::Link { target } = &entry.kind {
            let (parent, name) = handles.parent(&entry.path)?;
            parent.make_symlink(Path::new(target), name)?;
        }
    }
    Ok(())
}

/// Unpacks the frames of a job, whose directories exist: reads them on this thread, unpacks them on others.
pub(super) fn unpack_frames(
    job: &Job<'_>,
    source: &mut dyn FrameSource,
    threads: usize,
    progress: &dyn Fn(u64, u64),
) -> Result<(), UnpackError> {
    let threads = threads.clamp(1, THREADS_MAXIMUM);
    if threads == 1 {
        return run_alone(job, source, progress);
    }
    let memory = Memory::new();
    let (sender, receiver) = mpsc::sync_channel::<Loaded<'_>>(threads);
    let receiver = Mutex::new(receiver);
    let failed = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let read = thread::scope(|scope| {
        let workers = (0..threads).filter_map(|_| {
            helper(scope, || {
                let mut worker = Worker::new(job, &memory);
                loop {
                    let next = lock(&receiver).recv();
                    let Ok(loaded) = next else { return };
                    // After a failure the queue is drained, so that the reader never waits for room in it.
                    if failed.load(Ordering::Acquire) {
                        continue;
                    }
                    if let Err(error) = worker.unpack_frame(loaded.index, &loaded.bytes) {
                        failed.store(true, Ordering::Release);
                        lock(&failure).get_or_insert(error);
                    }
                    memory.frames.give(loaded.bytes);
                }
            })
        });
        if workers.count() == 0 {
            return run_alone(job, source, progress);
        }
        let read = feed(job, source, &memory, &sender, &failed, progress);
        drop(sender);
        read
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => read,
    }
}

/// Reads and unpacks on this thread: one frame and its content are in memory.
fn run_alone(job: &Job<'_>, source: &mut dyn FrameSource, progress: &dyn Fn(u64, u64)) -> Result<(), UnpackError> {
    let memory = Memory::new();
    let mut worker = Worker::new(job, &memory);
    let (mut taken, all) = (0, job.length());
    for (index, frame) in job.frames() {
        let bytes = source.next_into(frame, memory.frames.take()).map_err(UnpackError::Source)?;
        worker.unpack_frame(index, &bytes)?;
        memory.frames.give(bytes);
        taken += frame.length;
        progress(taken, all);
    }
    Ok(())
}

/// A frame in the queue. Its bytes are freed before its room.
struct Loaded<'a> {
    index: usize,
    bytes: Vec<u8>,
    _room: Taken<'a>,
}

fn feed<'a>(
    job: &Job<'_>,
    source: &mut dyn FrameSource,
    memory: &'a Memory,
    sender: &mpsc::SyncSender<Loaded<'a>>,
    failed: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<(), UnpackError> {
    let (mut taken, all) = (0, job.length());
    for (index, frame) in job.frames() {
        if failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let room = memory.take(frame);
        let bytes = source.next_into(frame, memory.frames.take()).map_err(UnpackError::Source)?;
        // The receiver lives as long as the workers; a failed send means that all of them panicked, which the scope passes on.
        if sender.send(Loaded { index, bytes, _room: room }).is_err() {
            return Ok(());
        }
        taken += frame.length;
        progress(taken, all);
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded values are never half changed; the scope passes a panic on.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames to unpack.
pub(super) struct Job<'a> {
    manifest: &'a Manifest,
    layout: &'a [Holds],
    /// Indices of the frames to unpack, ascending.
    wanted: &'a [usize],
    into: &'a Dir,
    writeback: &'a Writeback,
    /// Incomplete files of several frames, by entry.
    split: Mutex<HashMap<usize, Split>>,
}

impl<'a> Job<'a> {
    /// The frames of these ascending indices.
    pub(super) fn new(
        manifest: &'a Manifest,
        layout: &'a [Holds],
        wanted: &'a [usize],
        into: &'a Dir,
        writeback: &'a Writeback,
    ) -> Self {
        Self { manifest, layout, wanted, into, writeback, split: Mutex::new(HashMap::new()) }
    }

    /// The frames to unpack, with their indices.
    fn frames(&self) -> impl Iterator<Item = (usize, &Frame)> {
        self.wanted.iter().map(|index| (*index, &self.manifest.frames[*index]))
    }

    /// Their bytes.
    fn length(&self) -> u64 {
        self.frames().map(|(_, frame)| frame.length).sum()
    }
}

struct Split {
    file: Arc<File>,
    missing: u64,
}

struct Worker<'a> {
    job: &'a Job<'a>,
    handles: Handles<'a>,
    memory: &'a Memory,
}

impl<'a> Worker<'a> {
    fn new(job: &'a Job<'a>, memory: &'a Memory) -> Self {
        Self { job, handles: Handles::new(job.into), memory }
    }

    fn unpack_frame(&mut self, index: usize, bytes: &[u8]) -> Result<(), UnpackError> {
        let frame = &self.job.manifest.frames[index];
        if bytes.len() as u64 != frame.length || Digest::of(bytes) != frame.sha256 {
            return Err(UnpackError::Frame { index });
        }
        let mut content = self.memory.contents.take();
        compression::decompress_into(bytes, Expected::Exactly(frame.content_length), &mut content)
            .map_err(|error| UnpackError::Content { index, error })?;
        self.unpack_content(index, &content)?;
        self.job.writeback.add(frame.content_length);
        self.memory.contents.give(content);
        Ok(())
    }

    fn unpack_content(&mut self, index: usize, content: &[u8]) -> Result<(), UnpackError> {
        let mut rest = content;
        match &self.job.layout[index] {
            Holds::Members(range) => range.clone().try_for_each(|entry| self.unpack_member(entry, &mut rest))?,
            Holds::Part { entry, offset, length } => self.unpack_part(*entry, *offset, *length, &mut rest)?,
            Holds::End => expect(&mut rest, &ustar::END, || "the end of the archive".to_owned())?,
        }
        if rest.is_empty() { Ok(()) } else { Err(UnpackError::Header { path: "the end of the frame".to_owned() }) }
    }

    fn unpack_member(&mut self, index: usize, rest: &mut &[u8]) -> Result<(), UnpackError> {
        let entry = &self.job.manifest.entries[index];
        self.expect_header(index, rest)?;
        let EntryKind::File { mode, size, sha256, .. } = entry.kind else { return Ok(()) };
        let content = self.take(index, size, rest)?;
        self.expect_padding(index, size, rest)?;
        if Digest::of(content) != sha256 {
            return Err(UnpackError::Digest { path: entry.path.to_string() });
        }
        let (parent, name) = self.handles.parent(&entry.path)?;
        let mut file = parent.create_file(name, mode)?;
        file.write_all(content).map_err(|source| OsError::new("write", &parent.path().join(name), source))?;
        crash_point!("unpack.file");
        Ok(())
    }

    /// Writes a part of a file in its place; the thread that writes the last missing part hashes the file.
    fn unpack_part(&mut self, index: usize, offset: u64, length: u64, rest: &mut &[u8]) -> Result<(), UnpackError> {
        let entry = &self.job.manifest.entries[index];
        let EntryKind::File { mode, size, sha256, .. } = entry.kind else {
            return Err(UnpackError::Header { path: entry.path.to_string() });
        };
        if offset == 0 {
            self.expect_header(index, rest)?;
        }
        let content = self.take(index, length, rest)?;
        if offset + length == size {
            self.expect_padding(index, size, rest)?;
        }
        let (parent, name) = self.handles.parent(&entry.path)?;
        let failed = |verb, source| OsError::new(verb, &parent.path().join(name), source);
        let file = {
            let mut split = lock(&self.job.split);
            match split.entry(index) {
                MapEntry::Occupied(known) => Arc::clone(&known.get().file),
                MapEntry::Vacant(unknown) => {
                    let file = Arc::new(parent.create_file(name, mode)?);
                    unknown.insert(Split { file: Arc::clone(&file), missing: size });
                    file
                }
            }
        };
        file.write_all_at(content, offset).map_err(|source| failed("write", source))?;
        crash_point!("unpack.part");
        let complete = {
            let mut split = lock(&self.job.split);
            let missing = split.get_mut(&index).map_or(0, |split| {
                split.missing -= length;
                split.missing
            });
            missing == 0 && split.remove(&index).is_some()
        };
        if complete && hash(&file).map_err(|source| failed("read", source))? != sha256 {
            return Err(UnpackError::Digest { path: entry.path.to_string() });
        }
        Ok(())
    }

    fn expect_header(&self, index: usize, rest: &mut &[u8]) -> Result<(), UnpackError> {
        let entry = &self.job.manifest.entries[index];
        let mut header = Vec::with_capacity(512);
        entry.member(self.job.manifest.source_date_epoch).write_header(&mut header);
        expect(rest, &header, || entry.path.to_string())
    }

    fn expect_padding(&self, index: usize, size: u64, rest: &mut &[u8]) -> Result<(), UnpackError> {
        let padding = usize::try_from(ustar::padding(size)).unwrap_or(0);
        expect(rest, &ustar::END[..padding], || self.job.manifest.entries[index].path.to_string())
    }

    fn take<'b>(&self, index: usize, length: u64, rest: &mut &'b [u8]) -> Result<&'b [u8], UnpackError> {
        let short = || UnpackError::Header { path: self.job.manifest.entries[index].path.to_string() };
        let length = usize::try_from(length).map_err(|_| short())?;
        let (content, behind) = rest.split_at_checked(length).ok_or_else(short)?;
        *rest = behind;
        Ok(content)
    }
}

fn expect(rest: &mut &[u8], bytes: &[u8], path: impl Fn() -> String) -> Result<(), UnpackError> {
    *rest = rest.strip_prefix(bytes).ok_or_else(|| UnpackError::Header { path: path() })?;
    Ok(())
}

/// The digest of a whole open file.
fn hash(file: &File) -> std::io::Result<Digest> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(hasher.finish()),
            count => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
            }
        }
    }
}
