//! What is given away: made by `scripts/release`, once for all tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directory that `scripts/release` made with these arguments, or makes now.
fn release_files(arguments: &[&str]) -> PathBuf {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(home.join("scripts/release"))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/release starts");
    assert!(output.status.success(), "scripts/release failed");
    home.join(String::from_utf8_lossy(&output.stdout).trim())
}

/// The file of the release whose name ends so: `deb`, `rpm`, `apk`, `tar.gz`.
pub fn release_file(end: &str) -> PathBuf {
    file_of(&release_files(&[]), end)
}

/// The rpm with SELinux's file contexts.
pub fn selinux_package() -> PathBuf {
    let files = std::fs::read_dir(release_files(&[])).unwrap().map(|entry| entry.unwrap().path());
    let mut found = files.filter(|path| is_of_selinux(path));
    found.next().expect("scripts/release makes it")
}

fn is_of_selinux(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sidle-selinux"))
}

/// The same of the packages' next revision.
pub fn other_revision(end: &str) -> PathBuf {
    file_of(&release_files(&["--revision", "2", "target/release-files-2"]), end)
}

fn file_of(directory: &Path, end: &str) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_wanted = |path: &PathBuf| path.to_str().unwrap().ends_with(&format!(".{end}")) && !is_of_selinux(path);
    let wanted: Vec<PathBuf> = files.filter(is_wanted).collect();
    assert_eq!(wanted.len(), 1, "{end}: {wanted:?}");
    wanted[0].clone()
}

/// The static program that is given away; made once.
pub fn static_program() -> PathBuf {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(home.join("scripts/release"));
    let output = command.arg("--program").stderr(Stdio::inherit()).output().expect("scripts/release starts");
    assert!(output.status.success(), "scripts/release failed");
    home.join(String::from_utf8_lossy(&output.stdout).trim())
}
