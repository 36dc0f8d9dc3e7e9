//! Collection takes nothing that is in use, however it is used, and names the holder.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, text};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A host with releases 1.0 (of interest), 1.1 and 1.2, the newest being current.
pub fn host() -> (Host, Author) {
    let author = Author::new();
    let host = Host::new(&author);
    for version in ["1.0", "1.1", "1.2"] {
        host.install(&author.release(version, "good")).ok();
    }
    host.sidle(&["test-flip", DEMO, "1.2-1"]).ok();
    (host, author)
}

pub fn tree(host: &Host, release: &str) -> PathBuf {
    host.path("opt/sidle/demo-agent/versions").join(release)
}

/// Why a release was kept; None: it wasn't.
pub fn kept(ran: &Ran, release: &str) -> Option<String> {
    let kept = ran.json()["packages"][0]["kept"].as_array().unwrap().clone();
    let found = kept.into_iter().find(|one| one["release"] == release)?;
    Some(found["reason"].as_str().unwrap().to_owned())
}

pub fn removed(ran: &Ran) -> Vec<Value> {
    let removed = ran.json()["packages"][0]["removed"].as_array().unwrap().clone();
    removed.into_iter().map(|one| one["release"].clone()).collect()
}

pub fn collect(host: &Host) -> Ran {
    host.sidle(&["--json", "collect", DEMO, "--keep", "0"])
}

/// A process that is ended with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn collect_keeps_current_and_a_reserve_and_rehearses_without_effect() {
    let (host, _author) = host();
    let rehearsed = host.sidle(&["--json", "collect", DEMO, "--keep", "1", "--dry-run"]);
    assert_eq!((rehearsed.code, removed(&rehearsed)), (Some(0), vec!["1.0-1".into()]));
    assert!(tree(&host, "1.0-1").exists(), "a rehearsal removed it");
    let done = host.sidle(&["--json", "collect", DEMO, "--keep", "1"]);
    assert_eq!(removed(&done), ["1.0-1"]);
    assert_eq!(kept(&done, "1.2-1").unwrap(), "current");
    assert_eq!(kept(&done, "1.1-1").unwrap(), "in reserve");
    assert!(!tree(&host, "1.0-1").exists() && tree(&host, "1.1-1").exists());
    assert_eq!(host.sidle(&["collect", DEMO, "--keep", "1"]).code, Some(3));
    assert_eq!(host.current().as_deref(), Some("1.2-1"));
}

#[test]
fn collect_names_a_daemon_that_a_job_left_behind_with_the_lease() {
    let (host, _author) = host();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1", "--mode", "now"]).ok();
    // A job starts a daemon: it stands elsewhere, runs another program, and has inherited the lease.
    let pid_file = host.path("daemon.pid");
    host.job("leaver", &format!("cd /; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >{}", text(&pid_file)));
    host.done("leaver");
    host.sidle(&["switch", DEMO, "1.1-1", "--mode", "now"]).ok();
    host.sidle(&["switch", DEMO, "1.2-1", "--mode", "now"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    let pid: u32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let ran = collect(&host);
    let reason = kept(&ran, "1.0-1").expect("a release was taken away under a daemon");
    assert!(reason.contains(&format!("process {pid} (sleep 1000)")) && reason.contains("lease"), "{reason}");
    assert!(tree(&host, "1.0-1").join("bin/demo-agent").exists());
    let daemon = sidle::os::process::Identity::of(pid).unwrap().unwrap();
    daemon.signal(sidle::os::process::SignalNumber::KILL).unwrap();
    eventually(10, "the daemon is gone", || match sidle::os::proc_fs::process(pid).unwrap() {
        Some(process) if process.is_alive() => Err("it lives".to_owned()),
        _ => Ok(()),
    });
    assert_eq!(removed(&collect(&host)), ["1.0-1"]);
}

#[test]
fn collect_sees_the_lease_when_run_was_deleted() {
    let (host, _author) = host();
    let mut command = Command::new(SIDLE);
    command.args(["--root", text(&host.path("")), "run", DEMO, "--release", "1.0-1"]);
    let agent = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    eventually(10, "the agent runs", || {
        if host.path("etc/demo-agent/state/ready").exists() { Ok(()) } else { Err("it is not ready".to_owned()) }
    });
    let _ = fs::remove_dir_all(host.path("run"));
    let ran = collect(&host);
    let reason = kept(&ran, "1.0-1").expect("a running release was taken away");
    assert!(reason.contains(&format!("process {}", agent.0.id())), "{reason}");
    assert_eq!(removed(&ran), ["1.1-1"]);
    drop(agent);
    // The agent's `sleep` ends by itself; it has inherited the lease, too.
    eventually(10, "the release is free", || {
        let ran = collect(&host);
        if ran.code == Some(0) { Ok(()) } else { Err(kept(&ran, "1.0-1").unwrap_or_default()) }
    });
}

#[test]
fn collect_sees_who_uses_a_release_without_a_lease() {
    let (host, _author) = host();
    let directory = tree(&host, "1.0-1").join("bin");
    let process = Command::new("sleep").arg("1000").current_dir(&directory).spawn().unwrap();
    let process = Process(process);
    let reason = kept(&collect(&host), "1.0-1").expect("a release was taken away under a process");
    assert!(reason.contains(&format!("process {} (sleep 1000)", process.0.id())) && reason.contains("cwd"), "{reason}");
}

/// Runs collect with one flock call refused, the n-th, as a file system without locks does.
pub fn without_locks(host: &Host, when: &str) -> Ran {
    failing(host, "flock", "ENOLCK", when)
}

/// `collect` while the kernel answers these calls of one kind with an error.
pub fn failing(host: &Host, call: &str, error: &str, when: &str) -> Ran {
    let trace = host.path("trace");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o", text(&trace), "-e", &format!("trace={call}")])
        .args(["-e", &format!("inject={call}:error={error}:when={when}"), SIDLE, "--root", text(&host.path(""))])
        .args(["--json", "collect", DEMO, "--keep", "0"])
        .output()
        .unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn remove_takes_a_damaged_release_away_and_never_the_current_one() {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let host = Host::new(&author);
    host.install(&old).ok();
    host.install(&new).ok();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    let refused = host.sidle(&["remove", DEMO, "1.0-1"]);
    assert_eq!(refused.code, Some(12), "{refused:?}");
    assert!(refused.stderr.contains("it is current"), "{refused:?}");
    std::fs::write(tree(&host, "1.1-1").join("bin/demo-agent"), "exit 1\n").unwrap();
    assert_eq!(host.sidle(&["verify", DEMO, "1.1-1"]).code, Some(6));
    host.sidle(&["remove", DEMO, "1.1-1", "--dry-run"]).ok();
    assert_eq!(host.sidle(&["verify", DEMO, "1.1-1"]).code, Some(6), "a rehearsal removes nothing");
    host.sidle(&["remove", DEMO, "1.1-1"]).ok();
    host.install(&new).ok();
    host.sidle(&["verify", DEMO, "1.1-1", "--full"]).ok();
}
