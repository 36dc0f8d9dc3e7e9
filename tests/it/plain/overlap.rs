//! Two processes of the demonstration agent side by side: every job is done once, nobody waits, the old process is touched last.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, SIDLE, text, two_releases};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn a_running_job_is_finished_by_the_old_process_while_the_new_one_takes_the_others() {
    let (host, _author) = two_releases();
    let effects = host.path("effects");
    let _supervisor = host.supervise_instance_by(Path::new(SIDLE), DEMO, &[("SIDLE_EFFECTS", text(&effects))]);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let enough = host.path("enough");
    host.job("long", &format!("until [ -e {} ]; do sleep 0.1; done", enough.display()));
    host.running("long");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--no-wait"]).code, Some(4));
    eventually(10, "the new release is current", || match host.current() {
        Some(current) if current == "1.1-1" => Ok(()),
        other => Err(format!("{other:?} {}", host.status())),
    });
    assert_eq!(host.answering("meanwhile"), "1.1");
    assert!(host.path("etc/demo-agent/state/running/long").exists(), "the job was not waited for");
    assert_eq!(host.agents().len(), 2);
    fs::write(enough, "").unwrap();
    let done = host.done("long");
    assert_eq!((done["exit"].as_str(), done["release"].as_str()), ("0", "1.0"));
    eventually(10, "the switch ends", || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(host.agents().len(), 1);
    let entry = host.last();
    assert_eq!((entry["mode"].as_str(), entry["downtime_milliseconds"].as_u64()), (Some("overlap"), Some(0)));
    names_an_agent_at_all_times(&fs::read_to_string(effects).unwrap());
}

/// Each status file that a supervisor has written since its agent came up names an agent: in an overlap one always serves.
fn names_an_agent_at_all_times(effects: &str) {
    let lines = effects.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let bytes = lines.filter_map(|line| serde_json::from_value::<Vec<u8>>(line["write"][1].clone()).ok());
    let written = bytes.filter_map(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let all: Vec<Value> =
        written.filter(|value| value["supervisor"].is_object() && value.get("agent").is_some()).collect();
    let served: Vec<&Value> = all.iter().skip_while(|status| status["agent"].is_null()).collect();
    assert!(served.len() > 3, "{all:?}");
    let nothing = served.iter().filter(|status| status["agent"].is_null()).count();
    assert_eq!(nothing, 0, "of {} written", served.len());
}

#[test]
fn under_a_stream_of_jobs_each_is_done_once_across_switch_restart_and_rollback() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let marks = host.path("marks");
    fs::create_dir(&marks).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let mut count = 0;
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                count += 1;
                // A second execution finds its mark and leaves another one.
                let script = format!("mkdir {0}/{count} || : >{0}/twice-{count}; sleep 0.3", marks.display());
                host.job(&format!("j{count}"), &script);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            count
        });
        for verb in [&["switch", DEMO, "1.1-1"][..], &["restart", DEMO], &["rollback", DEMO]] {
            host.sidle(verb).ok();
            assert_eq!(host.last()["mode"], "overlap");
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
        stream.join().unwrap()
    });
    for number in 1..=count {
        assert_eq!(host.done(&format!("j{number}"))["exit"], "0", "job {number}");
    }
    let names = fs::read_dir(&marks).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let twice: Vec<String> = names.filter(|name| name.starts_with("twice")).collect();
    assert_eq!(twice, Vec::<String>::new());
    assert!(count > 20, "only {count} jobs");
}

#[test]
fn what_cannot_overlap_is_said_before_and_done_when_idle_where_nothing_else_was_asked_for() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.unguarded("1.1")).ok();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let refused = host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("1.1-1 has no guard") && refused.stderr.contains("--mode idle"), "{refused:?}");
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    let told = host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert!(told.contains("has no guard"), "{told}");
    let entry = host.last();
    assert_eq!(entry["mode"], "idle");
    assert!(entry["notes"][0].as_str().unwrap().contains("has no guard"), "{entry}");
}

/// A guard beside a Salt that goes round it runs each job twice.
#[test]
fn a_version_that_the_guard_was_not_tried_with_is_switched_to_when_idle_and_history_says_why() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.untried("1.1")).ok();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let refused = host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("was tried with 9 only"), "{refused:?}");
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    let entry = host.last();
    assert!(entry["mode"] == "idle" && entry["notes"].to_string().contains("was tried with 9 only"), "{entry}");
}

/// To go back to a process that is dead would end the one that serves.
#[test]
fn an_old_process_that_dies_beside_the_new_one_leaves_the_new_one_alone() {
    let (host, _author) = two_releases();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "probation = \"3s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let old = host.agents();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--no-wait"]).code, Some(4));
    eventually(10, "both run", || if host.agents().len() == 2 { Ok(()) } else { Err(host.status().to_string()) });
    let identity = sidle::os::process::Identity::of(old[0]).unwrap().unwrap();
    identity.signal(sidle::os::process::SignalNumber::KILL).unwrap();
    eventually(15, "the switch ends", || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    assert_eq!(host.answering("after"), "1.1");
    assert!(host.last()["notes"][0].as_str().unwrap().contains("was lost"), "{}", host.last());
}

/// A guard that reads half of a file of roles would take the jobs of both, or of none.
#[test]
fn a_deleted_gate_is_made_again_and_a_truncated_roles_file_misleads_nobody() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.job("long", "sleep 6");
    host.running("long");
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--no-wait"]).code, Some(4));
    eventually(10, "both run", || if host.agents().len() == 2 { Ok(()) } else { Err(host.status().to_string()) });
    fs::write(host.path("run/sidle/demo-agent/gate/roles"), "sidle-gate 1\nser").unwrap();
    assert_eq!(host.done("long")["release"], "1.0");
    // Somebody may write there just then.
    eventually(20, "the gate is deleted", || {
        fs::remove_dir_all(host.path("run/sidle/demo-agent/gate")).map_err(|error| error.to_string())
    });
    eventually(20, "the switch ends", || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    assert_eq!(host.agents().len(), 1);
}

#[test]
fn too_little_memory_for_two_makes_it_a_switch_when_idle_and_it_says_so() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.ravenous("1.1")).ok();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let told = host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap"]).ok();
    assert!(told.contains("two processes need"), "{told}");
    assert_eq!(host.last()["mode"], "idle");
    assert_eq!(host.answering("after"), "1.1");
}

#[test]
fn what_the_rehearsal_refuses_is_never_tried() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.refused("1.1", "refuse: this host's own module can't be loaded")).ok();
    host.install(&author.refused("1.2", "note: a function is gone")).ok();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let before = host.agents();
    let refused = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("this host's own module can't be loaded"), "{refused:?}");
    assert_eq!((host.agents(), host.last()["result"].as_str()), (before, Some("refused")));
    let told = host.sidle(&["switch", DEMO, "1.2-1"]).ok();
    assert!(told.contains("note: a function is gone"), "{told}");
    // A person may know better.
    fs::write(host.path("etc/sidle/conf.d/rehearsal.toml"), "rehearsal = \"report\"\n").unwrap();
    assert_eq!(supervisor.end(), Some(0));
    let _supervisor = host.supervise();
    eventually(10, "the agent runs", || if host.agents().len() == 1 { Ok(()) } else { Err(host.status().to_string()) });
    let told = host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert!(told.contains("this host's own module can't be loaded"), "{told}");
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
}

/// How much a process gives way to others.
pub fn nice(pid: u32) -> Result<i32, String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| error.to_string())?;
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse().map_err(|_| stat.clone())
}
