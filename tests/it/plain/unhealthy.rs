//! An agent that is not well: it reaches nobody, or it hangs. A restart brings it back in seconds, and costs no job that runs.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Supervisor, two_releases};
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::time::{Duration, Instant};

/// A restart that waited for its `start_timeout` would take longer.
const SECONDS: Duration = Duration::from_secs(20);

/// A host whose release 1.0-1 serves, with time enough for what should need none.
fn patient() -> (Host, Supervisor) {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/patient.toml"), "start_timeout = \"60s\"\n").unwrap();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    (host, supervisor)
}

fn only_agent(host: &Host) -> u32 {
    let agents = host.agents();
    assert_eq!(agents.len(), 1, "{agents:?}");
    agents[0]
}

/// From now on this process reaches nobody.
fn make_deaf(host: &Host, agent: u32) {
    fs::write(host.path("etc/demo-agent/unheard.new"), format!("{agent}\n")).unwrap();
    fs::rename(host.path("etc/demo-agent/unheard.new"), host.path("etc/demo-agent/unheard")).unwrap();
}

fn signal(agent: u32, signal: SignalNumber) {
    Identity::of(agent).unwrap().unwrap().signal(signal).unwrap();
}

#[test]
fn a_deaf_agent_is_restarted_in_seconds_and_its_running_job_is_finished() {
    let (host, _supervisor) = patient();
    let deaf = only_agent(&host);
    host.job("across", "sleep 5");
    host.running("across");
    make_deaf(&host, deaf);
    let asked = Instant::now();
    let told = host.sidle(&["restart", DEMO]).ok();
    assert!(asked.elapsed() < SECONDS, "{:?}", asked.elapsed());
    assert!(told.contains("nothing to lose"), "{told}");
    assert_ne!(only_agent(&host), deaf);
    assert_eq!(host.done("across")["exit"], "0");
    let last = host.last();
    assert_eq!((last["mode"].as_str(), last["downtime_milliseconds"].as_u64()), (Some("overlap"), Some(0)), "{last}");
}

#[test]
fn a_switch_from_a_deaf_agent_is_refused_and_names_the_way() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/short.toml"), "start_timeout = \"2s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let deaf = only_agent(&host);
    make_deaf(&host, deaf);
    let refused = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for part in ["1.0-1 reaches none of its peers", "sidle restart", "--mode now"] {
        assert!(refused.stdout.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(only_agent(&host), deaf);
    host.sidle(&["restart", DEMO]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
}

/// What runs has loaded another one, and goes on; a process that is started now would not come up.
#[test]
fn a_configuration_that_cannot_be_loaded_refuses_a_switch_and_a_restart_and_leaves_what_runs_alone() {
    let (host, _supervisor) = patient();
    let agent = only_agent(&host);
    // The agent reads a file.
    fs::create_dir_all(host.path("etc/demo-agent/demo.conf")).unwrap();
    for words in [&["switch", DEMO, "1.1-1"][..], &["restart", DEMO]] {
        let foreseen = host.sidle(&[words, &["--dry-run"]].concat());
        assert!(foreseen.code == Some(1) && foreseen.stderr.contains("demo.conf"), "{foreseen:?}");
        let asked = Instant::now();
        let refused = host.sidle(words);
        assert!(refused.code == Some(1) && refused.stdout.contains("demo.conf"), "{refused:?}");
        assert!(asked.elapsed() < SECONDS, "{:?}", asked.elapsed());
        assert_eq!(only_agent(&host), agent);
    }
    let status = host.sidle(&["--json", "status", DEMO]).json();
    assert!(status["supervisor"]["agent"]["lacks"].is_null(), "{status}");
    fs::remove_dir(host.path("etc/demo-agent/demo.conf")).unwrap();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
}

#[test]
fn an_old_process_that_hangs_does_not_cost_the_new_one_its_place() {
    let (host, _supervisor) = patient();
    let hung = only_agent(&host);
    signal(hung, SignalNumber::STOP);
    let asked = Instant::now();
    let restarted = host.sidle(&["restart", DEMO]);
    assert_eq!(restarted.code, Some(0), "{restarted:?} {}", host.last());
    assert!(asked.elapsed() < 2 * SECONDS, "{:?}", asked.elapsed());
    assert_ne!(only_agent(&host), hung);
    let last = host.last();
    assert!(last["notes"].to_string().contains("the old process hangs"), "{last}");
    assert_eq!(host.answering("after"), "1.0");
}

#[test]
fn whoever_restarts_an_agent_that_is_not_well_gets_a_restart_and_not_a_digest() {
    let (host, _supervisor) = patient();
    let agent = only_agent(&host);
    let take_up = || host.sidle(&["restart", DEMO, "--if-changed", "--no-wait"]);
    make_deaf(&host, agent);
    let early = take_up();
    assert_eq!(early.code, Some(3), "it may still come up: {early:?}");
    assert!(!early.stdout.contains("is restarted if"), "{early:?}");
    // It has had its time to.
    eventually(60, "it is asked", || match take_up() {
        told if told.stdout.contains("is restarted if it does not reach its peers") => Ok(()),
        told => Err(format!("{told:?}")),
    });
    eventually(30, "it is another process", || match host.agents()[..] {
        [other] if other != agent && host.status()["switch"].is_null() => Ok(()),
        ref agents => Err(format!("{agents:?} {}", host.status())),
    });
    let last = host.last();
    assert!(last["notes"].to_string().contains("it was not healthy"), "{last}");
    let well = only_agent(&host);
    assert_eq!(take_up().code, Some(3));
    assert_eq!(only_agent(&host), well);
}

#[test]
fn a_supervisor_that_is_stopped_while_a_new_process_comes_up_does_not_wait_for_that_one() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.release("1.1", "mute")).ok();
    fs::write(host.path("etc/sidle/conf.d/long.toml"), "start_timeout = \"60s\"\nstop_timeout = \"60s\"\n").unwrap();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--no-wait"]).code, Some(4));
    host.reaches("proving");
    let asked = Instant::now();
    assert_eq!(supervisor.end(), Some(0));
    assert!(asked.elapsed() < SECONDS, "{:?}", asked.elapsed());
    assert_eq!(host.agents(), Vec::<u32>::new());
}
