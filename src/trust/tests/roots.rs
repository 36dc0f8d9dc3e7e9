//! The chain of roots: rotation, gaps, forgeries, and recovery from a stolen online key.

use super::*;

#[test]
fn every_role_can_be_rotated_root_included() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    for (index, role) in Role::ALL.into_iter().enumerate() {
        let new = 50 + u8::try_from(index).unwrap();
        let old = repo.seeds.insert(role, vec![new]).unwrap();
        let signers = if role == Role::Root { vec![old[0], new] } else { vec![50] };
        repo.next_root(&signers);
        repo.publish(&[("a", "1"), ("b", "2")]);
        let (newer, targets) = trusted(&repo, &floor, 1);
        assert_eq!(newer.root, repo.files[&format!("{}.root.json", repo.root_version)]);
        assert!(matches!(targets.lookup("b"), Verdict::Listed(_)), "{role}");
        assert!(trusted(&repo, &newer, 1).0 == newer);
    }
    assert!(look(&repo, &repo.pinned(), 1).targets.is_ok(), "a host at the first root follows the whole chain");
}

#[test]
fn a_new_root_needs_the_old_keys_and_its_own() {
    let mut repo = Repo::new();
    repo.seeds.insert(Role::Root, vec![60]);
    for signers in [&[60][..], &[ROOT], &[99], &[]] {
        let mut evil = repo.clone();
        evil.next_root(signers).publish(&[("a", "1")]);
        let verification = look(&evil, &evil.pinned(), 1);
        assert!(
            matches!(verification.targets, Err(TrustError::Unsigned { role: Role::Root, version: 2, .. })),
            "{signers:?}"
        );
        assert_eq!(verification.floor, evil.pinned());
    }
    repo.next_root(&[ROOT, 60]).publish(&[("a", "1")]);
    assert!(look(&repo, &repo.pinned(), 1).targets.is_ok());
}

#[test]
fn a_gap_stops_the_chain_and_what_came_before_it_is_adopted() {
    let mut repo = Repo::new();
    repo.next_root(&[ROOT]).next_root(&[ROOT]).next_root(&[ROOT]).publish(&[("a", "1")]);
    repo.files.remove("3.root.json");
    let verification = look(&repo, &repo.pinned(), 1);
    assert_eq!(verification.targets.unwrap_err(), TrustError::RootGap { trusted: 2, offered: 4 });
    assert_eq!(verification.adopted, ["root.json"]);
    assert_eq!(verification.floor.root, repo.files["2.root.json"]);
}

#[test]
fn a_root_must_have_the_version_of_its_place() {
    let mut repo = Repo::new();
    repo.next_root(&[ROOT]).publish(&[("a", "1")]);
    for version in [1, 3] {
        repo.forge("2.root.json", &[ROOT], |signed| {
            signed.insert("version".to_owned(), Json::Integer(version));
        });
        assert!(matches!(refusal(&repo, &repo.pinned(), 1), TrustError::RootVersion { expected: 2, .. }));
    }
}

#[test]
fn another_repositorys_bundle_is_named_as_such() {
    let mut ours = Repo::new();
    ours.publish(&[("a", "1")]);
    let mut theirs = Repo::new();
    theirs.today = 1;
    theirs.next_root(&[ROOT]).root_version = 1;
    let root = theirs.files["2.root.json"].clone();
    theirs.files = BTreeMap::from([(
        "1.root.json".to_owned(),
        forged(&root, &[ROOT], |signed| {
            signed.insert("version".to_owned(), Json::Integer(1));
        }),
    )]);
    theirs.publish(&[("a", "1")]);
    assert_eq!(refusal(&theirs, &ours.pinned(), 1), TrustError::OtherRepository { version: 1 });
}

#[test]
fn the_chain_is_bounded() {
    let mut repo = Repo::new();
    for _ in 0..=crate::trust::limits::ROOT_ROTATIONS_MAXIMUM {
        repo.next_root(&[ROOT]);
    }
    let verification = look(&repo, &repo.pinned(), 1);
    assert!(matches!(verification.targets, Err(TrustError::TooManyRoots { .. })));
    assert!(
        !matches!(refusal(&repo, &verification.floor, 1), TrustError::TooManyRoots { .. }),
        "the next run goes on from there"
    );
}

#[test]
fn replacing_a_stolen_online_key_recovers_from_fast_forward() {
    for stolen in [Role::Timestamp, Role::Snapshot] {
        let mut repo = Repo::new();
        repo.publish(&[("a", "1")]);
        let mut evil = repo.clone();
        evil.versions = [1, 1_000_000, 1_000_000];
        let named = describe(1, &evil.files["1.targets.json"]);
        evil.snapshot(&[("targets.json", MetaFile { version: 1_000_000, ..named })]);
        let (floor, _) = trusted(&evil, &repo.pinned(), 1);

        repo.publish(&[("a", "1"), ("b", "2")]);
        let (stuck, _) = trusted(&repo, &floor, 1);
        assert_eq!(stuck.timestamp, floor.timestamp, "without a rotation the higher version stands");

        repo.seeds.insert(stolen, vec![70]);
        repo.next_root(&[ROOT]).publish(&[("a", "1"), ("b", "2")]);
        let (recovered, targets) = trusted(&repo, &floor, 1);
        assert_eq!(recovered.timestamp.as_deref(), Some(repo.files["timestamp.json"].as_slice()), "{stolen}");
        assert!(matches!(targets.lookup("b"), Verdict::Listed(_)));
        let after = look(&evil, &recovered, 1);
        assert!(matches!(after.targets, Err(TrustError::Unsigned { .. })), "the stolen key's word no longer counts");
        assert_eq!(after.floor.snapshot, recovered.snapshot);
    }
}

#[test]
fn a_key_added_to_a_role_forgets_nothing() {
    let mut repo = Repo::new();
    repo.publish(&[("a", "1")]);
    let (floor, _) = trusted(&repo, &repo.pinned(), 1);
    repo.seeds.insert(Role::Timestamp, vec![TIMESTAMP, 71]);
    repo.next_root(&[ROOT]);
    repo.files.remove("timestamp.json");
    let (newer, _) = trusted(&repo, &floor, 1);
    assert_eq!(newer.timestamp, floor.timestamp);
}

#[test]
fn an_expired_root_in_the_middle_of_the_chain_is_no_obstacle() {
    let mut repo = Repo::new();
    repo.today = 380;
    repo.next_root(&[ROOT]).publish(&[("a", "1")]);
    assert!(look(&repo, &repo.pinned(), 381).targets.is_ok());
}

#[test]
fn unversioned_names_are_read_where_consistent_snapshots_are_off() {
    let mut repo = Repo::new();
    repo.forge("1.root.json", &[ROOT], |signed| {
        signed.insert("consistent_snapshot".to_owned(), Json::Bool(false));
    });
    repo.publish(&[("a", "1")]);
    assert!(matches!(refusal(&repo, &repo.pinned(), 1), TrustError::Missing { file, .. } if file == "snapshot.json"));
    for role in ["snapshot", "targets"] {
        let bytes = repo.files.remove(&format!("1.{role}.json")).unwrap();
        repo.files.insert(format!("{role}.json"), bytes);
    }
    assert!(look(&repo, &repo.pinned(), 1).targets.is_ok());
}

#[test]
fn what_the_new_rules_of_a_role_do_not_cover_is_no_longer_trusted() {
    for role in [Role::Targets, Role::Snapshot, Role::Timestamp] {
        let mut repo = Repo::new();
        repo.publish(&[("a", "1")]);
        let (floor, _) = trusted(&repo, &repo.pinned(), 1);
        // No key is lost, but the one signature there is no longer suffices.
        repo.seeds.get_mut(&role).unwrap().push(72);
        repo.thresholds.insert(role, 2);
        repo.next_root(&[ROOT]);
        let error = refusal(&repo, &floor, 1);
        assert!(matches!(&error, TrustError::Unsigned { role: found, .. } if *found == role), "{role}: {error}");
        if role == Role::Timestamp {
            repo.files.remove("timestamp.json");
            assert!(matches!(refusal(&repo, &floor, 1), TrustError::Missing { .. }));
        }
    }
}

#[test]
fn a_root_that_its_own_keys_did_not_sign_is_nothing_to_start_from() {
    let mut repo = Repo::new();
    repo.forge("1.root.json", &[99], |_| ()).publish(&[("a", "1")]);
    assert!(matches!(refusal(&repo, &repo.pinned(), 1), TrustError::Unsigned { role: Role::Root, .. }));
}
