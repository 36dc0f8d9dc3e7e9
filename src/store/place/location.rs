//! Whether a place is fit for releases: files must stay there, also over a boot, and belong to this host alone.
//!
//! The host's own root is judged by the host's tmpfiles.d and mounts. Another `--root` (an image, a test, a person's own directory) is judged
//! by the tmpfiles.d inside it, as its own system sees the paths. It may lie in memory or below `/tmp`: its maker knows how long it is to live.
//! Network and read-only file systems fail in both.

use crate::os::mounts::{self, Mount};
use crate::os::{OsError, environment, file};
use crate::store::tmpfiles::{Fate, Rules};
use std::path::{Path, PathBuf};

/// Types of file systems that a boot empties.
const IN_MEMORY: &str = "tmpfs ramfs";
/// Writes to this file system go to a directory of another one.
const OVERLAY: &str = "overlay";
/// Types of file systems that belong to another machine. Not every process may see a lock there, and a file that is removed there kills each
/// process that has mapped it here (SIGBUS), most of all while somebody repairs the network.
const OF_THE_NETWORK: &str = "nfs nfs4 cifs smb2 smb3 smbfs ncpfs afs coda 9p ceph fuse.ceph fuse.ceph-fuse fuse.sshfs fuse.glusterfs \
    fuse.rclone fuse.s3fs lustre gpfs beegfs orangefs pvfs2 davfs";
/// `transactional-update` sets this variable for the commands that it runs in a snapshot.
const TRANSACTION: &str = "TRANSACTIONAL_UPDATE";
/// Snapper's snapshots of a root file system.
const SNAPSHOTS: &str = "/.snapshots/";
/// Present on a host whose `/usr` is a deployment of ostree (ostree-booted(5)).
const OSTREE: &str = "run/ostree-booted";

/// Why releases don't stay in a place, or don't work there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    /// systemd-tmpfiles removes files there.
    #[error("systemd-tmpfiles {}", removal(.0, .1))]
    Fate(PathBuf, Fate),
    /// The place is in memory, and the host's root is not.
    #[error("{} is in memory ({}) and gone after a boot", .0.point.display(), .0.kind)]
    Volatile(Mount),
    /// The place is on another machine's file system.
    #[error("{} is another machine's file system ({})", .0.point.display(), .0.kind)]
    Network(Mount),
    /// No user can write there.
    #[error("{} is mounted read-only", .0.point.display())]
    ReadOnly(Mount),
    /// A snapshot that may become the root file system at the next boot, while this host's state goes on in another.
    #[error("this root is a pending snapshot of a transactional update: /opt would be in the snapshot, /var would not")]
    Snapshot,
    /// The place is part of the operating system's image, which the next deployment replaces.
    #[error("{} belongs to the operating system's image", .0.display())]
    Deployment(PathBuf),
}

fn removal(path: &Path, fate: &Fate) -> String {
    match fate {
        Fate::Cleaned(rule) => format!("removes what is old in {}: {rule}", path.display()),
        Fate::Emptied(rule) => format!("empties {} at boot: {rule}", path.display()),
    }
}

impl Hazard {
    /// Whether a person may accept this hazard; without a right to write nobody can.
    pub fn may_be_accepted(&self) -> bool {
        !matches!(self, Self::ReadOnly(_))
    }

    /// The remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Fate(_, Fate::Cleaned(_)) => {
                "keep it elsewhere, or exempt it: `x /THE/DIRECTORY` in a file of /etc/tmpfiles.d"
            }
            Self::Fate(_, Fate::Emptied(_)) | Self::Volatile(_) | Self::Network(_) => "keep it on this host's own disk",
            Self::ReadOnly(_) => "remount the file system, or name another --root",
            Self::Snapshot => "install on the running system: sidle needs no snapshot to go back to",
            Self::Deployment(_) => "keep it outside /usr: /opt is /var/opt on such a host",
        }
    }
}

/// Facts about some places below a root. Gathering them writes nothing.
#[derive(Debug)]
pub struct PlaceFacts {
    rules: Rules,
    is_snapshot: bool,
    is_ostree: bool,
    /// Whether the places must outlive a boot.
    must_stay: bool,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    /// The path as the system below the root sees it; a link may lead out of the root.
    seen: PathBuf,
    mount: Option<Mount>,
}

impl PlaceFacts {
    /// Gathers the facts about `paths` below `root`.
    pub fn gather(root: &Path, paths: &[PathBuf]) -> Result<Self, OsError> {
        let own_root = Path::new("/");
        let root = file::canonical(&nearest(root))?;
        let is_own_root = root == own_root;
        // A host whose root is in memory (a live image, also by an overlay) is made anew at each boot, and its store with it.
        let must_stay =
            is_own_root && mounts::mount_of(own_root)?.is_some_and(|mount| keeping(&mount) != Keeping::Memory);
        let mut places = Vec::new();
        for path in paths {
            let resolved = resolved(path)?;
            let seen = resolved.strip_prefix(&root).map_or_else(|_| resolved.clone(), |inside| own_root.join(inside));
            places.push(Place { seen, mount: mounts::mount_of(&resolved)? });
        }
        Ok(Self {
            rules: Rules::read(&root)?,
            is_snapshot: is_own_root && is_snapshot()?,
            is_ostree: file::canonical(&root.join(OSTREE)).is_ok(),
            must_stay,
            places,
        })
    }

    /// The hazards of these places, each once.
    pub fn hazards(&self) -> Vec<Hazard> {
        let mut found = Vec::new();
        if self.is_snapshot {
            found.push(Hazard::Snapshot);
        }
        for Place { seen, mount } in &self.places {
            let fate = self.rules.fate(seen).map(|fate| Hazard::Fate(seen.clone(), fate));
            let deployment = (self.is_ostree && seen.starts_with("/usr")).then(|| Hazard::Deployment(seen.clone()));
            let of_mount = mount.iter().flat_map(|mount| of_mount(mount, self.must_stay));
            for hazard in fate.into_iter().chain(deployment).chain(of_mount) {
                if !found.contains(&hazard) {
                    found.push(hazard);
                }
            }
        }
        found
    }
}

fn of_mount(mount: &Mount, must_stay: bool) -> Vec<Hazard> {
    let mut found = Vec::new();
    if must_stay && keeping(mount) == Keeping::Memory {
        found.push(Hazard::Volatile(mount.clone()));
    }
    if is_one_of(mount, OF_THE_NETWORK) {
        found.push(Hazard::Network(mount.clone()));
    }
    if mount.is_read_only {
        found.push(Hazard::ReadOnly(mount.clone()));
    }
    found
}

/// What keeps the files of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Memory: a boot empties it.
    Memory,
    /// A disk, or another host.
    Disk,
    /// An overlay whose upper directory was named in a root that this process does not see, as in a container.
    Unknown,
}

/// What keeps the files of this mount; for an overlay, what keeps those of its upper directory.
pub fn keeping(mount: &Mount) -> Keeping {
    keeping_with(mount, &|upper| mounts::mount_of(&file::canonical(upper).ok()?).ok()?)
}

fn keeping_with(mount: &Mount, mount_of: &dyn Fn(&Path) -> Option<Mount>) -> Keeping {
    if is_one_of(mount, IN_MEMORY) {
        return Keeping::Memory;
    }
    if mount.kind != OVERLAY {
        return Keeping::Disk;
    }
    match mount.upper.as_deref().and_then(mount_of) {
        Some(upper) if is_one_of(&upper, IN_MEMORY) => Keeping::Memory,
        Some(upper) if upper.kind != OVERLAY => Keeping::Disk,
        Some(_) | None => Keeping::Unknown,
    }
}

fn is_one_of(mount: &Mount, kinds: &str) -> bool {
    kinds.split_ascii_whitespace().any(|kind| kind == mount.kind)
}

/// Whether this process works in a snapshot that isn't the running system: transactional-update says so, or this process's root is another
/// snapshot than the first process's.
fn is_snapshot() -> Result<bool, OsError> {
    if environment::variable(TRANSACTION).is_some_and(|value| value == "true") {
        return Ok(true);
    }
    let (own, first) = (mounts::mount_of(Path::new("/"))?, mounts::mount_of_first_root());
    Ok(match (own, first) {
        (Some(own), Some(first)) => own.root != first.root && own.root.to_string_lossy().contains(SNAPSHOTS),
        _ => false,
    })
}

/// The path with its existing part's links resolved.
fn resolved(path: &Path) -> Result<PathBuf, OsError> {
    let there = nearest(path);
    let rest = path.strip_prefix(&there).unwrap_or(Path::new(""));
    let there = file::canonical(&there)?;
    Ok(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
}

/// The nearest existing path at or above `path`.
fn nearest(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|above| file::canonical(above).is_ok());
    there.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_over_memory_is_memory_and_over_a_disk_a_disk() {
        let of = |system: &str| Mount::of_line(&format!("1 0 0:5 / / rw - {system}")).unwrap();
        let found = |system: &str, upper: Option<&str>| keeping_with(&of(system), &|_| upper.map(of));
        let overlay = "overlay overlay rw,lowerdir=/l,upperdir=/run/live/rw,workdir=/run/live/w";
        assert_eq!(found("tmpfs tmpfs rw", None), Keeping::Memory);
        assert_eq!(found("ext4 /dev/vda rw", None), Keeping::Disk);
        assert_eq!(found(overlay, Some("tmpfs tmpfs rw")), Keeping::Memory);
        assert_eq!(found(overlay, Some("ext4 /dev/vda rw")), Keeping::Disk);
        assert_eq!(found(overlay, Some(overlay)), Keeping::Unknown);
        assert_eq!(found(overlay, None), Keeping::Unknown);
        assert_eq!(found("overlay overlay ro,lowerdir=/l", Some("tmpfs tmpfs rw")), Keeping::Unknown);
    }

    #[test]
    fn file_systems_of_the_network_are_refused_wherever_and_those_in_memory_where_it_must_stay() {
        let told = |system: &str, must_stay| {
            let mount = Mount::of_line(&format!("1 0 0:5 / /opt rw - {system}")).unwrap();
            of_mount(&mount, must_stay).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        for system in ["nfs4 nas:/opt rw", "fuse.sshfs nas:/opt rw", "9p opt rw,trans=virtio", "ceph 10.0.0.1:/ rw"] {
            let expected = format!("/opt is another machine's file system ({})", system.split_once(' ').unwrap().0);
            assert_eq!((told(system, true), told(system, false)), (expected.clone(), expected));
        }
        assert_eq!(told("tmpfs tmpfs rw", true), "/opt is in memory (tmpfs) and gone after a boot");
        assert_eq!(told("tmpfs tmpfs rw", false), "");
        assert_eq!(told("ext4 /dev/vda ro", true), "/opt is mounted read-only");
        assert_eq!(told("fuse.mergerfs a:b rw", true), "");
    }
}
