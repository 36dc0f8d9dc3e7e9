//! Installing: beside what runs, once, whole or not at all; older bundles never take newer metadata back.

use crate::support::eventually;
use crate::support::inside::{Inside, bytes};
use crate::support::releases::{members, release_of};
use crate::support::stage::{Author, DEMO, Host, SIDLE, sidle, text};
use crate::support::trees;
use serde_json::json;
use sidle::bundle::file::{BundleReader, BundleWriter};
use sidle::bundle::member::{MemberName, ReleaseFile};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Everything below the root.
fn everything(host: &Host) -> BTreeMap<String, (char, u32, Vec<u8>)> {
    trees::contents(&host.path(""))
}

/// Releases, links and staging.
fn store(host: &Host) -> BTreeMap<String, (char, u32, Vec<u8>)> {
    if host.path("opt").exists() { trees::contents(&host.path("opt")) } else { BTreeMap::new() }
}

#[test]
fn install_puts_a_release_beside_what_is_there_and_switches_nothing() {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let host = Host::new(&author);
    let told = host.install(&old).ok();
    assert!(told.contains("installed  demo-agent 1.0-1") && told.contains("sidle switch demo-agent 1.0-1"), "{told}");
    host.sidle(&["test-flip", DEMO, "1.0-1"]).ok();
    let told = host.sidle(&["--json", "install", text(&new)]).json();
    assert_eq!((&told["release"], &told["fresh"], &told["current"]), (&json!("1.1-1"), &json!(true), &json!("1.0-1")));
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    let source = author.repository().parent().unwrap().join("tree-1.1");
    assert_eq!(trees::contents(&host.path("opt/sidle/demo-agent/versions/1.1-1")), trees::contents(&source));
    let listed = host.sidle(&["--json", "list"]).json();
    let releases: Vec<_> = listed["releases"].as_array().unwrap().iter().map(|one| one["release"].clone()).collect();
    assert_eq!(releases, ["1.1-1", "1.0-1"]);
    assert_eq!(listed["releases"][1]["marks"][0]["mark"], "current");
    host.sidle(&["verify", DEMO, "--full"]).ok();
}

#[test]
fn install_twice_has_nothing_to_do_and_changes_nothing() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let before = everything(&host);
    let again = host.install(&bundle);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(again.stdout.contains("already installed  demo-agent 1.0-1"), "{again:?}");
    assert_eq!(everything(&host), before);
}

#[test]
fn install_rehearsed_changes_nothing() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    let before = everything(&host);
    let told = host.sidle(&["install", text(&bundle), "--dry-run"]).ok();
    assert!(told.contains("would install  demo-agent 1.0-1"), "{told}");
    assert_eq!(everything(&host), before);
}

#[test]
fn install_takes_two_exports_of_one_repository_in_either_order() {
    let author = Author::new();
    let bundles = [author.release("1.0", "good"), author.release("1.1", "good")];
    for order in [[0, 1], [1, 0]] {
        let host = Host::new(&author);
        for number in order {
            host.install(&bundles[number]).ok();
        }
        let listed = host.sidle(&["--json", "list"]).json();
        assert_eq!(listed["releases"].as_array().unwrap().len(), 2, "{order:?}");
        // The newest metadata stays, whichever came last.
        let trust = host.sidle(&["--json", "trust", "show"]).json();
        assert_eq!(trust["roles"]["targets"]["version"], 2, "{order:?}");
    }
}

/// A bundle with the releases of one and the metadata of another.
fn with_metadata_of(releases: &Path, metadata: &Path) -> Vec<u8> {
    let (releases, metadata) = (bytes(releases), bytes(metadata));
    let (head, _) = BundleReader::open(releases.as_slice()).unwrap();
    let (other, _) = BundleReader::open(metadata.as_slice()).unwrap();
    let release = &head.releases[0];
    let mut writer = BundleWriter::new(Vec::new(), std::slice::from_ref(&release.id)).unwrap();
    for (name, bytes) in &other.metadata {
        writer.small(&MemberName::Metadata(name.clone()), bytes).unwrap();
    }
    let small = [
        (ReleaseFile::Manifest(release.manifest_digest), &release.manifest),
        (ReleaseFile::Checksums, &release.checksums),
        (ReleaseFile::Signature, &release.signature),
    ];
    for (file, bytes) in small {
        writer.small(&MemberName::Small(release.id.clone(), file), bytes).unwrap();
    }
    let payload = &releases[members(&releases).last().unwrap().content.clone()];
    writer.payload(&release.id, release.payload_digest, payload.len() as u64, &mut &payload[..]).unwrap();
    writer.finish().unwrap()
}

#[test]
fn install_refuses_what_was_withdrawn_or_never_listed_and_leaves_no_trace() {
    let author = Author::new();
    // A second copy of the repository publishes 1.0 in its first edition; the repository itself never lists it.
    let copy = author.repository().with_extension("copy");
    assert!(Command::new("cp").arg("-r").arg(author.repository()).arg(&copy).status().unwrap().success());
    let (one, two) = (author.release("1.1", "good"), author.release("1.2", "good"));
    let withdrawn = author.repository().with_extension("withdrawn");
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent/demo-agent.toml");
    let key = author.key();
    let arguments = ["pack", text(&recipe), "--version", "1.0", "--repo", text(&copy), "--key", text(&key)];
    sidle(&[&arguments[..], &["--output", text(&withdrawn)]].concat(), &[]).ok();
    let unlisted = author.repository().with_extension("unlisted");
    fs::write(&unlisted, with_metadata_of(&withdrawn, &two)).unwrap();

    let host = Host::new(&author);
    host.install(&one).ok();
    host.install(&two).ok();
    let before = store(&host);
    for (bundle, word) in [(&withdrawn, "withdrawn"), (&unlisted, "doesn't list")] {
        let refused = host.install(bundle);
        assert_eq!(refused.code, Some(7), "{refused:?}");
        assert!(refused.stderr.contains(word) && refused.stderr.contains("1.0-1"), "{refused:?}");
        assert!(refused.stderr.contains("hint:"), "{refused:?}");
        assert_eq!(store(&host), before);
    }
}

#[test]
fn install_takes_up_newer_metadata_even_of_a_bundle_that_is_refused() {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let root = bytes(&author.repository().join("metadata/1.root.json"));
    let host = Inside::new(&root);
    let mut damaged = bytes(&new);
    let payload = members(&damaged).last().unwrap().content.clone();
    damaged[payload.start + 20] ^= 1;
    assert_eq!(host.install(&damaged).unwrap_err().class, sidle::failure::Class::Integrity);
    let versions = |host: &Inside| host.signed()["trust/targets"]["version"].clone();
    assert_eq!(versions(&host), 2);
    host.install(&bytes(&old)).unwrap();
    assert_eq!(versions(&host), 2, "an older bundle took newer metadata back");
}

#[test]
fn install_ended_by_ctrl_c_shows_nothing_and_the_next_command_clears_up() {
    let author = Author::new();
    let bundle = release_of(&author, "2.0", "", |tree| trees::put(tree, "lib/data", &trees::noise(5, 3 << 20), 0o644));
    let host = Host::new(&author);
    let content = bytes(&bundle);
    let pipe = host.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = Command::new(SIDLE)
        .args(["--root", text(&host.path("")), "install", text(&pipe)])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The writer of the test stays open: the program waits for the rest.
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    writer.write_all(&content[..content.len() - 4096]).unwrap();
    let staged = host.path("opt/sidle/demo-agent/staging/2.0-1");
    eventually(20, "it unpacks", || if staged.exists() { Ok(()) } else { Err("nothing is staged".to_owned()) });
    let identity = sidle::os::process::Identity::of(child.id()).unwrap().unwrap();
    assert!(identity.signal(sidle::os::process::SignalNumber::INT).unwrap());
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    drop(writer);
    let listed = host.sidle(&["--json", "list"]).json();
    assert_eq!(listed["releases"], json!([]));
    assert_eq!(fs::read_dir(host.path("opt/sidle/demo-agent/versions")).unwrap().count(), 0);
    host.install(&bundle).ok();
    assert_eq!(fs::read_dir(host.path("opt/sidle/demo-agent/staging")).unwrap().count(), 0);
    host.sidle(&["verify", DEMO, "2.0-1", "--full"]).ok();
}

#[test]
fn install_of_the_same_release_by_two_commands_at_once_installs_it_once() {
    let author = Author::new();
    let bundle = release_of(&author, "2.0", "", |tree| trees::put(tree, "lib/data", &trees::noise(6, 3 << 20), 0o644));
    let host = Host::new(&author);
    let start = || {
        let root = host.path("");
        Command::new(SIDLE)
            .args(["--root", text(&root), "install", text(&bundle)])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut codes: Vec<_> = [start(), start()].into_iter().map(|mut child| child.wait().unwrap().code()).collect();
    codes.sort();
    assert!(codes == [Some(0), Some(0)] || codes == [Some(0), Some(3)], "{codes:?}");
    host.sidle(&["verify", DEMO, "2.0-1", "--full"]).ok();
}

#[test]
fn a_manifest_that_is_signed_as_another_release_is_not_trusted() {
    use crate::support::repositories::RepoBuilder;
    use sidle::digest::Digest;
    use sidle::failure::Class;
    use sidle::store::install::Approved;
    use sidle::trust::publish::{self, Edition, Lifetimes, describe};
    use sidle::trust::{Expiry, Floor, MetadataFiles, Role, by_hand, target};
    let now = jiff::Timestamp::now();
    let repo = RepoBuilder::new(now);
    let one = repo.add("1.0", "one");
    let manifest = repo.pack("2.0", "two").0.manifest_bytes;
    let edition = |role: Role| Edition { version: 1, signed: now, lifetime: Lifetimes::default().of(role) };
    let listed = publish::target(manifest.len() as u64, Digest::of(&manifest));
    let list = [(target::manifest(&one), listed)].into();
    let targets = publish::targets(edition(Role::Targets), &list, &[&repo.offline]).unwrap();
    let named = [("targets.json".to_owned(), describe(1, &targets))].into();
    let snapshot = publish::snapshot(edition(Role::Snapshot), &named, &[&repo.online]).unwrap();
    let timestamp = publish::timestamp(edition(Role::Timestamp), &describe(1, &snapshot), &[&repo.online]).unwrap();
    let files: MetadataFiles = [
        ("1.root.json", repo.root()),
        ("1.targets.json", targets),
        ("1.snapshot.json", snapshot),
        ("timestamp.json", timestamp),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into();
    let targets = by_hand::verify(&Floor::new(repo.root()), &files, now, Expiry::Strict).targets.unwrap();
    let error = Approved::new(&targets, &one, manifest, Vec::new()).unwrap_err();
    assert_eq!(error.class(), Class::NotTrusted, "{error}");
    let told = error.to_string();
    assert!(told.contains("demo/1.0-1") && told.contains("demo/2.0-1") && !told.contains("bundle"), "{told}");
    assert!(error.hint().is_some_and(|hint| hint.contains("owner")), "{:?}", error.hint());
}

/// A repository may have a release for old hosts and for newer ones: who takes the wrong one of them has a program that does not start.
#[test]
fn install_takes_the_best_of_the_platforms_of_a_release_that_this_host_can_run() {
    let author = Author::new();
    for glibc in ["2.2", "2.4", "99.1"] {
        let requires = format!("glibc = \"{glibc}\"");
        release_of(&author, "1.0", &requires, |tree| trees::put(tree, "lib/for", glibc.as_bytes(), 0o644));
    }
    let (repository, bundle) = (author.repository(), author.directory().join("all.sidle"));
    sidle(&["export", text(&repository), "demo-agent@1.0-1", "-o", text(&bundle)], &[]).ok();
    let url = format!("[repository]\nurl = \"file://{}\"\n", repository.display());
    for what in [DEMO, text(&bundle)] {
        let host = Host::new(&author);
        fs::write(host.path("etc/sidle/conf.d/repository.toml"), &url).unwrap();
        host.sidle(&["install", what]).ok();
        let found = fs::read_to_string(host.path("opt/sidle/demo-agent/versions/1.0-1/lib/for")).unwrap();
        assert_eq!(found, "2.4", "{what}");
    }
}
