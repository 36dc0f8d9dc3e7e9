//! A person's will: holds, windows, splay. What was asked for happens then, and what was forbidden doesn't.

use crate::support::stage::{Author, DEMO, Host, Ran};
use std::fs;

fn two_releases() -> (Host, Author) {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let host = Host::new(&author);
    host.install(&old).ok();
    host.install(&new).ok();
    (host, author)
}

#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!(ran.code, Some(10), "{ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "{word:?} is not in {:?}", ran.stderr);
    }
}

#[test]
fn a_held_instance_stays_as_it_is_and_a_rollback_stays_possible() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.sidle(&["unhold", DEMO]).code, Some(3));
    host.sidle(&["hold", DEMO, "--reason", "the audit", "--for", "7d"]).ok();
    let words = ["held by", "the audit", "until 20", "sidle unhold demo-agent", "a rollback is possible"];
    refused(&host.sidle(&["switch", DEMO, "1.0-1"]), &words);
    refused(&host.sidle(&["restart", DEMO]), &words);
    let told = host.sidle(&["status", DEMO]).ok();
    assert!(told.contains("held       by ") && told.contains("the audit"), "{told}");
    assert_eq!(host.status()["hold"]["reason"], "the audit");
    let list = host.sidle(&["list"]).ok();
    assert!(list.contains("demo-agent is held by") && list.contains("the audit"), "{list}");
    assert_eq!(host.sidle(&["--json", "list"]).json()["holds"][0]["hold"]["scope"], "forth");
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    host.sidle(&["hold", DEMO, "--all"]).ok();
    let all = host.sidle(&["rollback", DEMO, "1.1-1"]);
    refused(&all, &["against rollbacks, too", "until it is lifted"]);
    assert!(!all.stderr.contains("possible all the same"), "{all:?}");
    host.sidle(&["unhold", DEMO]).ok();
    host.sidle(&["restart", DEMO]).ok();
    assert_eq!(host.status()["hold"], serde_json::Value::Null);
}

#[test]
fn a_hold_counts_without_a_supervisor_and_ends_by_itself() {
    let (host, _author) = two_releases();
    let refused_at = |arguments: &[&str], words: &str| {
        let ran = host.sidle(&[&["hold", DEMO], arguments].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(words), "{ran:?}");
    };
    refused_at(&["--until", "yesterday"], "cannot read \"yesterday\" as a time");
    refused_at(&["--until", "2026-12-24T07:00+99:00"], "as a time");
    refused_at(&["--until", "2001-01-01"], "that is past");
    refused_at(&["--for", "7 days"], "expected a whole number");
    assert_eq!(host.sidle(&["hold", "demo-agnet"]).code, Some(1), "a slip of the pen protects nothing");
    host.sidle(&["hold", DEMO, "--until", "2999-12-24 08:00"]).ok();
    refused(&host.sidle(&["switch", DEMO, "1.0-1"]), &["held"]);
    host.sidle(&["hold", DEMO, "--for", "1ms"]).ok();
    assert_eq!(host.status()["hold"], serde_json::Value::Null, "an expired hold is none");
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1"]).code, Some(4));
}

#[test]
fn a_corrupt_hold_is_an_error_and_never_none() {
    let (host, _author) = two_releases();
    host.sidle(&["hold", DEMO]).ok();
    let path = host.path("var/lib/sidle/instances/demo-agent/hold");
    for content in [
        "",
        "{}",
        "nonsense",
        "{\"schema\":2,\"at\":\"2026-01-01T00:00:00Z\",\"by\":\"x\",\"reason\":\"\",\"until\":null,\"scope\":\"forth\"}",
    ] {
        fs::write(&path, content).unwrap();
        for arguments in [&["switch", DEMO, "1.0-1"][..], &["status", DEMO], &["list"]] {
            let ran = host.sidle(arguments);
            assert_eq!(ran.code, Some(1), "{content:?}: {ran:?}");
            assert!(ran.stderr.contains("instances/demo-agent/hold") && ran.stderr.contains("sidle unhold"), "{ran:?}");
        }
    }
    host.sidle(&["unhold", DEMO]).ok();
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1"]).code, Some(4));
}
