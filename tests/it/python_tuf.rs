//! What sidle publishes is plain TUF: an unmodified python-tuf verifies and downloads it. Needs python3 with venv, and the package index on first use.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make and look at real files, and run python"
)]

use crate::support::repositories::RepoBuilder;
use sidle::trust::target;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const REQUIREMENTS: [&str; 3] = ["tuf==7.0.1", "securesystemslib==1.6.0", "cryptography"];

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

fn success(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A Python with python-tuf, in a cache outside the tree, named by the version; made on first use.
fn python() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"))).unwrap();
    let venv = cache.join("sidle-test").join(REQUIREMENTS[0]);
    let complete = venv.join("complete");
    if !complete.exists() {
        fs::create_dir_all(venv.parent().unwrap()).unwrap();
        success(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        let install =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "30", "--retries", "3"];
        success(Command::new(venv.join("bin/python3")).args(install).args(REQUIREMENTS));
        fs::write(complete, "").unwrap();
    }
    venv.join("bin/python3")
}

fn client(directory: &Path, work: &Path, targets: &[String]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tuf_client.py");
    // `timeout` bounds it; proxies must not see loopback requests.
    let mut command = Command::new("timeout");
    command.arg("60").arg(python()).arg(script).arg(directory).arg(work).args(targets).env("no_proxy", "*");
    run(&mut command)
}

#[test]
fn an_unmodified_python_tuf_accepts_a_repository_and_an_unpacked_bundle() {
    let repo = RepoBuilder::new(jiff::Timestamp::now());
    let first = repo.add("1.0", "one");
    repo.publish();
    let second = repo.add("2.0", "two");
    repo.publish();
    let bundle = repo.export(std::slice::from_ref(&second), "two.sidle");
    let work = tempfile::tempdir().unwrap();
    let unpacked = work.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    success(Command::new("tar").arg("-xf").arg(&bundle).arg("-C").arg(&unpacked));

    let published =
        [target::manifest(&first), target::payload(&first), target::manifest(&second), target::payload(&second)];
    for (name, directory, targets) in [("a", repo.path(), &published[..]), ("b", unpacked.clone(), &published[2..])] {
        let output = client(&directory, &work.path().join(name), targets);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), targets.len());
        let (packed, payload) = repo.pack("2.0", "two");
        let downloaded: Vec<Vec<u8>> = text.lines().map(|path| fs::read(path).unwrap()).collect();
        assert_eq!(downloaded[targets.len() - 2..], [packed.manifest_bytes, fs::read(payload).unwrap()]);
    }

    // The control: the same client refuses what was touched, so the passes above mean something.
    let payload = targets_file(&unpacked, ".payload.tar.zst");
    let mut bytes = fs::read(&payload).unwrap();
    bytes[100] ^= 1;
    fs::write(&payload, bytes).unwrap();
    assert!(!client(&unpacked, &work.path().join("c"), &published[3..]).status.success());
    let timestamp = unpacked.join("metadata/timestamp.json");
    let text = fs::read_to_string(&timestamp).unwrap().replace("\"version\": 2", "\"version\": 3");
    fs::write(&timestamp, text).unwrap();
    assert!(!client(&unpacked, &work.path().join("d"), &published[2..3]).status.success());
}

fn targets_file(directory: &Path, suffix: &str) -> PathBuf {
    let targets = success(Command::new("find").arg(directory.join("targets")).arg("-name").arg(format!("*{suffix}")));
    PathBuf::from(targets.lines().next().unwrap())
}
