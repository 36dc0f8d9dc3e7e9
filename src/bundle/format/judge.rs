//! Reads and judges a manifest: refuses, never skips, and names every problem. A signature says who wrote it; judging says that it is
//! harmless.

use crate::bundle::contents::{Contents, Offers};
use crate::bundle::frames::{self, Group};
use crate::bundle::limits::{
    CONTENT_MAXIMUM_BYTES, ENTRIES_MAXIMUM, FRAME_CONTENT_MAXIMUM_BYTES, FRAME_LENGTH_MAXIMUM_BYTES,
    MANIFEST_MAXIMUM_BYTES, PATH_MAXIMUM_BYTES, PAYLOAD_MAXIMUM_BYTES, TEXT_MAXIMUM_BYTES,
};
use crate::bundle::manifest::{self, Entry, EntryKind, Frame, Head, Manifest, ManifestError, SCHEMA, Space};
use crate::bundle::path::BundlePath;
use crate::bundle::problems::Problems;
use crate::bundle::wire::{self, RawEntry, RawKind};
use crate::version::Flavour;
use memchr::memmem;
use serde::Deserialize;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Levels of x86-64 above that of every such processor.
const X86_64_LEVELS: RangeInclusive<u8> = 2..=4;

/// Permission bits that a release may have.
pub const MODE_MAXIMUM: u32 = 0o755;

impl Manifest {
    /// Reads and judges a manifest's text; an error names everything that is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        if text.len() as u64 > MANIFEST_MAXIMUM_BYTES {
            return Err(ManifestError::TooLarge);
        }
        judge(read(text)?).map_err(ManifestError::Unsafe)
    }

    /// Decompresses, reads and judges a manifest whose digest has been compared. The text is freed before judging.
    pub fn decompressed(bytes: &[u8]) -> Result<Self, ManifestError> {
        let raw = read(&manifest::decompress(bytes)?)?;
        judge(raw).map_err(ManifestError::Unsafe)
    }
}

impl Head {
    /// Reads the head of a manifest that was judged before; its thousands of entries are passed over.
    pub fn decompressed(bytes: &[u8]) -> Result<Self, ManifestError> {
        let text = manifest::decompress(bytes)?;
        let short = without_entries(&text).and_then(|short| serde_json::from_slice(&short).ok());
        let head: Self = short.map_or_else(|| serde_json::from_slice(&text), Ok).map_err(ManifestError::Json)?;
        if head.schema == SCHEMA { Ok(head) } else { Err(ManifestError::Schema(head.schema)) }
    }
}

/// The text with an empty list of entries; None where they do not come last, as `sidle pack` writes them.
fn without_entries(text: &[u8]) -> Option<Vec<u8>> {
    const BEGIN: &[u8] = b",\"entries\":[[";
    let begin = memmem::find(text, BEGIN)? + BEGIN.len() - 1;
    let entries = text.get(begin..)?;
    // Behind a list of lists comes no other key. A path may have these letters, too: then the whole text is read.
    let are_last = entries.ends_with(b"]]}") && memmem::find(entries, b"]],\"").is_none();
    are_last.then(|| [&text[..begin], b"]}"].concat())
}

/// A manifest as written, not yet judged.
struct Raw {
    head: Head,
    offers: Offers,
    entries: Vec<RawEntry>,
}

fn read(text: &[u8]) -> Result<Raw, ManifestError> {
    #[derive(Deserialize)]
    struct Schema {
        schema: u32,
    }
    #[derive(Deserialize)]
    struct Entries {
        #[serde(default)]
        offers: Offers,
        #[serde(deserialize_with = "wire::list::<_, _, ENTRIES_MAXIMUM>")]
        entries: Vec<RawEntry>,
    }
    let parsed = serde_json::from_slice(text).and_then(|Entries { offers, entries }| {
        let head = serde_json::from_slice(text)?;
        Ok(Raw { head, offers, entries })
    });
    match (parsed, serde_json::from_slice::<Schema>) {
        (Ok(raw), _) if raw.head.schema == SCHEMA => Ok(raw),
        (Ok(raw), _) => Err(ManifestError::Schema(raw.head.schema)),
        // A later schema may have another shape: its number is the better message.
        (Err(error), only) => match only(text) {
            Ok(Schema { schema }) if schema != SCHEMA => Err(ManifestError::Schema(schema)),
            _ => Err(ManifestError::Json(error)),
        },
    }
}

/// The manifest, or everything that is wrong with it.
fn judge(Raw { head, offers, entries }: Raw) -> Result<Manifest, Problems> {
    let mut problems = Problems::default();
    let entries = convert(entries, &mut problems);
    check_tree(&entries, &mut problems);
    let manifest = Manifest { head, offers, entries };
    check_head(&manifest, &mut problems);
    check_commands(&manifest, &mut problems);
    Contents::check(&manifest.extras, &manifest.kept, manifest.sbom.as_ref(), &mut problems);
    check_frames(&manifest, &mut problems);
    // Wrong sums and cuts would only follow from the problems above.
    if problems.is_empty() {
        check_layout(&manifest, &mut problems);
    }
    if problems.is_empty() { Ok(manifest) } else { Err(problems) }
}

/// Entries with safe paths, kinds, modes and sizes.
fn convert(raw: Vec<RawEntry>, problems: &mut Problems) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(raw.len());
    for RawEntry { path, kind } in raw {
        let kind = match kind {
            RawKind::Directory { mode } => EntryKind::Directory { mode },
            RawKind::File { mode, size, sha256, frame } => EntryKind::File { mode, size, sha256, frame },
            RawKind::Link { target } => EntryKind::Link { target },
            RawKind::Unknown(kind) => {
                problems.add(&path, format_args!("its kind {kind:?} is neither file, directory nor link"));
                continue;
            }
        };
        if let Err(reason) = BundlePath::check(&path) {
            problems.add(&path, reason);
            continue;
        }
        let Ok(path) = BundlePath::try_from(path) else { continue };
        entries.push(Entry { path, kind });
    }
    entries
}

/// Refuses entries that could harm a host, in a manifest or a tree.
pub fn check_tree(entries: &[Entry], problems: &mut Problems) {
    if entries.len() > ENTRIES_MAXIMUM {
        problems.add("entries", format_args!("there are {}, the limit is {ENTRIES_MAXIMUM}", entries.len()));
    }
    let mut kinds: HashMap<&str, &EntryKind> = HashMap::with_capacity(entries.len());
    let mut content = 0_u64;
    for entry in entries {
        let path = entry.path.as_str();
        check_mode(path, &entry.kind, problems);
        if let EntryKind::File { size, .. } = &entry.kind {
            content = content.saturating_add(*size);
            if *size > PAYLOAD_MAXIMUM_BYTES {
                problems.add(path, format_args!("it has {size} bytes, the limit is {PAYLOAD_MAXIMUM_BYTES}"));
            }
        }
        let (parent, _) = entry.path.split();
        match kinds.get(parent) {
            _ if parent.is_empty() => {}
            Some(EntryKind::Directory { .. }) => {}
            Some(EntryKind::File { .. }) => problems.add(path, "its parent is a file"),
            Some(EntryKind::Link { .. }) => problems.add(path, "its parent is a link"),
            None => problems.add(path, "its parent is not declared before it"),
        }
        if kinds.insert(path, &entry.kind).is_some() {
            problems.add(path, "it is listed twice");
        }
    }
    if content > CONTENT_MAXIMUM_BYTES {
        problems.add("entries", format_args!("they have {content} bytes, the limit is {CONTENT_MAXIMUM_BYTES}"));
    }
    for entry in entries {
        if let EntryKind::Link { target } = &entry.kind {
            if let Err(what) = check_link(&entry.path, target, &kinds) {
                problems.add(entry.path.as_str(), what);
            }
        }
    }
}

fn check_mode(path: &str, kind: &EntryKind, problems: &mut Problems) {
    // An owner can't check a file without read permission, or repair a directory without access.
    let (mode, needed) = match kind {
        EntryKind::Directory { mode } => (*mode, 0o700),
        EntryKind::File { mode, .. } => (*mode, 0o400),
        EntryKind::Link { .. } => return,
    };
    if mode & !MODE_MAXIMUM != 0 {
        problems.add(path, format_args!("its mode {mode:04o} is not within {MODE_MAXIMUM:04o}"));
    } else if mode & needed != needed {
        problems.add(path, format_args!("its mode {mode:04o} does not include {needed:04o}"));
    }
}

/// A link must be relative and stay inside. Only the last name of its target may be a link or a file: behind a link `d`, `d/..` is
/// somewhere else than the text says. If each link stays inside, chains of links do, too.
fn check_link(path: &BundlePath, target: &str, kinds: &HashMap<&str, &EntryKind>) -> Result<(), &'static str> {
    if target.is_empty() || target.len() > PATH_MAXIMUM_BYTES || target.chars().any(char::is_control) {
        return Err("its target is empty, too long, or has a control character");
    }
    if target.starts_with('/') {
        return Err("its target is absolute");
    }
    let mut place: Vec<&str> = path.split().0.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/').filter(|name| !matches!(*name, "" | ".")) {
        let here = place.join("/");
        match kinds.get(here.as_str()) {
            Some(EntryKind::Link { .. }) => return Err("its target leads through a link"),
            Some(EntryKind::File { .. }) => return Err("its target leads through a file"),
            Some(EntryKind::Directory { .. }) | None => {}
        }
        if name != ".." {
            place.push(name);
        } else if place.pop().is_none() {
            return Err("its target leads out of the tree");
        }
    }
    Ok(())
}

fn check_head(manifest: &Manifest, problems: &mut Problems) {
    let release = manifest.release();
    if manifest.revision == 0 {
        problems.add("revision", "it must be 1 or more");
    }
    let flavour = match &manifest.platform.flavour {
        Some(Flavour::Glibc(version)) => Some(*version),
        Some(Flavour::Musl) | None => None,
    };
    if flavour != manifest.libc_floor {
        problems.add("libc_floor", format_args!("it does not agree with the platform {}", manifest.platform));
    }
    let libraries = &manifest.host_libraries;
    if !libraries.windows(2).all(|pair| pair[0] < pair[1]) {
        problems.add("host_libraries", "they are not sorted");
    }
    for library in libraries {
        if library.contains('/') || BundlePath::check(library).is_err() {
            problems.add(library, "it is not a library name");
        }
    }
    check_versions(manifest, problems);
    if manifest.x86_64_level.is_some_and(|level| !X86_64_LEVELS.contains(&level)) {
        problems.add("x86_64_level", "it must be 2, 3 or 4, or be left out");
    }
    // The limit of a tar header's time field.
    if manifest.source_date_epoch > PAYLOAD_MAXIMUM_BYTES {
        problems.add("source_date_epoch", "it is too late");
    }
    let generations = &manifest.generations;
    let ascending = generations.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending || !generations.contains(&release) {
        problems.add("generations", format_args!("they are not ascending, or do not name {release}"));
    }
}

fn check_versions(manifest: &Manifest, problems: &mut Problems) {
    let is_version = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic()) && (1..=255).contains(&text.len());
    for (library, versions) in &manifest.host_versions {
        if manifest.host_libraries.binary_search(library).is_err() {
            problems.add("host_versions", format_args!("{library} is not among host_libraries"));
        }
        let sorted = versions.0.windows(2).all(|pair| pair[0] < pair[1]);
        if versions.0.is_empty() || !sorted || !versions.0.iter().all(|version| is_version(version)) {
            problems.add("host_versions", format_args!("those of {library} are no sorted symbol versions"));
        }
    }
}

fn check_commands(manifest: &Manifest, problems: &mut Problems) {
    let executable: HashMap<&str, bool> = manifest
        .entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            EntryKind::File { mode, .. } => Some((entry.path.as_str(), mode & 0o100 != 0)),
            EntryKind::Link { .. } => Some((entry.path.as_str(), true)),
            EntryKind::Directory { .. } => None,
        })
        .collect();
    for (name, path) in &manifest.commands {
        if name.contains('/') || BundlePath::check(name).is_err() {
            problems.add(name, "it is not a command name");
        }
        if !executable.get(path.as_str()).copied().unwrap_or(false) {
            problems.add(path.as_str(), format_args!("the command {name:?} is not an executable file of the release"));
        }
    }
    let service = &manifest.service;
    if !service.command.first().is_some_and(|name| manifest.commands.contains_key(name)) {
        problems.add("service", "the first word of its command is none of the commands");
    }
    let sane = |text: &String| text.len() <= TEXT_MAXIMUM_BYTES && !text.contains('\0');
    if !service.command.iter().all(sane) {
        problems.add("service", "its command is too long, or has a NUL");
    }
    if !service.config.starts_with('/') || !sane(&service.config) || service.config.chars().any(char::is_control) {
        problems.add("service", "its config is not an absolute path");
    }
    let sound = |name: &String| !name.is_empty() && sane(name) && !name.contains('=');
    let environment = &service.environment;
    if !environment.iter().all(|(name, value)| sound(name) && sane(value)) {
        problems.add("service", "a variable of its environment has no name, or is too long, or has a NUL");
    }
}

fn check_frames(manifest: &Manifest, problems: &mut Problems) {
    let mut end = 0_u64;
    for (index, frame) in manifest.frames.iter().enumerate() {
        let Frame { offset, length, content_length, generation, .. } = *frame;
        let name = format!("frame {index}");
        if offset != end {
            problems.add(&name, format_args!("it begins at {offset}, the one before it ends at {end}"));
        }
        if length == 0 || length > FRAME_LENGTH_MAXIMUM_BYTES {
            problems.add(&name, format_args!("its length {length} is not within 1 to {FRAME_LENGTH_MAXIMUM_BYTES}"));
        }
        if content_length == 0 || content_length > FRAME_CONTENT_MAXIMUM_BYTES {
            problems.add(
                &name,
                format_args!("its content {content_length} is not within 1 to {FRAME_CONTENT_MAXIMUM_BYTES}"),
            );
        }
        if generation as usize >= manifest.generations.len() {
            problems.add(&name, format_args!("it has no generation {generation}"));
        }
        end = offset.saturating_add(length);
    }
    let length = manifest.payload.length;
    if end != length || length > PAYLOAD_MAXIMUM_BYTES {
        problems.add("frames", format_args!("they end at {end}, the payload at {length}"));
    }
}

/// The sums, the cut, and the order of entries that the cut implies.
fn check_layout(manifest: &Manifest, problems: &mut Problems) {
    if manifest.space != Space::of(&manifest.entries, manifest.space.overlap_memory_bytes) {
        problems.add("space", "it is not the sum of the entries");
    }
    let layout = match manifest.cut() {
        Ok(layout) => layout,
        Err(bad) => return problems.add(&format!("frame {}", bad.frame), bad.what),
    };
    let mut first_frames = vec![0_u32; manifest.entries.len()];
    let mut split_generation = None;
    for (index, holds) in layout.iter().enumerate() {
        let frame = u32::try_from(index).unwrap_or(u32::MAX);
        match holds {
            frames::Holds::Members(range) => first_frames[range.clone()].fill(frame),
            frames::Holds::Part { entry, offset: 0, .. } => {
                first_frames[*entry] = frame;
                split_generation = Some(manifest.frames[index].generation);
            }
            frames::Holds::Part { .. } => {
                if split_generation != Some(manifest.frames[index].generation) {
                    problems
                        .add(&format!("frame {index}"), "it is of another generation than the file that it continues");
                }
            }
            frames::Holds::End => {}
        }
    }
    check_order(manifest, &first_frames, problems);
}

fn check_order(manifest: &Manifest, first_frames: &[u32], problems: &mut Problems) {
    let mut before: Option<(Group, &BundlePath)> = None;
    for (entry, first_frame) in manifest.entries.iter().zip(first_frames) {
        let group = match &entry.kind {
            EntryKind::Directory { .. } => Group::Directories,
            EntryKind::Link { .. } => Group::Links,
            EntryKind::File { frame, .. } => {
                if frame != first_frame {
                    problems.add(entry.path.as_str(), format_args!("it is in frame {first_frame}, not in {frame}"));
                }
                Group::Files(manifest.frames[*first_frame as usize].generation)
            }
        };
        let place = (group, &entry.path);
        if before.is_some_and(|before| before >= place) {
            problems.add(entry.path.as_str(), "it is out of order");
        }
        before = Some(place);
    }
}
