//! A dry run changes nothing on the host, and ends with the exit code of the real run where that is known before.

use crate::support::repositories::snapshot_of;
use crate::support::stage::{Author, DEMO, Host, text, two_releases};
use std::path::PathBuf;

/// Every file with its content, but not the locks: a look takes them, too.
fn files(host: &Host) -> Vec<(PathBuf, Vec<u8>)> {
    let is_lock = |path: &PathBuf| {
        path.components().any(|part| ["lock", "leases", "starts"].iter().any(|name| part.as_os_str() == *name))
    };
    snapshot_of(&host.root()).into_iter().filter(|(path, _)| !is_lock(path)).collect()
}

#[test]
fn a_dry_run_of_each_verb_changes_no_file_and_ends_as_the_real_run_would() {
    let (host, author) = two_releases();
    host.sidle(&["switch", DEMO, "1.0-1"]);
    assert_eq!(host.sidle(&["status", DEMO]).code, Some(4), "a switch waits for its supervisor");
    let bundle = author.release("1.2", "good");
    let root = author.repository().join("metadata/1.root.json");
    let (fingerprint, wrong) = (author.fingerprint(), "0".repeat(64));
    let table: &[(&[&str], i32, &str)] = &[
        (&["install", text(&bundle)], 0, "would install"),
        (&["collect", "--keep", "0"], 0, "would remove"),
        (&["remove", DEMO, "1.1-1"], 0, "would remove"),
        (&["hold", DEMO], 0, "would be held"),
        (&["hold", DEMO, "--until", "2001-01-01"], 2, ""),
        (&["hold", "demo-agnet"], 1, ""),
        (&["unhold", DEMO], 3, "is not held"),
        (&["cancel", DEMO], 0, "would be cancelled"),
        (&["trust", "pin", text(&root), "--fingerprint", &fingerprint], 3, "trusted already"),
        (&["trust", "pin", text(&root), "--fingerprint", &wrong], 7, ""),
        (&["trust", "reset-clock"], 0, "would forget"),
    ];
    for (words, code, told) in table {
        let before = files(&host);
        let ran = host.sidle(&[words, &["--dry-run"][..]].concat());
        assert_eq!(ran.code, Some(*code), "{words:?}: {ran:?}");
        assert!(ran.stdout.contains(told), "{words:?}: {ran:?}");
        assert!(files(&host) == before, "{words:?} changed the host");
    }
    host.sidle(&["hold", DEMO]).ok();
    let before = files(&host);
    assert!(host.sidle(&["unhold", DEMO, "--dry-run"]).ok().contains("would no longer be held"));
    assert!(files(&host) == before);
    host.sidle(&["unhold", DEMO]).ok();
    host.sidle(&["cancel", DEMO]).ok();
    assert_eq!(host.sidle(&["cancel", DEMO, "--dry-run"]).code, Some(3));
}

#[test]
fn a_dry_run_of_a_pin_makes_no_trust_store() {
    let (author, host) = (Author::new(), Host::bare());
    let root = author.repository().join("metadata/1.root.json");
    let fingerprint = author.fingerprint();
    let ran = host.sidle(&["trust", "pin", text(&root), "--fingerprint", &fingerprint, "--dry-run"]);
    assert!(ran.ok().contains("would be trusted"));
    assert!(files(&host).is_empty());
}
