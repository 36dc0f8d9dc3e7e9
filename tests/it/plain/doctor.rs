//! What `sidle doctor` finds: each kind provoked for real, and absent on a host that is well. Findings about minions and masters are in
//! `salt::doctor`.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Ran, Supervisor, text, two_releases};
use crate::support::trees::contents;
use serde_json::Value;
use sidle::os::process::SignalNumber;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

pub const FUTURE: &str = "+800d";

/// The findings, each with its severity. The exit code fits them.
pub fn found(host: &Host) -> BTreeMap<String, String> {
    let ran = host.sidle(&["--json", "doctor"]);
    let found = findings(&ran);
    assert_eq!(ran.code != Some(0), found.values().any(|severity| severity != "note"), "{ran:?}");
    found
}

/// The findings in the answer of `sidle --json doctor`, by id, each with its severity.
pub fn findings(ran: &Ran) -> BTreeMap<String, String> {
    findings_but(ran, |_| false)
}

/// The same without those whose text is `not_of_it`.
pub fn findings_but(ran: &Ran, not_of_it: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let value = ran.json();
    assert_eq!(value["schema"], 1);
    let groups = value["examined"].as_array().unwrap().iter().flat_map(|one| one["groups"].as_array().unwrap());
    let findings = groups.flat_map(|group| group["findings"].as_array().unwrap());
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let of_it = findings.filter(|finding| !not_of_it(&word(finding, "what")));
    of_it.map(|finding| (word(finding, "id"), word(finding, "severity"))).collect()
}

/// What the machine under the test may add: temporary files in memory, or in a container.
pub fn worse_than_notes(host: &Host) -> Vec<String> {
    let bad = found(host).into_iter().filter(|(_, severity)| severity != "note");
    bad.map(|(id, severity)| format!("{severity} {id}")).collect()
}

/// A host that is well: 1.1 runs, supervised, and 1.0 is the way back.
pub fn well() -> (Host, Author, Supervisor) {
    let (host, author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    (host, author, supervisor)
}

/// The same with nothing running.
pub fn stopped() -> (Host, Author) {
    let (host, author, supervisor) = well();
    assert_eq!(supervisor.end(), Some(0));
    (host, author)
}

#[test]
fn a_host_that_is_well_is_told_so_in_a_few_lines_and_left_as_it_is() {
    let (host, _author, _supervisor) = well();
    let before = (contents(&host.path("opt")), contents(&host.path("var")));
    let ran = host.sidle(&["doctor", DEMO]);
    assert_eq!((contents(&host.path("opt")), contents(&host.path("var"))), before, "it changed something");
    assert_eq!(worse_than_notes(&host), Vec::<String>::new());
    let told = ran.ok();
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("  ") && !line.contains("remedy")).collect();
    for words in
        ["current is 1.1-1; previous is 1.0-1", "2 releases", "supervised by process", "root until", "no switch"]
    {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert!(lines.len() <= 10, "{told}");
    assert!(!told.contains("ERROR") && !told.contains("warning"), "{told}");
}

#[test]
fn nothing_installed_and_names_that_are_not_there() {
    let author = Author::new();
    let host = Host::new(&author);
    host.sidle(&["doctor"]).ok();
    let unknown = host.sidle(&["doctor", "no-such-package"]);
    assert!(
        unknown.code == Some(1) && unknown.stderr.contains("it is not installed; nothing is installed"),
        "{unknown:?}"
    );
    host.install(&author.release("1.0", "good")).ok();
    assert_eq!(found(&host).get("no-current").map(String::as_str), Some("note"));
}

#[test]
fn damage_of_the_store_is_found() {
    let (host, _author) = stopped();
    assert_eq!(worse_than_notes(&host), ["warning not-supervised"]);
    let program = host.path("opt/sidle/demo-agent/versions/1.0-1/bin/demo-agent");
    let (before, mode) = (fs::read(&program).unwrap(), fs::metadata(&program).unwrap().permissions());
    fs::write(&program, "exit 1\n").unwrap();
    let ran = host.sidle(&["doctor"]);
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.stdout.contains("bin/demo-agent has other content"), "{ran:?}");
    assert!(ran.stdout.contains("`sidle repair demo-agent 1.0-1`"), "{ran:?}");
    // Damage isn't mended by looking.
    assert_eq!(fs::read(&program).unwrap(), b"exit 1\n");
    fs::write(&program, before).unwrap();
    fs::set_permissions(&program, mode).unwrap();
    assert!(!found(&host).contains_key("release-damaged"));

    let (tree, receipt) =
        (host.path("opt/sidle/demo-agent/versions/9.9-1"), host.path("var/lib/sidle/demo-agent/9.8-1"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&receipt).unwrap();
    fs::create_dir_all(host.path("opt/sidle/demo-agent/staging/9.7-1")).unwrap();
    let seen = found(&host);
    for (id, severity) in
        [("tree-without-receipt", "warning"), ("receipt-without-tree", "warning"), ("staging-leftover", "note")]
    {
        assert_eq!(seen.get(id).map(String::as_str), Some(severity), "{id}: {seen:?}");
    }
    // As the remedies say.
    host.sidle(&["collect", DEMO, "--keep", "5"]);
    assert!(receipt.exists(), "the tree may come back with its file system");
    fs::remove_dir(&receipt).unwrap();
    assert_eq!(worse_than_notes(&host), ["warning not-supervised"]);

    let manifest = host.path("var/lib/sidle/demo-agent/1.0-1/manifest.json.zst");
    let bytes = fs::read(&manifest).unwrap();
    fs::write(&manifest, "{}").unwrap();
    assert_eq!(found(&host).get("receipt-unreadable").map(String::as_str), Some("error"));
    fs::write(&manifest, bytes).unwrap();
    host.sidle(&["remove", DEMO, "1.0-1"]);
    fs::remove_dir_all(host.path("opt/sidle/demo-agent/versions/1.0-1")).unwrap();
    assert_eq!(found(&host).get("previous-missing").map(String::as_str), Some("warning"));
}

#[test]
fn a_link_that_leads_nowhere_and_a_journal_that_cannot_be_read_are_found() {
    let (host, _author) = stopped();
    let link = host.path("opt/sidle/demo-agent/current");
    for target in [None, Some("versions/7.7-1"), Some("elsewhere")] {
        fs::remove_file(&link).ok();
        if let Some(target) = target {
            symlink(target, &link).unwrap();
        }
        let seen = found(&host);
        assert_eq!(seen.get("current-broken").map(String::as_str), Some("error"), "{target:?}: {seen:?}");
    }
    fs::remove_file(&link).unwrap();
    symlink("versions/1.1-1", &link).unwrap();
    assert!(!found(&host).contains_key("current-broken"));
    fs::write(host.path("var/lib/sidle/instances/demo-agent/journal"), "{}").unwrap();
    assert_eq!(found(&host).get("journal-corrupt").map(String::as_str), Some("error"));
}

#[test]
fn settings_that_cannot_be_read_are_found() {
    let (host, _author, _supervisor) = well();
    let bad = host.path("etc/sidle/conf.d/bad.toml");
    fs::write(&bad, "probatoin = \"5s\"\n").unwrap();
    let ran = host.sidle(&["doctor"]);
    assert!(ran.code == Some(2) && ran.stdout.contains("bad.toml") && ran.stdout.contains("probatoin"), "{ran:?}");
    assert_eq!(found(&host).get("settings-invalid").map(String::as_str), Some("error"));
    fs::remove_file(bad).unwrap();
    assert_eq!(worse_than_notes(&host), Vec::<String>::new());
}

#[test]
fn who_runs_and_who_holds_what_is_found() {
    let (host, author, mut supervisor) = well();
    host.install(&author.release("1.2", "good")).ok();
    // A command at work on the package, and a process that leases what nobody wants. Each says when it has its lock.
    let lock = host.path("var/lib/sidle/demo-agent/lock");
    let mut locker = Command::new("flock").args(["--no-fork", text(&lock), "sleep", "1000"]).spawn().unwrap();
    let lease = host.path("var/lib/sidle/demo-agent/leases/1.2-1");
    let mut user = Command::new("flock").args(["--no-fork", "-s", text(&lease), "sleep", "1000"]).spawn().unwrap();
    fs::write(host.path("etc/demo-agent/demo.conf"), "# changed\n").unwrap();
    eventually(10, "all of it is seen", || {
        let seen = found(&host);
        let all = ["package-locked", "release-in-use", "configuration-changed"].iter();
        let missing: Vec<_> = all.filter(|id| seen.get(**id).map(String::as_str) != Some("note")).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} in {seen:?}")) }
    });
    let told = host.sidle(&["doctor"]).ok();
    assert!(told.contains(&format!("process {} (sleep 1000)", locker.id())), "{told}");
    assert!(told.contains(&format!("leased by process {} (sleep 1000)", user.id())), "{told}");
    for process in [&mut locker, &mut user] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    host.sidle(&["restart", DEMO, "--mode", "now"]).ok();
    host.sidle(&["hold", DEMO, "--reason", "audit"]).ok();
    let seen = found(&host);
    assert!(!seen.contains_key("package-locked") && !seen.contains_key("release-in-use"), "{seen:?}");
    assert!(!seen.contains_key("configuration-changed"), "{seen:?}");
    assert_eq!(seen.get("held").map(String::as_str), Some("note"));
    fs::write(host.path("var/lib/sidle/instances/demo-agent/hold"), "{}").unwrap();
    assert_eq!(found(&host).get("hold-unreadable").map(String::as_str), Some("error"));
    host.sidle(&["unhold", DEMO]).ok();
    let seen = found(&host);
    assert!(!seen.contains_key("held") && !seen.contains_key("hold-unreadable"), "{seen:?}");

    // A switch that waits for a job; then nobody is there to drive it.
    host.job("long", "sleep 1000");
    host.running("long");
    let begun = host.sidle(&["switch", DEMO, "1.0-1", "--mode", "idle", "--no-wait"]);
    assert_eq!(begun.code, Some(4), "{begun:?}");
    assert_eq!(found(&host).get("switch-live").map(String::as_str), Some("note"));
    supervisor.kill();
    let told = host.sidle(&["doctor"]).stdout;
    assert!(told.contains(&format!("runs on (process {})", host.agents()[0])), "{told}");
    let seen = found(&host);
    assert_eq!(seen.get("switch-stuck").map(String::as_str), Some("error"), "{seen:?}");
    assert_eq!(seen.get("not-supervised").map(String::as_str), Some("warning"), "{seen:?}");
    assert_eq!(host.sidle(&["doctor"]).code, Some(4));
}

#[test]
fn an_agent_that_does_not_run_is_found() {
    let (host, _author, supervisor) = well();
    assert_eq!(supervisor.end(), Some(0));
    // Both releases would end at once.
    for version in ["1.0", "1.1"] {
        fs::write(host.path(&format!("etc/demo-agent/behaviour-{version}")), "crash\n").unwrap();
    }
    fs::write(
        host.path("etc/sidle/conf.d/test.toml"),
        "restart_pause = \"600s\"\nrestart_pause_limit = \"600s\"\nfall_back_within = \"0s\"\n",
    )
    .unwrap();
    let _supervisor = host.supervise();
    eventually(20, "it is seen", || {
        let seen = found(&host);
        if seen.get("agent-not-running").map(String::as_str) == Some("error") {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
}

#[test]
fn what_a_supervisor_says_is_told() {
    let (host, _author, supervisor) = well();
    // It stands still, so that its word stays as it is written here.
    supervisor.signal(SignalNumber::STOP);
    let path = host.path("run/sidle/demo-agent/status");
    let before: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let agent = |key: &str, value: &str| {
        let mut status = before.clone();
        status["agent"][key] = value.into();
        status
    };
    let mut older = before.clone();
    older["version"] = "0.0.1".into();
    let mut troubled = before.clone();
    troubled["trouble"] = "cannot start it".into();
    for (status, id, severity) in [
        (older, "supervisor-older", "note"),
        (troubled, "agent-not-running", "error"),
        (agent("lacks", "127.0.0.1: not connected"), "agent-unhealthy", "warning"),
        (agent("release", "1.0-1"), "other-release-runs", "warning"),
    ] {
        assert!(!found(&host).contains_key(id), "{id} before");
        fs::write(&path, status.to_string()).unwrap();
        assert_eq!(found(&host).get(id).map(String::as_str), Some(severity), "{id}");
        fs::write(&path, before.to_string()).unwrap();
    }
    supervisor.signal(SignalNumber::CONT);
}

#[test]
fn units_and_the_packages_own_are_found() {
    let (host, _author, _supervisor) = well();
    let (units, vendor) = (host.path("etc/systemd/system"), host.path("usr/lib/systemd/system"));
    fs::create_dir_all(units.join("multi-user.target.wants")).unwrap();
    fs::create_dir_all(&vendor).unwrap();
    let severity = |id: &str| found(&host).get(id).cloned();
    fs::write(vendor.join("demo-agent.service"), "[Unit]\n").unwrap();
    assert_eq!(severity("unit-missing").as_deref(), Some("warning"));
    assert_eq!(severity("packaged-unit").as_deref(), Some("warning"));
    let wants = units.join("multi-user.target.wants");
    symlink("/usr/lib/systemd/system/demo-agent.service", wants.join("demo-agent.service")).unwrap();
    assert_eq!(severity("packaged-unit").as_deref(), Some("error"));
    // What `sidle adopt` puts before it.
    fs::write(units.join("demo-agent.service"), "# X-Sidle=replacement\n[Unit]\n").unwrap();
    assert_eq!(severity("packaged-unit"), None);
    fs::write(vendor.join("sidle@.service"), "[Unit]\n").unwrap();
    assert_eq!((severity("unit-missing"), severity("unit-disabled").as_deref()), (None, Some("warning")));
    symlink("/usr/lib/systemd/system/sidle@.service", wants.join("sidle@demo-agent.service")).unwrap();
    assert_eq!(worse_than_notes(&host), Vec::<String>::new());
    symlink("/dev/null", units.join("sidle@demo-agent.service")).unwrap();
    assert_eq!(severity("unit-masked").as_deref(), Some("error"));
    fs::remove_file(units.join("sidle@demo-agent.service")).unwrap();

    fs::create_dir_all(host.path("var/lib/dpkg")).unwrap();
    let entry = "Package: demo-agent\nStatus: install ok installed\nVersion: 1.2\n\nPackage: other\n";
    fs::write(host.path("var/lib/dpkg/status"), entry).unwrap();
    assert_eq!(severity("distribution-package").as_deref(), Some("warning"));
    fs::write(host.path("var/lib/dpkg/status"), entry.replace("install ok installed", "deinstall ok config-files"))
        .unwrap();
    assert_eq!(severity("distribution-package"), None);
}

#[test]
fn a_masked_package_where_sidle_runs_nothing_is_found() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    fs::create_dir_all(host.path("etc/systemd/system")).unwrap();
    assert!(!found(&host).contains_key("packaged-unit-masked"));
    symlink("/dev/null", host.path("etc/systemd/system/demo-agent.service")).unwrap();
    assert_eq!(found(&host).get("packaged-unit-masked").map(String::as_str), Some("warning"));
}

#[test]
fn words_of_a_log_find_what_they_tell_of() {
    let (host, _author) = stopped();
    let told = host.sidle(&["doctor", "--find", "OSError: [Errno 28] No space left on device: '/opt/x'"]).ok();
    for words in ["no-space: not found on this host now", "no-inodes: not found", "remedy: `sidle collect`"] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    assert!(!told.contains("not-supervised") && !told.contains("read-only"), "{told}");
    let told = host.sidle(&["doctor", "--find", "read-only FILE system!"]).ok();
    assert!(told.contains("read-only: not found") && told.contains("`dmesg`"), "{told}");
    let ran = host.sidle(&[
        "--json",
        "doctor",
        "--find",
        "The master key has changed, the salt master could have been subverted",
    ]);
    assert_eq!((ran.code, &ran.json()["explanations"][0]["id"]), (Some(0), &Value::from("master-key-changed")));
    let found = host.sidle(&["doctor", "--find", "not supervised"]);
    assert!(found.code == Some(1) && found.stdout.contains("not-supervised: found on this host"), "{found:?}");
    let none = host.sidle(&["doctor", "--find", "colourless green ideas"]);
    assert!(none.code == Some(2) && none.stderr.contains("it matches no finding"), "{none:?}");
}
