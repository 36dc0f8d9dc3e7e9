//! A minion that listens to one master of several, and a master whose name is no longer known.

use super::{AROUND_SECONDS, NEW, OLD, begin, ended, overlap, reaches};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::{Plan, TICKS};

/// So that what can't be proven is given up soon.
const SETTINGS: &str = "start_timeout = \"80s\"\n";

const NAME: &str = "salt-master.test";

#[test]
fn a_minion_with_failover_is_switched_on_either_master_and_moves_as_it_would() {
    let mut scene = Scene::with(&Wanted { masters: 2, failover: true, schedule: TICKS, ..Wanted::of(&[OLD, NEW]) });
    let plan = Plan::short(0.5);
    let stream = scene.stream(&plan);
    stream.run(AROUND_SECONDS);
    overlap(&scene, "switch", &[&format!("{NEW}-1")]);
    stream.run(AROUND_SECONDS);
    let report = stream.end();
    report.assert_lossless("failover, on the first master");
    report.assert_steady_schedule("failover, on the first master");

    // The minion moves to the second master, and is switched there.
    scene.masters[0].kill();
    scene.masters[1].hears(&[ID]);
    let stream = scene.stream_from(1, &plan);
    stream.run(AROUND_SECONDS);
    overlap(&scene, "switch", &[&format!("{OLD}-1")]);
    stream.run(AROUND_SECONDS);
    let report = stream.end();
    report.assert_lossless("failover, on the second master");
    report.assert_steady_schedule("failover, on the second master");

    // Its master goes away while the new release is on probation: the other one is there for both.
    scene.masters[0].start_again();
    begin(&scene, NEW);
    reaches(&scene, "probation");
    scene.masters[1].kill();
    let last = ended(&scene);
    println!("the master in use goes away in probation: {}", last["result"]);
    let [first, second] =
        [0, 1].map(|number| format!("{}:{}", scene.masters[number].address, scene.masters[number].request_port()));
    let moves = format!("the new process reaches {first}; the old process reached {second}");
    assert!(last["notes"].to_string().contains(&moves), "{last}");
    scene.masters[0].hears(&[ID]);
    let stream = scene.stream(&plan);
    stream.run(AROUND_SECONDS);
    overlap(&scene, "restart", &[]);
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("failover, back on the first master");
}

#[test]
fn a_master_whose_name_stops_resolving_costs_no_job_before_during_or_after_a_switch() {
    let scene = Scene::with(&Wanted { named: Some(NAME), settings: SETTINGS, ..Wanted::of(&[OLD, NEW]) });
    let plan = Plan::short(0.5);
    let stream = scene.stream(&plan);
    stream.run(AROUND_SECONDS);

    // Before: the new release could not find its master.
    scene.name_hosts(&["another.test"]);
    let asked = scene.switch(&[&format!("{NEW}-1"), "--mode", "overlap"]);
    println!("before: {asked:?}");
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.stdout.contains("refused, nothing was changed"), "{asked:?}");
    let last = &scene.history()[0];
    let why = last["failure"]["text"].as_str().unwrap_or_default();
    assert!(why.contains(NAME) && why.contains("resolve"), "{last}");
    stream.run(AROUND_SECONDS);

    // During: what is connected stays so.
    scene.name_hosts(&[NAME]);
    begin(&scene, NEW);
    reaches(&scene, "probation");
    scene.name_hosts(&["another.test"]);
    println!("in probation: {}", ended(&scene)["result"]);
    stream.run(AROUND_SECONDS);

    // After.
    scene.name_hosts(&[NAME]);
    overlap(&scene, "restart", &[]);
    scene.name_hosts(&["another.test"]);
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("a name that stops resolving");
    scene.name_hosts(&[NAME]);
    overlap(&scene, "restart", &[]);
}
