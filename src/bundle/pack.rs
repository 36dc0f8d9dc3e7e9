//! Packs a tree: the same tree, recipe, previous releases and time give the same payload and manifest, byte for byte, on every machine.

use super::compression;
use super::contents::Contents;
use super::frames::{self, Group, Holds, Planned, Shape};
use super::handles::Handles;
use super::host_versions::SymbolVersions;
use super::limits::GENERATIONS_MAXIMUM;
use super::manifest::{self, Entry, EntryKind, Frame, Head, Manifest, ManifestError, Payload, Space};
use super::parallel;
use super::recipe::Recipe;
pub use super::survey::PackError;
use super::survey::{self, Asks, Stamp, Survey};
use super::ustar;
use crate::digest::{Digest, Hasher};
use crate::os::{OsError, dir::Dir};
use crate::version::{Release, Version};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

/// Name of the payload in the output directory.
pub const PAYLOAD_NAME: &str = "payload.tar.zst";

/// zstd level for everyday packing.
pub const LEVEL_DEFAULT: i32 = 10;
/// zstd level for releases that many hosts fetch.
pub const LEVEL_BEST: i32 = 19;

/// The input of packing.
pub struct PackInput<'a> {
    /// The root of the tree.
    pub tree: &'a Dir,
    /// The package's recipe.
    pub recipe: &'a Recipe,
    /// The version as published.
    pub version: Version,
    /// The rebuild of this version, from 1.
    pub revision: u32,
    /// Manifests of earlier releases: known content goes into frames of its own, which hosts with those releases skip.
    pub previous: &'a [Manifest],
    /// Time of every member, seconds since 1970.
    pub source_date_epoch: u64,
    /// zstd level.
    pub level: i32,
    /// Threads that read and compress.
    pub threads: usize,
    /// Called with the tar bytes packed so far, and their total.
    pub progress: &'a dyn Fn(u64, u64),
    /// What the release says of itself.
    pub contents: Contents,
    /// The directory that gets [`PAYLOAD_NAME`].
    pub output: &'a Dir,
}

/// A packed release.
#[derive(Debug)]
pub struct Packed {
    /// The manifest.
    pub manifest: Manifest,
    /// The compressed manifest: the bytes of `manifest.json.zst`.
    pub manifest_bytes: Vec<u8>,
}

/// Packs a tree into `output`. A failure leaves no payload there.
pub fn pack(input: &PackInput<'_>) -> Result<Packed, PackError> {
    let requires = &input.recipe.requires;
    let survey = survey::survey(input.tree, &requires.libraries, requires.glibc, input.threads)?;
    let plan = Plan::new(input, survey);
    input.output.remove_file(PAYLOAD_NAME)?;
    let packed = write_payload(input, &plan).and_then(|(payload, frames)| describe(input, plan, payload, frames));
    if packed.is_err() {
        // The first failure is reported; the next attempt replaces a leftover.
        let _ = input.output.remove_file(PAYLOAD_NAME);
    }
    packed
}

/// The plan, complete before the first byte is compressed.
struct Plan {
    entries: Vec<Entry>,
    stamps: Vec<Option<Stamp>>,
    generations: Vec<Release>,
    /// Index of this release in `generations`.
    own: u32,
    frames: Vec<Planned>,
    asks: Asks,
}

impl Plan {
    fn new(input: &PackInput<'_>, survey: Survey) -> Self {
        let own = Release { version: input.version.clone(), revision: input.revision };
        let history = History::new(input, &own, &survey.found);
        let mut members: Vec<(Group, Entry, Option<Stamp>)> =
            survey.found.into_iter().map(|(entry, stamp)| (history.group(&entry), entry, stamp)).collect();
        members.sort_by(|one, other| (one.0, &one.1.path).cmp(&(other.0, &other.1.path)));
        let mtime = input.source_date_epoch;
        let shapes: Vec<Shape> =
            members.iter().map(|(group, entry, _)| Shape::of(&entry.member(mtime), *group)).collect();
        let frames = frames::plan(&shapes);
        let (mut entries, mut stamps) = (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
        for (_, entry, stamp) in members {
            entries.push(entry);
            stamps.push(stamp);
        }
        number(&mut entries, &frames);
        Self { entries, stamps, own: history.index(&own), generations: history.generations, frames, asks: survey.asks }
    }
}

/// Numbers the files by the frame in which they begin.
fn number(entries: &mut [Entry], frames: &[Planned]) {
    for (index, planned) in frames.iter().enumerate() {
        let range = match &planned.holds {
            Holds::Members(range) => range.clone(),
            Holds::Part { entry, offset: 0, .. } => *entry..*entry + 1,
            Holds::Part { .. } | Holds::End => continue,
        };
        for entry in &mut entries[range] {
            if let EntryKind::File { frame, .. } = &mut entry.kind {
                *frame = u32::try_from(index).unwrap_or(u32::MAX);
            }
        }
    }
}

/// The release in which each content first appeared.
struct History {
    first_seen: HashMap<Digest, Release>,
    generations: Vec<Release>,
    own: Release,
}

impl History {
    fn new(input: &PackInput<'_>, own: &Release, found: &[(Entry, Option<Stamp>)]) -> Self {
        let mut first_seen: HashMap<Digest, Release> = HashMap::new();
        for previous in input.previous.iter().filter(|previous| previous.package == input.recipe.package) {
            for entry in &previous.entries {
                let EntryKind::File { sha256, frame, .. } = entry.kind else { continue };
                let release = &previous.generations[previous.frames[frame as usize].generation as usize];
                let first = first_seen.entry(sha256).or_insert_with(|| release.clone());
                if release < first {
                    *first = release.clone();
                }
            }
        }
        let mut used: BTreeSet<Release> = found
            .iter()
            .filter_map(|(entry, _)| match &entry.kind {
                EntryKind::File { sha256, .. } => Some(first_seen.get(sha256).unwrap_or(own).clone()),
                EntryKind::Directory { .. } | EntryKind::Link { .. } => None,
            })
            .collect();
        used.insert(own.clone());
        while used.len() > GENERATIONS_MAXIMUM {
            // The oldest other release goes; its files join the next.
            let oldest = used.iter().find(|release| *release != own).cloned();
            used.retain(|release| Some(release) != oldest.as_ref());
        }
        Self { first_seen, generations: used.into_iter().collect(), own: own.clone() }
    }

    /// The index of a release, or of the next one with an index.
    fn index(&self, release: &Release) -> u32 {
        let index = self.generations.partition_point(|generation| generation < release);
        u32::try_from(index.min(self.generations.len() - 1)).unwrap_or(0)
    }

    fn group(&self, entry: &Entry) -> Group {
        match &entry.kind {
            EntryKind::Directory { .. } => Group::Directories,
            EntryKind::Link { .. } => Group::Links,
            EntryKind::File { sha256, .. } => {
                Group::Files(self.index(self.first_seen.get(sha256).unwrap_or(&self.own)))
            }
        }
    }
}

fn write_payload(input: &PackInput<'_>, plan: &Plan) -> Result<(Payload, Vec<Frame>), PackError> {
    let mut file = input.output.create_file(PAYLOAD_NAME, 0o644)?;
    let failed = |source| OsError::new("write", &input.output.path().join(PAYLOAD_NAME), source);
    let total: u64 = plan.frames.iter().map(|frame| frame.content_length).sum();
    let mut done = 0;
    let mut payload_hasher = Hasher::new();
    let mut offset = 0;
    let mut frames = Vec::with_capacity(plan.frames.len());
    let (tree, mtime, level) = (input.tree, input.source_date_epoch, input.level);
    let work = |index: usize| {
        let content = assemble(tree, mtime, plan, &plan.frames[index])?;
        let bytes = compression::compress(&content, level).map_err(PackError::Compression)?;
        let sha256 = Digest::of(&bytes);
        Ok::<_, PackError>((bytes, sha256))
    };
    parallel::ordered(input.threads, plan.frames.len(), work, |index, (bytes, sha256)| {
        let planned = &plan.frames[index];
        let generation = match planned.group {
            Some(Group::Files(generation)) => generation,
            Some(Group::Directories | Group::Links) | None => plan.own,
        };
        let length = bytes.len() as u64;
        frames.push(Frame { offset, length, sha256, content_length: planned.content_length, generation });
        offset += length;
        payload_hasher.update(&bytes);
        file.write_all(&bytes).map_err(failed)?;
        done += planned.content_length;
        (input.progress)(done, total);
        Ok(())
    })?;
    file.sync_all().map_err(failed)?;
    Ok((Payload { length: offset, sha256: payload_hasher.finish() }, frames))
}

/// The tar bytes of one frame.
fn assemble(tree: &Dir, mtime: u64, plan: &Plan, planned: &Planned) -> Result<Vec<u8>, PackError> {
    let mut content = Vec::with_capacity(usize::try_from(planned.content_length).unwrap_or(0));
    let mut handles = Handles::new(tree);
    let mut read = |entry: usize, offset: u64, length: u64, content: &mut Vec<u8>| {
        let (parent, name) = handles.parent(&plan.entries[entry].path)?;
        let path = parent.path().join(name);
        let file = parent.open_file(name)?;
        match append(&file, offset, length, content) {
            Err(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => return Err(PackError::Changed(path)),
            result => result.map_err(|source| OsError::new("read", &path, source))?,
        }
        // Checked after reading: a write before or during it shows.
        let stamp = Stamp::of(&file).map_err(|source| OsError::new("look at", &path, source))?;
        if plan.stamps[entry] == Some(stamp) { Ok(()) } else { Err(PackError::Changed(path)) }
    };
    match &planned.holds {
        Holds::Members(range) => {
            for entry in range.clone() {
                let member = plan.entries[entry].member(mtime);
                member.write_header(&mut content);
                let length = member.content_length();
                if length > 0 {
                    read(entry, 0, length, &mut content)?;
                    pad(length, &mut content);
                }
            }
        }
        Holds::Part { entry, offset, length } => {
            let member = plan.entries[*entry].member(mtime);
            if *offset == 0 {
                member.write_header(&mut content);
            }
            read(*entry, *offset, *length, &mut content)?;
            if offset + length == member.content_length() {
                pad(*offset + *length, &mut content);
            }
        }
        Holds::End => content.extend_from_slice(&ustar::END),
    }
    Ok(content)
}

fn append(mut file: &File, offset: u64, length: u64, content: &mut Vec<u8>) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    let read = file.take(length).read_to_end(content)?;
    if read as u64 == length { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

fn pad(size: u64, content: &mut Vec<u8>) {
    content.resize(content.len() + usize::try_from(ustar::padding(size)).unwrap_or(0), 0);
}

fn listed(versions: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, SymbolVersions> {
    versions.into_iter().map(|(library, names)| (library, SymbolVersions(names.into_iter().collect()))).collect()
}

/// The manifest of the payload. It is read back and judged: a manifest that hosts refuse never leaves the author.
fn describe(input: &PackInput<'_>, plan: Plan, payload: Payload, frames: Vec<Frame>) -> Result<Packed, PackError> {
    let recipe = input.recipe;
    let Contents { extras, kept, sbom, offers } = input.contents.clone();
    let head = Head {
        schema: manifest::SCHEMA,
        package: recipe.package.clone(),
        version: input.version.clone(),
        revision: input.revision,
        platform: plan.asks.platform,
        agent: recipe.agent.clone(),
        libc_floor: plan.asks.libc_floor,
        host_libraries: plan.asks.libraries,
        host_versions: listed(plan.asks.versions),
        kernel_floor: plan.asks.kernel_floor,
        x86_64_level: plan.asks.x86_64_level,
        masters: recipe.requires.masters.clone(),
        source_date_epoch: input.source_date_epoch,
        space: Space::of(&plan.entries, recipe.requires.overlap_memory_bytes),
        commands: recipe.commands.clone(),
        service: recipe.service.clone(),
        guard: recipe.guard.clone(),
        extras,
        kept,
        sbom,
        payload,
        generations: plan.generations,
        frames,
    };
    let text = Manifest { head, offers, entries: plan.entries }.to_json().map_err(PackError::Manifest)?;
    let manifest = Manifest::parse(&text).map_err(|error| match error {
        ManifestError::Unsafe(problems) => PackError::Unsafe { tree: input.tree.path().to_owned(), problems },
        error => PackError::Manifest(error),
    })?;
    let manifest_bytes = manifest::compress(&text).map_err(PackError::Manifest)?;
    Ok(Packed { manifest, manifest_bytes })
}
