//! What of `plain::overlap` needs root or a package: see there.

use crate::plain::overlap::*;
use crate::support::eventually;
use crate::support::mounts::Mounted;
use crate::support::stage::{Author, DEMO, Host};
use std::fs;

/// On a host that is always busy what gave way for all of its time got so little that a good release failed.
#[test]
fn what_comes_up_gives_way_for_half_of_its_time_and_not_until_it_is_starved() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.release("1.1", "hang")).ok();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "start_timeout = \"10s\"\n").unwrap();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let old = host.agents()[0];
    let own = nice(old).unwrap();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap", "--no-wait"]).code, Some(4));
    let trial =
        eventually(10, "it comes up and gives way", || match host.agents().into_iter().find(|pid| *pid != old) {
            Some(trial) if nice(trial)? > own => Ok(trial),
            _ => Err(host.status().to_string()),
        });
    eventually(10, "it gives way no more", || match nice(trial)? {
        nice if nice == own => Ok(()),
        nice => Err(nice.to_string()),
    });
}

/// The gate of a full /run could not be moved: no act was performed, and the switch stayed in its phase past every limit.
#[test]
fn a_run_that_is_full_in_the_middle_of_a_switch_is_named_and_held_against_no_release() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.release("1.1", "hang")).ok();
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "start_timeout = \"10s\"\nstop_timeout = \"5s\"\n").unwrap();
    fs::create_dir_all(host.path("run")).unwrap();
    let _run = Mounted::tmpfs_at(&host.path("run"), "nr_inodes=200");
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let old = host.agents();
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap", "--no-wait"]).code, Some(4));
    host.reaches("proving");
    let full = host.path("run/full");
    fs::create_dir(&full).unwrap();
    let filled = (0..1000).take_while(|number| fs::write(full.join(number.to_string()), "").is_ok()).count();
    assert!(filled > 50, "{filled}");
    // What is removed meanwhile may not come back.
    eventually(90, "it goes back by itself", || {
        let _ = fs::write(full.join("again"), "");
        let last = host.last();
        if last["to"] == "1.1-1" { Ok(()) } else { Err(host.sidle(&["history", DEMO, "--id", "2"]).stdout) }
    });
    let last = host.last();
    let why = last["failure"]["text"].as_str().unwrap();
    assert!(why.contains("No space left") || why.contains("no inode is free"), "{last}");
    assert_eq!((last["result"].as_str(), last["failure"]["cause"].as_str()), (Some("rolled-back"), Some("host")));
    assert_eq!(host.agents(), old, "the old process was touched");
    fs::remove_dir_all(&full).unwrap();
    let verdicts = fs::read_to_string(host.path("var/lib/sidle/instances/demo-agent/verdicts")).unwrap();
    assert!(!verdicts.contains("1.1-1"), "{verdicts}");
    assert_eq!(host.answering("after"), "1.0");
}
