//! What sidle publishes is plain TUF: an unmodified python-tuf verifies and downloads it. Needs python3 with venv, and the package index on first use.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make and look at real files, and run python"
)]

use crate::support::repositories::RepoBuilder;
use crate::support::team::{Team, key, metadata, refresh};
use sidle::repository::{Delegation, Rotation};
use sidle::trust::publish::{Lifetimes, RoleKeys};
use sidle::trust::{Answer, DelegatedFiles, Expiry, Floor, MetadataFiles, Signer, Verdict, by_hand, target};
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

/// A Python with python-tuf.
pub fn python() -> PathBuf {
    cached_python(&REQUIREMENTS)
}

/// A Python with these packages, in a cache outside the tree, named by the first one's version; made on first use.
pub fn cached_python(requirements: &[&str]) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"))).unwrap();
    let venv = cache.join("sidle-test").join(requirements[0]);
    let complete = venv.join("complete");
    fs::create_dir_all(venv.parent().unwrap()).unwrap();
    // Tests are processes: of those that begin at once on a fresh machine, one makes it and the others wait.
    let lock = fs::File::create(cache.join("sidle-test").join(format!(".lock-{}", requirements[0]))).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if !complete.exists() {
        success(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
        let install =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "30", "--retries", "3"];
        success(Command::new(venv.join("bin/python3")).args(install).args(requirements));
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
    let text = fs::read_to_string(&timestamp).unwrap().replace("\"version\":2", "\"version\":3");
    fs::write(&timestamp, text).unwrap();
    assert!(!client(&unpacked, &work.path().join("d"), &published[2..3]).status.success());
}

fn targets_file(directory: &Path, suffix: &str) -> PathBuf {
    let targets = success(Command::new("find").arg(directory.join("targets")).arg("-name").arg(format!("*{suffix}")));
    PathBuf::from(targets.lines().next().unwrap())
}

#[test]
fn an_unmodified_python_tuf_reads_thresholds_rotations_and_delegations() {
    let mut team = Team::new(jiff::Timestamp::now());
    let others = ["olga", "paul"].map(|name| key(team.builder.directory.path(), name));
    let keys = RoleKeys { keys: others.iter().map(Signer::public).collect(), threshold: 2 };
    let name = "demo.team-2_x".parse().unwrap();
    let delegation = Delegation { name, paths: vec!["demo/2*/*/*".to_owned()], keys, terminating: true };
    let first = team.add("1.0");
    team.publish();
    team.open().delegate(delegation).unwrap();
    let second = team.add("2.0");
    let everybody: [&dyn Signer; 4] = [&team.people[0], &team.people[2], &others[0], &others[1]];
    assert_eq!(team.try_publish(&everybody).unwrap().waiting, []);
    let new = key(team.builder.directory.path(), "new");
    let rotation = Rotation {
        role: "online".parse().unwrap(),
        add: vec![new.public()],
        remove: vec![team.online.public().keyid()],
        threshold: None,
    };
    team.open().rotate(&rotation, &Lifetimes::default(), team.now).unwrap();
    team.online = new;
    assert_eq!(team.try_publish(&[&team.people[0], &team.people[1]]).unwrap().waiting, []);
    let targets =
        [target::manifest(&first), target::payload(&first), target::manifest(&second), target::payload(&second)];
    let work = tempfile::tempdir().unwrap();
    let output = client(&team.path(), &work.path().join("a"), &targets);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bundle = team.builder.directory.path().join("two.sidle");
    team.open().export(&[second], &[], &bundle, team.now).unwrap();
    let unpacked = work.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    success(Command::new("tar").arg("-xf").arg(&bundle).arg("-C").arg(&unpacked));
    let output = client(&unpacked, &work.path().join("b"), &targets[2..]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The control: the delegated role's file is what lists them.
    let delegated = unpacked.join("metadata/1.demo.team-2_x.json");
    let text = fs::read_to_string(&delegated).unwrap().replacen("2.0", "2.1", 1);
    fs::write(&delegated, text).unwrap();
    assert!(!client(&unpacked, &work.path().join("c"), &targets[2..]).status.success());
}

/// Writes a repository as its own library does, in forms that sidle never writes; see the script.
fn foreign(directory: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tuf_author.py");
    success(Command::new("timeout").arg("60").arg(python()).arg(script).arg(directory));
}

#[test]
fn a_repository_that_python_tuf_wrote_is_read_subdirectories_hash_bins_opaque_keyids_and_all() {
    let work = tempfile::tempdir().unwrap();
    foreign(work.path());
    let files = metadata(work.path());
    let now = jiff::Timestamp::now();
    let (client, ended) = refresh(&Floor::new(files["1.root.json"].clone()), &files, now);
    ended.unwrap();
    assert_eq!(client.workflow().root().header.version, 3);
    for (name, role) in [
        ("top.txt", "targets"),
        ("sub/dir/deep.txt", "targets"),
        ("team/a/one.txt", "team/ä..x"),
        ("bins/0.txt", ""),
        ("bins/1.txt", ""),
        ("bins/7.txt", ""),
    ] {
        let mut delegated = DelegatedFiles::new();
        let mut search = client.search(name, &mut delegated).unwrap();
        while let Some(request) = search.request() {
            // The library writes its files under the plain name of the role, percent-encoded where it is no file name.
            let answer = files.get(&request.url_segment()).map_or(Answer::NotFound, |bytes| Answer::File(bytes));
            search.answer(answer).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let listed = search.listed().unwrap_or_else(|| panic!("{name} is not listed"));
        assert!(listed.target.hashes.sha512.is_some() && listed.target.hashes.sha256.is_none(), "{name}");
        assert!(role.is_empty() && listed.role.starts_with("bin-") || listed.role == role, "{name}: {}", listed.role);
        let stored = target::stored(name, &listed.target.hashes, true);
        let bytes = fs::read(work.path().join("targets").join(stored)).unwrap();
        assert!(listed.target.hashes.fit(&bytes) && listed.target.length == bytes.len() as u64);
    }
    // The same on a host without a network: what is carried under the published names is looked up in the same roles.
    let carried: MetadataFiles =
        files.iter().map(|(name, bytes)| (name.replace("%2F", "/").replace("%C3%A4", "ä"), bytes.clone())).collect();
    let verification = by_hand::verify(&Floor::new(files["1.root.json"].clone()), &carried, now, Expiry::BY_HAND);
    let targets = verification.targets.unwrap();
    for name in ["top.txt", "team/a/one.txt", "bins/7.txt"] {
        assert!(matches!(targets.lookup(name), Verdict::Listed(_)), "{name}: {:?}", targets.lookup(name));
    }
    assert!(matches!(targets.lookup("bins/nothing.txt"), Verdict::Unlisted { .. } | Verdict::Unknown { .. }));
    assert_eq!(targets.listed().count(), 11);
    // Its own client finds them, too. (A plain file server can't serve a role whose name has a slash.)
    let output = client_of(work.path(), &["top.txt", "sub/dir/deep.txt", "bins/0.txt", "bins/7.txt"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn client_of(directory: &Path, targets: &[&str]) -> Output {
    let work = tempfile::tempdir().unwrap();
    let targets: Vec<String> = targets.iter().map(|name| (*name).to_owned()).collect();
    client(directory, &work.path().join("work"), &targets)
}
