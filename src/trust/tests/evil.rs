//! Attacks on a host that already trusts something: each is refused, with its reason, and lowers nothing.

use super::*;

fn repo_and_floor() -> (Repo, Floor) {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    repo.publish(&[("a", "1"), ("b", "2")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    (repo, floor)
}

/// Refused for a reason that `expected` accepts, and the floor stands.
fn refused(repo: &Repo, floor: &Floor, expected: fn(&TrustError) -> bool) {
    let verification = look(repo, floor, 1);
    let error = verification.targets.unwrap_err();
    assert!(expected(&error), "{error}");
    assert_eq!(verification.floor.timestamp, floor.timestamp);
    assert_eq!(verification.floor.snapshot, floor.snapshot);
    assert_eq!(verification.floor.targets, floor.targets);
}

#[test]
fn a_newer_timestamp_cannot_name_an_older_snapshot() {
    let (mut repo, floor) = repo_and_floor();
    repo.versions[2] += 1;
    let named = describe(1, &repo.files["1.snapshot.json"].clone());
    repo.timestamp(&named);
    refused(
        &repo,
        &floor,
        |error| matches!(error, TrustError::Rollback { file, trusted: 2, offered: 1 } if file == "snapshot.json"),
    );
}

#[test]
fn a_newer_snapshot_cannot_name_older_targets_or_drop_a_role() {
    let (mut repo, floor) = repo_and_floor();
    let (old, new) = (describe(1, &repo.files["1.targets.json"]), describe(2, &repo.files["2.targets.json"]));
    repo.versions = [2, 3, 3];
    repo.snapshot(&[("targets.json", old)]);
    let verification = look(&repo, &floor, 1);
    assert!(matches!(verification.targets, Err(TrustError::Rollback { trusted: 2, offered: 1, .. })));
    assert_eq!(verification.floor.snapshot, floor.snapshot);

    repo.versions = [2, 4, 4];
    repo.snapshot(&[("targets.json", new.clone()), ("site.json", new.clone())]);
    let (floor, _) = trusted(&repo, &floor, 1);
    repo.versions = [2, 5, 5];
    repo.snapshot(&[("targets.json", new)]);
    assert!(matches!(refusal(&repo, &floor, 1), TrustError::Vanished { file } if file == "site.json"));
}

#[test]
fn mixed_sets_are_refused_by_length_digest_and_version() {
    let (repo, floor) = repo_and_floor();
    let fresh = repo.pinned();
    for (file, other) in [("2.snapshot.json", "1.snapshot.json"), ("2.targets.json", "1.targets.json")] {
        let mut mixed = repo.clone();
        mixed.files.insert(file.to_owned(), repo.files[other].clone());
        assert!(matches!(refusal(&mixed, &fresh, 1), TrustError::Mismatch { .. }), "{file}");
        let mut flipped = repo.clone();
        flipped.files.get_mut(file).unwrap()[40] ^= 1;
        assert!(matches!(refusal(&flipped, &fresh, 1), TrustError::Mismatch { what: "digest", .. }), "{file}");
    }
    let mut lying = repo.clone();
    lying.timestamp(&MetaFile { version: 2, length: Some(1), hashes: None });
    assert!(matches!(refusal(&lying, &fresh, 1), TrustError::Mismatch { what: "length", .. }));
    // Where the metadata above gives no digests, the version still must fit.
    let bare = |version| MetaFile { version, length: None, hashes: None };
    let mut mixed = repo.clone();
    mixed.versions = [2, 3, 3];
    mixed.snapshot(&[("targets.json", bare(3))]);
    mixed.files.insert("3.targets.json".to_owned(), repo.files["2.targets.json"].clone());
    assert!(matches!(
        refusal(&mixed, &fresh, 1),
        TrustError::Mismatch { what: "version", named_by: Role::Snapshot, .. }
    ));
    let mut mixed = repo.clone();
    mixed.versions[2] = 3;
    mixed.timestamp(&bare(3));
    mixed.files.insert("3.snapshot.json".to_owned(), repo.files["2.snapshot.json"].clone());
    let verification = look(&mixed, &floor, 1);
    let error = verification.targets.unwrap_err();
    assert!(matches!(error, TrustError::Mismatch { what: "version", named_by: Role::Timestamp, .. }));
    assert_eq!(
        verification.adopted,
        ["timestamp.json"],
        "valid and newer: from now on the host knows that there is a snapshot 3"
    );
    assert_eq!(verification.floor.snapshot, floor.snapshot);
    mixed.files.remove("3.snapshot.json");
    assert!(matches!(refusal(&mixed, &floor, 1), TrustError::Missing { .. }));
}

#[test]
fn each_role_must_be_signed_by_its_own_key() {
    let (repo, _) = repo_and_floor();
    for (role, file) in
        [(Role::Timestamp, "timestamp.json"), (Role::Snapshot, "2.snapshot.json"), (Role::Targets, "2.targets.json")]
    {
        for wrong in [ROOT, TARGETS, SNAPSHOT, TIMESTAMP, 99].into_iter().filter(|seed| *seed != repo.seeds[&role][0]) {
            let mut evil = repo.clone();
            evil.forge(file, &[wrong], |_| ());
            match role {
                Role::Targets => {
                    let named = describe(2, &evil.files[file]);
                    evil.snapshot(&[("targets.json", named)]);
                }
                Role::Snapshot => {
                    let named = describe(2, &evil.files[file]);
                    evil.timestamp(&named);
                }
                Role::Root | Role::Timestamp => {}
            }
            let error = refusal(&evil, &evil.pinned(), 1);
            assert!(
                matches!(&error, TrustError::Unsigned { role: found, valid: 0, .. } if *found == role),
                "{role} {wrong}: {error}"
            );
        }
    }
}

#[test]
fn a_signature_over_other_content_does_not_count() {
    let (mut repo, floor) = repo_and_floor();
    let text = String::from_utf8(repo.files["timestamp.json"].clone()).unwrap();
    repo.files.insert("timestamp.json".to_owned(), text.replace("\"version\":2", "\"version\":3").into_bytes());
    refused(&repo, &floor, |error| matches!(error, TrustError::Unsigned { role: Role::Timestamp, version: 3, .. }));
}

#[test]
fn an_older_file_is_ignored_whoever_signed_it_and_an_equal_one_changes_nothing() {
    let (repo, floor) = repo_and_floor();
    let mut older = repo.clone();
    older.forge("timestamp.json", &[99], |signed| {
        signed.insert("version".to_owned(), Json::Integer(1));
    });
    let verification = look(&older, &floor, 1);
    assert_eq!(verification.floor, floor);
    assert!(matches!(verification.targets.unwrap().lookup("b"), Verdict::Listed(_)));
    let mut same = repo.clone();
    same.forge("timestamp.json", &[TIMESTAMP], |signed| {
        signed.insert("x".to_owned(), Json::Null);
    });
    assert_eq!(look(&same, &floor, 1).floor, floor);
    same.forge("timestamp.json", &[99], |_| ());
    refused(&same, &floor, |error| matches!(error, TrustError::Unsigned { .. }));
}

#[test]
fn thresholds_count_distinct_keys_and_only_keys_that_count() {
    let mut repo = Repo::new();
    repo.seeds.insert(Role::Targets, vec![20, 21, 22]);
    repo.thresholds.insert(Role::Targets, 2);
    repo.next_root(&[ROOT]);
    repo.publish(&[("a", "1")]);
    assert!(look(&repo, &repo.pinned(), 1).targets.is_ok());
    let mut verdict = |seeds: &[u8]| {
        repo.forge("1.targets.json", seeds, |_| ());
        let named = describe(1, &repo.files["1.targets.json"]);
        repo.snapshot(&[("targets.json", named)]);
        look(&repo, &repo.pinned(), 1).targets.map(|_| ())
    };
    assert!(verdict(&[20, 22]).is_ok());
    assert!(verdict(&[20, 99, 22]).is_ok());
    assert!(matches!(verdict(&[20]), Err(TrustError::Unsigned { valid: 1, threshold: 2, .. })));
    assert!(matches!(verdict(&[20, ROOT, SNAPSHOT]), Err(TrustError::Unsigned { valid: 1, .. })));
    assert!(matches!(verdict(&[20, 20]), Err(TrustError::Malformed { .. })), "one keyid twice");
    assert!(matches!(verdict(&[]), Err(TrustError::Unsigned { valid: 0, .. })));
    let error = verdict(&[20, 99]).unwrap_err();
    assert!(
        error.to_string().contains("1 of 2 needed signatures are valid under root version 2; none from "),
        "{error}"
    );
}

#[test]
fn one_key_under_two_keyids_counts_once() {
    let mut repo = Repo::new();
    let alias = "an-opaque-keyid";
    repo.root_version = 2;
    repo.thresholds.insert(Role::Timestamp, 2);
    let bytes = forged(&repo.files["1.root.json"], &[ROOT], |signed| {
        signed.insert("version".to_owned(), Json::Integer(2));
        let Some(Json::Object(keys)) = signed.get_mut("keys") else { unreachable!() };
        keys.insert(alias.to_owned(), test_key(TIMESTAMP).public().to_json());
        let Some(Json::Object(roles)) = signed.get_mut("roles") else { unreachable!() };
        let keyids = [alias, test_key(TIMESTAMP).public().keyid().as_str()].map(Json::from).to_vec();
        roles
            .insert("timestamp".to_owned(), object([("keyids", Json::Array(keyids)), ("threshold", Json::Integer(2))]));
    });
    repo.files.insert("2.root.json".to_owned(), bytes);
    repo.publish(&[("a", "1")]);
    let Json::Object(mut top) = Json::parse(&repo.files["timestamp.json"]).unwrap() else { unreachable!() };
    let Some(Json::Array(signatures)) = top.get_mut("signatures") else { unreachable!() };
    let Json::Object(mut second) = signatures[0].clone() else { unreachable!() };
    second.insert("keyid".to_owned(), alias.into());
    signatures.push(Json::Object(second));
    repo.files.insert("timestamp.json".to_owned(), Json::Object(top).text());
    let error = refusal(&repo, &repo.pinned(), 1);
    assert!(matches!(error, TrustError::Unsigned { role: Role::Timestamp, valid: 1, threshold: 2, .. }), "{error}");
}
