//! Whether this host can hold and run a release: all facts are gathered before anything is written, then every obstacle is named at once.

use crate::bundle::elf;
use crate::bundle::manifest::{Head, Manifest};
use crate::failure::Class;
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::space::Space;
use crate::os::{OsError, file, host};
use crate::store::location::{Hazard, PlaceFacts};
use crate::version::{LibcVersion, Platform};
use std::path::{Path, PathBuf};

/// Free space kept in addition to a release, for receipts and the file system's own tables: a thirty-second of its size.
const SPACE_MARGIN_SHIFT: u32 = 5;
/// Largest C library read.
const LIBRARY_BYTES_MAXIMUM: u64 = 64 * 1024 * 1024;

/// This host, as far as it decides which platform fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The kernel's architecture name.
    pub architecture: String,
    /// The version of glibc; None: another C library, or none found.
    pub libc: Option<LibcVersion>,
}

impl Host {
    /// Reads this host's architecture and C library.
    pub fn read() -> Self {
        let libc = host::library("libc.so.6").and_then(|path| file::read(&path, LIBRARY_BYTES_MAXIMUM).ok());
        let libc = libc.and_then(|bytes| elf::defined_glibc(&bytes).ok().flatten());
        Self { architecture: host::architecture(), libc }
    }

    /// How well a platform fits; None: not at all.
    pub fn fit(&self, platform: &Platform) -> Option<(bool, Option<LibcVersion>)> {
        platform.fit(&self.architecture, self.libc)
    }
}

/// A reason why this host can't take a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields' names say what they hold")]
pub enum Obstacle {
    /// Another architecture.
    #[error("the release is built for {needed}, this host is {found}")]
    Architecture { needed: String, found: String },
    /// A missing or too old C library.
    #[error("the release needs glibc {needed} or newer, this host has {}", found.map_or_else(|| "none".to_owned(), |found| found.to_string()))]
    Libc { needed: LibcVersion, found: Option<LibcVersion> },
    /// Missing shared libraries of the host.
    #[error("libraries that the release needs are missing on this host: {}", .0.join(", "))]
    Libraries(Vec<String>),
    /// Too few bytes.
    #[error("the release needs {} MiB of space, {} MiB are free", needed.div_ceil(1 << 20), free >> 20)]
    Bytes { needed: u64, free: u64 },
    /// Too few inodes.
    #[error("the release needs {needed} inodes, {free} are free")]
    Inodes { needed: u64, free: u64 },
    /// The file system doesn't let programs run.
    #[error("the file system is mounted with noexec")]
    NoExec,
    /// Releases don't stay there, or the place isn't this host's alone.
    #[error(transparent)]
    Hazard(#[from] Hazard),
}

impl Obstacle {
    /// Whether a person may accept this obstacle: the place is theirs to choose. Acceptance gives a host neither room nor a C library.
    pub fn may_be_accepted(&self) -> bool {
        match self {
            Self::NoExec => true,
            Self::Hazard(hazard) => hazard.may_be_accepted(),
            Self::Architecture { .. }
            | Self::Libc { .. }
            | Self::Libraries(_)
            | Self::Bytes { .. }
            | Self::Inodes { .. } => false,
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Architecture { .. } => "export the release for this host's architecture",
            Self::Libc { .. } => {
                "export a build for an older C library: `sidle inspect FILE` shows what a bundle was built for"
            }
            Self::Libraries(_) => "install the distribution's packages that have these libraries",
            Self::Bytes { .. } => "free space there: `sidle collect` removes old releases",
            Self::Inodes { .. } => "remove small files there: `sidle collect` removes old releases",
            Self::NoExec => "mount the file system without noexec, or name another --root",
            Self::Hazard(hazard) => hazard.hint(),
        }
    }
}

/// What to do about obstacles that may be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazards {
    /// Refuse the release.
    Refuse,
    /// Install, and warn.
    Accept,
}

/// Why this host can't take a release.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot install into {}: {}", place.display(), listed(obstacles))]
pub struct Unfit {
    /// The package's directory in the store.
    pub place: PathBuf,
    /// Every obstacle.
    pub obstacles: Vec<Obstacle>,
}

fn listed(obstacles: &[Obstacle]) -> String {
    obstacles.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Unfit {
    /// The kind of failure: `NoSpace` if free space would help.
    pub fn class(&self) -> Class {
        let space = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Bytes { .. } | Obstacle::Inodes { .. });
        if self.obstacles.iter().any(space) { Class::NoSpace } else { Class::Failed }
    }

    /// The remedies of all obstacles.
    pub fn hint(&self) -> String {
        let mut hints: Vec<&str> = self.obstacles.iter().map(Obstacle::hint).collect();
        if self.obstacles.iter().all(Obstacle::may_be_accepted) {
            hints.push("`--force-place` installs there anyway");
        }
        hints.join("; ")
    }
}

/// All facts about this host that decide whether it can take a release.
#[derive(Debug)]
pub struct HostFacts {
    host: Host,
    missing_libraries: Vec<String>,
    space: Space,
    places: PlaceFacts,
}

impl HostFacts {
    /// Gathers the facts for `manifest`'s release. Writes nothing.
    pub fn gather(manifest: &Manifest, host: &Host, layout: &Layout) -> Result<Self, OsError> {
        let tree = layout.versions(&manifest.package).join(manifest.release().to_string());
        Ok(Self {
            host: host.clone(),
            missing_libraries: missing_libraries(manifest),
            space: nearest(&layout.package(&manifest.package))?.space()?,
            places: PlaceFacts::gather(layout.root(), &[tree, layout.receipts(&manifest.package)])?,
        })
    }

    /// Every obstacle to `manifest`'s release.
    pub fn obstacles(&self, manifest: &Manifest) -> Vec<Obstacle> {
        let mut obstacles = needs(manifest, &self.host, self.missing_libraries.clone());
        obstacles.extend(room(manifest, &self.space));
        obstacles.extend(self.places.hazards().into_iter().map(Obstacle::Hazard));
        obstacles
    }
}

/// The host libraries that `manifest`'s release needs and this host lacks.
pub(in crate::store) fn missing_libraries(manifest: &Head) -> Vec<String> {
    manifest.host_libraries.iter().filter(|name| host::library(name).is_none()).cloned().collect()
}

/// The obstacles to running `manifest`'s release on `host`, whatever its place.
pub(in crate::store) fn needs(manifest: &Head, host: &Host, missing_libraries: Vec<String>) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let needed = &manifest.platform.architecture;
    if *needed != host.architecture && needed != Platform::ANY {
        obstacles.push(Obstacle::Architecture { needed: needed.clone(), found: host.architecture.clone() });
    }
    if let Some(needed) = manifest.libc_floor.filter(|needed| host.libc.is_none_or(|found| found < *needed)) {
        obstacles.push(Obstacle::Libc { needed, found: host.libc });
    }
    if !missing_libraries.is_empty() {
        obstacles.push(Obstacle::Libraries(missing_libraries));
    }
    obstacles
}

fn room(manifest: &Manifest, space: &Space) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let allocated =
        manifest.space.allocated_bytes.max(manifest.space.inodes.saturating_mul(space.block_size.min(4096)));
    let needed = allocated.saturating_add(allocated >> SPACE_MARGIN_SHIFT);
    if space.free_bytes < needed {
        obstacles.push(Obstacle::Bytes { needed, free: space.free_bytes });
    }
    if let Some(free) = space.free_inodes.filter(|free| *free < manifest.space.inodes) {
        obstacles.push(Obstacle::Inodes { needed: manifest.space.inodes, free });
    }
    if space.no_exec {
        obstacles.push(Obstacle::NoExec);
    }
    obstacles
}

/// The nearest existing directory at or above `path`.
fn nearest(path: &Path) -> Result<Dir, OsError> {
    for ancestor in path.ancestors() {
        if let Some(dir) = Dir::open_if_exists(ancestor)? {
            return Ok(dir);
        }
    }
    Dir::open(Path::new("/"))
}
