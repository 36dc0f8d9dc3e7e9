//! Promise 5 on real Salt: across a switch in overlap mode every job is run once and answered, and nothing that is one-per-host happens
//! twice or not at all.

mod alone;
pub mod bad;
mod broken;
mod chain;
mod cluster;
mod damage;
mod engines;
mod failover;
mod kinds;
mod manage;
mod masters;
mod moved;
mod older;
mod phases;
mod queues;
mod supervisor;
mod ways;

use crate::support::scene::{Scene, Wanted};
use crate::support::stage::Ran;
use crate::support::stream::{Plan, Stream, TICKS};
use crate::support::{come_first, eventually};
use serde_json::Value;

const OLD: &str = "3006.30";
const MIDDLE: &str = "3007.17";
const NEW: &str = "3008.5";

/// Jobs a second, which the slowest release carries beside other tests.
const RATE: f64 = 1.0;

/// How long a stream goes on before and after what is done to the minion.
const AROUND_SECONDS: u64 = 3;

/// A start event comes after the commit, through the master.
const ANNOUNCE_SECONDS: u64 = 15;

/// `sidle VERB … --mode overlap`, which must succeed, and must have been what was asked for.
fn overlap(scene: &Scene, verb: &str, arguments: &[&str]) {
    let ran = scene.verb(verb, &[arguments, &["--mode", "overlap"]].concat());
    assert_eq!(ran.code, Some(0), "{verb} {arguments:?}: {ran:?}\n{}", scene.logs());
    let last = &scene.history()[0];
    let (mode, downtime) = (last["mode"].as_str(), last["downtime_milliseconds"].as_u64());
    assert_eq!((mode, downtime), (Some("overlap"), Some(0)), "{last}");
}

/// The release that answers.
fn version(scene: &Scene) -> String {
    scene.master().call(crate::support::scene::ID, &["test.version"])
}

/// The phase of the live switch; None: there is none.
fn phase(scene: &Scene) -> Option<String> {
    scene.phase()
}

/// Waits until the live switch is in this phase, which lasts a while.
fn reaches(scene: &Scene, wanted: &str) {
    eventually(90, &format!("the switch is in {wanted}"), || match phase(scene) {
        Some(phase) if phase == wanted => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
}

/// Waits until no switch is under way; gives how it ended.
fn ended(scene: &Scene) -> Value {
    ended_within(120, scene)
}

/// The same with more patience.
fn ended_within(seconds: u64, scene: &Scene) -> Value {
    eventually(seconds, "the switch ends", || match phase(scene) {
        None => Ok(()),
        Some(phase) => Err(phase),
    });
    scene.history()[0].clone()
}

/// Asks for a switch in overlap mode and does not wait for it.
fn begin(scene: &Scene, version: &str) {
    let asked: Ran = scene.switch(&[&format!("{version}-1"), "--mode", "overlap", "--no-wait"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
}

/// Waits until so many start events have come since the stream began.
fn announced(stream: &Stream, times: usize) {
    eventually(ANNOUNCE_SECONDS, &format!("start event {times}"), || match stream.look().starts {
        starts if starts.len() == times => Ok(()),
        starts => Err(format!("{starts:?}")),
    });
}

/// Without the guard's claims a stream across these switches has jobs that both processes ran, and jobs that none did.
#[test]
fn across_every_release_a_restart_and_the_way_back_no_job_is_lost_or_doubled_and_no_tick_is_missed() {
    come_first();
    let mut scene = Scene::with(&Wanted { schedule: TICKS, ..Wanted::of(&[OLD, MIDDLE, NEW]) });
    // What runs at a boot does run.
    scene.boot();
    let stream = scene.stream(&Plan::of(RATE));
    stream.run(AROUND_SECONDS);
    let (middle, new, old) = (format!("{MIDDLE}-1"), format!("{NEW}-1"), format!("{OLD}-1"));
    let steps: [(&str, &[&str], &str); 4] =
        [("switch", &[&middle], MIDDLE), ("switch", &[&new], NEW), ("restart", &[], NEW), ("rollback", &[&old], OLD)];
    for (number, (verb, arguments, expected)) in steps.iter().enumerate() {
        let begun = stream.age();
        overlap(&scene, verb, arguments);
        println!("{verb} {arguments:?} took {:.1} s", stream.age() - begun);
        announced(&stream, number + 1);
        assert!(version(&scene).contains(expected), "{verb} {arguments:?}");
        stream.run(AROUND_SECONDS);
    }
    let report = stream.end();
    report.assert_lossless("3006.30, 3007.17, 3008.5, restart, 3006.30");
    report.assert_watched();
    report.assert_steady_schedule("3006.30, 3007.17, 3008.5, restart, 3006.30");
    assert_eq!(report.starts.len(), steps.len(), "one start event per switch: {:?}", report.starts);
    let once = (report.mine_updates, report.startup_states, report.ticks.on_start);
    assert_eq!(once, (0, 0, 0), "what belongs to a boot ran at a switch: {report:#?}");
    let releases: Vec<&str> = report.releases.keys().map(String::as_str).collect();
    assert_eq!(releases, [OLD, MIDDLE, NEW], "{:?}", report.releases);
}
