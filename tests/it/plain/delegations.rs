//! A part of a repository that others sign for: published, exported, carried, and withdrawn.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::repositories::{day, metadata_of};
use crate::support::team::{Team, finds, key, refresh};
use sidle::bundle::file::BundleReader;
use sidle::bundle::member::ReleaseId;
use sidle::digest::Digest;
use sidle::repository::{Change, Delegation, RepositoryError};
use sidle::signer::FileSigner;
use sidle::trust::publish::{Lifetimes, RoleKeys};
use sidle::trust::{Expiry, Floor, MetadataFiles, Signer, TrustError, TrustedTargets, Verdict, by_hand, target};
use sidle::trust_store::{TrustStore, TrustStoreError};
use std::fs;
use std::path::PathBuf;

/// A team that lets two others sign for `demo`.
fn delegating() -> (Team, [FileSigner; 2]) {
    let team = Team::new(day(0));
    let others = ["olga", "paul"].map(|name| key(team.builder.directory.path(), name));
    let keys = RoleKeys { keys: others.iter().map(Signer::public).collect(), threshold: 2 };
    let paths = vec!["demo/*/*/*".to_owned()];
    let delegation = Delegation { name: "demo.team".parse().unwrap(), paths, keys, terminating: true };
    team.open().delegate(delegation).unwrap();
    (team, others)
}

fn all<'a>(team: &'a Team, others: &'a [FileSigner; 2]) -> Vec<&'a dyn Signer> {
    vec![&team.people[0], &team.people[1], &others[0], &others[1]]
}

fn export(team: &Team, id: &ReleaseId, name: &str) -> PathBuf {
    let path = team.builder.directory.path().join(name);
    team.open().export(std::slice::from_ref(id), &[], &path, team.now).unwrap();
    path
}

fn judged(floor: &Floor, files: &MetadataFiles, days: i64) -> (Floor, TrustedTargets) {
    let verification = by_hand::verify(floor, files, day(days), Expiry::BY_HAND);
    (verification.floor, verification.targets.unwrap())
}

#[test]
fn releases_move_to_who_signs_for_them_and_never_vanish_on_the_way() {
    let team = Team::new(day(0));
    let first = team.add("1.0");
    team.publish();
    let others = ["olga", "paul"].map(|name| key(team.builder.directory.path(), name));
    let keys = RoleKeys { keys: others.iter().map(Signer::public).collect(), threshold: 1 };
    let name = "demo.team".parse().unwrap();
    let delegation = Delegation { name, paths: vec!["demo/*/*/*".to_owned()], keys, terminating: false };
    team.open().delegate(delegation.clone()).unwrap();
    let publication = team.try_publish(&[&team.people[0], &team.people[1]]).unwrap();
    assert_eq!(publication.signed, Vec::<String>::new(), "the others have not signed for it yet");
    assert_eq!(publication.waiting.len(), 2);
    let changes = &publication.waiting[0].changes;
    assert!(changes.contains(&Change::Withdraws(first.to_string())), "{changes:?}");
    assert!(changes.iter().any(|change| matches!(change, Change::Delegates { role, .. } if role == "demo.team")));
    let (client, ended) = refresh(&team.host(), &team.files(), day(0));
    ended.unwrap();
    assert!(finds(&client, &team.files(), &first, None));
    let publication = team.try_publish(&[&others[1]]).unwrap();
    assert_eq!(publication.signed, ["1.demo.team.json", "2.targets.json", "2.snapshot.json", "timestamp.json"]);

    // From now on they publish alone; they can't sign what isn't theirs, and the others can't sign for them.
    let second = team.add("2.0");
    let publication = team.try_publish(&[&team.people[0], &team.people[1]]).unwrap();
    assert!(publication.signed.is_empty() && publication.waiting[0].file == "2.demo.team.json");
    assert_eq!(team.try_publish(&[&others[0]]).unwrap().added, std::slice::from_ref(&second));
    let (client, ended) = refresh(&client.floor(), &team.files(), day(0));
    ended.unwrap();
    assert!([&first, &second].iter().all(|id| finds(&client, &team.files(), id, None)));
    let refused = team.open().sign(&team.online).unwrap_err();
    assert!(matches!(refused, RepositoryError::NothingWaits { .. }), "{refused}");

    // Back again: the snapshot keeps the name (no role vanishes for hosts that have seen it), and so does the version of a later role.
    team.open().undelegate(&delegation.name).unwrap();
    team.publish();
    let (client, ended) = refresh(&client.floor(), &team.files(), day(0));
    ended.unwrap();
    assert!([&first, &second].iter().all(|id| finds(&client, &team.files(), id, None)));
    team.open().delegate(delegation).unwrap();
    let publication = team.try_publish(&[&team.people[0], &team.people[1], &others[0]]).unwrap();
    assert!(publication.signed.contains(&"3.demo.team.json".to_owned()), "{publication:?}");
    refresh(&client.floor(), &team.files(), day(0)).1.unwrap();
}

#[test]
fn a_role_that_is_given_more_signs_for_it_before_the_others_let_go() {
    let (team, others) = delegating();
    let narrow = Delegation { paths: vec!["other/*/*/*".to_owned()], ..team.open().delegations()[0].clone() };
    let wide = team.open().delegations()[0].clone();
    team.open().delegate(narrow).unwrap();
    let id = team.add("1.0");
    team.try_publish(&all(&team, &others)).unwrap();
    team.open().delegate(wide).unwrap();
    let publication = team.try_publish(&[&team.people[0], &team.people[1]]).unwrap();
    assert!(publication.signed.is_empty(), "the release would be listed by nobody: {publication:?}");
    let (client, ended) = refresh(&team.host(), &team.files(), day(0));
    ended.unwrap();
    assert!(finds(&client, &team.files(), &id, None));
    let publication = team.try_publish(&[&others[0], &others[1]]).unwrap();
    assert_eq!((publication.signed.len(), publication.added.len(), publication.withdrawn.len()), (4, 0, 0));
}

#[test]
fn a_bundle_carries_the_way_to_its_release_and_a_host_without_a_network_follows_it() {
    let (team, others) = delegating();
    let first = team.add("1.0");
    team.try_publish(&all(&team, &others)).unwrap();
    let one = export(&team, &first, "one.sidle");
    let files = metadata_of(&one);
    assert!(files.contains_key("1.demo.team.json"), "{:?}", files.keys());
    let (floor, targets) = judged(&team.host(), &files, 0);
    let (head, _) = BundleReader::open(fs::File::open(&one).unwrap()).unwrap();
    let release = &head.releases[0];
    targets.require(&target::manifest(&first), &release.manifest_digest).unwrap();
    targets.require(&target::payload(&first), &release.payload_digest).unwrap();
    assert_eq!(
        targets.check_sums_signature(&release.checksums, &release.signature),
        Ok(None),
        "a delegated key signs them"
    );
    assert_eq!(targets.listed().count(), 2);
    assert!(matches!(targets.require(&target::payload(&first), &Digest::of(b"x")), Err(TrustError::Unlisted { .. })));
    assert_eq!(floor.delegated.keys().collect::<Vec<_>>(), ["demo.team"]);

    // A newer bundle, then the older one again: it is looked up in what the host has kept.
    let second = team.add("2.0");
    team.try_publish(&all(&team, &others)).unwrap();
    let two = export(&team, &second, "two.sidle");
    let (newer, targets) = judged(&floor, &metadata_of(&two), 0);
    assert!(matches!(targets.lookup(&target::payload(&second)), Verdict::Listed(_)));
    let (again, targets) = judged(&newer, &files, 0);
    assert_eq!(again, newer);
    assert!(matches!(targets.lookup(&target::payload(&first)), Verdict::Listed(_)));

    // A newer export without the role: whether the older release is still listed can't be known.
    let mut partial = metadata_of(&two);
    partial.remove("2.demo.team.json").unwrap();
    let (kept, targets) = judged(&floor, &partial, 0);
    assert!(kept.delegated.is_empty(), "an older file of the role is of no use any more");
    let error = targets.require(&target::payload(&first), &release.payload_digest).unwrap_err();
    assert!(matches!(error, TrustError::Unknown { .. }) && error.to_string().contains("2.demo.team.json"), "{error}");
    assert!(error.hint().unwrap().contains("export the bundle again"));

    // Withdrawn: the role is there and doesn't list it any more.
    team.open().withdraw(std::slice::from_ref(&first), None, sidle::repository::Withdrawal::KeepFiles, day(0)).unwrap();
    team.try_publish(&all(&team, &others)).unwrap();
    let (newest, targets) = judged(&newer, &metadata_of(&export(&team, &second, "three.sidle")), 0);
    assert!(matches!(targets.lookup(&target::payload(&first)), Verdict::Unlisted { .. }));
    let (_, targets) = judged(&newest, &files, 0);
    let error = targets.require(&target::payload(&first), &release.payload_digest).unwrap_err();
    assert!(matches!(error, TrustError::Withdrawn { .. }), "{error}");

    // Expired: said so, not "unknown". The targets role is as old, and is refused first.
    let late = by_hand::verify(&newest, &files, day(400), Expiry::BY_HAND).targets;
    assert!(matches!(late, Err(TrustError::Expired { .. })), "{late:?}");
}

#[test]
fn what_a_role_may_not_sign_is_not_listed_and_what_others_signed_for_it_does_not_count() {
    let (team, others) = delegating();
    let id = team.add("1.0");
    team.try_publish(&all(&team, &others)).unwrap();
    let good = metadata_of(&export(&team, &id, "one.sidle"));
    // Not what the snapshot names: an attacker's file of the role changes nothing that is trusted.
    for (place, byte) in [(100, 1_u8), (400, 2)] {
        let mut files = good.clone();
        files.get_mut("1.demo.team.json").unwrap()[place] ^= byte;
        let (floor, targets) = judged(&team.host(), &files, 0);
        assert!(floor.delegated.is_empty());
        assert!(matches!(targets.lookup(&target::payload(&id)), Verdict::Unknown { .. }));
        assert_eq!(targets.listed().count(), 0);
    }
    let (floor, _) = judged(&team.host(), &good, 0);
    // One key of the two is gone: what it helped to sign has to be signed again before the targets say so.
    let third = key(team.builder.directory.path(), "rosa");
    let rotation = sidle::repository::Rotation {
        role: "demo.team".parse().unwrap(),
        add: vec![third.public()],
        remove: vec![others[1].public().keyid()],
        threshold: None,
    };
    team.open().rotate(&rotation, &Lifetimes::default(), day(0)).unwrap();
    let publication = team.try_publish(&[&team.people[0], &team.people[1], &others[0]]).unwrap();
    assert!(publication.signed.is_empty(), "{publication:?}");
    let publication = team.try_publish(&[&third]).unwrap();
    assert_eq!(publication.signed, ["2.demo.team.json", "2.targets.json", "2.snapshot.json", "timestamp.json"]);
    let (_, targets) = judged(&floor, &metadata_of(&export(&team, &id, "two.sidle")), 0);
    assert!(matches!(targets.lookup(&target::payload(&id)), Verdict::Listed(_)));
}

#[test]
fn the_trust_store_keeps_delegated_roles_and_tells_when_they_are_damaged() {
    let (team, others) = delegating();
    let id = team.add("1.0");
    team.try_publish(&all(&team, &others)).unwrap();
    let files = metadata_of(&export(&team, &id, "one.sidle"));
    let host = tempfile::tempdir().unwrap();
    let trust_store = TrustStore::open_or_create(host.path()).unwrap();
    let root = team.host().root;
    trust_store.lock().unwrap().pin(&root, &Digest::of(&root)).unwrap();
    trust_store.verify(&files, day(0), Expiry::BY_HAND).unwrap().targets.unwrap();
    let floor = trust_store.load().unwrap().floor;
    assert_eq!(floor.delegated["demo.team"], files["1.demo.team.json"]);
    let stored = fs::read_dir(host.path()).unwrap().map(|entry| entry.unwrap().path());
    let stored = stored.into_iter().find(|path| path.to_str().unwrap().ends_with(".delegated.json")).unwrap();
    let good = fs::read(&stored).unwrap();
    fs::write(&stored, &good[1..]).unwrap();
    assert!(matches!(trust_store.load(), Err(TrustStoreError::Damaged { .. })));
    fs::remove_file(&stored).unwrap();
    assert!(matches!(trust_store.load(), Err(TrustStoreError::Damaged { .. })));
    fs::write(&stored, good).unwrap();
    assert_eq!(trust_store.load().unwrap().floor, floor);
}
