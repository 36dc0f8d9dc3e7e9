//! What is known of a real Salt minion: when it is idle, when it reaches its masters, which processes it is.

mod doctor;

use crate::support::eventually;
use crate::support::salt::{Master, Minion, tree};
use sidle::agent::{Activity, Agent as _, Health, Subject};
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::time::{Duration, Instant};

const OLD: &str = "3006.30";
const NEW: &str = "3007.17";

/// Far below the 30 s for which 3007.17 keeps the process of a job that has returned.
const IDLE_AGAIN_SECONDS: u64 = 15;

fn one_master(master: &Master) -> String {
    format!("master: 127.0.0.1\nmaster_port: {}\n", master.request_port())
}

fn proven(minion: &Minion) -> Vec<(String, bool)> {
    match minion.health() {
        Health::Known { peers, .. } => peers.into_iter().map(|peer| (peer.name, peer.proven)).collect(),
        Health::Unknown(_) => Vec::new(),
    }
}

/// Idle, a job that is named, idle again; frozen and not; before and after the key is accepted; killed and started again.
fn a_life(version: &str) {
    let tree = tree(version);
    let master = Master::start(&tree, false);
    let mut minion = Minion::start(&tree, "one", &one_master(&master));
    eventually(60, "the master is looked at", || match minion.health() {
        Health::Known { peers, .. } if peers[0].detail.contains("not signed in") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(minion.health().lacks(&[]).is_some(), "a key that waits is not health");
    master.accept("one");
    minion.healthy();

    let core = minion.observer().core(Subject::unguarded(&minion.leader())).unwrap();
    assert_eq!(core.len(), 2, "Salt's parent and main");
    assert_eq!(core[0], minion.leader());
    minion.idle(30);

    master.publish("one", &["test.sleep", "5"]);
    let jobs = minion.busy_with("test.sleep");
    assert!(jobs[0].pid.is_some() && jobs[0].id.len() == 20, "{jobs:?}");
    for identity in &core {
        identity.signal(SignalNumber::STOP).unwrap();
    }
    minion.busy_with("test.sleep");
    for identity in &core {
        identity.signal(SignalNumber::CONT).unwrap();
    }
    let ended = eventually(30, "the entry is gone", || match minion.activity() {
        Activity::Busy(jobs) if jobs.iter().any(|job| job.what == "test.sleep") => Err(format!("{jobs:?}")),
        _ => Ok(Instant::now()),
    });
    minion.idle(IDLE_AGAIN_SECONDS);
    println!("{version}: idle {:.1} s after the job's entry was gone", ended.elapsed().as_secs_f32());
    for identity in &core {
        identity.signal(SignalNumber::STOP).unwrap();
    }
    minion.idle(1);

    for identity in core.iter().rev() {
        identity.signal(SignalNumber::KILL).unwrap();
    }
    let killed = Instant::now();
    minion.end();
    eventually(30, "nothing is left of it", || match core.iter().find(|identity| !identity.is_gone().unwrap()) {
        None => Ok(()),
        Some(left) => Err(left.to_string()),
    });
    println!("{version}: gone {:.2} s after kill -9 of both processes", killed.elapsed().as_secs_f32());
    minion.start_again();
    minion.healthy();
    println!("{version}: healthy {:.1} s after kill -9 of both processes", killed.elapsed().as_secs_f32());
    assert!(!minion.log().contains("already running"), "{}", minion.log());
    assert!(master.call("one", &["test.ping"]).contains("True"));
}

#[test]
fn a_minion_of_3006_is_known_from_key_to_kill() {
    a_life(OLD);
}

#[test]
fn a_minion_of_3007_is_known_from_key_to_kill_and_its_lingering_children_are_not_jobs() {
    a_life(NEW);
}

#[test]
fn a_job_whose_entry_was_removed_is_not_taken_for_one_that_lingers() {
    let tree = tree(NEW);
    let master = Master::start(&tree, true);
    let minion = Minion::start(&tree, "one", &one_master(&master));
    minion.healthy();
    minion.idle(30);
    for (function, argument) in [("test.sleep", "25"), ("cmd.run", "sleep 25")] {
        master.publish("one", &[function, argument]);
        let jobs = minion.busy_with(function);
        fs::remove_file(minion.path("var/cache/salt/minion/proc").join(&jobs[0].id)).unwrap();
        let process = Identity::of(jobs[0].pid.unwrap()).unwrap().unwrap();
        let removed = Instant::now();
        // Past the time of rest, and well before the end of the job.
        while removed.elapsed() < Duration::from_secs(8) {
            let seen = minion.activity();
            assert!(
                matches!(&seen, Activity::Busy(jobs) if jobs.iter().any(|job| job.pid == Some(process.pid))),
                "{function}: {seen:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        minion.idle(30);
    }
}

#[test]
fn jobs_as_threads_scheduled_jobs_queued_jobs_and_leftovers() {
    let tree = tree(NEW);
    let master = Master::start(&tree, true);
    let schedule = "schedule:\n  nap:\n    function: test.sleep\n    args: [4]\n    seconds: 25\n    run_on_start: False\n    return_job: False\n";
    let scheduled = Minion::start(&tree, "scheduled", &format!("{}{schedule}", one_master(&master)));
    let threads = Minion::start(&tree, "threads", &format!("{}multiprocessing: False\n", one_master(&master)));
    threads.healthy();
    threads.idle(30);
    master.publish("threads", &["test.sleep", "4"]);
    let jobs = threads.busy_with("test.sleep");
    let core = threads.observer().core(Subject::unguarded(&threads.leader())).unwrap();
    assert_eq!(jobs[0].pid, Some(core[1].pid), "a thread's process is main itself");
    threads.idle(30);

    // A leftover of a process that is gone, and one whose number belongs to a later process.
    let entry = |pid: u8| [&b"\x82\xa3pid"[..], &[pid], &b"\xa3fun\xa9test.ping"[..]].concat();
    let proc = threads.path("var/cache/salt/minion/proc");
    fs::write(proc.join("20200101000000000000"), [&b"\x82\xa3pid\xce\x7f\xff\xff\xf0"[..], &entry(0)[6..]].concat())
        .unwrap();
    threads.idle(IDLE_AGAIN_SECONDS);

    // Main would take a queued job at once: it must not come to that.
    core[1].signal(SignalNumber::STOP).unwrap();
    let queue = threads.path("var/cache/salt/minion/queues/127.0.0.1/job_queue");
    fs::create_dir_all(&queue).unwrap();
    fs::write(queue.join("queued_1700000000000000_20231114221320000000.p"), b"").unwrap();
    let jobs = threads.busy_with("job_queue");
    assert_eq!(jobs[0].id, "20231114221320000000");
    fs::remove_file(queue.join("queued_1700000000000000_20231114221320000000.p")).unwrap();
    threads.idle(1);
    core[1].signal(SignalNumber::CONT).unwrap();

    scheduled.healthy();
    let jobs = eventually(60, "the scheduled job runs", || match scheduled.activity() {
        Activity::Busy(jobs) => Ok(jobs),
        other => Err(format!("{other:?}")),
    });
    assert!(jobs[0].pid.is_some(), "{jobs:?}");
    println!("scheduled: {jobs:?}");
    scheduled.idle(20);
}

#[test]
fn of_two_masters_each_is_proven_by_its_own_connections() {
    let tree = tree(OLD);
    let first = Master::start(&tree, true);
    let mut second = first.start_twin();
    let list = format!("[\"127.0.0.1:{}\", \"127.0.0.1:{}\"]", first.request_port(), second.request_port());
    let minion = Minion::start(&tree, "two", &format!("master: {list}\n"));
    minion.healthy();
    let names = [first.request_port(), second.request_port()].map(|port| format!("127.0.0.1:{port}"));
    // A channel to a master may be made anew just now.
    let baseline = eventually(30, "both masters are proven", || match minion.health().proven() {
        proven if proven == names => Ok(proven),
        proven => Err(format!("{proven:?}")),
    });
    second.kill();
    eventually(30, "the dead master is seen", || match proven(&minion) {
        seen if seen == [(names[0].clone(), true), (names[1].clone(), false)] => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    assert!(minion.health().lacks(&baseline).is_some());
    assert!(minion.health().lacks(&names[..1]).is_none(), "a master that was down before doesn't count");
}
