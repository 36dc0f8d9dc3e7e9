//! What a host trusts: pinned by a person, never lowered, never guessed.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::repositories::{RepoBuilder, day, metadata_of, snapshot_of};
use sidle::digest::Digest;
use sidle::failure::Class;
use sidle::trust::{Authority as _, Expiry, TrustError, Verdict, target};
use sidle::trust_store::{Judge, Persist, Pinned, TrustStore, TrustStoreError};
use std::fs;
use std::path::Path;

fn pinned(repo: &RepoBuilder, path: &Path) -> TrustStore {
    let trust_store = TrustStore::open_or_create(path).unwrap();
    assert_eq!(trust_store.lock().unwrap().pin(&repo.root(), &repo.fingerprint).unwrap(), Pinned::Now);
    trust_store
}

#[test]
fn nothing_is_trusted_before_a_root_is_pinned() {
    let host = tempfile::tempdir().unwrap();
    let error = TrustStore::open(&host.path().join("trust")).unwrap_err();
    assert_eq!(error.class(), Class::NotTrusted);
    assert!(error.hint().unwrap().contains("sidle trust pin"));
    let trust_store = TrustStore::open_or_create(&host.path().join("trust")).unwrap();
    assert!(matches!(trust_store.load(), Err(TrustStoreError::Unpinned { .. })));
}

#[test]
fn a_root_is_pinned_by_its_fingerprint_and_never_replaced() {
    let (repo, other) = (RepoBuilder::new(day(0)), RepoBuilder::new(day(0)));
    let host = tempfile::tempdir().unwrap();
    let trust_store = TrustStore::open_or_create(host.path()).unwrap();
    let error = trust_store.lock().unwrap().pin(&repo.root(), &other.fingerprint).unwrap_err();
    assert_eq!(error.class(), Class::NotTrusted);
    assert!(error.to_string().contains(&repo.fingerprint.to_string()), "{error}");
    assert!(trust_store.load().is_err());

    let junk = b"{}";
    assert!(matches!(trust_store.lock().unwrap().pin(junk, &Digest::of(junk)), Err(TrustStoreError::Trust(_))));
    let trust_store = pinned(&repo, host.path());
    let before = snapshot_of(host.path());
    assert_eq!(trust_store.lock().unwrap().pin(&repo.root(), &repo.fingerprint).unwrap(), Pinned::Already);
    let error = trust_store.lock().unwrap().pin(&other.root(), &other.fingerprint).unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    assert!(error.hint().unwrap().contains(&host.path().display().to_string()));
    assert_eq!(snapshot_of(host.path()), before);
    assert_eq!(trust_store.load().unwrap().floor.root, repo.root());
}

#[test]
fn bundles_raise_the_floor_in_either_order_and_never_lower_it() {
    let mut repo = RepoBuilder::new(day(0));
    let first = repo.add("1.0", "one");
    repo.publish();
    let one = repo.export(std::slice::from_ref(&first), "one.sidle");
    let second = repo.add("2.0", "two");
    repo.now = day(1);
    repo.publish();
    let two = repo.export(std::slice::from_ref(&second), "two.sidle");
    let take = |trust_store: &TrustStore, bundle: &Path| {
        trust_store.verify(&metadata_of(bundle), day(2), Expiry::BY_HAND).unwrap()
    };

    let hosts = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for (host, order) in hosts.iter().zip([[&one, &two], [&two, &one]]) {
        let trust_store = pinned(&repo, host.path());
        for bundle in order {
            let targets = take(&trust_store, bundle).targets.unwrap();
            assert!(matches!(targets.lookup(&target::manifest(&first)), Verdict::Listed(_)));
        }
    }
    assert_eq!(snapshot_of(hosts[0].path()), snapshot_of(hosts[1].path()));
    assert_eq!(fs::read_dir(hosts[0].path()).unwrap().count(), 6, "superseded files are gone");
    let trust_store = TrustStore::open(hosts[0].path()).unwrap();
    assert_eq!(trust_store.load().unwrap().floor.last_seen, Some(day(1)));
    trust_store.lock().unwrap().reset_clock().unwrap();
    assert_eq!(trust_store.load().unwrap().floor.last_seen, None);
}

#[test]
fn a_refused_bundle_still_leaves_its_newer_valid_metadata() {
    let repo = RepoBuilder::new(day(0));
    let id = repo.add("1.0", "one");
    repo.publish();
    let mut files = metadata_of(&repo.export(&[id], "one.sidle"));
    files.get_mut("1.targets.json").unwrap()[100] ^= 1;
    let host = tempfile::tempdir().unwrap();
    let trust_store = pinned(&repo, host.path());
    let before = snapshot_of(host.path());
    let looking = Judge { trust_store: &trust_store, now: day(1), expiry: Expiry::BY_HAND, persist: Persist::Forget };
    assert!(looking.judge(&files).is_err());
    assert_eq!(snapshot_of(host.path()), before, "looking adopts nothing");
    let verification = trust_store.verify(&files, day(1), Expiry::BY_HAND).unwrap();
    assert!(matches!(verification.targets, Err(TrustError::Mismatch { .. })));
    let authority = Judge { trust_store: &trust_store, now: day(1), expiry: Expiry::BY_HAND, persist: Persist::Store };
    assert_eq!(authority.judge(&files).unwrap_err().class, Class::NotTrusted);
    let floor = trust_store.load().unwrap().floor;
    assert!(floor.timestamp.is_some() && floor.snapshot.is_some() && floor.targets.is_none());
}

#[test]
fn a_damaged_trust_store_is_an_error_never_a_fresh_start() {
    let repo = RepoBuilder::new(day(0));
    let id = repo.add("1.0", "one");
    repo.publish();
    let files = metadata_of(&repo.export(&[id], "one.sidle"));
    let host = tempfile::tempdir().unwrap();
    let trust_store = pinned(&repo, host.path());
    trust_store.verify(&files, day(1), Expiry::BY_HAND).unwrap();
    for (path, good) in snapshot_of(host.path()).into_iter().filter(|(path, _)| !path.ends_with("lock")) {
        let path = host.path().join(path);
        let is_index = path.ends_with("floor.json");
        let mut spoilt = good.clone();
        spoilt[20] ^= 4;
        for bad in [Some(Vec::new()), Some(good[..good.len() / 2].to_vec()), Some(spoilt), None] {
            match bad {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None if is_index => continue, // nothing pinned: refused, too, as above
                None => fs::remove_file(&path).unwrap(),
            }
            let error = trust_store.load().unwrap_err();
            assert_eq!(error.class(), Class::Integrity, "{}: {error}", path.display());
            assert!(trust_store.verify(&files, day(1), Expiry::BY_HAND).is_err());
            assert!(trust_store.lock().unwrap().pin(&repo.root(), &repo.fingerprint).is_err());
            fs::write(&path, &good).unwrap();
        }
    }
    assert!(trust_store.load().is_ok());
}

#[test]
fn leftovers_of_a_crash_before_the_index_are_not_believed() {
    let repo = RepoBuilder::new(day(0));
    let id = repo.add("1.0", "one");
    repo.publish();
    let files = metadata_of(&repo.export(&[id], "one.sidle"));
    let host = tempfile::tempdir().unwrap();
    let trust_store = pinned(&repo, host.path());
    let before = trust_store.load().unwrap();
    let index = fs::read(host.path().join("floor.json")).unwrap();
    trust_store.verify(&files, day(1), Expiry::BY_HAND).unwrap();
    // What lies there when the power goes after the files and before the index.
    fs::write(host.path().join("floor.json"), index).unwrap();
    fs::write(host.path().join(".floor.json.new"), b"{").unwrap();
    assert_eq!(trust_store.load().unwrap(), before);
    assert!(trust_store.verify(&files, day(1), Expiry::BY_HAND).unwrap().targets.is_ok());
    assert!(!host.path().join(".floor.json.new").exists());
}
