//! Salt releases that the guard was not made for: the ways that it stands at are gone, or lead elsewhere. An overlap with them is refused or ended and
//! says why, no job runs twice, and `idle` works.

use super::{MIDDLE, OLD, last};
use crate::support::eventually;
use crate::support::salt::{copy_changed, copy_renamed, tree};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use sidle::os::proc_fs::{self, Process};
use std::fs;

/// What is done, the text in salt/minion.py and what it becomes, and what the reason says of it.
type Change = (&'static str, (&'static str, &'static str), &'static str);

/// One that the guard sees at the start, and one that nobody sees before a job comes.
const CHANGES: [Change; 2] = [
    ("a method renamed", ("_handle_decoded_payload", "_handle_decoded_load"), "the guard does not know this Salt"),
    (
        "another way round",
        (
            "await self._handle_decoded_payload(payload[\"load\"])",
            "await getattr(self, \"_handle_decoded_payload\" + \"_impl\")(payload[\"load\"])",
        ),
        "was started without asking the gate",
    ),
];

/// More that the guard sees at the start.
const MORE_CHANGES: [Change; 2] = [
    (
        "a body moved",
        (
            "await self._handle_decoded_payload(payload[\"load\"])",
            "await self._handle_decoded_payload_impl(payload[\"load\"])",
        ),
        "the guard does not know this Salt",
    ),
    ("tags changed", ("__master_req_channel_payload", "__request_to_master"), "the guard does not know this Salt"),
];

/// A Salt that starts jobs on a way which the guard has not wrapped runs each job in both processes.
fn goes_round_the_guard(changes: [Change; 2]) {
    let settings = "probation = \"4s\"\nrehearsal = \"off\"\nstart_timeout = \"40s\"\n";
    let mut scene = Scene::with(&Wanted::of(&[OLD]));
    scene.set(settings);
    for (number, (what, change, reason)) in changes.into_iter().enumerate() {
        let version = format!("3007.9{number}");
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("tree");
        copy_changed(&tree(MIDDLE), &copy, "minion.py", change);
        scene.host.install(&scene.author.salt_from(&version, &copy)).ok();
        let stream = scene.stream(&Plan::short(2.0));
        stream.run(1);
        let tried = scene.switch(&[&format!("{version}-1"), "--mode", "overlap"]);
        let (last, why) = last(&scene);
        println!("{what}: exit code {:?}: {why}", tried.code);
        assert_eq!(tried.code, Some(5), "{what}: {tried:?}\n{}", scene.logs());
        assert!(last["result"] == "rolled-back" && why.contains(reason), "{what}: {last}");
        stream.run(2);
        let report = stream.end();
        report.assert_lossless(what);
        let status = scene.verb("status", &[]).stdout;
        assert!(status.contains(reason), "{what}: {status}");
        assert!(scene.master().call(ID, &["test.version"]).contains(OLD));
    }
    // One of them, alone: it is as good as any.
    let ran = scene.switch(&["3007.90-1", "--mode", "idle", "--force"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    assert!(scene.master().call(ID, &["test.version"]).contains(MIDDLE));
    let ran = scene.switch(&[&format!("{OLD}-1"), "--force"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    let (last, _) = last(&scene);
    assert!(last["mode"] == "idle" && last["notes"].to_string().contains("an overlap is impossible"), "{last}");
}

#[test]
fn a_salt_that_goes_round_the_guard_doubles_no_job_beside_another_and_idle_works() {
    goes_round_the_guard(CHANGES);
}

#[test]
#[ignore = "`scripts/test --long`: packs two more releases of Salt; the guard sees them as it sees a method renamed"]
fn more_salts_that_go_round_the_guard_double_no_job_beside_another() {
    goes_round_the_guard(MORE_CHANGES);
}

/// Without a report its main process was looked for in the pid file, which names the old one: it did every job a second time until `start_timeout`.
#[test]
fn a_release_whose_guard_is_not_there_is_ended_as_soon_as_it_is_connected() {
    let settings = "rehearsal = \"off\"\nstart_timeout = \"120s\"\n";
    let scene = Scene::with(&Wanted { settings, ..Wanted::of(&[OLD]) });
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("tree");
    copy_renamed(&tree(MIDDLE), &copy, None);
    let packages = copy.join("lib/python3.11/site-packages");
    fs::remove_file(packages.join("sidle_guard.pth")).unwrap();
    scene.host.install(&scene.author.salt_from("3007.97", &copy)).ok();
    let tried = scene.switch(&["3007.97-1", "--mode", "overlap"]);
    assert_eq!(tried.code, Some(5), "{tried:?}\n{}", scene.logs());
    let (last, why) = last(&scene);
    // Salt itself refuses a second minion, since the file by which it knows the first one is where it looks.
    assert!(why.contains("exited with code 1"), "{last}");
    // Salt's own end of a process without its parent takes five seconds.
    let is_of_it = |process: &Process| {
        let words = proc_fs::command_line(process.pid).ok().flatten().unwrap_or_default();
        process.is_alive() && words.iter().any(|word| word.contains("/versions/3007.97-1/"))
    };
    // Salt itself ends a process without its parent only after five seconds; a job of the minion may go on.
    eventually(3, "nothing of it is left", || {
        let left: Vec<Process> = proc_fs::all().unwrap().into_iter().filter(is_of_it).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(scene.master().call(ID, &["test.version"]).contains(OLD));
}
