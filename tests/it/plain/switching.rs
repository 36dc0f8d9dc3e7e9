//! Switches of the demonstration agent under a real supervisor: forth, back, refused, cancelled, interrupted.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, two_releases};
use std::fs;

#[test]
fn a_switch_waits_for_the_running_job_and_the_way_back_brings_the_old_release() {
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    host.job("long", "sleep 4");
    host.running("long");
    let told = host.sidle(&["switch", DEMO, "1.1-1", "--mode", "idle", "--reason", "because"]).ok();
    assert!(told.contains("waiting until no job runs") && told.contains("long"), "{told}");
    assert!(told.contains("switched to 1.1-1; downtime "), "{told}");
    let done = host.done("long");
    assert_eq!((done["exit"].as_str(), done["release"].as_str()), ("0", "1.0"));
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    assert_eq!(host.answering("after"), "1.1");

    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    assert_eq!(host.answering("back"), "1.0");
    let history = host.sidle(&["--json", "history", DEMO]).json();
    let results: Vec<_> = history["switches"].as_array().unwrap().iter().map(|entry| entry["result"].clone()).collect();
    assert_eq!(results, ["committed", "committed", "committed"]);
    assert_eq!(history["switches"][1]["reason"], "because");
    assert_eq!(supervisor.end(), Some(0));
    assert_eq!(host.agents(), Vec::<u32>::new());
}

#[test]
fn a_release_that_does_not_come_up_never_becomes_current_and_is_refused_from_then_on() {
    bad_releases_are_left("idle");
}

#[test]
fn the_same_beside_the_old_process_which_is_never_touched() {
    bad_releases_are_left("overlap");
}

fn bad_releases_are_left(mode: &str) {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    let bad =
        [("1.1", "crash"), ("1.2", "exit0"), ("1.3", "hang"), ("1.4", "flap"), ("1.5", "silent"), ("1.6", "stuck")];
    for (version, behaviour) in bad {
        host.install(&author.release(version, behaviour)).ok();
    }
    // Longer than it takes to flap.
    std::fs::write(host.path("etc/sidle/conf.d/test.toml"), "probation = \"4s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    for (version, behaviour) in bad {
        let release = format!("{version}-1");
        let tried = host.sidle(&["switch", DEMO, &release, "--mode", mode]);
        assert_eq!(tried.code, Some(5), "{behaviour}: {tried:?}");
        assert_eq!(host.current().as_deref(), Some("1.0-1"), "{behaviour}");
        assert_eq!(host.answering(&format!("after-{behaviour}")), "1.0");
        assert!(mode == "idle" || host.agents() == before, "{behaviour}: the old process was touched");
        // Beside an old process it is seen that they do not take over.
        let may_be_slow = behaviour == "hang" || (mode == "idle" && ["silent", "stuck"].contains(&behaviour));
        if may_be_slow {
            // It may only have been slow: it has a second try.
            assert_eq!(host.sidle(&["switch", DEMO, &release, "--mode", mode]).code, Some(5), "{behaviour}");
        }
        let again = host.sidle(&["switch", DEMO, &release, "--mode", mode]);
        assert_eq!(again.code, Some(10), "{behaviour}: {again:?}");
        assert!(again.stderr.contains("--force"), "{again:?}");
    }
}

#[test]
fn a_release_that_does_not_end_when_it_is_told_is_a_good_one_until_it_has_to_go() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.release("1.1", "deaf")).ok();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    for mode in ["overlap", "idle"] {
        host.sidle(&["switch", DEMO, "1.1-1", "--mode", mode, "--force"]).ok();
        assert_eq!(host.answering(&format!("deaf-{mode}")), "1.1");
        host.sidle(&["rollback", DEMO, "--mode", mode]).ok();
        assert_eq!(host.answering(&format!("back-{mode}")), "1.0");
        assert_eq!(host.agents().len(), 1, "{mode}: the deaf one is still there");
    }
}

#[test]
fn a_release_that_lost_a_file_is_mended_before_it_is_switched_to() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let lost = host.path(&format!("opt/sidle/{DEMO}/versions/1.1-1/lib/demo-agent/lazy/greeting"));
    fs::remove_file(&lost).unwrap();
    assert_eq!(host.sidle(&["verify", DEMO, "1.1-1"]).code, Some(6));
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert!(lost.exists() && host.last()["notes"].to_string().contains("repaired before the start"), "{}", host.last());
    assert_eq!(host.answering("mended"), "1.1");
    // What no other release has can't be mended here.
    fs::remove_file(host.path(&format!("opt/sidle/{DEMO}/versions/1.0-1/share/demo-agent/release"))).unwrap();
    let refused = host.sidle(&["switch", DEMO, "1.0-1"]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
}

#[test]
fn what_a_release_loses_between_the_wish_and_the_switch_is_mended_too() {
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1"]).code, Some(4));
    let lost = host.path(&format!("opt/sidle/{DEMO}/versions/1.1-1/lib/demo-agent/lazy/greeting"));
    fs::remove_file(&lost).unwrap();
    let _supervisor = host.supervise();
    eventually(20, "the switch is over", || match (host.current().as_deref(), host.status()) {
        (Some("1.1-1"), status) if status["switch"].is_null() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(lost.exists() && host.last()["notes"].to_string().contains("repaired before the start"), "{}", host.last());
}

#[test]
fn a_switch_that_is_still_busy_at_its_deadline_changes_nothing() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.job("long", "sleep 6");
    let before = host.status()["supervisor"]["agent"]["leader"].clone();
    host.running("long");
    let tried = host.sidle(&["switch", DEMO, "1.1-1", "--mode", "idle", "--deadline", "1s"]);
    assert_eq!(tried.code, Some(11), "{tried:?}");
    assert_eq!(host.done("long")["exit"], "0");
    assert_eq!(host.status()["supervisor"]["agent"]["leader"], before, "the process was never touched");
}

#[test]
fn a_live_switch_can_be_taken_back_and_a_second_one_is_a_conflict() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.job("long", "sleep 30");
    host.running("long");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "idle", "--no-wait"]).code, Some(4));
    assert_eq!(host.sidle(&["status", DEMO]).code, Some(4));
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1"]).code, Some(12));
    let collected = host.sidle(&["collect", DEMO, "--keep", "0"]);
    assert!(host.path("opt/sidle/demo-agent/versions/1.1-1").exists(), "a live switch names it: {collected:?}");
    assert_eq!(host.sidle(&["cancel", DEMO]).code, Some(0));
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    assert_eq!(host.sidle(&["status", DEMO]).code, Some(0));
}

#[test]
fn what_is_taken_back_on_probation_goes_back_well_and_what_is_committed_is_not_taken_back() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "probation = \"60s\"\n").unwrap();
    let supervisor = host.supervise();
    let first = host.sidle(&["switch", DEMO, "1.0-1", "--no-wait"]);
    assert_eq!(first.code, Some(4), "{first:?}");
    host.reaches("probation");
    let cancelled = host.sidle(&["cancel", DEMO]);
    assert!(cancelled.code == Some(0) && cancelled.stdout.contains("rolled back"), "{cancelled:?}");
    assert_eq!(host.current(), None);
    assert_eq!(supervisor.end(), Some(0));

    fs::write(host.path("etc/sidle/conf.d/test.toml"), "probation = \"300ms\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1", "--force"]).ok();
    host.job("long", "sleep 30");
    host.running("long");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap", "--no-wait"]).code, Some(4));
    host.reaches("finishing-old");
    let late = host.sidle(&["cancel", DEMO]);
    assert_eq!(late.code, Some(12), "{late:?}");
    assert!(late.stderr.contains("committed") && late.stderr.contains("sidle rollback demo-agent"), "{late:?}");
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
}

#[test]
fn a_wish_without_a_supervisor_is_carried_out_by_the_next_one() {
    let (host, _author) = two_releases();
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1"]).code, Some(4));
    assert_eq!(host.current(), None);
    let _supervisor = host.supervise();
    eventually(10, "the wish is carried out", || host.current().ok_or_else(|| "no current yet".to_owned()));
    assert_eq!(host.answering("one"), "1.0");
}

#[test]
fn a_wish_that_is_taken_back_without_a_supervisor_is_over_at_once() {
    let (host, _author) = two_releases();
    assert_eq!(host.sidle(&["switch", DEMO, "1.0-1"]).code, Some(4));
    let cancelled = host.sidle(&["cancel", DEMO]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(host.last()["result"], "cancelled");
    assert_eq!(host.sidle(&["cancel", DEMO]).code, Some(3), "it is live still");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1"]).code, Some(4), "it stands in the way of another one");
    let _supervisor = host.supervise();
    eventually(10, "the second wish is carried out", || host.current().ok_or_else(|| "no current yet".to_owned()));
    assert_eq!(host.answering("one"), "1.1");
}

#[test]
fn where_the_agent_runs_without_a_supervisor_nobody_says_that_it_does_not() {
    let (host, _author) = two_releases();
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    supervisor.kill();
    let agent = host.agents()[0];
    let blind = host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap"]);
    assert!(blind.code == Some(1) && blind.stderr.contains("start the supervisor first"), "{blind:?}");
    let written = host.sidle(&["switch", DEMO, "1.1-1"]);
    let told = format!("process {agent} of {DEMO} runs without a supervisor");
    assert!(written.code == Some(4) && written.stdout.contains(&told), "{written:?}");
    let _next = host.supervise();
    eventually(20, "it is carried out", || match host.current() {
        Some(current) if current == "1.1-1" => Ok(()),
        other => Err(format!("{other:?} {}", host.status())),
    });
    assert_eq!(host.answering("one"), "1.1");
}

#[test]
fn a_rollback_right_after_a_commit_waits_until_it_may_begin() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    for number in 0..3 {
        host.job(&format!("long-{number}"), "sleep 2");
        host.running(&format!("long-{number}"));
        assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap", "--no-wait"]).code, Some(4));
        // Without a look at the trees, which takes longer than the moment lasts.
        let link = host.path("opt/sidle/demo-agent/current");
        eventually(20, "the new release is current", || match fs::read_link(&link).unwrap() {
            target if target.ends_with("1.1-1") => Ok(()),
            target => Err(format!("{target:?}")),
        });
        host.sidle(&["rollback", DEMO]).ok();
        assert_eq!(host.current().as_deref(), Some("1.0-1"));
        assert_eq!(host.done(&format!("long-{number}"))["exit"], "0");
    }
}

#[test]
fn an_instance_is_restarted_by_its_own_name_as_its_unit_does() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/two.toml"), format!("[instances.two]\npackage = \"{DEMO}\"\n")).unwrap();
    let _supervisor = host.supervise_instance("two");
    host.sidle(&["switch", DEMO, "1.0-1", "--instance", "two"]).ok();
    let before = host.agents();
    host.sidle(&["restart", "--instance", "two"]).ok();
    assert!(before.len() == 1 && host.agents().len() == 1 && before != host.agents(), "{before:?} {:?}", host.agents());
    assert_eq!(host.sidle(&["restart"]).code, Some(2));
}

#[test]
fn an_agent_survives_its_supervisor_and_is_taken_over() {
    let (host, _author) = two_releases();
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    supervisor.kill();
    assert_eq!(host.agents(), before);
    // Even a deleted /run hides no process.
    std::fs::remove_dir_all(host.path("run")).unwrap();
    let next = host.supervise();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.agents().len(), 1);
    assert_eq!(host.answering("after"), "1.1");
    assert_eq!(next.end(), Some(0));
}

#[test]
fn an_agent_that_ends_is_started_again() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    let identity = sidle::os::process::Identity::of(before[0]).unwrap().unwrap();
    identity.signal(sidle::os::process::SignalNumber::KILL).unwrap();
    eventually(10, "another agent runs", || match host.agents() {
        agents if agents.len() == 1 && agents != before => Ok(()),
        agents => Err(format!("{agents:?}")),
    });
    assert_eq!(host.answering("again"), "1.0");
}

#[test]
fn now_does_not_wait() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.job("long", "sleep 20");
    host.running("long");
    host.sidle(&["switch", DEMO, "1.1-1", "--mode", "now"]).ok();
    assert!(!host.path("etc/demo-agent/state/done/long").exists());
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
}

#[test]
fn the_service_manager_is_told() {
    let (host, _author) = two_releases();
    let path = host.path("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let supervisor = host.supervise_with(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    let hears = |wanted: &str| {
        let mut message = [0; 4096];
        for _ in 0..20 {
            let length = manager.recv(&mut message).unwrap_or_else(|error| panic!("{wanted} was not told: {error}"));
            if String::from_utf8_lossy(&message[..length]).contains(wanted) {
                return;
            }
        }
        panic!("{wanted} was not told");
    };
    hears("READY=1");
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    hears("STATUS=running 1.0-1");
    let identity = sidle::os::process::Identity::of(host.agents()[0]).unwrap().unwrap();
    let inherited = sidle::os::proc_fs::environment_variable(identity.pid, "NOTIFY_SOCKET").unwrap();
    assert_eq!(inherited, None, "the agent must not speak for its supervisor");
    assert_eq!(supervisor.end(), Some(0));
    hears("STOPPING=1");
}
