//! The store: each release is whole, each tree has a receipt, `current` and the previous release exist, nothing is left over.

use crate::agent::examination::{Group, Severity};
use crate::bundle::manifest::Manifest;
use crate::layout;
use crate::os::dir::{Dir, FileKind};
use crate::store::check::{Defect, Depth, Problem};
use crate::store::preflight::Host;
use crate::store::{Store, StoreError, host_fingerprint};
use crate::switch::journal::files::InstanceFiles;
use crate::version::Release;
use std::path::PathBuf;

/// Problems of one release that are shown; `sidle verify` shows all.
const PROBLEMS_TOLD_MAX: usize = 3;

/// The current release.
pub struct Current {
    /// Its manifest.
    pub manifest: Manifest,
    /// Its tree; None: it is damaged, and none of its programs may be started.
    pub tree: Option<PathBuf>,
}

/// Checks a package's releases; returns the current release, or the newest if the instance has none yet.
pub fn check(store: &Store, files: &InstanceFiles) -> (Group, Option<Current>) {
    let mut group = Group::new("store");
    let package = store.package();
    let releases = match store.releases() {
        Ok(releases) => releases,
        Err(error) => {
            group.unknown("the releases", error, "run `sidle doctor` as root");
            return (group, None);
        }
    };
    let current = current(&mut group, store, files, &releases);
    let wanted = current.as_ref().or(releases.last());
    let mut found = None;
    let mut entries = 0;
    for release in &releases {
        match store.check_without_index(release, Depth::Quick) {
            Ok((manifest, problems)) => {
                entries += manifest.entries.len();
                let is_whole = damage(&mut group, store, release, &problems);
                if wanted == Some(release) {
                    host(&mut group, &manifest, &Host::of(store.layout().root()));
                    let tree = store.layout().versions(package).join(release.to_string());
                    found = Some(Current { manifest, tree: is_whole.then_some(tree) });
                }
            }
            Err(StoreError::Os(error)) => {
                group.unknown(&format!("{package} {release}"), error, "run `sidle doctor` as root");
            }
            Err(error) => {
                let remedy = "restore the receipt from a backup, or `sidle remove` the release and install it again";
                group.find(Severity::Error, "receipt-unreadable", error.to_string(), remedy);
            }
        }
    }
    let plural = if releases.len() == 1 { "" } else { "s" };
    group.good(format!("{} release{plural} with {entries} entries", releases.len()));
    if let Err(error) = leftovers(&mut group, store) {
        group.unknown("leftovers of a crash", error, "run `sidle doctor` as root");
    }
    (group, found)
}

/// The link `current`, and the previous release.
fn current(group: &mut Group, store: &Store, files: &InstanceFiles, releases: &[Release]) -> Option<Release> {
    let (package, instance) = (store.package(), files.instance());
    let journal = match files.journal() {
        Ok(journal) => Some(journal),
        Err(crate::switch::journal::files::FilesError::Corrupt { path, reason, hint }) => {
            let what = format!("cannot use {}: {reason}", path.display());
            group.find(Severity::Error, "journal-corrupt", what, hint.unwrap_or_default());
            None
        }
        Err(error) => {
            group.unknown("the journal", error, "run `sidle doctor` as root");
            None
        }
    };
    let remedy = format!(
        "`sidle supervise {instance}` makes the link from its journal; `sidle list {package}` shows the releases"
    );
    let current = match store.current(instance) {
        Ok(current) => current,
        Err(error) => {
            group.find(Severity::Error, "current-broken", error.to_string(), remedy.clone());
            None
        }
    };
    let proven = journal.as_ref().and_then(|journal| journal.proven.as_ref());
    match (&current, proven) {
        (Some(current), _) if !releases.contains(current) => {
            let what = format!("current names {current}, which is not installed: a boot would start nothing");
            let remedy = format!("`sidle install` that release again, or `sidle switch {package} RELEASE`");
            group.find(Severity::Error, "current-broken", what, remedy);
        }
        (None, Some(proven)) if group.findings.is_empty() => {
            let what =
                format!("there is no link `current`, though {proven} has proven itself: a boot would start nothing");
            group.find(Severity::Error, "current-broken", what, remedy);
        }
        (None, None) if group.findings.is_empty() => {
            let remedy = format!("`sidle switch {package}` makes an installed release the current one");
            group.find(Severity::Note, "no-current", format!("{instance} has no current release yet"), remedy);
        }
        (Some(current), _) => group.good(format!("current is {current}")),
        (None, _) => {}
    }
    if let Some(previous) = journal.as_ref().and_then(|journal| journal.previous.as_ref()) {
        if releases.contains(previous) {
            group.good(format!("previous is {previous}"));
        } else {
            let what = format!("the previous release {previous} is not installed: there is no way back to it");
            let remedy = format!("`sidle install {package}@{previous}`");
            group.find(Severity::Warning, "previous-missing", what, remedy);
        }
    }
    current
}

/// Reports the damage of a release; true: it has none.
fn damage(group: &mut Group, store: &Store, release: &Release, problems: &[Problem]) -> bool {
    let package = store.package();
    let (unread, bad): (Vec<_>, Vec<_>) =
        problems.iter().partition(|problem| matches!(problem.defect, Defect::Unreadable(_)));
    if let Some(first) = unread.first() {
        let what = format!("{} entries of {package} {release}", unread.len());
        group.unknown(
            &what,
            first,
            "run `sidle doctor` as root; if root cannot read them, the disk may be failing: see `dmesg`",
        );
    }
    if !bad.is_empty() {
        let mut told: Vec<String> = bad.iter().take(PROBLEMS_TOLD_MAX).map(ToString::to_string).collect();
        if bad.len() > PROBLEMS_TOLD_MAX {
            told.push(format!("and {} more", bad.len() - PROBLEMS_TOLD_MAX));
        }
        let what = format!("{package} {release} is not what was signed: {}", told.join("; "));
        group.find(Severity::Error, "release-damaged", what, format!("`sidle repair {package} {release}`"));
    }
    problems.is_empty()
}

/// Checks that the host has what a release needs.
fn host(group: &mut Group, manifest: &Manifest, host: &Host) {
    let lacks = host_fingerprint::lacks(manifest, host);
    if !lacks.is_empty() {
        let what = format!("{} cannot start on this host: {}", manifest.release(), lacks.join("; "));
        let remedy = "install what is missing, or switch to a release that is built for this host";
        group.find(Severity::Error, "host-lacks", what, remedy);
    }
}

/// Trees without a receipt, receipts without a tree, staging. A command under way has them, too, and holds the lock.
fn leftovers(group: &mut Group, store: &Store) -> Result<(), StoreError> {
    let layout = store.layout();
    let package = store.package();
    let remedy = format!("the next command that changes {package} removes it, such as `sidle collect {package}`");
    let names = |path: PathBuf| -> Result<Vec<String>, StoreError> {
        let Some(dir) = Dir::open_if_exists(&path)? else { return Ok(Vec::new()) };
        let directories = dir.entries()?.into_iter().filter(|(_, kind)| *kind == FileKind::Directory);
        Ok(directories.map(|(name, _)| name.to_string_lossy().into_owned()).collect())
    };
    let (trees, receipts) = (names(layout.versions(package))?, names(layout.receipts(package))?);
    let is_release = |name: &&String| name.parse::<Release>().is_ok();
    let lone = |of: &[String], without: &[String]| -> Vec<String> {
        of.iter().filter(is_release).filter(|name| !without.contains(name)).cloned().collect()
    };
    for name in lone(&trees, &receipts) {
        let what =
            format!("{} has no receipt: it counts as not installed", layout.versions(package).join(&name).display());
        let remedy = format!(
            "`sidle install {package}@{name}` writes it anew if a program of it runs, or `current` names it; else {remedy}"
        );
        group.find(Severity::Warning, "tree-without-receipt", what, remedy);
    }
    for name in lone(&receipts, &trees) {
        let what = format!("{name} has a receipt but no tree: it counts as not installed");
        let receipt = layout.receipts(package).join(&name);
        let remedy = format!(
            "mount the file system of the releases, if it has one; else `sidle install {package}@{name}`, or remove {}",
            receipt.display()
        );
        group.find(Severity::Warning, "receipt-without-tree", what, remedy);
    }
    let staging = layout.package(package).join(layout::STAGING);
    match names(staging.clone()) {
        Ok(left) if left.is_empty() => group.good("nothing left over"),
        Ok(left) => {
            let what =
                format!("{} has {}: an install is under way, or was cut off", staging.display(), left.join(", "));
            group.find(Severity::Note, "staging-leftover", what, remedy);
        }
        Err(error) => group.unknown("staging", error, "run `sidle doctor` as root"),
    }
    Ok(())
}
