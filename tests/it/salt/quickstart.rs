//! The story that the README promises, told by `scripts/quickstart` on real Salt.

use crate::support::stage::{SIDLE, command_of};
use std::fs;
use std::process::Command;

#[test]
fn quickstart_tells_the_whole_story_and_leaves_nothing_behind() {
    let place = tempfile::Builder::new().prefix("q").tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/quickstart");
    let output =
        Command::new(script).env("SIDLE", SIDLE).env("TMPDIR", place.path()).env("JOB_SECONDS", "70").output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
    let in_this_order = [
        "is current, under sidle supervise",
        "began: test.sleep",
        "beside it",
        "waiting until no job runs",
        "returned True from the release that began it",
        "began: test.sleep",
        "after sidle rollback test.version answers",
        "only then that process was ended",
        "everything is removed",
    ];
    let mut rest = &*told;
    for words in in_this_order {
        let at = rest.find(words).unwrap_or_else(|| panic!("{words:?} is not told, or not in its place"));
        rest = &rest[at..];
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "it left something in its directory");
    for process in sidle::os::proc_fs::all().unwrap() {
        let command = command_of(process.pid);
        assert!(!command.contains(place.path().to_str().unwrap()), "it left process {} ({command})", process.pid);
    }
}
