//! `sidle missed`: each time in which an agent could not hear its peers, with its cause.

use crate::support::eventually;
use crate::support::stage::{DEMO, Host, two_releases};
use serde_json::Value;
use sidle::os::process::{Identity, SignalNumber};
use std::fs;

/// A supervisor looks at a healthy agent every fifteen seconds.
const LOOK_SECONDS: u64 = 40;

fn downtimes(host: &Host) -> Vec<Value> {
    let told = host.sidle(&["--json", "missed", DEMO]).json();
    told["instances"][0]["downtimes"].as_array().unwrap().clone()
}

fn last_is(host: &Host, number: usize, cause: &str) -> Value {
    eventually(LOOK_SECONDS, &format!("downtime {number} is noted: {cause}"), || match downtimes(host).as_slice() {
        [.., last] if downtimes(host).len() == number && last["cause"] == cause && !last["until"].is_null() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    downtimes(host).pop().unwrap()
}

#[test]
fn a_downtime_of_a_switch_a_death_and_a_stop_of_the_service_are_all_listed() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/pause.toml"), "restart_pause = \"1s\"\n").unwrap();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert!(downtimes(&host).is_empty(), "a first start is no downtime");
    let told = host.sidle(&["missed", DEMO]).ok();
    assert!(told.contains("no downtime is on record"), "{told}");

    host.sidle(&["switch", DEMO, "1.1-1", "--mode", "now"]).ok();
    let switched = last_is(&host, 1, "switch");
    assert_eq!(switched["switch"], 2, "{switched}");
    assert!(switched["seconds"].as_f64().unwrap() > 0.0, "{switched}");

    let agent = host.agents()[0];
    Identity::of(agent).unwrap().unwrap().signal(SignalNumber::KILL).unwrap();
    let died = last_is(&host, 2, "ended");
    assert!(died["detail"].as_str().unwrap().contains("signal 9"), "{died}");

    assert_eq!(supervisor.end(), Some(0));
    let stopped_at = jiff::Timestamp::now();
    let _supervisor = host.supervise();
    let stopped = last_is(&host, 3, "stopped");
    let from: jiff::Timestamp = stopped["from"].as_str().unwrap().parse().unwrap();
    assert!(from <= stopped_at && from > died["until"].as_str().unwrap().parse().unwrap(), "{stopped} {stopped_at}");
    let shown = host.sidle(&["missed", DEMO]).ok();
    assert!(shown.contains("the service was stopped") && shown.contains("switch 2 to 1.1-1 (now), done"), "{shown}");
    assert!(!shown.contains("salt-run"), "the demonstration agent has no such command: {shown}");
}
