//! Whether a place is one to keep releases in: what lies there must stay, also over a boot, and belong to this host alone.
//!
//! The host's own root is judged by the host's tmpfiles.d and mounts. Another `--root` is an image, a test or a person's own directory: it is
//! judged by the tmpfiles.d inside it, as the system that will run from it sees its paths, and may lie in memory or below `/tmp` here: who
//! made it knows how long it is to live. File systems of the network and read-only ones fail in both.

use super::tmpfiles::{Fate, Rules};
use crate::bundle::manifest::Manifest;
use crate::layout::Layout;
use crate::os::mounts::{self, Mount};
use crate::os::{OsError, environment, file};
use std::fmt;
use std::path::{Path, PathBuf};

/// Types of file systems whose content is gone at boot.
const IN_MEMORY: &str = "tmpfs ramfs";
/// Types of file systems that are another machine's: a lock may not be seen by all, and a file that is taken away there kills the process that
/// has it mapped here (SIGBUS), the more so while the network is what is to be repaired.
const OF_THE_NETWORK: &str = "nfs nfs4 cifs smb2 smb3 smbfs ncpfs afs coda 9p ceph fuse.ceph fuse.ceph-fuse fuse.sshfs fuse.glusterfs \
    fuse.rclone fuse.s3fs lustre gpfs beegfs orangefs pvfs2 davfs";
/// What `transactional-update` sets in the environment of what it runs in a snapshot.
const TRANSACTION: &str = "TRANSACTIONAL_UPDATE";
/// Where snapper keeps snapshots of a root file system.
const SNAPSHOTS: &str = "/.snapshots/";
/// Present on a host whose `/usr` is a deployment of ostree (ostree-booted(5)).
const OSTREE: &str = "run/ostree-booted";

/// Why releases don't stay in a place, or don't work there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hazard {
    /// systemd-tmpfiles removes what lies there.
    Fate(PathBuf, Fate),
    /// It is in memory, on a host that isn't.
    Volatile(Mount),
    /// Another machine's file system.
    Network(Mount),
    /// Nobody may write there.
    ReadOnly(Mount),
    /// A snapshot that becomes the root file system at the next boot, if at all, while the state of this host goes on elsewhere.
    Snapshot,
    /// Part of the operating system's image, which the next deployment replaces.
    Deployment(PathBuf),
}

impl Hazard {
    /// True for what a person may overrule: not where nothing can be written.
    pub fn may_be_accepted(&self) -> bool {
        match self {
            Self::Fate(..) | Self::Volatile(_) | Self::Network(_) | Self::Snapshot | Self::Deployment(_) => true,
            Self::ReadOnly(_) => false,
        }
    }

    /// What the operator can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Fate(_, Fate::Cleaned(_)) => {
                "keep it elsewhere, or exempt it: `x /THE/DIRECTORY` in a file of /etc/tmpfiles.d"
            }
            Self::Fate(_, Fate::Emptied(_)) | Self::Volatile(_) | Self::Network(_) => {
                "keep it on a disk of this host's own"
            }
            Self::ReadOnly(_) => "remount the file system, or name another --root",
            Self::Snapshot => "install on the running system: sidle needs no snapshot to go back to",
            Self::Deployment(_) => "keep it outside /usr: /opt is /var/opt on such a host",
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fate(path, Fate::Cleaned(rule)) => {
                write!(formatter, "systemd-tmpfiles removes what is old in {}: {rule}", path.display())
            }
            Self::Fate(path, Fate::Emptied(rule)) => {
                write!(formatter, "systemd-tmpfiles empties {} at boot: {rule}", path.display())
            }
            Self::Volatile(mount) => {
                write!(formatter, "{} is in memory ({}) and gone after a boot", mount.point.display(), mount.kind)
            }
            Self::Network(mount) => {
                write!(formatter, "{} is another machine's file system ({})", mount.point.display(), mount.kind)
            }
            Self::ReadOnly(mount) => write!(formatter, "{} is mounted read-only", mount.point.display()),
            Self::Snapshot => formatter.write_str(
                "this is a snapshot of a transactional update: what is installed in it and what is known of it would part",
            ),
            Self::Deployment(path) => {
                write!(formatter, "{} belongs to the operating system's image", path.display())
            }
        }
    }
}

/// All that is wrong with where `manifest`'s release and its receipt would lie. Nothing is made by looking.
pub fn hazards(layout: &Layout, manifest: &Manifest) -> Result<Vec<Hazard>, OsError> {
    let tree = layout.versions(&manifest.package).join(manifest.release().to_string());
    of_paths(layout, &[tree, layout.receipts(&manifest.package)])
}

/// All that is wrong with these places of a layout.
pub fn of_paths(layout: &Layout, paths: &[PathBuf]) -> Result<Vec<Hazard>, OsError> {
    let root = file::canonical(&nearest(layout.root()))?;
    let rules = Rules::read(&root)?;
    let mut found = Vec::new();
    if root == Path::new("/") && is_snapshot()? {
        found.push(Hazard::Snapshot);
    }
    for path in paths {
        for hazard in of_place(&resolved(path)?, &root, &rules)? {
            if !found.iter().any(|other| other.to_string() == hazard.to_string()) {
                found.push(hazard);
            }
        }
    }
    Ok(found)
}

fn of_place(place: &Path, root: &Path, rules: &Rules) -> Result<Vec<Hazard>, OsError> {
    let own_root = Path::new("/");
    // As the system below the root sees it; a link may have led out.
    let seen = place.strip_prefix(root).map_or_else(|_| place.to_owned(), |inside| own_root.join(inside));
    let fate = rules.fate(&seen).map(|fate| Hazard::Fate(seen.clone(), fate));
    let ostree = file::canonical(&root.join(OSTREE)).is_ok() && seen.starts_with("/usr");
    let mut found: Vec<Hazard> = fate.into_iter().chain(ostree.then_some(Hazard::Deployment(seen))).collect();
    // A host that is in memory as a whole is made anew at each boot, and its store with it.
    let is_in_memory = mounts::mount_of(own_root)?.is_none_or(|mount| is_one_of(&mount, IN_MEMORY));
    let must_stay = root == own_root && !is_in_memory;
    found.extend(mounts::mount_of(place)?.map_or_else(Vec::new, |mount| of_mount(&mount, must_stay)));
    Ok(found)
}

fn of_mount(mount: &Mount, must_stay: bool) -> Vec<Hazard> {
    let mut found = Vec::new();
    if is_one_of(mount, IN_MEMORY) && must_stay {
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

fn is_one_of(mount: &Mount, kinds: &str) -> bool {
    kinds.split_ascii_whitespace().any(|kind| kind == mount.kind)
}

/// Whether this process works in a snapshot that isn't the running system: as transactional-update says, or because its root is another
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

/// The path with the links in it resolved, as far as it exists.
fn resolved(path: &Path) -> Result<PathBuf, OsError> {
    let there = nearest(path);
    let rest = path.strip_prefix(&there).unwrap_or(Path::new(""));
    let there = file::canonical(&there)?;
    Ok(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
}

/// The nearest path above that exists.
fn nearest(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|above| file::canonical(above).is_ok());
    there.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
