//! What is adopted, what is ignored, and what a bundle's content is looked up in.

use super::*;

#[test]
fn a_fresh_host_adopts_what_a_bundle_carries_byte_for_byte() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let verification = look(&repo, &repo.pinned(), 1);
    assert_eq!(verification.adopted, ["targets.json", "snapshot.json", "timestamp.json"]);
    assert_eq!(verification.floor.targets.as_deref(), Some(repo.files["1.targets.json"].as_slice()));
    assert_eq!(verification.floor.timestamp.as_deref(), Some(repo.files["timestamp.json"].as_slice()));
    assert_eq!(verification.floor.last_seen, Some(day(0)));
    assert!(verification.warnings.is_empty());
    let targets = verification.targets.unwrap();
    assert_eq!(targets.lookup("a"), Verdict::Listed(signed_target("1")));
    assert_eq!(targets.lookup("b"), Verdict::Unlisted { version: 1 });
    assert!(targets.require("a", &Digest::of(b"1")).is_ok());
    assert!(matches!(targets.require("a", &Digest::of(b"2")), Err(TrustError::Unlisted { .. })));
    let again = look(&repo, &verification.floor, 1);
    assert!(again.adopted.is_empty() && again.floor == verification.floor && again.targets.is_ok());
}

#[test]
fn two_bundles_install_in_either_order() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let first = repo.clone();
    repo.publish(&[("a", "1"), ("b", "2")]);
    let (floor, _) = trusted(&first, &repo.pinned(), 1);
    let (forwards, targets) = trusted(&repo, &floor, 1);
    assert!(matches!(targets.lookup("b"), Verdict::Listed(_)));

    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    let older = look(&first, &floor, 1);
    assert_eq!(older.floor, forwards);
    assert!(older.adopted.is_empty());
    assert_eq!(older.warnings, [Warning::OlderIgnored { trusted: 2, offered: 1 }]);
    assert!(older.targets.unwrap().require("a", &Digest::of(b"1")).is_ok());
}

#[test]
fn what_newer_metadata_no_longer_lists_is_withdrawn_and_a_missing_role_is_unknown() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let first = repo.clone();
    repo.publish(&[("b", "2")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    let (_, targets) = trusted(&first, &floor, 1);
    assert_eq!(targets.lookup("a"), Verdict::Withdrawn { version: 2 });
    let error = targets.require("a", &Digest::of(b"1")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot trust a: it has been withdrawn (targets version 2, trusted here, doesn't list it)"
    );

    repo.publish(&[("b", "3")]);
    let (floor, _) = trusted(&repo, &floor, 1);
    let (_, targets) = trusted(&first, &floor, 1);
    assert!(
        matches!(targets.require("b", &Digest::of(b"2")), Err(TrustError::Withdrawn { .. })),
        "replaced is withdrawn, too"
    );

    let mut partial = repo.clone();
    partial.files.remove(&partial.targets_file());
    let (floor, targets) = trusted(&partial, &partial.pinned(), 1);
    assert!(floor.timestamp.is_some() && floor.targets.is_none());
    assert!(matches!(targets.lookup("b"), Verdict::Unknown { .. }));
    assert!(matches!(targets.require("b", &Digest::of(b"3")), Err(TrustError::Unknown { .. })));
}

#[test]
fn targets_that_the_trusted_snapshot_no_longer_names_answer_nothing() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    repo.publish(&[]);
    repo.files.remove("2.targets.json");
    let (_, targets) = trusted(&repo, &floor, 1);
    assert!(matches!(targets.lookup("a"), Verdict::Unknown { .. }));
}

#[test]
fn a_lookup_that_needs_a_delegation_is_unknown_not_withdrawn() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let delegations =
        r#"{"keys":{},"roles":[{"name":"x","keyids":["k"],"threshold":1,"paths":["*"],"terminating":false}]}"#;
    repo.forge("1.targets.json", &[TARGETS], |signed| {
        signed.insert("delegations".to_owned(), Json::parse(delegations.as_bytes()).unwrap());
    });
    let named = describe(1, &repo.files["1.targets.json"]);
    repo.snapshot(&[("targets.json", named)]);
    let (_, targets) = trusted(&repo, &repo.pinned(), 1);
    assert!(matches!(targets.lookup("a"), Verdict::Listed(_)));
    assert!(matches!(targets.lookup("b"), Verdict::Unknown { .. }));
}

#[test]
fn timestamp_and_snapshot_may_be_late_by_the_grace_root_and_targets_may_not() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let late = look(&repo, &repo.pinned(), 8);
    assert_eq!(
        late.warnings,
        [Warning::Late { role: Role::Timestamp, version: 1, expired: day(7), refused_from: day(97) }]
    );
    assert!(late.targets.is_ok());
    assert_eq!(look(&repo, &repo.pinned(), 31).warnings.len(), 2);
    assert!(look(&repo, &repo.pinned(), 96).targets.is_ok());
    for days in [97, 98] {
        let refused = look(&repo, &repo.pinned(), days);
        assert!(
            matches!(refused.targets, Err(TrustError::Expired { role: Role::Timestamp, grace: Some(_), .. })),
            "{days}"
        );
        assert_eq!(refused.floor, repo.pinned());
    }
    let error = refusal(&repo, &repo.pinned(), 98);
    assert_eq!(
        error.to_string(),
        "cannot trust timestamp metadata version 1: it expired at 2026-01-08T00:00:00Z, and it is 2026-04-09T00:00:00Z; the grace of 90 days is over, too"
    );
    let eternal = SignedDuration::from_hours(24 * 10_000);
    let old = verify(&repo.pinned(), &repo.files, day(365), Expiry::ByHand { grace: eternal });
    assert!(matches!(old.targets, Err(TrustError::Expired { role: Role::Root, grace: None, .. })));
    repo.today = 100;
    repo.next_root(&[ROOT]);
    let old = verify(&repo.pinned(), &repo.files, day(365), Expiry::ByHand { grace: eternal });
    assert!(matches!(old.targets, Err(TrustError::Expired { role: Role::Targets, grace: None, .. })));
    assert_eq!(old.adopted, ["root.json", "snapshot.json", "timestamp.json"], "what is valid is adopted all the same");
    let before = verify(&repo.pinned(), &repo.files, day(364), Expiry::ByHand { grace: eternal });
    assert!(before.targets.is_ok());
    let stored = verify(&before.floor, &repo.files, day(365), Expiry::ByHand { grace: eternal });
    assert!(
        matches!(stored.targets, Err(TrustError::Expired { role: Role::Targets, .. })),
        "also those stored in time"
    );
}

#[test]
fn a_fresh_timestamp_does_not_keep_an_old_snapshot_alive() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    repo.today = 119;
    repo.versions[2] += 1;
    let named = describe(1, &repo.files["1.snapshot.json"]);
    repo.timestamp(&named);
    assert!(look(&repo, &floor, 119).targets.is_ok());
    for floor in [floor, repo.pinned()] {
        assert!(matches!(
            refusal(&repo, &floor, 120),
            TrustError::Expired { role: Role::Snapshot, grace: Some(_), .. }
        ));
    }
}

#[test]
fn a_host_that_hears_nothing_new_sees_its_own_metadata_expire() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    assert!(
        matches!(refusal(&repo, &floor, 97), TrustError::Expired { role: Role::Timestamp, .. }),
        "the same timestamp again"
    );
    repo.files.remove("timestamp.json");
    assert!(matches!(refusal(&repo, &floor, 97), TrustError::Expired { role: Role::Timestamp, .. }), "no timestamp");
    let mut older = repo.clone();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &floor, 1);
    older.publish(&[("a", "1")]).versions = [1; 3];
    older.timestamp(&describe(1, &older.files["1.snapshot.json"].clone()));
    assert!(
        matches!(refusal(&older, &floor, 97), TrustError::Expired { role: Role::Timestamp, .. }),
        "an older timestamp"
    );
}

#[test]
fn only_signed_times_raise_last_seen_and_a_slow_clock_does_not_turn_it_back() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 6);
    assert_eq!(floor.last_seen, Some(day(0)), "not the clock's day 6");
    repo.today = 50;
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &floor, 50);
    assert_eq!(floor.last_seen, Some(day(50)));
    let slow = look(&repo, &floor, -3000);
    assert_eq!(slow.warnings, [Warning::ClockBehind { now: day(-3000), last_seen: day(50) }]);
    assert!(slow.targets.is_ok());
    let far = Floor { last_seen: Some(day(1000)), ..floor.clone() };
    assert!(matches!(refusal(&repo, &far, 50), TrustError::Expired { role: Role::Root, .. }));
    // A stolen online key that signs in 2099 must not make the root look expired.
    repo.today = 30_000;
    repo.versions[2] += 1;
    let named = describe(2, &repo.files["2.snapshot.json"].clone());
    repo.timestamp(&named);
    let (poisoned, _) = trusted(&repo, &floor, 50);
    assert_eq!(poisoned.last_seen, floor.last_seen);
}

#[test]
fn a_floor_that_cannot_be_read_is_an_error_not_a_fresh_start() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    for damaged in [
        Floor { root: b"{}".to_vec(), ..floor.clone() },
        Floor { timestamp: Some(b"{".to_vec()), ..floor.clone() },
        Floor { snapshot: Some(Vec::new()), ..floor.clone() },
        Floor { targets: Some(b"null".to_vec()), ..floor.clone() },
    ] {
        let verification = look(&repo, &damaged, 1);
        assert!(matches!(verification.targets, Err(TrustError::Malformed { .. })));
        assert_eq!(verification.floor, damaged);
    }
}

#[test]
fn a_stolen_online_key_tells_no_host_the_time() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    let mut thief = repo.clone();
    thief.today = 364;
    thief.versions = [1, 2, 2];
    let named = describe(1, &thief.files["1.targets.json"]);
    thief.snapshot(&[("targets.json", named)]);
    let (robbed, _) = trusted(&thief, &floor, 2);
    assert!(robbed.timestamp != floor.timestamp, "it is valid, after all");
    assert_eq!(robbed.last_seen, Some(day(0)));
    repo.today = 3;
    repo.versions = [1, 2, 2];
    repo.publish(&[("a", "1"), ("b", "2")]);
    let (floor, targets) = trusted(&repo, &robbed, 3);
    assert!(matches!(targets.lookup("b"), Verdict::Listed(_)));
    assert_eq!(floor.last_seen, Some(day(3)), "people's keys still do");
}

#[test]
fn expired_by_a_signed_time_is_told_with_both_times_and_the_way_out() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    let far = Floor { last_seen: Some(day(200)), ..floor.clone() };
    let error = refusal(&repo, &far, 2);
    let told = error.to_string();
    for words in ["2026-07-20T00:00:00Z", "by a signature", "this host's clock shows 2026-01-03T00:00:00Z"] {
        assert!(told.contains(words), "{told}");
    }
    assert!(error.hint().unwrap().contains("`sidle trust reset-clock`"), "{:?}", error.hint());
    let late = refusal(&repo, &floor, 200);
    assert!(!late.to_string().contains("signature") && !late.hint().unwrap().contains("reset-clock"), "{late}");
}
