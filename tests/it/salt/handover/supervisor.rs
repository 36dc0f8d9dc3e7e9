//! The supervisor goes and comes under a stream of jobs: the minion and its jobs do not notice. In which phase it dies is `plain::survival`'s: here
//! is the one in which both processes have to do with jobs.

use super::{AROUND_SECONDS, NEW, OLD, begin, ended, reaches, version};
use crate::support::eventually;
use crate::support::scene::{Scene, Wanted};
use crate::support::stream::Plan;
use serde_json::Value;

/// The process that has the jobs.
fn leader(scene: &Scene) -> Value {
    eventually(20, "the supervisor tells how the minion is", || match scene.status() {
        status if status["supervisor"]["agent"]["leader"].is_object() => {
            Ok(status["supervisor"]["agent"]["leader"].clone())
        }
        status => Err(status.to_string()),
    })
}

/// A supervisor that ends takes its agents along unless each of them is handed to the next one.
#[test]
fn a_supervisor_that_is_renewed_or_killed_costs_no_job_at_rest_or_in_the_middle_of_a_switch() {
    let mut scene = Scene::with(&Wanted { own_program: true, ..Wanted::of(&[OLD, NEW]) });
    let before = leader(&scene);
    let stream = scene.stream(&Plan::short(1.0));
    stream.run(AROUND_SECONDS);
    scene.renew();
    stream.run(AROUND_SECONDS);
    assert_eq!(leader(&scene), before, "the minion was touched");
    scene.crash();
    stream.run(AROUND_SECONDS);
    assert_eq!(leader(&scene), before, "the minion was touched");
    stream.end().assert_lossless("a supervisor that is renewed, and one that is killed");

    let stream = scene.stream(&Plan { once: Some((1, 20)), ..Plan::short(1.0) });
    stream.run(AROUND_SECONDS);
    begin(&scene, NEW);
    reaches(&scene, "probation");
    scene.crash();
    let last = ended(&scene);
    println!("killed in probation: {}", last["result"]);
    assert_eq!(last["downtime_milliseconds"], 0, "{last}");
    let runs = if last["result"] == "committed" { NEW } else { OLD };
    assert!(version(&scene).contains(runs), "{last}");
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("killed in probation");
}
