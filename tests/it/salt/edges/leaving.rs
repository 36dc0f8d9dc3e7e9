//! How the old process leaves: what its jobs have left running stays, and a job that never ends holds nobody up.

use super::{MIDDLE, NEW, OLD};
use crate::support::eventually;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use serde_json::Value;
use sidle::os::process::{Identity, SignalNumber};

/// The old processes that finish their last jobs, as status tells.
fn finishing(scene: &Scene) -> Vec<Value> {
    scene.status()["supervisor"]["finishing"].as_array().cloned().unwrap_or_default()
}

fn answers_from(scene: &Scene, version: &str) {
    let answer = scene.master().call(ID, &["test.version"]);
    assert!(answer.contains(version), "{answer}");
}

/// The process with exactly this command line.
fn running(command: &str) -> Option<Identity> {
    let processes = sidle::os::proc_fs::all().unwrap();
    let found = processes.iter().find(|process| crate::support::stage::command_of(process.pid) == command)?;
    Identity::of(found.pid).unwrap()
}

/// A job whose process is there.
fn begins(scene: &Scene, arguments: &[&str]) {
    scene.master().publish(ID, arguments);
    eventually(30, "the job runs", || {
        let running = scene.master().call(ID, &["saltutil.running"]);
        if running.contains(arguments[0]) { Ok(()) } else { Err(running) }
    });
}

fn what_is_left_in_the_background_survives(mode: &str) {
    // 3007 keeps the process of a job for half a minute after it has returned: the command is below it when the old process ends.
    let scene = Scene::with(&Wanted::of(&[MIDDLE, OLD]));
    // No other test's: found by its arguments.
    let command = format!("sleep {}{}", 100_000 + std::process::id(), mode.len());
    scene.master().call(ID, &["cmd.run", &command, "bg=True"]);
    let mut left = None;
    eventually(10, "the command runs", || {
        left = running(&command);
        left.as_ref().map(|_| ()).ok_or_else(|| "it does not".to_owned())
    });
    let ran = scene.switch(&[&format!("{OLD}-1"), "--mode", mode]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    let left = left.unwrap();
    assert!(left.is_alive().unwrap(), "it was ended with the old process: {}", scene.history()[0]);
    left.signal(SignalNumber::KILL).unwrap();
}

/// What a job leaves running on purpose lies in the process group of the old minion, which is ended.
#[test]
fn what_a_job_left_running_in_the_background_survives_the_end_of_the_old_process() {
    what_is_left_in_the_background_survives("overlap");
}

/// The same without a process beside it: such a command counts neither as a job nor as a process to end.
#[test]
fn what_a_job_left_running_in_the_background_survives_a_switch_when_idle() {
    what_is_left_in_the_background_survives("idle");
}

/// A switch in `finishing-old` would keep the next one waiting for as long as its last job runs.
#[test]
fn a_job_that_never_ends_holds_up_neither_a_rollback_nor_the_next_switch() {
    let scene = Scene::with(&Wanted::of(&[OLD, NEW]));
    begins(&scene, &["test.sleep", "9999"]);
    let stream = scene.stream(&Plan::short(0.5));
    let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    eventually(120, "only the old process's job is waited for", || {
        let switch = scene.status()["switch"].clone();
        let waits = switch["waiting_for"].as_str().unwrap_or_default().contains("test.sleep");
        if switch["phase"] == "finishing-old" && waits { Ok(()) } else { Err(switch.to_string()) }
    });
    let ran = scene.verb("rollback", &["--mode", "overlap"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    answers_from(&scene, OLD);
    let results: Vec<Value> = scene.history().iter().take(2).map(|entry| entry["result"].clone()).collect();
    assert_eq!(results, ["committed", "committed"]);
    let told = scene.verb("status", &[]).stdout;
    assert!(told.contains("takes no new jobs and finishes: test.sleep") && told.contains("kill "), "{told}");

    // The way to end it that status names.
    let left = finishing(&scene);
    assert_eq!(left.len(), 1, "{left:?}");
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let (process, job) = (number(&left[0]["pid"]), number(&left[0]["jobs"][0]["pid"]));
    Identity::of(job).unwrap().unwrap().signal(SignalNumber::KILL).unwrap();
    eventually(30, "the old process ends", || match (Identity::of(process).unwrap(), finishing(&scene)) {
        (None, left) if left.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    stream.end().assert_lossless("a rollback while the old process has a job");
}

/// A limit that ends the old process with its last job loses the job's return.
#[test]
fn after_its_time_a_switch_is_over_and_the_last_job_of_the_old_process_is_answered_all_the_same() {
    let scene = Scene::with(&Wanted { settings: "retire_timeout = \"2s\"\n", ..Wanted::of(&[OLD, NEW]) });
    let stream = scene.stream(&Plan { once: Some((2, 120)), ..Plan::short(0.5) });
    stream.run(6);
    let ran = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    let last = scene.history()[0].clone();
    assert!(last["notes"].to_string().contains("goes on until it has finished: mark.sleep"), "{last}");
    assert_eq!(finishing(&scene).len(), 1, "the job was waited for: {}", scene.status());
    answers_from(&scene, NEW);
    // It is ended once its job has been answered.
    eventually(200, "the old process ends", || match finishing(&scene) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    stream.end().assert_lossless("a job that outlives its switch");
}
