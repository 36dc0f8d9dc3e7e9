//! What is tried in every phase of a switch: the supervisor is stopped after each write of its journal, so that none goes by unseen.

use super::{NEW, OLD};
use crate::support::eventually;
use crate::support::scene::{Scene, Wanted};
use crate::support::stage::{SALT, SIDLE, text};
use crate::support::stream::{Plan, Stream};
use sidle::os::proc_fs;
use sidle::os::process::SignalNumber;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};

/// Where the old process alone is there, as on the way forth.
const BEFORE: [&str; 4] = ["checking", "rehearsing", "starting", "proving"];

/// Longer than what is done in it.
const SETTINGS: &str = "probation = \"30s\"\nrehearsal = \"refuse\"\n";

/// Fires an event through `salt-call` of the current release.
fn fire(scene: &Scene, name: &str) {
    let (configuration, tag) = (scene.host.path("etc/salt"), format!("stream/{name}"));
    // Without a configuration that it likes, salt-call tries for ever.
    let mut command = Command::new("timeout");
    command.args(["60", SIDLE, "--root", text(&scene.host.path("")), "run", SALT, "salt-call", "--"]);
    let output = command.args(["-c", text(&configuration), "event.send", &tag]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("True"), "salt-call in {name}: {} {told}", output.status);
}

/// How often each event of `fire` came.
fn fired(stream: &Stream) -> BTreeMap<String, u32> {
    let mut counted = BTreeMap::new();
    for event in stream.events() {
        if let Some(name) = event["tag"].as_str().and_then(|tag| tag.strip_prefix("stream/")) {
            *counted.entry(name.to_owned()).or_default() += 1;
        }
    }
    counted
}

/// `sidle VERB salt-minion …`, not waited for: the supervisor answers when it goes on.
fn ask(scene: &Scene, verb: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(SIDLE);
    command.args(["--root", text(&scene.host.path("")), verb, SALT]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// Does this in each phase of the switch that is asked for, until it is over; gives the phases.
fn in_each_phase(scene: &Scene, mut act: impl FnMut(&str)) -> Vec<String> {
    let mut phases: Vec<String> = Vec::new();
    loop {
        let supervisor = scene.supervisor();
        eventually(90, "the supervisor writes its journal", || match proc_fs::process(supervisor.pid()) {
            Ok(Some(process)) if process.state == 'T' => Ok(()),
            other => Err(format!("{other:?} after {phases:?}\n{}", supervisor.log())),
        });
        let phase = scene.phase();
        if let Some(phase) = phase.as_ref().filter(|phase| !phases.contains(phase)) {
            act(phase);
            phases.push(phase.clone());
        }
        supervisor.signal(SignalNumber::CONT);
        if phase.is_none() {
            return phases;
        }
    }
}

#[test]
fn salt_call_works_and_fires_events_in_every_phase_forth_and_back() {
    let mut scene = Scene::with(&Wanted { settings: SETTINGS, ..Wanted::of(&[OLD, NEW]) });
    let hold = scene.host.path("hold");
    scene.crash_into(&[("SIDLE_STOP_AT", "journal.after"), ("SIDLE_STOP_WHILE", text(&hold))]);
    let stream = scene.stream(&Plan::short(1.0));
    fs::write(&hold, "").unwrap();

    let mut switch = ask(&scene, "switch", &[&format!("{NEW}-1"), "--mode", "overlap"]);
    let forth = in_each_phase(&scene, |phase| fire(&scene, &format!("forth-{phase}")));
    assert_eq!(switch.wait().unwrap().code(), Some(0), "{}", scene.logs());
    let all = ["checking", "rehearsing", "starting", "proving", "handing", "probation", "flipping", "finishing-old"];
    assert_eq!(forth[..all.len()], all, "{forth:?}");

    let mut restart = ask(&scene, "restart", &["--mode", "overlap"]);
    let mut cancel = None;
    let back = in_each_phase(&scene, |phase| {
        if !BEFORE.contains(&phase) {
            fire(&scene, &format!("back-{phase}"));
        }
        if phase == "probation" {
            cancel = Some(ask(&scene, "cancel", &[]));
        }
    });
    assert!(cancel.expect("it came to the probation").wait().unwrap().success(), "{}", scene.logs());
    assert_eq!(restart.wait().unwrap().code(), Some(5), "{}", scene.logs());
    for phase in ["handing", "probation", "draining-new", "stopping-new"] {
        assert!(back.iter().any(|passed| passed == phase), "{phase} is not among {back:?}");
    }

    let events = fired(&stream);
    let named = |way: &str, phases: &[String]| phases.iter().map(|phase| format!("{way}-{phase}")).collect::<Vec<_>>();
    let way_back: Vec<String> = back.iter().filter(|phase| !BEFORE.contains(&phase.as_str())).cloned().collect();
    for name in [named("forth", &forth), named("back", &way_back)].concat() {
        assert_eq!(events.get(&name), Some(&1), "{name} in {events:?}");
    }
    println!("salt-call worked in {forth:?} and {way_back:?}");
    let report = stream.end();
    report.assert_lossless("the supervisor is stopped in every phase");
}
