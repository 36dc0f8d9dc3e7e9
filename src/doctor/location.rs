//! Where releases and state lie: the file systems, and the room for another release.

use crate::agent::examination::{Group, Severity};
use crate::bundle::manifest::Manifest;
use crate::os::dir::Dir;
use crate::os::mounts::{self, Mount};
use crate::os::{OsError, file, labels};
use crate::store::Store;
use crate::store::location::{self, Hazard, Keeping, PlaceFacts};
use crate::store::protection::selinux::{Labels, Mode};
use crate::store::tmpfiles::Fate;
use std::path::{Path, PathBuf};

/// Checks the directories of a package. `current`: another release needs about as much room.
pub fn check(store: &Store, current: Option<&Manifest>) -> Group {
    let mut group = Group::new("location");
    let layout = store.layout();
    let (package, state) = (layout.package(store.package()), layout.state());
    for (path, runs) in [(&package, true), (&state, false)] {
        match mounted(path) {
            Ok(Some((path, found))) => mount(&mut group, &path, &found, runs),
            Ok(None) => {}
            Err(error) => group.unknown(&path.display().to_string(), error, "run `sidle doctor` as root"),
        }
    }
    if let Some(current) = current {
        labels(&mut group, store, current);
    }
    match PlaceFacts::gather(layout.root(), &[package.clone(), state]) {
        Ok(facts) => facts.hazards().iter().for_each(|hazard| endanger(&mut group, hazard)),
        Err(error) => group.unknown("whether releases are kept", error, "run `sidle doctor` as root"),
    }
    match Dir::open_if_exists(&package).and_then(|dir| dir.map(|dir| dir.space()).transpose()) {
        Ok(Some(space)) => room(&mut group, &package, &space, current),
        Ok(None) => {}
        Err(error) => group.unknown("the room for another release", error, "run `sidle doctor` as root"),
    }
    group
}

/// The real path of a directory, and its file system.
fn mounted(path: &Path) -> Result<Option<(PathBuf, Mount)>, OsError> {
    if Dir::open_if_exists(path)?.is_none() {
        return Ok(None);
    }
    let path = file::canonical(path)?;
    Ok(mounts::mount_of(&path)?.map(|found| (path, found)))
}

fn mount(group: &mut Group, path: &Path, found: &Mount, runs: bool) {
    let (point, kind, before) = (found.point.display(), &found.kind, group.findings.len());
    let on = format!("{} lies on {point} ({kind})", path.display());
    if found.is_read_only {
        let what = format!("{on}, which is mounted read-only: sidle can install, switch and repair nothing");
        let remedy = format!("`mount -o remount,rw {point}`; if it refuses, see `dmesg`");
        group.find(Severity::Error, "read-only", what, remedy);
    }
    if runs && found.is_no_exec {
        let what = format!("{on}, which is mounted noexec: no release can start");
        let remedy = format!("`mount -o remount,exec {point}`, and correct /etc/fstab");
        group.find(Severity::Error, "no-exec", what, remedy);
    }
    if location::keeping(found) != Keeping::Disk {
        let what = format!("{on}: releases may be gone after a boot (a live image, a container)");
        let remedy = "keep it on a disk, unless the host is meant to lose it at a boot";
        group.find(Severity::Note, "volatile-file-system", what, remedy);
    }
    if group.findings.len() == before {
        group.good(format!("{} on {kind}", path.display()));
    }
}

/// Reports why releases would not stay there. `mount` reports read-only and volatile file systems.
fn endanger(group: &mut Group, hazard: &Hazard) {
    let (severity, id) = match hazard {
        Hazard::Fate(_, Fate::Cleaned(_)) => (Severity::Error, "cleaned-by-age"),
        Hazard::Fate(_, Fate::Emptied(_)) => (Severity::Error, "emptied-at-boot"),
        Hazard::Network(_) => (Severity::Warning, "network-file-system"),
        Hazard::Snapshot => (Severity::Warning, "snapshot"),
        Hazard::Deployment(_) => (Severity::Error, "image-of-the-system"),
        Hazard::Volatile(_) | Hazard::ReadOnly(_) => return,
    };
    group.find(severity, id, format!("releases would not stay: {hazard}"), hazard.hint());
}

/// Compares the SELinux type of the current release's directory with the policy's.
fn labels(group: &mut Group, store: &Store, current: &Manifest) {
    let release = current.release();
    let labels = match Labels::of(store.layout(), store.package(), &release) {
        Ok(Some(labels)) => labels,
        Ok(None) => return,
        Err(error) => return group.unknown("the SELinux policy", error, "run `sidle doctor` as root"),
    };
    let (Some(wanted), Ok(tree)) = (labels.of_tree(), store.tree(&release)) else { return };
    let found = labels::of(&tree);
    let kind = |label: &str| label.split(':').nth(2).map(str::to_owned);
    if found.as_deref().and_then(kind) == kind(wanted) {
        return group.good(format!("SELinux label {wanted}"));
    }
    let severity = match labels.mode() {
        Mode::Enforcing => Severity::Error,
        Mode::Permissive => Severity::Warning,
    };
    let (place, found) = (tree.path().display(), found.unwrap_or_else(|| "none".to_owned()));
    let what = format!("{place} has the SELinux label {found}, the policy says {wanted}: it may not be allowed to run");
    group.find(severity, "selinux-label", what, "`restorecon -R /opt/sidle`");
}

fn room(group: &mut Group, path: &Path, space: &crate::os::space::Space, current: Option<&Manifest>) {
    let place = path.display();
    let needed = current.map(|manifest| manifest.space);
    let bytes = needed.map_or(0, |needed| needed.allocated_bytes);
    let (free, needed_mib) = (space.free_bytes >> 20, bytes.div_ceil(1 << 20));
    let remedy = "`sidle collect` removes old releases; or free space there";
    if space.free_bytes < bytes {
        let what = format!("{place} has {free} MiB free, a release needs {needed_mib} MiB");
        group.find(Severity::Error, "no-space", what, remedy);
    } else if space.free_bytes < bytes.saturating_mul(2) {
        let what = format!("{place} has {free} MiB free: room for one more release of {needed_mib} MiB, not for two");
        group.find(Severity::Warning, "space-low", what, remedy);
    } else {
        group.good(format!("{free} MiB free"));
    }
    if let (Some(needed), Some(inodes)) = (needed, space.free_inodes) {
        if inodes < needed.inodes {
            let what = format!("{place} has {inodes} inodes free, a release needs {}", needed.inodes);
            group.find(Severity::Error, "no-inodes", what, remedy);
        } else {
            group.good(format!("{inodes} inodes free"));
        }
    }
}
