//! A job that a switch in mode `now` cuts, and a job that is published in its downtime, on each Salt.

use super::missed::SlowStart;
use crate::support::eventually;
use crate::support::extension::{bring_to, source};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::text;
use serde_json::Value;

/// Held up so long, the new process hears nothing.
const SLOW_SECONDS: f64 = 15.0;

fn comes_to(scene: &Scene, jid: &str, cause: &str) {
    eventually(120, cause, || match scene.master().runner(&["sidle.why", ID, jid, "format=data"]) {
        told if told["cause"] == cause => Ok(()),
        told => Err(format!("{told:#}")),
    });
}

fn each_is_named(version: &str) {
    // The line is one of the minion's, too.
    let line = format!("runner_dirs: [{}]\n", text(&source().join("src/saltext/sidle/runners")));
    let slow = SlowStart::of(SLOW_SECONDS);
    let releases = [version];
    let wanted = Wanted { master: version, transport: &line, options: &slow.option(), ..Wanted::of(&releases) };
    let scene = Scene::idle(&wanted);
    bring_to(&scene);
    scene.run(version);
    let runs = |jid: &str| -> Value { scene.master().runner(&["sidle.why", ID, jid, "format=data"]) };

    let cut = scene.master().publish(ID, &["test.sleep", "40"]);
    eventually(60, "the job runs", || match runs(&cut) {
        told if told["cause"] == "running" => Ok(()),
        told => Err(format!("{told:#}")),
    });
    slow.arm();
    let begun = scene.verb("restart", &["--mode", "now", "--no-wait"]);
    eventually(60, "the new process is held up", || if slow.was_met() { Ok(()) } else { Err(format!("{begun:?}")) });
    let missed = scene.master().publish(ID, &["test.ping"]);
    scene.answers();
    eventually(60, "the switch has ended", || match scene.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    comes_to(&scene, &missed, "missed-in-switch");
    // Its own process goes on, and has nobody left who sends its return.
    comes_to(&scene, &cut, "cut-by-switch");
}

#[test]
#[ignore = "`scripts/test --long`: a host with a release, and half a minute of downtime"]
fn what_a_switch_costs_is_named_on_3006() {
    each_is_named("3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: a host with a release, and half a minute of downtime"]
fn what_a_switch_costs_is_named_on_3007() {
    each_is_named("3007.17");
}

#[test]
#[ignore = "`scripts/test --long`: a host with a release, and half a minute of downtime"]
fn what_a_switch_costs_is_named_on_3008() {
    each_is_named("3008.5");
}
