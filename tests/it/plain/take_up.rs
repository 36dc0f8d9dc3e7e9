//! A restart only for a changed configuration: what the replacement for a package's unit does.

use crate::support::eventually;
use crate::support::stage::{DEMO, Host, Ran, two_releases};
use std::fs;

fn configure(host: &Host, text: &str) {
    fs::write(host.path("etc/demo-agent/demo.conf"), text).unwrap();
}

fn take_up(host: &Host, more: &[&str]) -> Ran {
    host.sidle(&[&["restart", DEMO, "--if-changed"], more].concat())
}

fn leader(host: &Host) -> Option<u64> {
    host.status()["supervisor"]["agent"]["leader"]["pid"].as_u64()
}

#[test]
fn only_a_changed_configuration_restarts_what_runs() {
    let (host, _author) = two_releases();
    assert_eq!(take_up(&host, &[]).code, Some(3), "there is nothing to restart");
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let first = leader(&host);
    for _ in 0..2 {
        let same = take_up(&host, &["--no-wait"]);
        assert_eq!(same.code, Some(3), "{same:?}");
        assert!(same.stdout.contains("runs with the present configuration"), "{same:?}");
    }
    configure(&host, "# changed\n");
    host.job("across", "sleep 1");
    host.running("across");
    take_up(&host, &[]).ok();
    assert_eq!(host.done("across")["exit"], "0");
    let last = host.last();
    assert_eq!((last["purpose"].as_str(), last["mode"].as_str()), (Some("restart"), Some("overlap")), "{last}");
    let second = leader(&host);
    assert_ne!(second, first);
    assert_eq!(take_up(&host, &[]).code, Some(3));
    // Another supervisor knows it, too.
    supervisor.kill();
    let _supervisor = host.supervise();
    eventually(10, "the agent is known", || if leader(&host) == second { Ok(()) } else { Err("not yet".to_owned()) });
    assert_eq!(take_up(&host, &[]).code, Some(3));
    configure(&host, "");
    take_up(&host, &[]).ok();
    assert_eq!(take_up(&host, &[]).code, Some(3));
    // What was restored is what is running.
    configure(&host, "# changed\n");
    configure(&host, "");
    assert_eq!(take_up(&host, &[]).code, Some(3));
}

/// A change that comes between the start of the new process and the commit may be in neither process.
#[test]
fn a_change_during_a_switch_is_taken_up_after_it() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/slow.toml"), "probation = \"2s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--no-wait"]).code, Some(4));
    eventually(10, "both run", || match host.status()["switch"]["phase"].as_str() {
        Some("probation") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    configure(&host, "# changed\n");
    let later = take_up(&host, &["--no-wait"]);
    assert_eq!(later.code, Some(4), "{later:?}");
    assert!(later.stdout.contains("is under way"), "{later:?}");
    eventually(30, "the restart came after the switch", || {
        let status = host.status();
        let done = status["switch"].is_null() && status["last"]["purpose"] == "restart";
        if done { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(host.last()["to"], "1.1-1");
    assert_eq!(host.last()["reason"], "the configuration has changed");
    assert_eq!(take_up(&host, &[]).code, Some(3));
    // A wish during a switch without a change restarts nothing.
    let history = || host.sidle(&["--json", "history", DEMO]).json()["switches"].as_array().unwrap().len();
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1", "--no-wait"]).code, Some(4));
    assert_eq!(take_up(&host, &["--no-wait"]).code, Some(4));
    let before = eventually(30, "the switch is over", || {
        if host.status()["switch"].is_null() { Ok(history()) } else { Err("not yet".to_owned()) }
    });
    eventually(20, "the wish is dealt with", || {
        if host.path("run/sidle/demo-agent/take-up").exists() { Err("not yet".to_owned()) } else { Ok(()) }
    });
    assert_eq!((history(), host.status()["switch"].is_null()), (before, true));
}

/// At a boot a restart was asked for while the process had still to load its configuration.
#[test]
fn a_process_that_is_just_being_started_is_not_restarted() {
    let (host, _author) = two_releases();
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    for _ in 0..5 {
        assert_eq!(supervisor.end(), Some(0));
        configure(&host, "# another one\n");
        supervisor = host.supervise();
        // As a boot does: at once, whether the agent has begun or not.
        for _ in 0..20 {
            let asked = take_up(&host, &["--no-wait"]);
            assert_eq!(asked.code, Some(3), "{asked:?}");
        }
    }
    assert_eq!(supervisor.end(), Some(0));
}
