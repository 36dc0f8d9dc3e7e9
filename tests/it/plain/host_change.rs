//! A host that changes under proven releases: they are rehearsed again, beside the agent, and what would fail is known before it is needed.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Supervisor, text};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const FINGERPRINTS: &str = "var/lib/sidle/instances/demo-agent/host-fingerprints";
const AGAIN: &str = "var/lib/sidle/instances/demo-agent/rehearsed-again";

/// A host with two releases that are rehearsed, the newer one current, and often looked at.
struct Changing {
    host: Host,
    supervisor: Option<Supervisor>,
    _author: Author,
}

impl Changing {
    fn new(settings: &str) -> Self {
        let author = Author::new();
        let host = Host::new(&author);
        for release in ["1.0", "1.1"] {
            host.install(&author.refused(release, "note: it was rehearsed")).ok();
        }
        fs::write(host.path("etc/sidle/conf.d/host.toml"), format!("host_check_every = \"100ms\"\n{settings}"))
            .unwrap();
        let supervisor = Some(host.supervise());
        for release in ["1.0-1", "1.1-1"] {
            host.sidle(&["switch", DEMO, release]).ok();
        }
        Self { host, supervisor, _author: author }
    }

    /// Has these releases proven on another C library: the host has changed since.
    fn upgraded(&self, releases: &[&str]) {
        self.changed(FINGERPRINTS, |fingerprints| {
            for release in releases {
                fingerprints["releases"][*release]["libc"] = "1.9".into();
            }
        });
    }

    /// Changes a file of the instance at once, as the supervisor may be reading it.
    fn changed(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&fs::read(self.host.path(path)).unwrap()).unwrap();
        change(&mut value);
        fs::write(self.host.path("changed"), value.to_string()).unwrap();
        fs::rename(self.host.path("changed"), self.host.path(path)).unwrap();
    }

    /// What the host's own part of a release's rehearsal says from now on.
    fn says(&self, release: &str, lines: &str) -> PathBuf {
        let path = self.host.path("etc/demo-agent").join(format!("rehearsal-{release}"));
        fs::write(&path, lines).unwrap();
        path
    }

    /// Waits until so many have been rehearsed again; gives the last one.
    fn rehearsed(&self, count: usize) -> Value {
        eventually(20, "it is rehearsed again", || {
            let history = self.host.sidle(&["--json", "history", DEMO]).json();
            let all = history["rehearsed_again"].as_array().unwrap().clone();
            if all.len() == count { Ok(all[count - 1].clone()) } else { Err(history["rehearsed_again"].to_string()) }
        })
    }

    fn leader(&self) -> u32 {
        eventually(10, "one agent runs", || match self.host.agents()[..] {
            [one] => Ok(one),
            ref others => Err(format!("{others:?}")),
        })
    }
}

#[test]
fn a_release_whose_ground_has_changed_is_rehearsed_again_once_and_told() {
    let mut scene = Changing::new("");
    let agent = scene.leader();
    scene.upgraded(&["1.1-1"]);
    let first = scene.rehearsed(1);
    assert_eq!((first["release"].as_str(), first["blocking"].as_array().map(Vec::len)), (Some("1.1-1"), Some(0)));
    assert!(first["changes"][0].as_str().unwrap().starts_with("glibc was 1.9 and is 2."), "{first}");
    let status = scene.host.status();
    assert_eq!(status["rehearsed_again"], serde_json::json!([first]));
    let told = scene.host.sidle(&["status", DEMO]).ok();
    let host = told.lines().find(|line| line.starts_with("  host ")).unwrap();
    assert!(host.contains("since 1.1-1 was proven: glibc was 1.9 and is 2."), "{host}");
    assert!(host.contains("; rehearsed again on glibc 2.") && host.contains("Z): loads"), "{host}");
    let history = scene.host.sidle(&["history", DEMO]).ok();
    let last = history.lines().last().unwrap();
    assert!(last.contains("1.1-1 rehearsed again (glibc was 1.9 and is 2.") && last.contains("): loads"), "{history}");
    // Neither the next looks nor the next supervisor repeat it; another change does.
    scene.supervisor.take().unwrap().kill();
    scene.supervisor = Some(scene.host.supervise());
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(scene.rehearsed(1), first);
    scene.changed(AGAIN, |again| again["entries"][0]["fingerprint"]["libc"] = "2.0".into());
    assert_eq!(scene.rehearsed(2)["release"], "1.1-1");
    // The release that a rollback would lead to, too.
    scene.upgraded(&["1.0-1"]);
    assert_eq!(scene.rehearsed(3)["release"], "1.0-1");
    assert_eq!(scene.leader(), agent, "the running agent is left alone");
    // A restart proves it.
    scene.host.sidle(&["restart", DEMO]).ok();
    let told = scene.host.sidle(&["status", DEMO]).ok();
    assert!(!told.contains("since 1.1-1 was proven") && told.contains("since 1.0-1 was proven"), "{told}");
}

#[test]
fn a_release_that_would_not_come_up_again_is_told_loudly_and_not_restarted() {
    let scene = Changing::new("");
    let agent = scene.leader();
    let broken = scene.says("1.1-1", "refuse: libssl.so.3: cannot open shared object file\n");
    scene.upgraded(&["1.1-1"]);
    assert_eq!(scene.rehearsed(1)["blocking"][0], "libssl.so.3: cannot open shared object file");
    let told = scene.host.sidle(&["status", DEMO]).ok();
    assert!(told.contains("would fail now: libssl.so.3: cannot open shared object file"), "{told}");
    assert!(told.contains("  WARNING    ") && told.contains("the running process is left alone"), "{told}");
    assert!(told.contains("`sidle switch demo-agent 1.0-1`"), "the one before still stands: {told}");
    for mode in ["now", "idle", "overlap"] {
        let ran = scene.host.sidle(&["restart", DEMO, "--mode", mode]);
        assert!(ran.code == Some(1) && ran.stdout.contains("it would not come up again: libssl.so.3"), "{ran:?}");
    }
    assert_eq!((scene.leader(), scene.host.answering("meanwhile")), (agent, "1.1".to_owned()));
    fs::remove_file(broken).unwrap();
    scene.host.sidle(&["restart", DEMO, "--mode", "now"]).ok();
    assert_eq!(scene.host.status()["host_changes"], serde_json::json!([]));
}

#[test]
fn a_switch_does_not_wait_for_a_release_that_is_rehearsed_again() {
    let scene = Changing::new("rehearsal_timeout = \"4s\"\n");
    let hanging = scene.says("1.1-1", "hang\n");
    scene.upgraded(&["1.1-1"]);
    let run = scene.host.path("run/sidle/demo-agent/rehearsal/process");
    eventually(20, "it is under way", || run.exists().then_some(()).ok_or_else(String::new));
    fs::remove_file(hanging).unwrap();
    scene.host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(scene.host.current().as_deref(), Some("1.0-1"));
    // Now it is the one before, and rehearsed again as that.
    assert_eq!(scene.rehearsed(1)["release"], "1.1-1");
    let hanging = scene.says("1.0-1", "hang\n");
    scene.upgraded(&["1.0-1"]);
    assert_eq!(scene.rehearsed(2)["blocking"][0], "cannot rehearse: it did not end within 4 s: ");
    fs::remove_file(hanging).unwrap();
}

#[test]
fn a_boot_on_a_host_that_the_release_cannot_bear_leads_to_the_one_before() {
    let mut scene = Changing::new("fall_back_within = \"0s\"\n");
    assert_eq!(scene.supervisor.take().unwrap().end(), Some(0));
    scene.upgraded(&["1.0-1", "1.1-1"]);
    scene.says("1.1-1", "refuse: libssl.so.3: cannot open shared object file\n");
    fs::write(scene.host.path("etc/demo-agent/behaviour-1.1"), "crash\n").unwrap();
    scene.supervisor = Some(scene.host.supervise());
    eventually(30, "the release before is current", || match scene.host.current() {
        Some(current) if current == "1.0-1" => Ok(()),
        _ => Err(scene.host.status().to_string()),
    });
    eventually(10, "the way back ends", || match scene.host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    let last = scene.host.last();
    assert_eq!((last["by"].as_str(), last["purpose"].as_str()), (Some("supervisor"), Some("rollback")), "{last}");
    assert!(last["reason"].as_str().unwrap().contains("libssl.so.3"), "{last}");
    assert_eq!(scene.host.answering("after"), "1.0");
}

#[test]
fn what_was_rehearsed_again_is_an_error_when_it_is_corrupt_and_keeps_nobody_from_anything() {
    let scene = Changing::new("");
    fs::write(scene.host.path(AGAIN), "{}").unwrap();
    let ran = scene.host.sidle(&["status", DEMO]);
    assert!(ran.code == Some(1) && ran.stderr.contains(text(&scene.host.path(AGAIN))), "{ran:?}");
    scene.upgraded(&["1.1-1"]);
    scene.host.sidle(&["restart", DEMO]).ok();
    scene.host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(scene.host.current().as_deref(), Some("1.0-1"));
}
