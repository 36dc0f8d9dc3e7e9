//! Whether this host can hold and run a release: all facts are gathered before anything is written, then every obstacle is named at once.

use crate::bundle::elf;
use crate::bundle::host_versions::SymbolVersions;
use crate::bundle::manifest::{Head, Manifest};
use crate::bundle::systems::Systems;
use crate::failure::Class;
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::space::{Demand, Space};
use crate::os::{OsError, file, host};
use crate::store::location::{Hazard, PlaceFacts};
use crate::version::{Flavour, KernelVersion, LibcVersion, Platform};
use std::path::{Path, PathBuf};

/// Free space kept in addition to a release, for receipts and the file system's own tables: a thirty-second of its size.
const SPACE_MARGIN_SHIFT: u32 = 5;
/// Largest C library read.
const LIBRARY_BYTES_MAXIMUM: u64 = 64 * 1024 * 1024;

/// A host, as far as it decides which platform fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The root of its system: `/`, or that of an image.
    pub system: PathBuf,
    /// The kernel's architecture name.
    pub architecture: String,
    /// The version of glibc; None: another C library, or none found.
    pub libc: Option<LibcVersion>,
    /// The kernel; None: unknown.
    pub kernel: Option<KernelVersion>,
    /// The level of an x86-64 processor, from 1 on; None: another architecture.
    pub x86_64_level: Option<u8>,
}

impl Host {
    /// Reads this host's architecture, C library, kernel and processor.
    pub fn read() -> Self {
        Self::of(Path::new("/"))
    }

    /// The same for the host whose root is `root`. Of an image the kernel and the processor are not known: it starts elsewhere.
    pub fn of(root: &Path) -> Self {
        let system = host::system_of(root);
        let libc = host::library(system, "libc.so.6").and_then(|path| file::read(&path, LIBRARY_BYTES_MAXIMUM).ok());
        let libc = libc.and_then(|bytes| elf::glibc_of(&bytes).ok().flatten());
        let runs_here = system == Path::new("/");
        let (major, minor) = host::kernel();
        let kernel = (runs_here && major > 0).then_some(KernelVersion { major, minor });
        let x86_64_level = host::x86_64_level().filter(|_| runs_here);
        Self { system: system.to_owned(), architecture: host::architecture(), libc, kernel, x86_64_level }
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
    #[error(
        "the release needs glibc {needed} or newer, this host has {}{}: it starts on {}",
        found.map_or_else(|| "none".to_owned(), |found| found.to_string()),
        system.as_ref().map_or_else(String::new, |system| format!(" ({system})")),
        Systems::with(*needed).words()
    )]
    Libc { needed: LibcVersion, found: Option<LibcVersion>, system: Option<String> },
    /// A kernel that is too old.
    #[error("the release needs Linux {needed} or newer, this host has {found}")]
    Kernel { needed: KernelVersion, found: KernelVersion },
    /// A processor that lacks instructions.
    #[error("the release needs a processor of level x86-64-v{needed}, this host's has x86-64-v{found}")]
    Processor { needed: u8, found: u8 },
    /// Missing shared libraries of the host.
    #[error("libraries that the release needs are missing on this host: {}", .0.join(", "))]
    Libraries(Vec<String>),
    /// A shared library of the host that is too old.
    #[error("{library} of this host is too old: the release needs {} of it", missing.join(", "))]
    Versions { library: String, missing: Vec<String> },
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
            | Self::Kernel { .. }
            | Self::Processor { .. }
            | Self::Libraries(_)
            | Self::Versions { .. }
            | Self::Bytes { .. }
            | Self::Inodes { .. } => false,
        }
    }

    /// The remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Architecture { .. } => "export the release for this host's architecture",
            Self::Libc { .. } => {
                "use a build for an older C library: `sidle inspect FILE` shows on which systems a bundle starts"
            }
            Self::Kernel { .. } => "use a build that was made on an older system",
            Self::Processor { .. } => "use a build for older processors: its author compiles with `-march=x86-64`",
            Self::Libraries(_) => "install the distribution's packages that have these libraries",
            Self::Versions { .. } => "use a build that brings the library itself, or that was made on an older system",
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
    libraries: Vec<Obstacle>,
    space: Space,
    places: PlaceFacts,
}

impl HostFacts {
    /// Gathers the facts for `manifest`'s release. Writes nothing.
    pub fn gather(manifest: &Manifest, host: &Host, layout: &Layout) -> Result<Self, OsError> {
        let tree = layout.versions(&manifest.package).join(manifest.release().to_string());
        Ok(Self {
            host: host.clone(),
            libraries: of_libraries(manifest, &host.system),
            space: nearest(&layout.package(&manifest.package))?.space()?,
            places: PlaceFacts::gather(layout.root(), &[tree, layout.receipts(&manifest.package)])?,
        })
    }

    /// Every obstacle to `manifest`'s release.
    pub fn obstacles(&self, manifest: &Manifest) -> Vec<Obstacle> {
        let mut obstacles = needs(manifest, &self.host, self.libraries.clone());
        obstacles.extend(room(manifest, &self.space));
        obstacles.extend(self.places.hazards().into_iter().map(Obstacle::Hazard));
        obstacles
    }
}

/// The host libraries that `manifest`'s release needs, and that the system at `system` lacks or has in too old a version.
pub(in crate::store) fn of_libraries(manifest: &Head, system: &Path) -> Vec<Obstacle> {
    let (mut absent, mut obstacles) = (Vec::new(), Vec::new());
    for library in &manifest.host_libraries {
        let Some(path) = host::library(system, library) else {
            absent.push(library.clone());
            continue;
        };
        let Some(SymbolVersions(needed)) = manifest.host_versions.get(library) else { continue };
        // What cannot be read is the dynamic linker's to judge.
        let Ok(bytes) = file::read(&path, LIBRARY_BYTES_MAXIMUM) else { continue };
        let Ok(defined) = elf::defined(&bytes) else { continue };
        let missing: Vec<String> = needed.iter().filter(|version| !defined.contains(*version)).cloned().collect();
        if !missing.is_empty() {
            obstacles.push(Obstacle::Versions { library: library.clone(), missing });
        }
    }
    if !absent.is_empty() {
        obstacles.push(Obstacle::Libraries(absent));
    }
    obstacles
}

/// The obstacles to running `manifest`'s release on `host`, whatever its place.
pub(in crate::store) fn needs(manifest: &Head, host: &Host, of_libraries: Vec<Obstacle>) -> Vec<Obstacle> {
    let mut obstacles = of_machine(&manifest.platform, manifest.libc_floor, host, || host::system_name(&host.system));
    // What a host does not tell is left to its kernel and loader.
    if let Some((needed, found)) = manifest.kernel_floor.zip(host.kernel).filter(|(needed, found)| needed > found) {
        obstacles.push(Obstacle::Kernel { needed, found });
    }
    if let Some((needed, found)) = manifest.x86_64_level.zip(host.x86_64_level).filter(|(needed, found)| needed > found)
    {
        obstacles.push(Obstacle::Processor { needed, found });
    }
    obstacles.extend(of_libraries);
    obstacles
}

/// The obstacles to running a release of `platform` by its name alone, which carries the oldest C library.
pub fn of_platform(platform: &Platform, host: &Host) -> Vec<Obstacle> {
    let floor = match platform.flavour {
        Some(Flavour::Glibc(floor)) => Some(floor),
        Some(Flavour::Musl) | None => None,
    };
    of_machine(platform, floor, host, || None)
}

/// `system`: the name of the host's system, for people.
fn of_machine(
    platform: &Platform,
    floor: Option<LibcVersion>,
    host: &Host,
    system: impl FnOnce() -> Option<String>,
) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let needed = &platform.architecture;
    if *needed != host.architecture && needed != Platform::ANY {
        obstacles.push(Obstacle::Architecture { needed: needed.clone(), found: host.architecture.clone() });
    }
    if let Some(needed) = floor.filter(|needed| host.libc.is_none_or(|found| found < *needed)) {
        obstacles.push(Obstacle::Libc { needed, found: host.libc, system: system() });
    }
    obstacles
}

/// What an install of `manifest`'s release will write.
pub fn demand(manifest: &Manifest, layout: &Layout) -> Result<Demand, OsError> {
    let space = nearest(&layout.package(&manifest.package))?.space()?;
    Ok(Demand { device: space.device, bytes: needed(manifest, &space) })
}

fn needed(manifest: &Manifest, space: &Space) -> u64 {
    let allocated =
        manifest.space.allocated_bytes.max(manifest.space.inodes.saturating_mul(space.block_size.min(4096)));
    allocated.saturating_add(allocated >> SPACE_MARGIN_SHIFT)
}

fn room(manifest: &Manifest, space: &Space) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let needed = needed(manifest, space);
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
