//! A minion without a master (`master_type: disable`): nothing can be overlapped there, but it is switched when idle, and known to work.

use super::{NEW, OLD};
use crate::support::eventually;
use crate::support::minions;
use crate::support::salt::START_SECONDS;
use crate::support::stage::SALT;
use crate::support::stream::{Marks, TICKS};
use std::fs;

const SETTINGS: &str = "start_timeout = \"180s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\n";

/// There is no connection that could prove such a minion: no release of it was ever committed.
#[test]
fn a_minion_without_a_master_is_switched_when_idle_and_that_is_said_before() {
    let author = minions::author();
    let host = minions::host(&author, &[OLD, NEW]);
    let marks = Marks::new();
    fs::create_dir_all(host.path("etc/salt/minion.d")).unwrap();
    fs::write(host.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
    let own = format!("id: alone\nuser: root\nroot_dir: {}\nlog_level_logfile: info\n", host.path("").display());
    fs::write(host.path("etc/salt/minion"), own + &marks.configuration(&[]) + TICKS).unwrap();
    let supervisor = host.supervise_instance(SALT);
    let (old, new) = (format!("{OLD}-1"), format!("{NEW}-1"));
    host.sidle(&["switch", SALT, &old]).ok();
    works(&marks, OLD);

    let asked = host.sidle(&["switch", SALT, &new, "--mode", "overlap"]);
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.stderr.contains("master_type is disable") && asked.stderr.contains("--mode idle"), "{asked:?}");
    let told = host.sidle(&["switch", SALT, &new]).ok();
    assert!(told.contains("in mode idle") && told.contains("master_type is disable"), "{told}");
    works(&marks, NEW);
    let status = host.sidle(&["status", SALT]).ok();
    assert!(status.contains("reaches the minion itself"), "{status}");

    host.sidle(&["rollback", SALT]).ok();
    works(&marks, OLD);
    assert_eq!(supervisor.end(), Some(0));
}

/// Waits until this release does what the minion is there for: its schedule.
fn works(marks: &Marks, version: &str) {
    eventually(START_SECONDS, &format!("{version} runs scheduled jobs"), || {
        let all = marks.all();
        let last = all.iter().rfind(|mark| mark.what == "tick");
        if last.is_some_and(|mark| mark.release == version) { Ok(()) } else { Err(format!("{last:?}")) }
    });
}
