//! A switch that a Salt job asks for: history names the job, its user and its master, and the job does not wait for its own end.

use crate::support::eventually;
use crate::support::scene::{ID, Scene};
use crate::support::stage::{SALT, SIDLE, text};
use serde_json::Value;

fn ended(scene: &Scene, count: usize) -> Value {
    eventually(120, "the switch has ended", || {
        let history = scene.host.sidle(&["--json", "history", SALT]).json()["switches"].clone();
        let switches = history.as_array().unwrap();
        if switches.len() == count { Ok(switches[count - 1].clone()) } else { Err(history.to_string()) }
    })
}

#[test]
fn a_salt_job_that_asks_for_a_restart_is_in_the_history_and_ends_before_the_switch_does() {
    let scene = Scene::new(&["3006.30"]);
    let root = scene.host.path("");
    let command = |arguments: &str| format!("{SIDLE} --root {} restart {SALT} {arguments}", text(&root));
    let told = scene.master().call(ID, &["cmd.run", &command("--no-wait --reason kernel")]);
    assert!(told.contains("is accepted"), "{told}");
    let entry = ended(&scene, 2);
    let origin = &entry["origin"];
    let jid = origin["job"].as_str().unwrap();
    assert!(jid.len() == 20 && jid.bytes().all(|byte| byte.is_ascii_digit()), "{entry}");
    let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = [&origin["agent"], &origin["function"], &origin["user"], &entry["result"]].map(said);
    assert_eq!(found, ["Salt", "cmd.run", "root", "committed"], "{entry}");
    assert!(said(&origin["peers"][0]).starts_with("127.0.0.1"), "{entry}");
    let history = scene.host.sidle(&["history", SALT]).ok();
    assert!(history.contains(&format!("Salt job {jid} (cmd.run) of root, from 127.0.0.1")), "{history}");
    // Without --no-wait the job must not wait for the old process, which waits for the job.
    let begun = std::time::Instant::now();
    let told = scene.master().call_within("90", ID, &["cmd.run", &command("--mode overlap")]);
    assert!(told.contains("the new release is current"), "{told}");
    assert_eq!(ended(&scene, 3)["result"], "committed");
    println!("an overlap from within a job took {:.1} s", begun.elapsed().as_secs_f32());
    let told = scene.master().call(ID, &["cmd.run", &command("--mode idle")]);
    assert!(told.contains("continues without this command"), "{told}");
    let last = ended(&scene, 4);
    assert_eq!((last["mode"].as_str(), last["result"].as_str()), (Some("idle"), Some("committed")));
    scene.answers();
    let told = scene.host.sidle(&["restart", SALT]);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(ended(&scene, 5)["origin"], Value::Null, "asked for by hand");
}
