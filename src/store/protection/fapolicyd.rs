//! fapolicyd's list of trusted files: each file of a release, with its size and digest, in a file of its own below `trust.d`. On a host without
//! that directory nothing happens.

use crate::bundle::manifest::{EntryKind, Manifest};
use crate::layout::Layout;
use crate::name::PackageName;
use crate::os::dir::Dir;
use crate::os::process::Program;
use crate::os::{OsError, file};
use crate::version::Release;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use tracing::{debug, warn};

/// Where the files lie.
const PLACE: &str = "etc/fapolicyd/trust.d";
/// Tells the daemon to read them.
const PROGRAM: &str = "/usr/sbin/fapolicyd-cli";
/// The daemon takes the message, and reads the files by itself.
const PATIENCE: Duration = Duration::from_secs(10);

fn place(layout: &Layout) -> Result<Option<Dir>, OsError> {
    Dir::open_if_exists(&layout.root().join(PLACE))
}

/// The name of a release's file. No name of a package has an `@`.
fn name(package: &PackageName, release: &Release) -> String {
    format!("sidle-{package}@{release}")
}

/// The list of a release's files: `PATH SIZE SHA256`. Paths are those on the host.
fn list(manifest: &Manifest) -> String {
    let tree = Path::new("/opt/sidle").join(manifest.package.as_str()).join("versions");
    let tree = tree.join(manifest.release().to_string());
    let mut text = String::new();
    for entry in &manifest.entries {
        let EntryKind::File { size, sha256, .. } = &entry.kind else { continue };
        // The format has no way to write such a name.
        if entry.path.as_str().contains(char::is_whitespace) {
            continue;
        }
        let _ = writeln!(text, "{}/{} {size} {sha256}", tree.display(), entry.path.as_str());
    }
    text
}

/// Writes the list of a release before the release comes into place.
pub(in crate::store) fn trust(layout: &Layout, manifest: &Manifest) -> Result<(), OsError> {
    let Some(directory) = place(layout)? else { return Ok(()) };
    directory.write_atomic(name(&manifest.package, &manifest.release()), list(manifest).as_bytes(), 0o644)?;
    update(layout);
    Ok(())
}

/// Removes the lists of releases that are not installed, and writes those that lack: fapolicyd may have come after the release. A release whose
/// manifest cannot be read gets none.
pub(in crate::store) fn equalise(
    layout: &Layout,
    package: &PackageName,
    installed: &[Release],
    manifest: &dyn Fn(&Release) -> Option<Manifest>,
) -> Result<(), OsError> {
    let Some(directory) = place(layout)? else { return Ok(()) };
    let mut changed = false;
    let begin = format!("sidle-{package}@");
    for entry in directory.names()? {
        let release = entry.to_str().and_then(|entry| entry.strip_prefix(&begin)?.parse::<Release>().ok());
        if release.is_some_and(|release| !installed.contains(&release)) {
            directory.remove_file(&entry)?;
            changed = true;
        }
    }
    for release in installed {
        if directory.stat(name(package, release))?.is_some() {
            continue;
        }
        if let Some(manifest) = manifest(release) {
            directory.write_atomic(name(package, release), list(&manifest).as_bytes(), 0o644)?;
            changed = true;
        }
    }
    if changed {
        update(layout);
    }
    Ok(())
}

/// Tells a running daemon, on the host itself.
fn update(layout: &Layout) {
    if layout.root() != Path::new("/") || !matches!(file::stat(Path::new(PROGRAM)), Ok(Some(_))) {
        return;
    }
    match Program::new(PROGRAM).argument("--update").answer_within(PATIENCE) {
        Ok(Some(said)) if said.success => debug!("fapolicyd reads its lists of trusted files again"),
        // It reads them when it starts.
        Ok(Some(said)) => debug!("fapolicyd does not run: {}", said.errors.trim()),
        Ok(None) => warn!("fapolicyd does not answer: run `fapolicyd-cli --update`"),
        Err(error) => warn!("{error}: run `fapolicyd-cli --update`"),
    }
}
