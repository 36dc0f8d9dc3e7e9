//! Surveys a tree to be packed: its entries, its requirements of a host, and everything that forbids packing it.

use super::compression::CompressionError;
use super::elf::{self, Needs};
use super::handles::Handles;
use super::judge;
use super::manifest::{Entry, EntryKind, ManifestError};
use super::parallel;
use super::path::BundlePath;
use super::problems::Problems;
use crate::digest::Hasher;
use crate::failure::Class;
use crate::os::dir::{Dir, FileKind};
use crate::os::walk::{Walked, walk};
use crate::os::{OsError, file};
use crate::version::{Flavour, KernelVersion, LibcVersion, Platform};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Why a tree can't be packed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum PackError {
    /// The system refused.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The tree or recipe holds what no host would accept.
    #[error("cannot pack {tree}: {problems}")]
    Unsafe {
        tree: PathBuf,
        #[source]
        problems: Problems,
    },
    /// A file was written to while it was packed.
    #[error("cannot pack {}: it was changed while it was packed", .0.display())]
    Changed(PathBuf),
    /// zstd refused.
    #[error(transparent)]
    Compression(CompressionError),
    /// The manifest can't be written.
    #[error(transparent)]
    Manifest(ManifestError),
}

impl PackError {
    /// What kind of failure this is.
    pub fn class(&self) -> Class {
        match self {
            Self::Os(error) => error.class(),
            Self::Unsafe { .. } | Self::Changed(_) | Self::Compression(_) | Self::Manifest(_) => Class::Failed,
        }
    }

    /// A remedy for the author.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Os(error) => error.hint(),
            Self::Unsafe { problems, .. } if problems.listed().iter().any(|problem| problem.contains("its mode")) => {
                Some("bundles hold modes within 0755: try `chmod -R u+rwX,go-w,-s` on a copy of the tree".to_owned())
            }
            Self::Unsafe { .. } | Self::Compression(_) | Self::Manifest(_) => None,
            Self::Changed(_) => Some("pack a copy that nothing writes to".to_owned()),
        }
    }
}

/// The content and the requirements of a tree.
pub struct Survey {
    /// Entries without frames (directories, files, links, each by path), and the state in which each file was read.
    pub found: Vec<(Entry, Option<Stamp>)>,
    /// Its requirements for a host.
    pub asks: Asks,
}

/// The requirements of a tree for a host.
#[derive(Debug)]
pub struct Asks {
    /// The platform of its binaries.
    pub platform: Platform,
    /// The oldest glibc that it runs with.
    pub libc_floor: Option<LibcVersion>,
    /// Libraries that the host must have.
    pub libraries: Vec<String>,
    /// The symbol versions that these libraries must define.
    pub versions: BTreeMap<String, BTreeSet<String>>,
    /// The oldest kernel that it runs with.
    pub kernel_floor: Option<KernelVersion>,
    /// The level of x86-64 that it needs, from 2 on.
    pub x86_64_level: Option<u8>,
}

/// From this glibc on the dynamic linker takes a segment that is aligned to pages alone.
const TAKES_MISALIGNED_SEGMENTS: LibcVersion = LibcVersion { major: 2, minor: 35 };

/// The state of a file: it changes with every write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl Stamp {
    /// The state of an open file.
    pub fn of(file: &File) -> std::io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self {
            inode: found.ino(),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// The result of reading one file.
struct Read {
    entry: Entry,
    stamp: Stamp,
    needs: Option<Needs>,
    problems: Problems,
}

/// Surveys everything below `tree`. `libraries` and the stated `glibc` come from the recipe.
pub fn survey(
    tree: &Dir,
    libraries: &[String],
    glibc: Option<LibcVersion>,
    threads: usize,
) -> Result<Survey, PackError> {
    let mut problems = Problems::default();
    let (mut found, files) = sort(tree, walk(tree)?, &mut problems)?;
    let build_path = build_path(tree)?;
    let mut needs = Vec::new();
    let links = found.split_off(found.partition_point(|(entry, _)| matches!(entry.kind, EntryKind::Directory { .. })));
    let read = |index: usize| read(tree, &files[index], build_path.as_deref());
    parallel::ordered(threads, files.len(), read, |_, read| {
        needs.extend(read.needs.map(|needs| (read.entry.path.clone(), needs)));
        found.push((read.entry, Some(read.stamp)));
        problems.append(read.problems);
        Ok(())
    })?;
    found.extend(links);
    let entries: Vec<Entry> = found.iter().map(|(entry, _)| entry.clone()).collect();
    judge::check_tree(&entries, &mut problems);
    let (platform, libc_floor) = platform(&needs, glibc, &mut problems);
    check_segments(&needs, libc_floor, &mut problems);
    check_own_libraries(&needs, &mut problems);
    let libraries = host_libraries(&entries, &needs, libraries);
    let versions = versions(&libraries, &needs);
    if problems.is_empty() {
        let kernel_floor = needs.iter().filter_map(|(_, needs)| needs.kernel).max();
        // The loader takes those that lie there only where the processor has the level.
        let chosen = |path: &BundlePath| path.as_str().contains("glibc-hwcaps/");
        let levels = needs.iter().filter(|(path, _)| !chosen(path)).filter_map(|(_, needs)| needs.x86_64_level);
        let x86_64_level = levels.max();
        Ok(Survey { found, asks: Asks { platform, libc_floor, libraries, versions, kernel_floor, x86_64_level } })
    } else {
        Err(PackError::Unsafe { tree: tree.path().to_owned(), problems })
    }
}

type Surveyed = Vec<(Entry, Option<Stamp>)>;

/// Directories and links (in this order), and the files to read.
fn sort(
    tree: &Dir,
    walked: Vec<Walked>,
    problems: &mut Problems,
) -> Result<(Surveyed, Vec<(BundlePath, u32)>), PackError> {
    let (mut directories, mut files, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let mut handles = Handles::new(tree);
    for Walked { path, stat } in walked {
        let text = path.to_string_lossy().into_owned();
        let path = match path.to_str().map(str::parse::<BundlePath>) {
            Some(Ok(path)) => path,
            Some(Err(reason)) => {
                problems.add(&text, reason);
                continue;
            }
            None => {
                problems.add(&text, "its name is not UTF-8");
                continue;
            }
        };
        match stat.kind {
            FileKind::Directory => {
                directories.push((Entry { path, kind: EntryKind::Directory { mode: stat.mode } }, None));
            }
            FileKind::File => files.push((path, stat.mode)),
            FileKind::Symlink => {
                let (parent, name) = handles.parent(&path)?;
                match parent.read_link(name)?.map(|target| target.into_os_string().into_string()) {
                    Some(Ok(target)) => links.push((Entry { path, kind: EntryKind::Link { target } }, None)),
                    Some(Err(_)) => problems.add(&text, "its target is not UTF-8"),
                    None => problems.add(&text, "it disappeared while the tree was read"),
                }
            }
            FileKind::Other => problems.add(&text, "it is neither file, directory nor link"),
        }
    }
    files.sort();
    let by_path = |one: &(Entry, Option<Stamp>), other: &(Entry, Option<Stamp>)| one.0.path.cmp(&other.0.path);
    directories.sort_by(by_path);
    links.sort_by(by_path);
    directories.extend(links);
    Ok((directories, files))
}

/// The tree's own path, which no file should contain. None if it is so short that it would be found by chance.
fn build_path(tree: &Dir) -> Result<Option<Vec<u8>>, OsError> {
    let path = file::canonical(tree.path())?.as_os_str().as_bytes().to_vec();
    Ok((path.len() >= 5).then_some(path))
}

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

fn read(tree: &Dir, (path, mode): &(BundlePath, u32), build_path: Option<&[u8]>) -> Result<Read, PackError> {
    let mut handles = Handles::new(tree);
    let (parent, name) = handles.parent(path)?;
    let mut file = parent.open_file(name)?;
    let failed = |source| OsError::new("read", &parent.path().join(name), source);
    let stamp = Stamp::of(&file).map_err(failed)?;
    let mut hasher = Hasher::new();
    let mut size = 0;
    let mut kept = Vec::new();
    let records_paths =
        path.as_path().extension().is_some_and(|extension| extension == "pyc") || path.as_str().contains(".dist-info/");
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(stamp.size).unwrap_or(CHUNK_BYTES) + 1)];
    loop {
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            break;
        }
        let chunk = &buffer[..count];
        hasher.update(chunk);
        // Only files that are parsed are kept whole.
        if records_paths || !kept.is_empty() || (size == 0 && chunk.starts_with(elf::MAGIC)) {
            kept.extend_from_slice(chunk);
        }
        size += count as u64;
    }
    let mut problems = Problems::default();
    if let Some(build_path) = build_path.filter(|_| records_paths) {
        if memchr::memmem::find(&kept, build_path).is_some() {
            problems.add(path.as_str(), "it contains the path of its build directory");
        }
    }
    let needs = elf::read(&kept).unwrap_or_else(|error| {
        problems.add(path.as_str(), error);
        None
    });
    let kind = EntryKind::File { mode: *mode, size, sha256: hasher.finish(), frame: 0 };
    Ok(Read { entry: Entry { path: path.clone(), kind }, stamp, needs, problems })
}

/// The common platform of all binaries.
fn platform(
    needs: &[(BundlePath, Needs)],
    stated: Option<LibcVersion>,
    problems: &mut Problems,
) -> (Platform, Option<LibcVersion>) {
    let Some((first_path, first)) = needs.first() else {
        return (Platform { architecture: Platform::ANY.to_owned(), flavour: stated.map(Flavour::Glibc) }, stated);
    };
    for (path, needs) in needs {
        if needs.architecture != first.architecture {
            let (one, other) = (first.architecture, needs.architecture);
            problems.add(path.as_str(), format_args!("it is for {other}, but {first_path} is for {one}"));
        }
        if let Some((needed, stated)) = needs.glibc.zip(stated).filter(|(needed, stated)| needed > stated) {
            let remedy = "build it on an older system, or state the newer glibc";
            problems
                .add(path.as_str(), format_args!("it needs glibc {needed}, and the recipe states {stated}: {remedy}"));
        }
    }
    let musl = needs.iter().find(|(_, needs)| needs.musl);
    let floor = needs.iter().filter_map(|(_, needs)| needs.glibc).chain(stated).max();
    if let (Some((path, _)), Some(floor)) = (musl, floor) {
        problems.add(path.as_str(), format_args!("it needs musl, but other files need glibc {floor}"));
    }
    let flavour = match (floor, musl) {
        (Some(floor), _) => Some(Flavour::Glibc(floor)),
        (None, Some(_)) => Some(Flavour::Musl),
        (None, None) => None,
    };
    (Platform { architecture: first.architecture.to_owned(), flavour }, floor)
}

/// Refuses binaries that hosts with the oldest glibc of these could not load, though they work where they were built.
fn check_segments(needs: &[(BundlePath, Needs)], floor: Option<LibcVersion>, problems: &mut Problems) {
    if floor.is_some_and(|floor| floor >= TAKES_MISALIGNED_SEGMENTS) {
        return;
    }
    for (path, _) in needs.iter().filter(|(_, needs)| needs.misaligned) {
        let why = "its segments are not aligned as glibc before 2.35 asks";
        problems.add(path.as_str(), format_args!("{why}: link it again, or use patchelf 0.17 or 0.19"));
    }
}

/// Refuses binaries that none of the tree's own libraries of that name serves: a package may ask for a newer libstdc++ than the one beside Python.
fn check_own_libraries(needs: &[(BundlePath, Needs)], problems: &mut Problems) {
    let mut own: BTreeMap<&str, Vec<&BTreeSet<String>>> = BTreeMap::new();
    for (path, found) in needs {
        let names = BTreeSet::from([path.split().1, found.soname.as_deref().unwrap_or_default()]);
        for name in names {
            own.entry(name).or_default().push(&found.defines);
        }
    }
    for (path, found) in needs {
        for (library, version) in &found.versions {
            // The loader lets a library without any versions pass.
            let serves = |defines: &&BTreeSet<String>| defines.is_empty() || defines.contains(version);
            if own.get(library.as_str()).is_some_and(|all| !all.iter().any(serves)) {
                let why = "which the tree's own does not define: bring a newer one, or an older build of this file";
                problems.add(path.as_str(), format_args!("it needs {version} of {library}, {why}"));
            }
        }
    }
}

/// The symbol versions that the binaries need of the host's libraries.
fn versions(libraries: &[String], needs: &[(BundlePath, Needs)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (library, version) in needs.iter().flat_map(|(_, needs)| &needs.versions) {
        if libraries.contains(library) {
            found.entry(library.clone()).or_default().insert(version.clone());
        }
    }
    found
}

/// Libraries that the binaries need and the tree doesn't hold.
fn host_libraries(entries: &[Entry], needs: &[(BundlePath, Needs)], added: &[String]) -> Vec<String> {
    let mut own: BTreeSet<&str> = entries.iter().map(|entry| entry.path.split().1).collect();
    own.extend(needs.iter().filter_map(|(_, needs)| needs.soname.as_deref()));
    let needed = needs.iter().flat_map(|(_, needs)| &needs.libraries).chain(added);
    let missing: BTreeSet<&String> =
        needed.filter(|library| !own.contains(library.as_str()) && !elf::belongs_to_libc(library)).collect();
    missing.into_iter().cloned().collect()
}
