//! The author's side: stage, publish, export; and what coreutils and minisign say of the result. Needs `minisign` and `tar`.

#![expect(clippy::disallowed_methods, reason = "tests make and look at real files, and run tools")]

use crate::support::repositories::{RepoBuilder, day, init, metadata_of, snapshot_of};
use sidle::bundle::file::BundleReader;
use sidle::bundle::member::ReleaseId;
use sidle::failure::Class;
use sidle::repository::{Added, PublishKeys, Repository, RepositoryError};
use sidle::signer::FileSigner;
use sidle::trust::publish::Lifetimes;
use sidle::trust::{Expiry, Floor, TrustError, Warning, by_hand, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn tool(directory: &Path, program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {program} ({error}): apt-get install {program}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

pub fn release_directory(repo: &RepoBuilder, id: &ReleaseId) -> PathBuf {
    repo.path().join("targets").join(id.to_string())
}

#[test]
fn a_release_goes_from_staged_to_published_and_publishing_again_is_nothing_to_do() {
    let repo = RepoBuilder::new(day(0));
    let id = repo.add("1.0", "one");
    assert!(!repo.open().releases().unwrap()[0].is_published);
    let publication = repo.publish();
    assert_eq!(publication.added, std::slice::from_ref(&id));
    assert_eq!(publication.signed, ["1.targets.json", "1.snapshot.json", "timestamp.json"]);
    assert!(repo.open().releases().unwrap()[0].is_published);
    let before = snapshot_of(&repo.path());
    assert!(repo.publish().signed.is_empty());
    assert!(matches!(repo.try_add("1.0", "one").unwrap(), Added::Already(_)));
    assert!(repo.publish().signed.is_empty());
    assert_eq!(snapshot_of(&repo.path()), before);
    repo.add("2.0", "two");
    assert_eq!(repo.publish().signed, ["2.targets.json", "2.snapshot.json", "timestamp.json"]);
    let manifest = repo.open().manifest(&id).unwrap();
    assert_eq!(manifest, repo.pack("1.0", "one").0.manifest_bytes);
}

#[test]
fn the_same_release_with_other_bytes_is_a_conflict_that_names_the_remedy() {
    let repo = RepoBuilder::new(day(0));
    repo.add("1.0", "one");
    let before = snapshot_of(&repo.path());
    let error = repo.try_add("1.0", "other").unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert!(error.hint().unwrap().contains("--revision"));
    assert_eq!(snapshot_of(&repo.path()), before);
    let (packed, payload) = repo.pack("2.0", "two");
    let mut bytes = fs::read(payload).unwrap();
    bytes[0] ^= 1;
    assert!(matches!(
        repo.open().add(&packed.manifest_bytes, &mut bytes.as_slice()),
        Err(RepositoryError::OtherPayload)
    ));
    bytes[0] ^= 1;
    bytes.push(0);
    assert!(matches!(
        repo.open().add(&packed.manifest_bytes, &mut bytes.as_slice()),
        Err(RepositoryError::OtherPayload)
    ));
    assert_eq!(snapshot_of(&repo.path()), before, "a refused payload leaves nothing behind");
}

#[test]
fn what_is_halfway_to_its_expiry_is_signed_again() {
    let mut repo = RepoBuilder::new(day(0));
    repo.add("1.0", "one");
    repo.publish();
    for (days, signed) in [(3, &[][..]), (4, &["timestamp.json"]), (16, &["2.snapshot.json", "timestamp.json"])] {
        repo.now = day(days);
        assert_eq!(repo.publish().signed, signed, "{days}");
    }
    repo.now = day(200);
    assert_eq!(repo.publish().signed, ["2.targets.json", "3.snapshot.json", "timestamp.json"]);
}

#[test]
fn a_crash_while_publishing_leaves_the_old_set_and_the_next_publish_completes_it() {
    let repo = RepoBuilder::new(day(0));
    let id = repo.add("1.0", "one");
    repo.publish();
    let timestamp = fs::read(repo.path().join("metadata/timestamp.json")).unwrap();
    repo.add("2.0", "two");
    repo.publish();
    fs::write(repo.path().join("metadata/timestamp.json"), timestamp).unwrap();
    let files = metadata_of(&repo.export(std::slice::from_ref(&id), "old.sidle"));
    let floor = Floor::new(repo.root());
    assert_eq!(by_hand::verify(&floor, &files, day(0), Expiry::BY_HAND).targets.unwrap().version(), Some(1));
    assert_eq!(repo.publish().signed, ["2.targets.json", "2.snapshot.json", "timestamp.json"]);
    let files = metadata_of(&repo.export(&[id], "new.sidle"));
    assert_eq!(by_hand::verify(&floor, &files, day(0), Expiry::BY_HAND).targets.unwrap().version(), Some(2));
}

#[test]
fn only_keys_that_the_root_names_may_sign() {
    let repo = RepoBuilder::new(day(0));
    repo.add("1.0", "one");
    let before = snapshot_of(&repo.path());
    for keys in [
        PublishKeys { targets: &repo.online, online: &repo.online },
        PublishKeys { targets: &repo.offline, online: &repo.offline },
    ] {
        let error = repo.open().publish(keys, &Lifetimes::default(), repo.now).unwrap_err();
        assert!(matches!(error, RepositoryError::WrongKey { .. }), "{error}");
    }
    assert_eq!(snapshot_of(&repo.path()), before);
}

#[test]
fn one_key_can_hold_every_role() {
    let directory = tempfile::tempdir().unwrap();
    let key = FileSigner::create(&directory.path().join("key"), None).unwrap();
    let path = directory.path().join("repo");
    let lifetimes = Lifetimes::default();
    let (mut repository, fingerprint) = init(&path, &key, &key, day(0)).unwrap();
    let (_, sum) = tool(&path, "sha256sum", &["metadata/1.root.json"]);
    assert!(sum.starts_with(&fingerprint.to_string()));
    repository.publish(PublishKeys { targets: &key, online: &key }, &lifetimes, day(0)).unwrap();
    let error = Repository::open(&path).unwrap_err();
    assert_eq!(error.class(), Class::Locked);
    drop(repository);
    let error = init(&path, &key, &key, day(0)).unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert!(matches!(Repository::open(directory.path()), Err(RepositoryError::NoRepository { .. })));
}

#[test]
fn an_export_is_a_bundle_that_a_fresh_host_trusts_or_no_file_at_all() {
    let repo = RepoBuilder::new(day(0));
    let (first, second) = (repo.add("1.0", "one"), repo.add("2.0", "two"));
    repo.publish();
    let bundle = repo.export(&[second.clone(), first.clone(), first.clone()], "both.sidle");
    assert_eq!(
        fs::read(&bundle).unwrap(),
        fs::read(repo.export(&[first.clone(), second.clone()], "again.sidle")).unwrap()
    );
    let verification = by_hand::verify(&Floor::new(repo.root()), &metadata_of(&bundle), day(0), Expiry::BY_HAND);
    let targets = verification.targets.unwrap();
    let (head, mut reader) = BundleReader::open(fs::File::open(&bundle).unwrap()).unwrap();
    assert_eq!(head.releases.iter().map(|release| &release.id).collect::<Vec<_>>(), [&first, &second]);
    for release in &head.releases {
        targets.require(&target::manifest(&release.id), &release.manifest_digest).unwrap();
        targets.require(&target::payload(&release.id), &release.payload_digest).unwrap();
        assert_eq!(targets.check_sums_signature(&release.checksums, &release.signature), Ok(None));
    }
    while reader.next_payload().unwrap().is_some() {}
    reader.finish().unwrap();

    let third = repo.add("3.0", "three");
    let output = repo.directory.path().join("refused.sidle");
    let export = |ids: &[ReleaseId], days| repo.open().export(ids, &[], &output, day(days));
    assert!(matches!(export(&[third], 0), Err(RepositoryError::Unpublished { .. })));
    assert!(matches!(export(&[], 0), Err(RepositoryError::NoReleases)));
    assert!(matches!(
        export(std::slice::from_ref(&first), 120),
        Err(RepositoryError::Trust(TrustError::Expired { .. }))
    ));
    let payload = fs::read_dir(release_directory(&repo, &first)).unwrap().map(|entry| entry.unwrap().path());
    let payload = payload.into_iter().find(|path| path.to_str().unwrap().ends_with(".payload.tar.zst")).unwrap();
    let good = fs::read(&payload).unwrap();
    let mut bad = good.clone();
    bad[50] ^= 1;
    fs::write(&payload, bad).unwrap();
    assert!(export(std::slice::from_ref(&first), 0).is_err());
    let left: Vec<_> = fs::read_dir(repo.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_str().unwrap().contains("refused")), "{left:?}");
    fs::write(&payload, good).unwrap();
    assert!(matches!(export(&[first], 8).unwrap().0.as_slice(), [Warning::Late { .. }]));
    assert!(output.exists());
}
