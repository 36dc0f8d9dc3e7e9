//! What is given away: made by `scripts/release`, once for all tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory that `scripts/release` made, or makes now.
pub fn release_files() -> PathBuf {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output =
        Command::new(home.join("scripts/release")).stderr(Stdio::inherit()).output().expect("scripts/release starts");
    assert!(output.status.success(), "scripts/release failed");
    home.join(String::from_utf8_lossy(&output.stdout).trim())
}

/// The file of the release whose name ends so: `deb`, `rpm`, `apk`, `tar.gz`.
pub fn release_file(end: &str) -> PathBuf {
    let directory = release_files();
    let files = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let wanted: Vec<PathBuf> = files.filter(|path| path.to_str().unwrap().ends_with(&format!(".{end}"))).collect();
    assert_eq!(wanted.len(), 1, "{end}: {wanted:?}");
    wanted[0].clone()
}
