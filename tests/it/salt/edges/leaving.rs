//! How the old process leaves: what its jobs have left running stays, and a job that never ends holds nobody up.

use super::{NEW, OLD};
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

/// Whether a process has this in its command line.
fn runs(command: &str) -> bool {
    let processes = sidle::os::proc_fs::all().unwrap();
    processes.iter().any(|process| crate::support::stage::command_of(process.pid).contains(command))
}

/// A job whose process is there.
fn begins(scene: &Scene, arguments: &[&str]) {
    scene.master().publish(ID, arguments);
    eventually(30, "the job runs", || {
        let running = scene.master().call(ID, &["saltutil.running"]);
        if running.contains(arguments[0]) { Ok(()) } else { Err(running) }
    });
}

#[test]
fn what_a_job_left_running_in_the_background_survives_the_end_of_the_old_process() {
    // 3007 keeps the process of a job for half a minute after it has returned.
    let scene = Scene::with(&Wanted::of(&[NEW, OLD]));
    let done = scene.host.path("background-done");
    let command = format!("sleep 30; touch {}", done.display());
    scene.master().call(ID, &["cmd.run", &command, "bg=True", "python_shell=True"]);
    let told = || "it does not".to_owned();
    eventually(10, "the command runs", || if runs(&command) { Ok(()) } else { Err(told()) });
    let ran = scene.switch(&[&format!("{OLD}-1"), "--mode", "overlap"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    assert!(!done.exists(), "the switch took so long that it shows nothing: {}", scene.history()[0]);
    eventually(60, "the command in the background is done", || {
        if done.exists() { Ok(()) } else { Err("not yet".to_owned()) }
    });
}

#[test]
fn a_job_that_never_ends_holds_up_neither_a_rollback_nor_the_next_switch() {
    let scene = Scene::with(&Wanted::of(&[OLD, NEW]));
    begins(&scene, &["test.sleep", "9999"]);
    let stream = scene.stream(&Plan::short(1.0));
    let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    eventually(120, "only the old process's job is waited for", || {
        let switch = scene.status()["switch"].clone();
        let waits = switch["waiting_for"].as_str().unwrap_or_default().contains("test.sleep");
        if switch["phase"] == "retiring" && waits { Ok(()) } else { Err(switch.to_string()) }
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

#[test]
fn after_its_time_a_switch_is_over_and_the_last_job_of_the_old_process_is_answered_all_the_same() {
    let scene = Scene::with(&Wanted { settings: "retire_timeout = \"2s\"\n", ..Wanted::of(&[OLD, NEW]) });
    let stream = scene.stream(&Plan { once: Some((2, 90)), ..Plan::short(1.0) });
    stream.run(4);
    let ran = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap"]);
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
    let last = scene.history()[0].clone();
    assert!(last["notes"].to_string().contains("goes on until it has finished: mark.sleep"), "{last}");
    assert_eq!(finishing(&scene).len(), 1, "the job was waited for: {}", scene.status());
    answers_from(&scene, NEW);
    // It is ended once its job has been answered.
    eventually(150, "the old process ends", || match finishing(&scene) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    stream.end().assert_lossless("a job that outlives its switch");
}
