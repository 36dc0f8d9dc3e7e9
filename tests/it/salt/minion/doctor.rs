//! `sidle doctor` on a real minion and a real master: ports, what the master makes of the key, a second minion, and commands in the search path.

use crate::plain::doctor::{findings, findings_but};
use crate::support::eventually;
use crate::support::minions;
use crate::support::salt::{Master, SHORT_KEY, START_SECONDS, Tree, tree};
use crate::support::scene::{self, Scene};
use crate::support::stage::{Author, Host, SALT, command_of, text};
use crate::support::trees::{contents, last_changes};
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

const MASTER: &str = "3007.17";
const ID: &str = "one";

/// A host on which a Salt release is current and nothing runs.
struct Sick {
    host: Host,
    master: Master,
    _author: Author,
}

impl Sick {
    fn new(version: &str) -> Self {
        let (author, master) = (minions::author(), Master::start(&tree(MASTER), false));
        let host = minions::host(&author, &[version]);
        host.sidle(&["test-flip", SALT, &format!("{version}-1")]).ok();
        fs::create_dir_all(host.path("etc/salt/minion.d")).unwrap();
        let configuration = format!(
            "id: {ID}\nuser: root\nroot_dir: {}\nmaster: 127.0.0.1\nmaster_port: {}\nmine_enabled: False\n{SHORT_KEY}",
            host.path("").display(),
            master.request_port()
        );
        fs::write(host.path("etc/salt/minion"), configuration).unwrap();
        Self { host, master, _author: author }
    }

    /// The findings that only an agent's examiner makes; nothing of the host is changed by looking.
    fn found(&self) -> BTreeMap<String, String> {
        let look = || {
            let versions = last_changes(&self.host.path("opt/sidle/salt-minion/versions"));
            (["etc", "var"].map(|place| contents(&self.host.path(place))), versions)
        };
        let before = look();
        let ran = self.host.sidle(&["--json", "doctor", SALT]);
        assert!(look() == before, "it changed something");
        let left = fs::read_dir(self.host.path("run/sidle")).map_or(0, |left| left.flatten().count());
        assert_eq!(left, 0, "it left something in run/sidle");
        println!("{}", ran.stdout);
        // Minions of tests beside this one begin and end; what they were started with may be gone in that moment.
        let others = |what: &str| what.starts_with("whether process ") && !what.contains(text(&self.host.root()));
        let mut found = findings_but(&ran, others);
        found.retain(|id, _| !["not-supervised", "volatile-file-system", "no-current"].contains(&id.as_str()));
        found
    }

    fn finds(&self, id: &str) {
        let found = self.found();
        assert_eq!(found.iter().collect::<Vec<_>>(), [(&id.to_owned(), &"error".to_owned())], "{found:?}");
    }

    fn pki(&self) -> PathBuf {
        self.host.path("etc/salt/pki/minion")
    }

    fn at_master(&self, place: &str) -> PathBuf {
        self.master.place().configuration.ancestors().nth(2).unwrap().join("keys").join(place)
    }
}

/// A key pair as Salt's own.
fn make_key(private: &std::path::Path, public: &std::path::Path) {
    let run = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(&["genrsa", "-traditional", "-out", text(private), "2048"]);
    run(&["rsa", "-in", text(private), "-pubout", "-out", text(public)]);
}

/// Every standing of a key, as this release's own Salt finds it out.
fn key_standings(version: &str) {
    let mut sick = Sick::new(version);
    let found = sick.found();
    assert_eq!(found.get("minion-key-missing").map(String::as_str), Some("warning"), "{found:?}");
    assert!(!sick.pki().join("minion.pem").exists() && !sick.at_master("minions_pre").join(ID).exists());

    fs::create_dir_all(sick.pki()).unwrap();
    make_key(&sick.pki().join("minion.pem"), &sick.pki().join("minion.pub"));
    sick.finds("key-pending");
    assert!(!sick.pki().join("minion_master.pub").exists(), "the master's key was taken for known");
    sick.master.accept(ID);
    assert_eq!(sick.found(), BTreeMap::new());

    // It knows its master's key, as after its first start, and the other way round.
    fs::copy(sick.at_master("master.pub"), sick.pki().join("minion_master.pub")).unwrap();
    assert_eq!(sick.found(), BTreeMap::new());
    fs::create_dir_all(sick.at_master("minions_rejected")).unwrap();
    fs::rename(sick.at_master("minions").join(ID), sick.at_master("minions_rejected").join(ID)).unwrap();
    sick.finds("key-denied");
    fs::remove_file(sick.at_master("minions_rejected").join(ID)).unwrap();
    let other = tempfile::tempdir().unwrap();
    make_key(&other.path().join("pem"), &other.path().join("pub"));
    fs::copy(other.path().join("pub"), sick.at_master("minions").join(ID)).unwrap();
    sick.finds("key-denied");
    fs::remove_file(sick.at_master("minions_denied").join(ID)).ok();
    fs::copy(sick.pki().join("minion.pub"), sick.at_master("minions").join(ID)).unwrap();
    fs::copy(other.path().join("pub"), sick.pki().join("minion_master.pub")).unwrap();
    sick.finds("master-key-changed");
    fs::remove_file(sick.at_master("minions").join(ID)).unwrap();
    sick.finds("master-key-changed");
    sick.master.kill();
    sick.finds("master-unreachable");
    // Ports that are open and silent.
    let ports = [sick.master.publish_port(), sick.master.request_port()];
    let _silent = ports.map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    sick.finds("master-silent");
}

#[test]
fn doctor_finds_what_a_master_makes_of_a_key_of_3006() {
    key_standings("3006.30");
}

#[test]
fn doctor_finds_what_a_master_makes_of_a_key_of_3008() {
    key_standings("3008.5");
}

#[test]
fn doctor_finds_a_second_minion_a_foreign_command_and_a_configuration_that_cannot_be_read() {
    let sick = Sick::new("3006.30");
    let found = |id: &str| sick.host.sidle(&["--json", "doctor", SALT]).stdout.contains(&format!("\"id\":\"{id}\""));
    assert!(!found("second-minion") && !found("command-of-another"));
    let mut command = Command::new(tree("3006.30").join("bin/salt-minion"));
    let minion = Tree::start(command.arg("-c").arg(sick.host.path("etc/salt")), &sick.host.path("out"));
    eventually(START_SECONDS, "the second one is seen", || {
        found("second-minion").then_some(()).ok_or_else(String::new)
    });
    drop(minion);
    assert!(!found("second-minion"));

    fs::create_dir_all(sick.host.path("usr/bin")).unwrap();
    fs::write(sick.host.path("usr/bin/salt-call"), "#!/usr/bin/python3\n").unwrap();
    assert!(found("command-of-another"));
    fs::create_dir_all(sick.host.path("usr/local/sbin")).unwrap();
    fs::write(sick.host.path("usr/local/sbin/salt-call"), "#!/bin/sh\nexec sidle run salt-minion salt-call\n").unwrap();
    assert!(!found("command-of-another"));

    fs::write(sick.host.path("etc/salt/minion"), "master: [\n").unwrap();
    assert!(found("minion-configuration"));
}

#[test]
fn doctor_finds_nothing_on_a_host_whose_minion_is_well() {
    let scene = Scene::new(&["3006.30"]);
    let seen = eventually(30, "the supervisor has seen it reach its master", || {
        let ran = scene.host.sidle(&["--json", "doctor"]);
        if ran.code == Some(0) { Ok(ran) } else { Err(format!("{ran:?}")) }
    });
    assert!(seen.stdout.contains("the running minion is signed in"), "{seen:?}");
    assert!(findings(&seen).values().all(|severity| severity == "note"), "{seen:?}");

    // The same minion once more, with a pid file of its own, so that Salt does not refuse it.
    let other = scene.host.path("other");
    fs::create_dir(&other).unwrap();
    let own = fs::read_to_string(scene.configuration().join("minion")).unwrap();
    let places = format!("pidfile: {0}/pid\nsock_dir: {0}/s\n", other.display());
    fs::write(other.join("minion"), own + &places).unwrap();
    let mut command = Command::new(tree("3006.30").join("bin/salt-minion"));
    let second = Tree::start(command.arg("-c").arg(&other), &scene.host.path("second"));
    eventually(START_SECONDS, "status names the second minion", || {
        match scene.status()["supervisor"]["agent"]["doubles"].as_array() {
            Some(doubles) if doubles.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let warned = scene.verb("status", &[]).stdout;
    assert!(
        warned.contains("is a second minion stream of master") && warned.contains("every job runs twice"),
        "{warned}"
    );
    let metrics = scene.host.sidle(&["metrics"]).stdout;
    assert!(metrics.lines().any(|line| line.starts_with("sidle_second_agents{") && line.ends_with(" 1")), "{metrics}");
    drop(second);
}

/// Killed with all that would have taken it over: its process goes to the first process of the machine.
#[test]
fn a_job_that_outlived_its_minion_is_not_a_second_minion() {
    let mut scene = Scene::new(&["3006.30"]);
    let jid = scene.master().publish(scene::ID, &["test.sleep", "60"]);
    let job = eventually(30, "the job runs", || {
        let all = proc_fs::all().unwrap();
        let of_it = |pid: u32| {
            let command = command_of(pid);
            command.contains(text(&scene.host.root())) && command.contains(&jid) && command.contains("_thread_return")
        };
        all.into_iter().find(|process| of_it(process.pid)).ok_or_else(String::new)
    });
    let main = proc_fs::process(job.parent).unwrap().expect("main lives");
    let leader = Identity::of(main.parent).unwrap().expect("its parent lives");
    scene.kill();
    for identity in [leader, Identity::of(main.pid).unwrap().expect("main lives")] {
        identity.signal(SignalNumber::KILL).unwrap();
        eventually(20, "it is gone", || identity.is_gone().unwrap().then_some(()).ok_or_else(|| identity.to_string()));
    }
    assert!(proc_fs::process(job.pid).unwrap().is_some_and(|process| process.is_alive()), "the job lives on");
    let found = findings(&scene.host.sidle(&["--json", "doctor"]));
    assert!(found.contains_key("not-supervised") && !found.contains_key("second-minion"), "{found:?}");
}
