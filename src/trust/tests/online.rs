//! The refresh over a network: what it asks for, in which order, and what it makes of answers, missing ones and failures.

use super::*;
use crate::failure::Class;
use crate::trust::limits::{
    DELEGATED_ROLES_MAXIMUM, KEYS_MAXIMUM, SNAPSHOT_FILES_MAXIMUM, TARGET_NAME_BYTES_MAXIMUM, TARGETS_MAXIMUM,
};
use crate::trust::metadata::{Body, Root, Snapshot, Timestamp as TimestampRole};
use crate::trust::{Answer, Expiry, Refresh};

/// A refresh against a repository; every file asked for is noted; `broken` can't be reached.
pub(super) fn refresh(
    repo: &Repo,
    floor: &Floor,
    days: i64,
    broken: &str,
) -> (Floor, Vec<String>, Result<(), TrustError>) {
    let mut refresh = match Refresh::start(floor, day(days), Expiry::Strict) {
        Ok(refresh) => refresh,
        Err(error) => return (floor.clone(), Vec::new(), Err(error)),
    };
    let (mut asked, mut outcome) = (Vec::new(), Ok(()));
    while let Some(request) = refresh.request() {
        asked.push(request.file.clone());
        let answer = match repo.files.get(&request.file) {
            _ if request.file == broken => Answer::Failed("HTTP 503"),
            Some(bytes) => Answer::File(bytes),
            None => Answer::NotFound,
        };
        outcome = refresh.answer(answer);
    }
    assert!(refresh.warnings().iter().all(|warning| matches!(warning, Warning::ClockBehind { .. })));
    (refresh.floor(), asked, outcome)
}

fn current(repo: &Repo, floor: &Floor) -> Floor {
    let (floor, _, outcome) = refresh(repo, floor, 1, "");
    outcome.unwrap();
    floor
}

fn refused(repo: &Repo, floor: &Floor, days: i64) -> TrustError {
    refresh(repo, floor, days, "").2.unwrap_err()
}

fn published() -> Repo {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    repo
}

#[test]
fn each_file_is_asked_for_once_in_order_with_its_version_and_its_limit() {
    let mut repo = published();
    repo.next_root(&[ROOT]);
    let mut refresh_under_way = Refresh::start(&repo.pinned(), day(1), Expiry::Strict).unwrap();
    let mut asked = Vec::new();
    while let Some(request) = refresh_under_way.request() {
        asked.push((request.role.clone(), request.version, request.file.clone(), request.bytes_maximum));
        let answer = repo.files.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes));
        refresh_under_way.answer(answer).unwrap();
    }
    let length = |file: &str| repo.files[file].len() as u64;
    let ask = |role: &str, version, file: &str, limit| (role.to_owned(), version, file.to_owned(), limit);
    assert_eq!(
        asked,
        [
            ask("root", Some(2), "2.root.json", 524_288),
            ask("root", Some(3), "3.root.json", 524_288),
            ask("timestamp", None, "timestamp.json", 16_384),
            ask("snapshot", Some(1), "1.snapshot.json", length("1.snapshot.json")),
            ask("targets", Some(1), "1.targets.json", length("1.targets.json")),
        ]
    );
    let floor = refresh_under_way.floor();
    assert_eq!(floor.root, repo.files["2.root.json"]);
    assert_eq!(floor.targets.as_deref(), Some(repo.files["1.targets.json"].as_slice()), "byte for byte");
    let (again, asked, outcome) = refresh(&repo, &floor, 1, "");
    assert_eq!((again, outcome), (floor.clone(), Ok(())));
    assert_eq!(asked, ["3.root.json", "timestamp.json"], "what is trusted already isn't asked for");
    repo.versions[0] -= 1;
    repo.publish(&[("a", "1")]);
    let (_, asked, _) = refresh(&repo, &floor, 1, "");
    assert_eq!(asked, ["3.root.json", "timestamp.json", "2.snapshot.json"], "only the snapshot is another one");
}

#[test]
fn what_cannot_be_reached_is_no_answer() {
    let mut repo = published();
    repo.next_root(&[ROOT]);
    for broken in ["2.root.json", "3.root.json", "timestamp.json", "1.snapshot.json", "1.targets.json"] {
        let (floor, asked, outcome) = refresh(&repo, &repo.pinned(), 1, broken);
        let error = outcome.unwrap_err();
        assert!(matches!(&error, TrustError::Unreachable { file, .. } if file == broken), "{broken}: {error}");
        assert_eq!(error.class(), Class::Failed);
        assert_eq!(asked.last().unwrap(), broken, "a failure is the end: it does not mean that there is no newer root");
        assert_eq!(floor.timestamp.is_some(), broken.starts_with("1."), "{broken}");
        assert_eq!(floor.root == repo.files["2.root.json"], broken != "2.root.json", "what came before is adopted");
    }
}

#[test]
fn a_missing_timestamp_snapshot_or_targets_is_refused() {
    let mut repo = published();
    let floor = current(&repo, &repo.pinned());
    for file in ["timestamp.json", "1.snapshot.json", "1.targets.json"] {
        let mut partial = repo.clone();
        partial.files.remove(file);
        let error = refused(&partial, &repo.pinned(), 1);
        assert!(matches!(&error, TrustError::Missing { file: missing, .. } if missing == file), "{error}");
    }
    repo.files.remove("timestamp.json");
    let error = refused(&repo, &floor, 1);
    assert!(matches!(error, TrustError::Missing { .. }), "also where an older one is trusted: {error}");
}

#[test]
fn an_older_timestamp_is_an_attack_and_the_same_one_is_not() {
    let old = published();
    let mut repo = old.clone();
    repo.publish(&[("b", "2")]);
    let floor = current(&repo, &repo.pinned());
    let (after, _, outcome) = refresh(&old, &floor, 1, "");
    let expected = TrustError::Rollback { file: "timestamp.json".to_owned(), trusted: 2, offered: 1 };
    assert_eq!((after, outcome), (floor.clone(), Err(expected)));
    let mut unsigned = old.clone();
    unsigned.forge("timestamp.json", &[99], |_| ());
    assert!(matches!(refused(&unsigned, &floor, 1), TrustError::Unsigned { role: Role::Timestamp, .. }));
    assert_eq!(current(&repo, &floor), floor);
}

#[test]
fn a_newer_timestamp_with_an_older_snapshot_and_a_newer_snapshot_with_older_targets_are_refused() {
    let mut repo = published();
    repo.publish(&[("b", "2")]);
    let floor = current(&repo, &repo.pinned());
    let (old_snapshot, old_targets) =
        (describe(1, &repo.files["1.snapshot.json"]), describe(1, &repo.files["1.targets.json"]));
    let mut evil = repo.clone();
    evil.versions[2] = 3;
    evil.timestamp(&old_snapshot);
    let error = refused(&evil, &floor, 1);
    assert!(matches!(&error, TrustError::Rollback { file, .. } if file == "snapshot.json"), "{error}");
    let mut evil = repo.clone();
    evil.versions = [2, 3, 3];
    evil.snapshot(&[("targets.json", old_targets)]);
    let error = refused(&evil, &floor, 1);
    assert!(matches!(&error, TrustError::Rollback { file, .. } if file == "targets.json"), "{error}");
}

#[test]
fn an_unchanged_role_is_refused_from_the_instant_of_its_expiry_on() {
    let repo = published();
    let floor = current(&repo, &repo.pinned());
    let nearly = |days: i64| day(days).checked_sub(SignedDuration::from_nanos(1)).unwrap();
    for (role, days) in [(Role::Timestamp, 7), (Role::Snapshot, 30), (Role::Targets, 365), (Role::Root, 365)] {
        // All others are published anew, so that it alone is late.
        let mut repo = repo.clone();
        repo.today = days;
        match role {
            Role::Timestamp => {}
            Role::Snapshot => {
                repo.versions[2] += 1;
                let named = describe(1, &repo.files["1.snapshot.json"]);
                repo.timestamp(&named);
            }
            Role::Targets => {
                repo.versions = [1, 2, 2];
                let named = describe(1, &repo.files["1.targets.json"]);
                repo.next_root(&[ROOT]).snapshot(&[("targets.json", named)]);
            }
            Role::Root => {
                repo.publish(&[("a", "1")]);
            }
        }
        for floor in [floor.clone(), repo.pinned()] {
            // The repository's clock is ahead: what it signed says when it was.
            let floor = Floor { last_seen: None, ..floor };
            let at = |now| {
                let mut refresh = Refresh::start(&floor, now, Expiry::Strict)?;
                while let Some(request) = refresh.request() {
                    let answer = repo.files.get(&request.file).map_or(Answer::NotFound, |bytes| Answer::File(bytes));
                    refresh.answer(answer)?;
                }
                Ok(())
            };
            assert_eq!(at(nearly(days)), Ok(()), "{role}");
            let error = at(day(days)).unwrap_err();
            assert!(
                matches!(&error, TrustError::Expired { role: found, grace: None, .. } if *found == role),
                "{role}: {error}"
            );
        }
    }
}

#[test]
fn sets_cannot_be_mixed() {
    let mut repo = published();
    repo.publish(&[("a", "1"), ("b", "2")]);
    for (file, other) in [("2.snapshot.json", "1.snapshot.json"), ("2.targets.json", "1.targets.json")] {
        let mut mixed = repo.clone();
        mixed.files.insert(file.to_owned(), repo.files[other].clone());
        assert!(matches!(refused(&mixed, &repo.pinned(), 1), TrustError::Mismatch { .. }), "{file}");
        // The same where nothing tells lengths and digests, with and without versions in the names.
        for is_consistent in [true, false] {
            let mut bare = repo.clone();
            let plain = |version| MetaFile { version, length: None, hashes: None };
            bare.snapshot(&[("targets.json", plain(2))]);
            bare.timestamp(&plain(2));
            let older =
                forged(&repo.files[other], &[if other.contains("targets") { TARGETS } else { SNAPSHOT }], |_| ());
            let mut name = file.to_owned();
            if !is_consistent {
                bare.forge("1.root.json", &[ROOT], |signed| {
                    signed.insert("consistent_snapshot".to_owned(), Json::Bool(false));
                });
                for role in ["snapshot", "targets"] {
                    let bytes = bare.files[&format!("2.{role}.json")].clone();
                    bare.files.insert(format!("{role}.json"), bytes);
                }
                name = file[2..].to_owned();
            }
            assert_eq!(refresh(&bare, &bare.pinned(), 1, "").2, Ok(()));
            bare.files.insert(name, older);
            let error = refused(&bare, &bare.pinned(), 1);
            assert!(matches!(error, TrustError::Mismatch { what: "version", .. }), "{file}: {error}");
        }
    }
}

#[test]
fn every_role_can_be_rotated_and_the_old_key_counts_no_more() {
    let mut repo = published();
    let mut floor = current(&repo, &repo.pinned());
    for (role, new) in Role::ALL.into_iter().zip(50..) {
        let old = repo.seeds.insert(role, vec![new]).unwrap();
        let signers = if role == Role::Root { vec![old[0], new] } else { vec![50] };
        let stale = repo.files.clone();
        repo.next_root(&signers);
        let mut unsigned = Repo { files: stale, ..repo.clone() };
        unsigned.files.insert(
            format!("{}.root.json", repo.root_version),
            repo.files[&format!("{}.root.json", repo.root_version)].clone(),
        );
        if role != Role::Root {
            let error = refused(&unsigned, &floor, 1);
            assert!(matches!(&error, TrustError::Unsigned { role: found, .. } if *found == role), "{role}: {error}");
        }
        repo.publish(&[("a", "1")]);
        floor = current(&repo, &floor);
        assert_eq!(floor.root, repo.files[&format!("{}.root.json", repo.root_version)]);
    }
    assert_eq!(current(&repo, &repo.pinned()), floor, "a host at the first root follows the whole chain");
}

#[test]
fn rotated_online_keys_recover_from_fast_forward_of_each_role() {
    for (stolen, versions) in [
        (Role::Timestamp, [1, 1, 1_000_000]),
        (Role::Snapshot, [1, 1_000_000, 1_000_000]),
        (Role::Snapshot, [1_000_000; 3]),
    ] {
        let mut repo = published();
        let mut evil = repo.clone();
        evil.versions = versions.map(|version| version - 1);
        evil.publish(&[("a", "1")]);
        let floor = current(&evil, &repo.pinned());
        repo.publish(&[("a", "1"), ("b", "2")]);
        assert!(matches!(refused(&repo, &floor, 1), TrustError::Rollback { .. }));
        repo.seeds.insert(stolen, vec![70]);
        repo.next_root(&[ROOT]).publish(&[("a", "1"), ("b", "2")]);
        let recovered = current(&repo, &floor);
        assert_eq!(recovered.targets.as_deref(), Some(repo.files["3.targets.json"].as_slice()), "{stolen}");
    }
}

/// A file of the limit's size is read, one byte more is not.
fn too_large<T: Body>() -> bool {
    let spaces = vec![b' '; T::ROLE.bytes_maximum() + 1];
    matches!(Signed::<T>::parse("x", &spaces[1..]), Err(TrustError::Malformed { .. }))
        && matches!(Signed::<T>::parse("x", &spaces), Err(TrustError::TooLarge { .. }))
}

#[test]
fn no_role_may_be_larger_than_its_limit() {
    let repo = published();
    assert!(too_large::<Root>() && too_large::<TimestampRole>() && too_large::<Snapshot>() && too_large::<Targets>());
    // A stolen online key announces more than any snapshot may have: the limit stands.
    let mut evil = repo.clone();
    evil.timestamp(&MetaFile { version: 1, length: Some(1 << 40), hashes: None });
    let mut refresh = Refresh::start(&repo.pinned(), day(1), Expiry::Strict).unwrap();
    refresh.answer(Answer::NotFound).unwrap();
    refresh.answer(Answer::File(&evil.files["timestamp.json"])).unwrap();
    assert_eq!(refresh.request().unwrap().bytes_maximum, Role::Snapshot.bytes_maximum() as u64);
    assert!(matches!(refresh.answer(Answer::File(&[0; 10])), Err(TrustError::Mismatch { what: "length", .. })));
    assert_eq!(refresh.request(), None, "a refusal is the end");
}

/// This many items as a list, or as members of an object.
fn many(count: usize, item: impl Fn(usize) -> String) -> Json {
    let list: Vec<String> = (0..count).map(item).collect();
    let text = list.join(",");
    let text = if text.starts_with('"') { format!("{{{text}}}") } else { format!("[{text}]") };
    Json::parse(text.as_bytes()).unwrap()
}

/// Refused for its form after this edit.
fn is_malformed<T: Body>(bytes: &[u8], edit: impl FnOnce(&mut Object)) -> bool {
    match Signed::<T>::parse("x", &forged(bytes, &[1], edit)) {
        Ok(_) => false,
        Err(TrustError::Malformed { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn counts_are_limited_in_every_role() {
    let repo = published();
    let key = |number: usize| format!(r#""k{number}":{{"keytype":"x","scheme":"x","keyval":{{}}}}"#);
    let file = |number: usize| {
        let name = if number == 0 { "targets".to_owned() } else { number.to_string() };
        format!(r#""{name}.json":{{"version":1}}"#)
    };
    let target = |number: usize| format!(r#""{number}":{{"length":1,"hashes":{{"sha256":"{}"}}}}"#, "0".repeat(64));
    let role = |number| format!(r#"{{"name":"{number}","keyids":[],"threshold":1,"paths":[],"terminating":false}}"#);
    for over in [0, 1] {
        let is_over = over == 1;
        let put = |name: &'static str, value: Json| {
            move |signed: &mut Object| {
                signed.insert(name.to_owned(), value);
            }
        };
        let keys = many(KEYS_MAXIMUM + over, key);
        assert_eq!(is_malformed::<Root>(&repo.files["1.root.json"], put("keys", keys)), is_over);
        let files = many(SNAPSHOT_FILES_MAXIMUM + over, file);
        assert_eq!(is_malformed::<Snapshot>(&repo.files["1.snapshot.json"], put("meta", files)), is_over);
        let targets = many(TARGETS_MAXIMUM + over, target);
        assert_eq!(is_malformed::<Targets>(&repo.files["1.targets.json"], put("targets", targets)), is_over);
        let roles = many(DELEGATED_ROLES_MAXIMUM + over, role);
        let delegations = object([("keys", object([])), ("roles", roles)]);
        assert_eq!(is_malformed::<Targets>(&repo.files["1.targets.json"], put("delegations", delegations)), is_over);
        let name = "n".repeat(TARGET_NAME_BYTES_MAXIMUM + over);
        let named = Json::parse(format!("{{{}}}", target(0).replacen('0', &name, 1)).as_bytes()).unwrap();
        assert_eq!(is_malformed::<Targets>(&repo.files["1.targets.json"], put("targets", named)), is_over);
    }
}

/// Read under this version of the specification.
fn reads<T: Body>(bytes: &[u8], version: &str) -> bool {
    let spec = |signed: &mut Object| {
        signed.insert("spec_version".to_owned(), version.into());
    };
    Signed::<T>::parse("x", &forged(bytes, &[1], spec)).is_ok()
}

#[test]
fn only_specification_1_is_read_in_every_role() {
    let repo = published();
    for (version, is_read) in [
        ("1.0.0", true),
        ("1.0.99", true),
        ("1.7", true),
        ("2.0.0", false),
        ("0.9.0", false),
        ("10.0.0", false),
        ("", false),
    ] {
        assert_eq!(reads::<Root>(&repo.files["1.root.json"], version), is_read, "{version}");
        assert_eq!(reads::<TimestampRole>(&repo.files["timestamp.json"], version), is_read, "{version}");
        assert_eq!(reads::<Snapshot>(&repo.files["1.snapshot.json"], version), is_read, "{version}");
        assert_eq!(reads::<Targets>(&repo.files["1.targets.json"], version), is_read, "{version}");
    }
}
