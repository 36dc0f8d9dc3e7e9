//! What a thief of keys, a hostile mirror and a power cut can do to a repository of several signers: refuse service, and nothing else.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::repositories::{day, snapshot_of};
use crate::support::stage::{SIDLE, sidle, text};
use crate::support::team::{Team, finds, key, metadata, refresh};
use sidle::bundle::member::ReleaseId;
use sidle::digest::Digest;
use sidle::repository::{RotatedRole, Rotation};
use sidle::signer::FileSigner;
use sidle::trust::metadata::{MetaFile, Signed, Snapshot, Targets};
use sidle::trust::publish::{self, Edition, Lifetimes, describe};
use sidle::trust::{MetadataFiles, Role, Signer, TrustError, target};
use std::fs;
use std::process::Command;

fn edition(version: u64, days: i64, role: Role) -> Edition {
    Edition { version, signed: day(days), lifetime: Lifetimes::default().of(role) }
}

/// Replaces the online roles by what `thief` signs: a snapshot of these targets, and a timestamp.
fn forge_online(files: &mut MetadataFiles, version: u64, targets: (u64, Vec<u8>), thief: &FileSigner, days: i64) {
    let named = [("targets.json".to_owned(), describe(targets.0, &targets.1))].into();
    files.insert(format!("{}.targets.json", targets.0), targets.1);
    let snapshot = publish::snapshot(edition(version, days, Role::Snapshot), &named, &[thief]).unwrap();
    let named = describe(version, &snapshot);
    files.insert(format!("{version}.snapshot.json"), snapshot);
    let timestamp = publish::timestamp(edition(version, days, Role::Timestamp), &named, &[thief]).unwrap();
    files.insert("timestamp.json".to_owned(), timestamp);
}

fn evil_targets(id: &ReleaseId, version: u64, signers: &[&dyn Signer]) -> Vec<u8> {
    let list = [(target::payload(id), publish::target(4, Digest::of(b"evil")))].into();
    publish::targets(edition(version, 0, Role::Targets), &list, signers).unwrap()
}

fn rotate(team: &Team, role: &str, add: &[&FileSigner], remove: &[&FileSigner], people: &[usize]) {
    let rotation = Rotation {
        role: role.parse::<RotatedRole>().unwrap(),
        add: add.iter().map(|key| key.public()).collect(),
        remove: remove.iter().map(|key| key.public().keyid()).collect(),
        threshold: None,
    };
    let mut repository = team.open();
    repository.rotate(&rotation, &Lifetimes::default(), team.now).unwrap();
    for person in people {
        repository.sign(&team.people[*person]).unwrap();
    }
}

#[test]
fn a_stolen_online_key_and_one_of_three_targets_keys_install_nothing() {
    let team = Team::new(day(0));
    let id = team.add("1.0");
    team.publish();
    let good = team.files();
    let (client, _) = refresh(&team.host(), &good, day(0));
    let stranger = key(team.builder.directory.path(), "stranger");
    for (signers, valid) in [
        (vec![&team.online as &dyn Signer], 0),
        (vec![&team.people[2]], 1),
        (vec![&team.people[2], &team.online, &stranger], 1),
    ] {
        let mut files = good.clone();
        forge_online(&mut files, 2, (2, evil_targets(&id, 2, &signers)), &team.online, 0);
        for floor in [team.host(), client.floor()] {
            let (thieved, ended) = refresh(&floor, &files, day(0));
            assert!(
                matches!(&ended, Err(TrustError::Unsigned { role: Role::Targets, valid: found, threshold: 2, .. }) if *found == valid),
                "{ended:?}"
            );
            assert!(
                thieved.search(&target::payload(&id), &mut sidle::trust::DelegatedFiles::new()).is_err(),
                "nothing to look it up in"
            );
        }
        // Two signatures of one person are one.
        let mut files = good.clone();
        let mut twice: serde_json::Value = serde_json::from_slice(&evil_targets(&id, 2, &[&team.people[2]])).unwrap();
        let signatures = twice["signatures"].as_array_mut().unwrap();
        signatures.push(signatures[0].clone());
        forge_online(&mut files, 2, (2, serde_json::to_vec(&twice).unwrap()), &team.online, 0);
        let ended = refresh(&client.floor(), &files, day(0)).1;
        assert!(ended.as_ref().is_err_and(|error| error.to_string().contains("two signatures have")), "{ended:?}");
    }
    // The control: with two people the same file would be trusted.
    let mut files = good;
    forge_online(&mut files, 2, (2, evil_targets(&id, 2, &[&team.people[2], &team.people[0]])), &team.online, 0);
    refresh(&client.floor(), &files, day(0)).1.unwrap();
}

#[test]
fn every_role_can_be_rotated_and_a_host_that_was_away_for_all_of_it_follows() {
    let mut team = Team::new(day(0));
    let first = team.add("1.0");
    team.publish();
    let (client, ended) = refresh(&team.host(), &team.files(), day(0));
    ended.unwrap();
    let floor = client.floor();
    let directory = team.builder.directory.path().to_owned();
    let key = |name: &str| key(&directory, name);

    // Root: the third person leaves, a fourth comes; signed by two of the old and two of the new.
    let dora = key("dora");
    rotate(&team, "root", &[&dora], &[&team.people[2]], &[0]);
    assert!(team.try_publish(&[]).unwrap().signed.is_empty(), "one signature is none");
    rotate(&team, "root", &[], &[], &[]);
    team.open().sign(&team.people[0]).unwrap();
    team.open().sign(&dora).unwrap();
    assert!(team.try_publish(&[]).unwrap().signed.is_empty(), "two of the new, but one of the old only");
    team.open().sign(&team.people[1]).unwrap();
    assert_eq!(team.try_publish(&[]).unwrap().signed, ["2.root.json"]);

    // Targets: what was signed by a key that goes is signed again before the root that says so is published.
    rotate(&team, "targets", &[&dora], &[&team.people[0]], &[0, 1]);
    let publication = team.try_publish(&[]).unwrap();
    assert!(publication.signed.is_empty(), "{publication:?}");
    let publication = team.try_publish(&[&dora]).unwrap();
    assert_eq!(publication.signed, ["2.targets.json", "2.snapshot.json", "timestamp.json", "3.root.json"]);

    // The online key, with the old one at hand: both sign, so that readers on either side of the new root are served.
    let next = key("next");
    rotate(&team, "online", &[&next], &[&team.online], &[0, 1]);
    let old = std::mem::replace(&mut team.online, next);
    let publication = team.open().publish_with(&[], &[&old, &team.online], &Lifetimes::default(), day(0)).unwrap();
    assert_eq!(publication.signed, ["3.snapshot.json", "timestamp.json", "4.root.json"]);
    assert!(team.open().publish_with(&[], &[&old], &Lifetimes::default(), day(0)).is_err(), "it counts no longer");

    let second = team.add("2.0");
    assert_eq!(team.try_publish(&[&team.people[1], &dora]).unwrap().added, std::slice::from_ref(&second));
    for floor in [floor, team.host()] {
        let (client, ended) = refresh(&floor, &team.files(), day(0));
        ended.unwrap();
        assert_eq!(client.workflow().root().header.version, 4);
        assert!([&first, &second].iter().all(|id| finds(&client, &team.files(), id, None)));
        let mut files = team.files();
        forge_online(&mut files, 9, (9, evil_targets(&first, 9, &[&team.people[0], &team.people[2]])), &team.online, 0);
        assert!(refresh(&client.floor(), &files, day(0)).1.is_err(), "those who left sign nothing any more");
        let mut files = team.files();
        let targets: Signed<Targets> = Signed::parse("targets", &files["3.targets.json"]).unwrap();
        forge_online(&mut files, 9, (3, targets.bytes), &old, 0);
        assert!(matches!(
            refresh(&client.floor(), &files, day(0)).1,
            Err(TrustError::Unsigned { role: Role::Timestamp, .. })
        ));
    }
}

#[test]
fn a_thief_who_signs_a_version_of_a_million_is_shaken_off_by_rotating_the_online_key() {
    let mut team = Team::new(day(0));
    let id = team.add("1.0");
    team.publish();
    let mut stolen = team.files();
    let targets = stolen["1.targets.json"].clone();
    forge_online(&mut stolen, 1_000_000, (1, targets), &team.online, 0);
    let (client, ended) = refresh(&team.host(), &stolen, day(0));
    ended.unwrap();
    let floor = client.floor();
    let next = team.add("2.0");
    team.publish();
    let (_, ended) = refresh(&floor, &team.files(), day(0));
    assert!(matches!(ended, Err(TrustError::Rollback { trusted: 1_000_000, offered: 2, .. })), "{ended:?}");

    let new = key(team.builder.directory.path(), "new");
    rotate(&team, "online", &[&new], &[&team.online], &[0, 1]);
    team.online = new;
    assert_eq!(team.try_publish(&[]).unwrap().signed, ["3.snapshot.json", "2.root.json", "timestamp.json"]);
    let (client, ended) = refresh(&floor, &team.files(), day(0));
    ended.unwrap();
    assert!(finds(&client, &team.files(), &id, None) && finds(&client, &team.files(), &next, None));
    assert!(refresh(&client.floor(), &stolen, day(0)).1.is_err());
}

#[test]
fn freeze_rollback_and_mix_and_match_are_refused_each_in_its_own_words() {
    let mut team = Team::new(day(0));
    team.add("1.0");
    team.publish();
    let old = team.files();
    team.now = day(1);
    team.add("2.0");
    team.publish();
    let new = team.files();
    let (client, ended) = refresh(&team.host(), &new, day(1));
    ended.unwrap();
    let floor = client.floor();
    let refused = |files: &MetadataFiles, days: i64| refresh(&floor, files, day(days)).1.unwrap_err().to_string();
    let mix = |name: &str, bytes: &[u8]| {
        let mut files = new.clone();
        files.insert(name.to_owned(), bytes.to_owned());
        files
    };
    let fresh = team.host();
    let swapped = mix("2.targets.json", &old["1.targets.json"]);
    let snapshot = mix("2.snapshot.json", &old["1.snapshot.json"]);
    let told = [
        refused(&new, 9),
        refused(&old, 1),
        refresh(&fresh, &swapped, day(1)).1.unwrap_err().to_string(),
        refresh(&fresh, &snapshot, day(1)).1.unwrap_err().to_string(),
    ];
    let words = [
        "timestamp metadata version 2: it expired at",
        "cannot go back to timestamp.json version 1: this host has seen version 2",
        "cannot trust 2.targets.json: its length differs from snapshot metadata",
        "cannot trust 2.snapshot.json: its",
    ];
    for (told, words) in told.iter().zip(words) {
        assert!(told.contains(words), "{told}");
    }
    // A mirror that has the online key and drops a role, or turns the targets back under new versions.
    let mut files = new.clone();
    let targets = old["1.targets.json"].clone();
    forge_online(&mut files, 3, (1, targets), &team.online, 1);
    assert_eq!(refused(&files, 1), "cannot go back to targets.json version 1: this host has seen version 2");
    let parsed: Signed<Snapshot> = Signed::parse("2.snapshot.json", &new["2.snapshot.json"]).unwrap();
    assert_eq!(parsed.body.files.keys().collect::<Vec<_>>(), ["targets.json"]);
    let named: MetaFile = parsed.body.files["targets.json"].clone();
    assert_eq!(named.version, 2);
}

/// Publishes with the real program, killed at the n-th of its steps, until it is through; after each kill every reader finds a whole set.
#[cfg(feature = "crash-points")]
fn publish_through_every_crash(team: &Team, online: &[&str], readers: &[(&str, sidle::trust::Floor)]) -> usize {
    let at = |name: &str| team.builder.directory.path().join(name).to_str().unwrap().to_owned();
    let path = team.path();
    let keys: Vec<String> = online.iter().flat_map(|name| ["--online-key".to_owned(), at(name)]).collect();
    let before = snapshot_of(&path);
    for step in 1..20 {
        let mut command = Command::new(SIDLE);
        command.args(["repo", "publish", text(&path)]).args(&keys);
        let output = command.env("SIDLE_CRASH_AT", format!("repository.metadata_written#{step}")).output().unwrap();
        let files = metadata(&path);
        for (who, floor) in readers {
            let (client, ended) = refresh(floor, &files, jiff::Timestamp::now());
            assert_eq!(ended, Ok(()), "{who} after step {step}");
            let first = team.open().releases().unwrap()[0].id.clone();
            assert!(finds(&client, &files, &first, None), "{who} after step {step}");
        }
        if output.status.success() {
            return step - 1;
        }
        // What a crash leaves is completed by the same command; after the last step nothing is left to do.
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let again = sidle(&[&["repo", "publish", text(&path)], &keys[..]].concat(), &[]);
        assert!(matches!(again.code, Some(0 | 3)), "{again:?}");
        assert!(team.open().waiting().unwrap().is_empty(), "after step {step}");
        for (_, floor) in readers {
            refresh(floor, &metadata(&path), jiff::Timestamp::now()).1.unwrap();
        }
        fs::remove_dir_all(&path).unwrap();
        for (name, bytes) in &before {
            fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
            fs::write(path.join(name), bytes).unwrap();
        }
    }
    panic!("it never came through");
}

#[test]
#[cfg(feature = "crash-points")]
fn a_reader_finds_a_whole_set_wherever_publishing_was_killed() {
    let team = Team::new(jiff::Timestamp::now());
    team.add("1.0");
    team.publish();
    let (client, _) = refresh(&team.host(), &team.files(), team.now);
    let readers = [("a fresh host", team.host()), ("a host that was here before", client.floor())];
    team.add("2.0");
    let mut repository = team.open();
    repository.stage(&Lifetimes::default(), team.now).unwrap();
    for person in &team.people[..2] {
        repository.sign(person).unwrap();
    }
    drop(repository);
    assert_eq!(publish_through_every_crash(&team, &["timer.pem"], &readers), 3);
    assert!(team.open().releases().unwrap().iter().all(|one| one.is_published));

    // A rotation of the online key for which both keys are at hand, and of a targets key that the last signers don't need.
    let next = key(team.builder.directory.path(), "next");
    rotate(&team, "online", &[&next], &[&team.online], &[]);
    rotate(&team, "targets", &[&next], &[&team.people[2]], &[0, 1]);
    assert_eq!(publish_through_every_crash(&team, &["timer.pem", "next.pem"], &readers), 3);
    assert!(team.files().contains_key("2.root.json"));
}
