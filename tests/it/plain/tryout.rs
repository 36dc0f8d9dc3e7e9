//! `sidle try`: a release is unpacked and its programs are started, and nothing of it stays. The programs are those of `salt::tryout`; here is what holds
//! for each kind of agent.

use crate::support::stage::{Author, Host, sidle, text};
use crate::support::trees::contents;
use std::fs;

#[test]
fn what_was_tried_leaves_nothing_also_after_an_interruption() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    let bundle = author.release("1.1", "good");
    let held = || ["opt/sidle", "var/lib/sidle", "etc"].map(|place| contents(&host.path(place)));
    let before = held();
    let tried = host.sidle(&["--json", "try", text(&bundle)]).json();
    assert_eq!((&tried["release"], &tried["works"]), (&"1.1-1".into(), &true.into()), "{tried}");
    assert_eq!(tried["calls"], serde_json::json!([]), "its agent has no call that changes nothing: {tried}");
    assert_eq!(held(), before, "the store, the trust and the settings are as they were");

    // The command was killed here.
    let left = host.path("opt/sidle/.try/opt/sidle/demo-agent/versions/1.1-1");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("half"), "written").unwrap();
    let said = host.sidle(&["list"]).ok();
    assert!(!said.contains(".try"), "{said:?}");
    host.sidle(&["try", text(&bundle)]).ok();
    assert_eq!(held(), before);
}

#[test]
fn a_bundle_that_this_host_does_not_trust_is_not_tried() {
    let (author, stranger) = (Author::new(), Author::new());
    let host = Host::new(&author);
    let refused = host.sidle(&["try", text(&stranger.release("1.0", "good"))]);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    assert!(!host.path("opt/sidle/.try").exists());
    let nobody = tempfile::tempdir().unwrap();
    let refused = sidle(&["--root", text(nobody.path()), "try", text(&author.release("1.0", "good"))], &[]);
    assert_eq!(refused.code, Some(7), "{refused:?}");
}
