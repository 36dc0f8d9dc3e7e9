//! Salt's extension on a test's minion: into a file root as a site without pip on its minions copies it, and where a sync lays it.

pub use super::fleet::extension as source;
use super::scene::Scene;
use super::stage::SIDLE;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a file root has what lies in the extension's directories.
const SYNCED: [(&str, &str); 4] =
    [("modules", "_modules"), ("states", "_states"), ("grains", "_grains"), ("beacons", "_beacons")];

/// The files of a directory of the extension that a minion needs.
pub fn modules(directory: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(source().join("src/saltext/sidle").join(directory)).unwrap();
    let paths = all.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "py") && !path.ends_with("__init__.py")).collect()
}

/// Copies the extension into a file root.
pub fn copy_into(files: &Path) {
    for (directory, synced) in SYNCED {
        copy(directory, &files.join(synced));
    }
}

fn copy(directory: &str, place: &Path) {
    fs::create_dir_all(place).unwrap();
    for module in modules(directory) {
        fs::copy(&module, place.join(module.file_name().unwrap())).unwrap();
    }
}

/// Lays execution modules and states where a sync lays them, and names this host's program and root.
pub fn put_modules(scene: &Scene) {
    put(scene, &["modules", "states"], "");
}

/// Brings all of it to a minion that is not started yet, and into the master's file root, with a beacon that looks often.
pub fn bring_to(scene: &Scene) {
    // Synced before: a release is refused while what the configuration names is missing.
    put(scene, &SYNCED.map(|(directory, _)| directory), "beacons:\n  sidle:\n    - interval: 2\n");
    copy_into(&scene.master().files());
}

fn put(scene: &Scene, directories: &[&str], more: &str) {
    for directory in directories {
        copy(directory, &scene.host.path("var/cache/salt/minion/extmods").join(directory));
    }
    let own = format!("sidle:\n  program: {SIDLE}\n  root: {}\n{more}", scene.host.root().display());
    fs::write(scene.configuration().join("minion.d/sidle.conf"), own).unwrap();
}
