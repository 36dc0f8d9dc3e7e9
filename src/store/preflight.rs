//! Whether this host can hold and run a release: looked at before anything is written, all that is in the way told at once.

use super::location::{self, Hazard};
use crate::bundle::elf;
use crate::bundle::manifest::Manifest;
use crate::failure::Class;
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::space::Space;
use crate::os::{OsError, file, host};
use crate::version::{LibcVersion, Platform};
use std::fmt;
use std::path::Path;

/// Part of the release's size kept free beside it, for receipts and the file system's own tables: a thirty-second.
const SPACE_MARGIN_SHIFT: u32 = 5;
/// Largest C library read.
const LIBRARY_BYTES_MAXIMUM: u64 = 64 * 1024 * 1024;

/// What this host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The kernel's architecture name.
    pub architecture: String,
    /// Its glibc; None: another C library, or none that could be found.
    pub libc: Option<LibcVersion>,
}

impl Host {
    /// Looks at this host.
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

/// One thing that is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Another architecture.
    Architecture {
        /// Needed.
        needed: String,
        /// The host's.
        found: String,
    },
    /// A C library that is too old or isn't there.
    Libc {
        /// Needed at least.
        needed: LibcVersion,
        /// The host's.
        found: Option<LibcVersion>,
    },
    /// Shared libraries that the host doesn't have.
    Libraries(Vec<String>),
    /// Too few bytes.
    Bytes {
        /// Needed.
        needed: u64,
        /// Free.
        free: u64,
    },
    /// Too few inodes.
    Inodes {
        /// Needed.
        needed: u64,
        /// Free.
        free: u64,
    },
    /// The file system doesn't let programs run.
    NoExec,
    /// What is installed there doesn't stay, or isn't this host's alone.
    Hazard(Hazard),
}

impl Obstacle {
    /// True for what a person may overrule who knows better: the place is theirs to choose. A host that can't run the release or has no room
    /// for it doesn't become another by being told to.
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
}

/// What to do about obstacles that may be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazards {
    /// Refuse the release.
    Refuse,
    /// Install all the same, and tell them.
    Accept,
}

/// Why this host can't take a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The place of the store.
    pub place: std::path::PathBuf,
    /// Everything that is in the way.
    pub obstacles: Vec<Obstacle>,
}

impl Unfit {
    /// What kind of failure this is: one that freeing space would mend, or another.
    pub fn class(&self) -> Class {
        let space = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Bytes { .. } | Obstacle::Inodes { .. });
        if self.obstacles.iter().any(space) { Class::NoSpace } else { Class::Failed }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> Option<String> {
        let mut hints: Vec<&str> = self
            .obstacles
            .iter()
            .map(|obstacle| match obstacle {
                Obstacle::Architecture { .. } => "export the release for this host's architecture",
                Obstacle::Libc { .. } => {
                    "export a build for an older C library: `sidle inspect FILE` shows what a bundle was built for"
                }
                Obstacle::Libraries(_) => "install the distribution's packages that have these libraries",
                Obstacle::Bytes { .. } => "free space there: `sidle collect` removes old releases",
                Obstacle::Inodes { .. } => "remove small files there: `sidle collect` removes old releases",
                Obstacle::NoExec => "mount the file system without noexec, or name another --root",
                Obstacle::Hazard(hazard) => hazard.hint(),
            })
            .collect();
        if self.obstacles.iter().all(Obstacle::may_be_accepted) {
            hints.push("--force-place installs all the same");
        }
        Some(hints.join("; "))
    }
}

fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Architecture { needed, found } => write!(formatter, "it is built for {needed}, this host is {found}"),
            Self::Libc { needed, found: Some(found) } => {
                write!(formatter, "it needs glibc {needed} or newer, this host has {found}")
            }
            Self::Libc { needed, found: None } => {
                write!(formatter, "it needs glibc {needed} or newer, this host has none")
            }
            Self::Libraries(names) => write!(formatter, "this host lacks the libraries it needs: {}", names.join(", ")),
            Self::Bytes { needed, free } => {
                write!(formatter, "it needs {} MiB of space, {} MiB are free", mebibytes(*needed), free >> 20)
            }
            Self::Inodes { needed, free } => write!(formatter, "it needs {needed} inodes, {free} are free"),
            Self::NoExec => formatter.write_str("the file system is mounted with noexec"),
            Self::Hazard(hazard) => hazard.fmt(formatter),
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.obstacles.iter().map(ToString::to_string).collect();
        write!(formatter, "cannot install into {}: {}", self.place.display(), told.join("; "))
    }
}

/// All that keeps `manifest`'s release off this host; None: nothing.
pub fn obstacles(manifest: &Manifest, host: &Host, layout: &Layout) -> Result<Option<Unfit>, OsError> {
    let place = layout.package(&manifest.package);
    let mut obstacles = needs(manifest, host);
    let space = nearest(&place)?.space()?;
    obstacles.extend(room(manifest, &space));
    obstacles.extend(location::hazards(layout, manifest)?.into_iter().map(Obstacle::Hazard));
    Ok((!obstacles.is_empty()).then_some(Unfit { place, obstacles }))
}

/// What keeps `manifest`'s release from running on `host`, room apart.
pub fn needs(manifest: &Manifest, host: &Host) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let needed = &manifest.platform.architecture;
    if *needed != host.architecture && needed != Platform::ANY {
        obstacles.push(Obstacle::Architecture { needed: needed.clone(), found: host.architecture.clone() });
    }
    if let Some(needed) = manifest.libc_floor.filter(|needed| host.libc.is_none_or(|found| found < *needed)) {
        obstacles.push(Obstacle::Libc { needed, found: host.libc });
    }
    let missing = manifest.host_libraries.iter().filter(|name| host::library(name).is_none());
    let missing: Vec<String> = missing.cloned().collect();
    if !missing.is_empty() {
        obstacles.push(Obstacle::Libraries(missing));
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

/// The nearest directory above that exists already: nothing is made by looking.
fn nearest(path: &Path) -> Result<Dir, OsError> {
    for ancestor in path.ancestors() {
        if let Some(dir) = Dir::open_if_exists(ancestor)? {
            return Ok(dir);
        }
    }
    Dir::open(Path::new("/"))
}
