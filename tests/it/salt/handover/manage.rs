//! What operators do to a minion while a switch is under way reaches the right process and stays.

use super::{NEW, OLD, begin, ended, overlap, reaches, version};
use crate::support::eventually;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::{Plan, TICKS};
use std::fs;

/// The long job that a retiring process has.
/// Longer than the switch takes on a crowded machine: the test ends it.
const LONG_SECONDS: u32 = 400;

fn call(scene: &Scene, arguments: &[&str]) -> String {
    scene.master().call(ID, arguments)
}

/// Adds a scheduled job and a beacon, and writes a file of configuration, all named after the moment.
fn change(scene: &Scene, moment: &str) {
    let job = format!("added-{moment}");
    let added = call(scene, &["schedule.add", &job, "function=test.ping", "seconds=86400"]);
    assert!(added.contains("Added job"), "{moment}: {added}");
    let (name, settings) = beacon(moment);
    let told = call(scene, &["beacons.add", name, settings]);
    assert!(told.contains("Added beacon"), "{moment}: {told}");
    let file = scene.host.path("etc/salt/minion.d").join(format!("{moment}.conf"));
    fs::write(file, format!("written_{moment}: here\n")).unwrap();
}

/// A beacon that both releases have, one per moment: a beacon is known by its module's name.
fn beacon(moment: &str) -> (&'static str, &'static str) {
    match moment {
        "during" => ("diskusage", "[{'/nowhere': 90}, {'interval': 86400}]"),
        _ => ("memusage", "[{'percent': '100%'}, {'interval': 86400}]"),
    }
}

/// All that `change` made is there.
fn kept(scene: &Scene, moment: &str) {
    let schedule = call(scene, &["schedule.list", "return_yaml=False"]);
    assert!(schedule.contains(&format!("added-{moment}")), "{moment}: {schedule}");
    let beacons = call(scene, &["beacons.list", "return_yaml=False"]);
    assert!(beacons.contains(beacon(moment).0), "{moment}: {beacons}");
    let written = call(scene, &["config.get", &format!("written_{moment}")]);
    assert!(written.contains("here"), "{moment}: {written}");
}

/// `saltutil.kill_job` and `find_job` reach the new process, which does not have the jobs of the old one.
#[test]
fn jobs_of_the_retiring_process_are_reached_and_changes_stay() {
    let scene = Scene::with(&Wanted { schedule: TICKS, ..Wanted::of(&[OLD, NEW]) });
    let stream = scene.stream(&Plan { once: Some((1, LONG_SECONDS)), ..Plan::short(1.0) });
    let long = eventually(30, "the long job runs", || {
        let running = call(&scene, &["saltutil.running"]);
        let mark = scene.marks.all().into_iter().find(|mark| mark.name == "m0-1");
        mark.map(|mark| mark.jid).filter(|_| running.contains("mark.sleep")).ok_or(running)
    });
    // Another one, to be killed: not of the stream, so that its end is no loss.
    scene.master().publish(ID, &["test.sleep", "600"]);
    begin(&scene, NEW);
    reaches(&scene, "finishing-old");
    change(&scene, "during");

    assert!(version(&scene).contains(NEW), "new jobs are not held up by the one that runs");
    let found = call(&scene, &["saltutil.find_job", &long]);
    assert!(found.contains("mark.sleep") && found.contains(&long), "{found}");
    let running = call(&scene, &["saltutil.running"]);
    assert!(running.contains("mark.sleep") && running.contains("test.sleep"), "{running}");
    let other = job_running(&running, "test.sleep");
    let killed = call(&scene, &["saltutil.kill_job", &other]);
    assert!(killed.contains("Signal 9 sent to job"), "{killed}");
    reaches(&scene, "finishing-old");

    scene.marks.end_long_jobs();
    let last = ended(&scene);
    assert_eq!(last["result"], "committed", "{last}");
    change(&scene, "after");
    for moment in ["during", "after"] {
        // A file of configuration counts from the next start.
        overlap(&scene, "restart", &[]);
        kept(&scene, moment);
    }
    let report = stream.end();
    report.assert_lossless("a long job in the retiring process");
    report.assert_steady_schedule("a long job in the retiring process");
}

/// The jid of the running job of a function, from the text of `saltutil.running`.
fn job_running(running: &str, function: &str) -> String {
    let before = running.split(&format!("'{function}'")).next().unwrap();
    let after = running.split(&format!("'{function}'")).nth(1).unwrap_or_default();
    // The job's own fields come in no order that both releases share: the nearest jid counts.
    let digits = |text: &str, last: bool| {
        let mut found = text.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 20);
        if last { found.next_back().map(str::to_owned) } else { found.next().map(str::to_owned) }
    };
    let entry_ends = after.find('}').unwrap_or(after.len());
    digits(&after[..entry_ends], false)
        .or_else(|| digits(&before[before.rfind('{').unwrap_or(0)..], true))
        .unwrap_or_else(|| panic!("no jid of {function} in {running}"))
}
