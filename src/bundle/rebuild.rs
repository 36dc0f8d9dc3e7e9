//! Rebuilds a release's tree from files that this host holds and from frames for the rest. The result is exactly as signed: each file is
//! hashed as it is written; directories and links come from the manifest.

use super::frames::Holds;
use super::handles::Handles;
use super::manifest::{EntryKind, Frame, Manifest};
use super::parallel;
use super::source::{Held, PayloadSource};
use super::unpack::{Job, UnpackError, make_directories, make_links, unpack_frames};
use super::writeback::Writeback;
use crate::crash_point;
use crate::digest::{Digest, Hasher};
use crate::os::thread::helper;
use crate::os::{OsError, dir::Dir, file};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

/// Threads that unpack the frames of a repair: in the background, a host has other work for its cores.
const REPAIRING_THREADS: usize = 1;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 18;

/// Least size, bytes, of a file whose copy shares its blocks: a smaller one is written faster.
const CLONED_MINIMUM_BYTES: u64 = 4 << 10;

/// Files that share frames: if one of them is missing, all of their frames are fetched.
struct Unit {
    frames: Range<usize>,
    entries: Range<usize>,
}

/// The units of a payload. Frames without files (directories, links, the end) need no unit: the manifest has their content.
fn units(manifest: &Manifest, layout: &[Holds]) -> Vec<Unit> {
    let is_file = |entry: usize| matches!(manifest.entries[entry].kind, EntryKind::File { .. });
    let mut units: Vec<Unit> = Vec::new();
    for (index, holds) in layout.iter().enumerate() {
        match holds {
            Holds::Members(range) if range.clone().any(is_file) => {
                units.push(Unit { frames: index..index + 1, entries: range.clone() });
            }
            Holds::Part { entry, offset: 0, .. } => {
                units.push(Unit { frames: index..index + 1, entries: *entry..entry + 1 });
            }
            Holds::Part { .. } => {
                let begun = units.last_mut().expect("a later part follows the first one of its file");
                begun.frames.end = index + 1;
            }
            Holds::Members(_) | Holds::End => {}
        }
    }
    units
}

/// The frames to fetch: those of files that this host doesn't have, in the payload's order.
pub fn wanted(manifest: &Manifest, held: &dyn Held) -> Vec<Frame> {
    let units = units(manifest, &manifest.layout());
    let missing = units.into_iter().filter(|unit| !seems_held(manifest, unit, held));
    missing.flat_map(|unit| unit.frames).map(|index| manifest.frames[index]).collect()
}

fn seems_held(manifest: &Manifest, unit: &Unit, held: &dyn Held) -> bool {
    manifest.entries[unit.entries.clone()].iter().all(|entry| match &entry.kind {
        EntryKind::File { sha256, .. } => held.places(sha256) > 0,
        EntryKind::Directory { .. } | EntryKind::Link { .. } => true,
    })
}

/// Rebuilds the tree of `manifest` in the empty directory `into`: `threads` threads copy what is held, beside as many that unpack the frames of the
/// rest. `progress` gets the bytes of frames taken so far, and their total. If a held file has changed, its frames are fetched as well.
pub fn rebuild(
    manifest: &Manifest,
    held: &dyn Held,
    payload: &mut dyn PayloadSource,
    into: &Dir,
    threads: usize,
    progress: &dyn Fn(u64, u64),
) -> Result<(), UnpackError> {
    make_directories(manifest, into)?;
    crash_point!("rebuild.directories");
    let layout = manifest.layout();
    let (there, lacking): (Vec<Unit>, Vec<Unit>) =
        units(manifest, &layout).into_iter().partition(|unit| seems_held(manifest, unit, held));
    let of = |units: &[&Unit]| units.iter().flat_map(|unit| unit.frames.clone()).collect::<Vec<usize>>();
    Writeback::beside(into, |writeback| {
        let place = (into, writeback);
        let copy = || copy_units(manifest, &there, held, place, threads);
        let mut take = |wanted: &[usize]| take_frames(manifest, &layout, wanted, payload, place, (threads, progress));
        let wanted = of(&lacking.iter().collect::<Vec<_>>());
        let changed = thread::scope(|scope| {
            let copying = helper(scope, copy);
            let taken = take(&wanted);
            // Without a free thread one comes after the other.
            let changed =
                copying.map_or_else(copy, |copying| copying.join().unwrap_or_else(|panic| resume_unwind(panic)));
            taken.and(changed)
        })?;
        crash_point!("rebuild.copied");
        if changed.is_empty() {
            return Ok(());
        }
        take(&of(&changed.iter().map(|index| &there[*index]).collect::<Vec<_>>()))
    })?;
    make_links(manifest, into)?;
    Ok(())
}

/// Copies the files of these units; gives those of which a file is not held.
fn copy_units(
    manifest: &Manifest,
    units: &[Unit],
    held: &dyn Held,
    (into, writeback): (&Dir, &Writeback),
    threads: usize,
) -> Result<Vec<usize>, UnpackError> {
    let mut changed = Vec::new();
    let copy = |index: usize| copy_unit(manifest, &units[index], held, (into, writeback));
    parallel::ordered(threads, units.len(), copy, |index, copied| {
        if !copied {
            changed.push(index);
        }
        Ok(())
    })?;
    Ok(changed)
}

/// Unpacks these frames, which are in the payload's order.
fn take_frames(
    manifest: &Manifest,
    layout: &[Holds],
    wanted: &[usize],
    payload: &mut dyn PayloadSource,
    (into, writeback): (&Dir, &Writeback),
    (threads, progress): (usize, &dyn Fn(u64, u64)),
) -> Result<(), UnpackError> {
    let frames: Vec<Frame> = wanted.iter().map(|index| manifest.frames[*index]).collect();
    let mut source = payload.frames(&frames).map_err(UnpackError::Source)?;
    unpack_frames(&Job::new(manifest, layout, wanted, into, writeback), &mut *source, threads, progress)?;
    source.end().map_err(UnpackError::Source)
}

/// Copies all files of a unit, or none; false: a file is not held.
fn copy_unit(
    manifest: &Manifest,
    unit: &Unit,
    held: &dyn Held,
    (into, writeback): (&Dir, &Writeback),
) -> Result<bool, UnpackError> {
    let mut handles = Handles::new(into);
    for index in unit.entries.clone() {
        let entry = &manifest.entries[index];
        let EntryKind::File { mode, size, sha256, .. } = &entry.kind else { continue };
        let (parent, name) = handles.parent(&entry.path)?;
        if copy_held(held, (parent, name), (*mode, *size, sha256), writeback)? {
            continue;
        }
        for copied in &manifest.entries[unit.entries.start..=index] {
            if let EntryKind::File { .. } = copied.kind {
                let (parent, name) = handles.parent(&copied.path)?;
                parent.remove_file(name)?;
            }
        }
        return Ok(false);
    }
    Ok(true)
}

/// Copies the files of these entries into `into`, whose directories exist. Returns the entries that no held file has.
pub fn copy_files(
    manifest: &Manifest,
    entries: &[usize],
    held: &dyn Held,
    into: &Dir,
    threads: usize,
) -> Result<Vec<usize>, UnpackError> {
    let mut missing = Vec::new();
    // A repair is small: its one sync at the end is enough.
    let writeback = Writeback::default();
    let copy = |number: usize| {
        let entry = &manifest.entries[entries[number]];
        let EntryKind::File { mode, size, sha256, .. } = &entry.kind else { return Ok(true) };
        let mut handles = Handles::new(into);
        let (parent, name) = handles.parent(&entry.path)?;
        copy_held(held, (parent, name), (*mode, *size, sha256), &writeback)
    };
    parallel::ordered(threads, entries.len(), copy, |number, copied: bool| {
        if !copied {
            missing.push(entries[number]);
        }
        Ok(())
    })?;
    Ok(missing)
}

/// The frames that hold these entries, in the payload's order.
pub fn frames_of(manifest: &Manifest, entries: &[usize]) -> Vec<Frame> {
    let indices = indices_of(&units(manifest, &manifest.layout()), entries);
    indices.into_iter().map(|index| manifest.frames[index]).collect()
}

fn indices_of(units: &[Unit], entries: &[usize]) -> Vec<usize> {
    let holds = |unit: &&Unit| entries.iter().any(|entry| unit.entries.contains(entry));
    units.iter().filter(holds).flat_map(|unit| unit.frames.clone()).collect()
}

/// Unpacks the frames of these entries, other content included, into `into`, whose directories exist.
pub fn unpack_files(
    manifest: &Manifest,
    entries: &[usize],
    payload: &mut dyn PayloadSource,
    into: &Dir,
) -> Result<(), UnpackError> {
    let layout = manifest.layout();
    let wanted = indices_of(&units(manifest, &layout), entries);
    // A repair is small: its one sync at the end is enough.
    let writeback = Writeback::default();
    take_frames(manifest, &layout, &wanted, payload, (into, &writeback), (REPAIRING_THREADS, &|_, _| {}))
}

/// True if this host holds a file of this content: it is read and hashed.
pub fn is_held(held: &dyn Held, size: u64, sha256: &Digest) -> bool {
    let fits = |place| {
        let Some(from) = held.open(sha256, place) else { return false };
        let mut hasher = Hasher::new();
        let mut from = from.take(size.saturating_add(1));
        let mut buffer = vec![0; COPY_BYTES];
        let mut read = 0_u64;
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return read == size && hasher.finish() == *sha256,
                Ok(count) => {
                    hasher.update(&buffer[..count]);
                    read += count as u64;
                }
                Err(_) => return false,
            }
        }
    };
    (0..held.places(sha256)).any(fits)
}

/// Copies the first held file with the right content; false: there is none.
fn copy_held(
    held: &dyn Held,
    (parent, name): (&Dir, &str),
    signed: (u32, u64, &Digest),
    writeback: &Writeback,
) -> Result<bool, UnpackError> {
    for place in 0..held.places(signed.2) {
        if copy_file(held.open(signed.2, place), (parent, name), signed, writeback)? {
            return Ok(true);
        }
        parent.remove_file(name)?;
    }
    Ok(false)
}

/// Copies a file; false: it is missing, unreadable, or has other content. Where the file system can, the copy shares the blocks of the original,
/// which is hashed then, and must not change between its clone and its last byte.
fn copy_file(
    from: Option<File>,
    (parent, name): (&Dir, &str),
    (mode, size, sha256): (u32, u64, &Digest),
    writeback: &Writeback,
) -> Result<bool, UnpackError> {
    let Some(from) = from else { return Ok(false) };
    let mut into = parent.create_file(name, mode)?;
    let cloned = if size < CLONED_MINIMUM_BYTES { None } else { file::clone(&from, &into) };
    let mut original = (&from).take(size.saturating_add(1));
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(size).unwrap_or(COPY_BYTES).saturating_add(1))];
    let mut copied = 0_u64;
    loop {
        let Ok(count) = original.read(&mut buffer) else { return Ok(false) };
        if count == 0 {
            let is_same = cloned.is_none_or(|cloned| cloned.is_unchanged(&from));
            return Ok(is_same && copied == size && hasher.finish() == *sha256);
        }
        hasher.update(&buffer[..count]);
        if cloned.is_none() {
            into.write_all(&buffer[..count])
                .map_err(|source| OsError::new("write", &parent.path().join(name), source))?;
            writeback.add(count as u64);
        }
        copied += count as u64;
    }
}
