//! Jobs of a real minion that switch that minion itself.

use crate::support::eventually;
use crate::support::extension::bring_to;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::SALT;
use crate::support::stream::Plan;
use serde_json::{Value, json};
use std::fs;

/// A switch of two real minions, on a busy machine.
const SWITCH_SECONDS: u64 = 180;

fn ends(scene: &Scene, release: &str) {
    eventually(SWITCH_SECONDS, &format!("{release} is current, and no switch is under way"), || {
        let status = scene.status();
        if status["current"] == release && status["switch"].is_null() { Ok(()) } else { Err(status.to_string()) }
    });
}

/// A job's return, whole.
fn call(scene: &Scene, words: &[&str]) -> Value {
    // A rehearsal gives way to whatever else this machine does.
    let said = scene.master().call_within("240", ID, &[words, &["--out=json", "--static"]].concat());
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    told[ID].clone()
}

/// A minion with the modules of the extension, which is not started yet.
fn with_the_extension() -> Scene {
    let scene = Scene::idle(&Wanted { settings: "rehearsal = \"refuse\"\n", ..Wanted::of(&["3006.30", "3008.5"]) });
    bring_to(&scene);
    scene
}

/// What a plan asks: the rehearsal of the switch, in a job of the running minion.
fn is_rehearsed(scene: &Scene) {
    let needs_more = scene.host.path("var/cache/salt/minion/extmods/modules/site_vault.py");
    fs::write(&needs_more, "import salt.utils.vault\n\n\ndef read():\n    return 1\n").unwrap();
    let refused = call(scene, &["sidle.rehearse", "release=3008.5-1"]);
    let message = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(message.contains("the custom execution module site_vault") && message.contains("cannot be imported"));
    fs::remove_file(needs_more).unwrap();
    let rehearsed = call(scene, &["sidle.rehearse", "release=3008.5-1"]);
    assert_eq!((&rehearsed["code"], &rehearsed["rehearsed"]), (&json!(0), &json!(true)), "{rehearsed}");
}

/// Back to the older release.
fn is_switched_in_the_middle_of_a_highstate(scene: &Scene) {
    let states = json!({
        "before": {"test.succeed_with_changes": []},
        "now": {"sidle.current": [{"name": SALT}, {"release": "3006.30-1"}, {"splay": "0s"}, {"require": [{"test": "before"}]}]},
        "after": {"test.succeed_with_changes": [{"require": [{"sidle": "now"}]}]},
    });
    scene.master().file("middle.sls", &format!("#!json\n{states}"));
    let shown = call(scene, &["state.apply", "middle", "test=True"]);
    let of = |states: &Value, id: &str| {
        let found =
            states.as_object().unwrap_or_else(|| panic!("{states}")).values().find(|state| state["__id__"] == id);
        found.unwrap_or_else(|| panic!("{id}: {states}")).clone()
    };
    assert!(of(&shown, "now")["result"].is_null(), "{shown}");
    let did = call(scene, &["state.apply", "middle"]);
    assert!(["before", "now", "after"].iter().all(|id| of(&did, id)["result"] == true), "{did}");
    assert_eq!(of(&did, "now")["changes"]["new"], "3006.30-1", "{did}");
}

/// What the master asks when a minion did not return: the host knows which jobs its minion took.
fn the_host_knows_the_jobs_of_its_minion(scene: &Scene) {
    let taken = scene.master().publish(ID, &["test.ping"]);
    let known = eventually(30, "the job has returned", || match call(scene, &["sidle.job", &taken]) {
        known if known["log"].to_string().contains("Returning information for job") => Ok(known),
        other => Err(other.to_string()),
    });
    assert_eq!(
        (&known["claimed"], &known["stale"], &known["queued"]),
        (&json!(true), &json!(null), &json!(null)),
        "{known}"
    );
    let last = known["switches"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["mode"], &last["to"]), (&json!("overlap"), &json!("3006.30-1")), "{known}");
    assert!(last["down"].is_null() && known["started"].is_number(), "{known}");
    // A person on the host passes no options: the guard has reported them.
    let own = scene.host.sidle(&["--json", "job", &taken]).json();
    for name in ["claimed", "running", "stale", "queued", "cached", "log", "returned_at", "switches"] {
        assert_eq!(own[name], known[name], "{name}: {own} {known}");
    }
    let started = |told: &Value| told["started"].as_f64().unwrap();
    assert!((started(&own) - started(&known)).abs() < 2.0, "{own} {known}");
    let other = format!("{}{}", &taken[..19], if taken.ends_with('9') { 8 } else { 9 });
    let unknown = call(scene, &["sidle.job", &other]);
    assert_eq!(unknown["claimed"], false, "{unknown}");
}

#[test]
fn a_job_switches_the_minion_that_runs_it_and_the_master_hears_of_the_end_once() {
    let mut scene = with_the_extension();
    scene.run("3006.30");
    let synced = call(&scene, &["saltutil.sync_all"]);
    assert_eq!(synced["beacons"], json!([]), "it has them: {synced}");
    let grain_of = |scene: &Scene| call(scene, &["grains.get", "sidle:instances:salt-minion"]);
    assert_eq!(grain_of(&scene)["current"], "3006.30-1");
    // It remembers what there is before it tells what is new.
    let kept = scene.host.path("var/cache/salt/minion/sidle-beacon.json");
    eventually(60, "the beacon has looked", || if kept.exists() { Ok(()) } else { Err("not yet".to_owned()) });

    is_rehearsed(&scene);
    scene.set("");

    let grain = || grain_of(&scene);
    // While a job of several functions runs, Salt fails to begin a state run.
    let stream = scene.stream(&Plan { compound_every: 0, ..Plan::short(1.0) });
    let said = call(&scene, &["sidle.switch", "release=3008.5-1", "splay=0s"]);
    assert_eq!((&said["code"], &said["pending"]), (&json!(4), &json!(true)), "{said}");
    ends(&scene, "3008.5-1");
    eventually(90, "the grain is that of the new release", || match grain() {
        own if own["current"] == "3008.5-1" && own["last"]["result"] == "committed" => Ok(()),
        other => Err(other.to_string()),
    });

    // The master finds targets by its own copy.
    let cached = || scene.master().runner(&["cache.grains", ID])[ID]["sidle"]["instances"]["salt-minion"].clone();
    eventually(60, "the master knows of the new release", || match cached() {
        known if known["current"] == "3008.5-1" && known["phase"].is_null() => Ok(()),
        other => Err(other.to_string()),
    });

    is_switched_in_the_middle_of_a_highstate(&scene);
    ends(&scene, "3006.30-1");
    eventually(90, "the grain is that of the old release", || match grain() {
        own if own["current"] == "3006.30-1" => Ok(()),
        other => Err(other.to_string()),
    });

    the_host_knows_the_jobs_of_its_minion(&scene);

    let events = stream.events();
    let report = stream.end();
    report.assert_lossless("two switches by jobs");
    let tag = format!("salt/beacon/{ID}/sidle/committed");
    let told: Vec<&Value> = events.iter().filter(|event| event["tag"] == tag.as_str()).collect();
    let releases: Vec<&str> = told.iter().map(|event| event["release"].as_str().unwrap()).collect();
    assert_eq!(releases, ["3008.5-1", "3006.30-1"], "{told:?}");
}
