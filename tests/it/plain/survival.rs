//! The agent outlives whatever happens to its supervisor, and an agent that ends is never there twice: newer programs, kill -9 of either or both,
//! crash loops. And a supervisor that has nothing to do does nothing.

use crate::support::eventually;
use crate::support::stage::{DEMO, Host, SIDLE, Supervisor, two_releases};
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A copy of the program, put in place by a rename, as package managers do.
pub fn put_program(host: &Host) -> PathBuf {
    let (program, new) = (host.path("sidle"), host.path(".sidle-new"));
    fs::copy(SIDLE, &new).unwrap();
    fs::rename(&new, &program).unwrap();
    program
}

/// Whether it runs the very file that lies there.
pub fn runs(supervisor: &Supervisor, program: &Path) -> bool {
    fs::read_link(format!("/proc/{}/exe", supervisor.pid())).unwrap() == program
}

pub fn renewed(supervisor: &Supervisor, program: &Path) {
    eventually(10, "the supervisor is the new program", || {
        if runs(supervisor, program) { Ok(()) } else { Err(supervisor.log()) }
    });
}

pub fn kill(pid: u32) {
    let identity = Identity::of(pid).unwrap().expect("it lives");
    assert!(identity.signal(SignalNumber::KILL).unwrap());
}

pub fn started_again(host: &Host, before: &[u32]) {
    eventually(10, "another agent runs", || match host.agents() {
        agents if agents.len() == 1 && agents != before => Ok(()),
        agents => Err(format!("{agents:?} {}", host.status())),
    });
}

pub fn zombies(supervisor: &Supervisor) -> Vec<u32> {
    let children = proc_fs::children(supervisor.pid()).unwrap();
    children.into_iter().filter(|child| !child.is_alive()).map(|child| child.pid).collect()
}

/// The guards tell of a job at their next beat.
pub fn reported(host: &Host, jobs: &[&str]) {
    eventually(20, "the jobs are reported", || {
        let slots =
            fs::read_dir(host.path("run/sidle/demo-agent/gate/slots")).unwrap().flatten().map(|slot| slot.path());
        // What is not renamed yet is no report.
        let slots = slots.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let text: String = slots.map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        if jobs.iter().all(|job| text.contains(&format!("\"{job}\""))) { Ok(()) } else { Err(text) }
    });
}

#[test]
fn a_supervisor_becomes_a_newer_program_and_its_agent_does_not_notice() {
    let (host, _author) = two_releases();
    let program = put_program(&host);
    let supervisor = host.supervise_by(&program);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    put_program(&host);
    assert!(!runs(&supervisor, &program), "the file was replaced");
    // What it starts before it is renewed is started from its own file.
    kill(before[0]);
    started_again(&host, &before);
    let before = host.agents();
    let asks_for_hup = || host.sidle(&["status", DEMO]).ok().contains("the settings have changed");
    assert!(!asks_for_hup());
    fs::write(host.path("etc/sidle/conf.d/later.toml"), "keep_extra = 2\n").unwrap();
    assert!(asks_for_hup(), "status says what the supervisor has not read");
    supervisor.signal(SignalNumber::HUP);
    renewed(&supervisor, &program);
    eventually(20, "the new program tells how the agent is", || match host.status() {
        status if status["supervisor"]["agent"]["leader"]["pid"] == before[0] => Ok(()),
        status => Err(status.to_string()),
    });
    eventually(20, "the settings are read", || if asks_for_hup() { Err(supervisor.log()) } else { Ok(()) });
    assert_eq!(host.agents(), before);
    // It was started by the program before; its end is told, and nothing is left of it, all the same.
    host.job("long", "exec sleep 5");
    host.running("long");
    reported(&host, &["long"]);
    kill(before[0]);
    started_again(&host, &before);
    let status = eventually(20, "the end is told", || match host.status() {
        status if status["supervisor"]["ended"]["pid"] == before[0] => Ok(status),
        status => Err(status.to_string()),
    });
    assert_eq!(status["supervisor"]["ended"]["how"], "was ended by signal 9", "{status}");
    assert_eq!(status["supervisor"]["ended"]["unfinished"][0]["id"], "long", "{status}");
    assert!(host.sidle(&["status", DEMO]).ok().contains("unfinished: job long"));
    eventually(20, "orphaned jobs are waited for", || match zombies(&supervisor) {
        zombies if zombies.is_empty() => Ok(()),
        zombies => Err(format!("{zombies:?}")),
    });
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.answering("after"), "1.1");
    assert_eq!(supervisor.end(), Some(0));
    assert_eq!(host.agents(), Vec::<u32>::new());
}

/// The process was forgotten, and started a second time once its manifest was there again.
#[test]
fn an_agent_whose_manifest_cannot_be_read_is_kept_and_is_known_again_with_it() {
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    let manifest = host.path("var/lib/sidle/demo-agent/1.0-1/manifest.json.zst");
    let bytes = fs::read(&manifest).unwrap();
    fs::write(&manifest, "{}").unwrap();
    kill(supervisor.pid());
    drop(supervisor);
    let supervisor = host.supervise();
    eventually(20, "status says what it lacks", || match host.status()["supervisor"]["agent"]["lacks"].as_str() {
        Some(lacks) if lacks.contains("manifest") && lacks.contains("`sidle doctor`") => Ok(()),
        other => Err(format!("{other:?} {}", supervisor.log())),
    });
    assert_eq!(host.agents(), before);
    fs::write(&manifest, bytes).unwrap();
    supervisor.signal(SignalNumber::HUP);
    eventually(20, "it is healthy again", || match host.status()["supervisor"]["agent"].clone() {
        agent if agent["lacks"].is_null() && agent["leader"]["pid"] == before[0] => Ok(()),
        agent => Err(format!("{agent} {}", supervisor.log())),
    });
    assert_eq!((host.agents(), host.answering("after")), (before, "1.0".to_owned()));
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn a_supervisor_stays_as_it_is_where_the_newer_program_does_not_work() {
    let (host, _author) = two_releases();
    let program = put_program(&host);
    let supervisor = host.supervise_by(&program);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    let refused = |what: &str, supervisor: &Supervisor| {
        supervisor.signal(SignalNumber::HUP);
        eventually(10, what, || match host.status()["supervisor"]["trouble"].as_str() {
            Some(trouble) if trouble.contains(what) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    fs::remove_file(&program).unwrap();
    refused("No such file", &supervisor);
    fs::write(&program, "#!/bin/sh\necho it is broken >&2\nexit 1\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    refused("it is broken", &supervisor);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    refused("ermission denied", &supervisor);
    // Settings that the next program could not use are found before, too.
    put_program(&host);
    fs::write(host.path("etc/sidle/conf.d/wrong.toml"), "probatoin = \"1s\"\n").unwrap();
    refused("wrong.toml", &supervisor);
    fs::remove_file(host.path("etc/sidle/conf.d/wrong.toml")).unwrap();
    assert_eq!(host.agents(), before);
    supervisor.signal(SignalNumber::HUP);
    renewed(&supervisor, &program);
    eventually(20, "nothing is wrong any more", || match host.status()["supervisor"]["trouble"].clone() {
        trouble if trouble.is_null() => Ok(()),
        trouble => Err(trouble.to_string()),
    });
    assert_eq!(host.agents(), before);
}

/// Whether a process has HUP, the first signal, in this set of `proc_pid_status(5)`.
fn has_hup(pid: u32, set: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix(set)).map(str::trim);
    set.and_then(|set| u64::from_str_radix(set, 16).ok()).is_some_and(|set| set & 1 == 1)
}

/// A HUP between the start and the first handler ended the supervisor: a reload soon after a boot left no minion.
#[test]
fn a_hup_that_comes_before_a_supervisor_can_handle_it_does_not_end_it() {
    let (host, _author) = two_releases();
    let hold = host.path("hold");
    fs::write(&hold, "").unwrap();
    let hold = hold.to_str().unwrap();
    let supervisor = host.supervise_with(&[("SIDLE_STOP_AT", "supervise.before"), ("SIDLE_STOP_WHILE", hold)]);
    let pid = supervisor.pid();
    eventually(20, "the supervisor has stopped before it handles signals", || match proc_fs::process(pid) {
        Ok(Some(process)) if process.state == 'T' => Ok(()),
        other => Err(format!("{other:?}\n{}", supervisor.log())),
    });
    assert!(!has_hup(pid, "SigCgt:"), "it handles HUP already");
    supervisor.signal(SignalNumber::HUP);
    fs::remove_file(hold).unwrap();
    supervisor.signal(SignalNumber::CONT);
    eventually(20, "the supervisor handles signals", || {
        if has_hup(pid, "SigCgt:") && !has_hup(pid, "SigBlk:") { Ok(()) } else { Err(supervisor.log()) }
    });
    eventually(20, "the supervisor reads its settings again", || {
        let log = supervisor.log();
        if log.matches("the supervisor starts with these settings").count() == 2 { Ok(()) } else { Err(log) }
    });
}

/// The supervisor is renewed, or killed and started again, whenever the switch enters a phase; the switch goes on, and serves meanwhile.
pub fn in_every_phase(mode: &str, killed: bool) {
    let (host, _author) = two_releases();
    let program = put_program(&host);
    let mut supervisor = host.supervise_by(&program);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    // As long as it takes to be seen by the second supervisor: on a busy machine a job of a second was over before.
    let go = host.path("go");
    host.job("long", &format!("until [ -e {} ]; do sleep 0.05; done", go.display()));
    host.running("long");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", mode, "--no-wait"]).code, Some(4));
    let mut seen: Vec<String> = Vec::new();
    eventually(60, "the switch ends", || {
        let status = host.status();
        let Some(phase) = status["switch"]["phase"].as_str() else { return Ok(()) };
        let count = host.agents().len();
        assert!(count <= 2, "{count} agents");
        // A trial that is interrupted too often is given up: that is another promise.
        let worn = killed && status["switch"]["setbacks"].as_u64() >= Some(3);
        if !worn && !seen.iter().any(|known| known == phase) {
            seen.push(phase.to_owned());
            if killed {
                supervisor.kill();
                // What the journal says now: the switch may have gone on since it was looked at. A process that was just forked is no agent yet.
                eventually(5, "an agent runs, or none has to", || {
                    let journal = host.status()["switch"]["phase"].clone();
                    let between = ["stopping", "starting"].map(serde_json::Value::from).contains(&journal);
                    if between || !host.agents().is_empty() { Ok(()) } else { Err(format!("{phase}, then {journal}")) }
                });
                supervisor = host.supervise_by(&program);
            } else {
                put_program(&host);
                supervisor.signal(SignalNumber::HUP);
                renewed(&supervisor, &program);
            }
        }
        if seen.len() >= 2 {
            fs::write(&go, "").unwrap();
        }
        Err(status.to_string())
    });
    assert!(seen.len() >= 3, "{seen:?}");
    assert_eq!(host.done("long")["exit"], "0");
    assert_eq!(host.current().as_deref(), Some("1.1-1"), "{}", host.status());
    assert_eq!(host.agents().len(), 1);
    assert_eq!(host.answering("after"), "1.1");
    assert_eq!(zombies(&supervisor), Vec::<u32>::new());
}

/// A renewed supervisor that takes the switch for one that nobody drove goes back without a cause.
#[test]
fn a_supervisor_renewed_in_every_phase_of_an_overlap_ends_it() {
    in_every_phase("overlap", false);
}

#[test]
fn a_supervisor_renewed_in_every_phase_of_a_switch_when_idle_ends_it() {
    in_every_phase("idle", false);
}

/// The next supervisor must not start a third process beside the two that live.
#[test]
fn a_supervisor_killed_in_every_phase_of_an_overlap_is_taken_over_from() {
    in_every_phase("overlap", true);
}

#[test]
fn a_supervisor_killed_in_every_phase_of_a_switch_when_idle_is_taken_over_from() {
    in_every_phase("idle", true);
}

/// A process that died between two looks was taken for one that the switch had ended: its unfinished jobs were not named.
#[test]
fn both_agents_killed_in_an_overlap_come_back_as_one_and_what_they_had_not_finished_is_named() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "probation = \"30s\"\n").unwrap();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.job("first", "sleep 60");
    host.running("first");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--no-wait"]).code, Some(4));
    host.reaches("probation");
    host.job("second", "sleep 60");
    host.running("second");
    reported(&host, &["first", "second"]);
    let before = host.agents();
    // A killed process that waits for a processor is not dead yet.
    supervisor.signal(SignalNumber::STOP);
    for pid in &before {
        kill(*pid);
    }
    eventually(20, "both are dead", || match host.agents() {
        agents if agents.is_empty() => Ok(()),
        agents => Err(format!("{agents:?}")),
    });
    supervisor.signal(SignalNumber::CONT);
    eventually(20, "the switch ends", || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    eventually(10, "one agent runs", || match host.agents() {
        agents if agents.len() == 1 && !before.contains(&agents[0]) => Ok(()),
        agents => Err(format!("{agents:?}")),
    });
    assert_eq!(host.answering("after"), "1.0");
    let last = host.status()["last"].clone();
    let notes = last["notes"].to_string();
    assert!(notes.contains("unfinished: job first") && notes.contains("unfinished: job second"), "{last}");
    let done = host.path("etc/demo-agent/state/done");
    assert!(!done.join("first").exists() && !done.join("second").exists(), "none ran twice");
}

/// Kills the agent until it is in a crash loop: the first one was not started again yet.
pub fn loop_crash(host: &Host) {
    for _ in 0..6 {
        let agents = eventually(10, "an agent runs", || match host.agents() {
            agents if agents.len() == 1 => Ok(agents),
            agents => Err(format!("{agents:?}")),
        });
        kill(agents[0]);
        eventually(20, "it is gone", || {
            if host.agents() == agents { Err("not yet") } else { Ok(()) }.map_err(str::to_owned)
        });
    }
}

/// A release that crashed after its commit was started again for ever, although the release before it worked.
#[test]
fn a_release_that_crashes_again_and_again_is_left_for_the_one_before() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    loop_crash(&host);
    eventually(20, "the release before is current", || match host.current() {
        Some(current) if current == "1.0-1" => Ok(()),
        _ => Err(host.status().to_string()),
    });
    eventually(10, "the way back ends", || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    let last = host.status()["last"].clone();
    assert_eq!((last["by"].as_str(), last["purpose"].as_str()), (Some("supervisor"), Some("rollback")), "{last}");
    assert!(last["reason"].as_str().unwrap().contains("crash loop: 1.1-1"), "{last}");
    assert_eq!(host.answering("after"), "1.0");
}

#[test]
fn a_crash_loop_is_said_to_be_one_and_the_agent_is_started_again_and_again() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "fall_back_within = \"0s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    loop_crash(&host);
    eventually(10, "the crash loop is told", || match host.status()["supervisor"]["trouble"].as_str() {
        Some(trouble) if trouble.contains("crash loop: 1.1-1") && trouble.contains("every 1 s") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(host.answering("after"), "1.1");
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
}

#[test]
fn a_supervisor_with_nothing_to_do_takes_little_memory_and_rests() {
    const QUIET: Duration = Duration::from_secs(10);
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    let of = |file: &str, name: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/{file}", supervisor.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().find_map(|word| word.parse().ok()).unwrap()
    };
    let before = of("status", "voluntary_ctxt_switches:");
    std::thread::sleep(QUIET);
    let wakes = of("status", "voluntary_ctxt_switches:") - before;
    assert!(wakes <= QUIET.as_secs(), "{wakes} wakes in {QUIET:?}");
    let anonymous = of("smaps_rollup", "Anonymous:");
    assert!(anonymous <= 8 * 1024, "{anonymous} KiB of its own");
}
