//! A release whose subscription does not work: it signs in, answers round trips, and hears no job.

use super::{NEW, OLD, copied, last};
use crate::support::salt::tree;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use std::fs;

const DEAF: &str = "3007.98";

/// In place of the subscription's end in main: nothing.
const CHANGE: (&str, &str) = ("self.pub_channel.on_recv(self._handle_payload)", "pass");

/// A connection is no subscription: a process that heard nothing had all proofs of a connection, and was committed.
#[test]
fn a_new_process_that_hears_nothing_is_never_committed_and_the_old_one_does_the_jobs() {
    let scene = Scene::with(&Wanted { settings: "probation = \"5s\"\nrehearsal = \"off\"\n", ..Wanted::of(&[OLD]) });
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tree");
    copied(&tree(NEW), &copy);
    let path = copy.join("lib/python3.11/site-packages/salt/minion.py");
    let whole = fs::read_to_string(&path).unwrap();
    assert!(whole.contains(CHANGE.0), "Salt has another form");
    fs::write(&path, whole.replace(CHANGE.0, CHANGE.1)).unwrap();
    super::strangers::forget_compiled(&path);
    scene.host.install(&scene.author.salt_from(DEAF, &copy)).ok();

    let stream = scene.stream(&Plan::short(1.0));
    let tried = scene.switch(&[&format!("{DEAF}-1"), "--mode", "overlap"]);
    assert_eq!(tried.code, Some(5), "{tried:?}\n{}", scene.logs());
    let (last, why) = last(&scene);
    assert!(last["result"] == "rolled-back" && why.contains("receives no jobs from"), "{last}");
    println!("{why}");
    let report = stream.end();
    println!("{}", report.row("a new process that hears nothing"));
    report.assert_lossless("a new process that hears nothing");
    assert!(scene.master().call(ID, &["test.version"]).contains(OLD));
}
