//! A booted host that has nothing gets a minion by one push from its master, with no network but the way to it: over real sshd, by the host's own systemd.

use crate::salt::first_minion::fingerprint;
use crate::support::boot::{Machine, Made};
use crate::support::eventually;
use crate::support::loopback;
use crate::support::minions;
use crate::support::release::static_program;
use crate::support::roots::Roots;
use crate::support::salt::{Master, START_SECONDS, tree};
use crate::support::stage::{Author, Host, Ran, SALT, SIDLE, text};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const RELEASE: &str = "3006.30";
const ID: &str = "web17.example.org";

/// A directory with the master's own `salt-key`.
fn salt_key(master: &Master) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let enter = "import sys; sys.argv[0] = 'salt-key'; from salt.scripts import salt_key; salt_key()";
    let script = format!("#!/bin/sh\nexec {} -E -s -B -c \"{enter}\" \"$@\"\n", text(&master.place().python));
    let program = place.path().join("salt-key");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    place
}

/// Who pushes to the one host, `r0`.
struct Pusher {
    host: Host,
    roots: Roots,
    words: Vec<String>,
    path: String,
}

impl Pusher {
    /// Of `bundle`, with the masters' `salt-key` in the search path.
    fn new((author, bundle, machine): (&Author, &Path, &Machine), programs: &Path, masters: &str) -> Self {
        let (release, print) = (format!("{RELEASE}-1"), author.fingerprint());
        let words = ["--repository", text(bundle), "--fingerprint", &print, "--release", &release, "--master", masters];
        Self {
            host: Host::bare(),
            roots: Roots::entered_by(&machine.enter()),
            words: words.map(str::to_owned).into(),
            path: format!("{}:{}", text(programs), std::env::var("PATH").unwrap()),
        }
    }

    fn all(&self, words: &[&str]) -> Vec<String> {
        let config = self.roots.config();
        let own = ["--json", "push", "r0", "-F", text(&config), "--package", SALT, "--action", "start"];
        let given: Vec<&str> = self.words.iter().map(String::as_str).collect();
        [&own[..], &given[..], words].concat().into_iter().map(str::to_owned).collect()
    }

    fn push(&self, words: &[&str]) -> Ran {
        let all = self.all(words);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.host.sidle_with(&all, &[("PATH", &self.path)])
    }

    /// The same, in a group of its own, which can be ended with all that it has started.
    fn start(&self, words: &[&str]) -> Child {
        let mut command = Command::new(SIDLE);
        command.args(["--root", text(&self.host.root())]).args(self.all(words)).env("PATH", &self.path);
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap()
    }
}

fn keys(master: &Master, state: &str) -> Vec<String> {
    let all = fs::read_dir(master.keys().join(state)).unwrap();
    all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The fingerprint of the waiting key as this `salt-key` prints it.
fn printed_by(salt_key: &Path, configuration: &Path) -> String {
    let mut asking = Command::new(salt_key);
    asking.args(["--config-dir", text(configuration), "--no-color", "--out", "json", "--finger", ID]);
    let printed: serde_json::Value = serde_json::from_slice(&asking.output().unwrap().stdout).unwrap();
    printed["minions_pre"][ID].as_str().unwrap().to_owned()
}

/// What the site has written already.
fn own(master: &Master) -> String {
    format!("master_port: {}\nuser: root\n", master.request_port())
}

/// The host has Debian's own userland and systemd, sshd's way in, and a configuration that says where the master's port is.
fn booted(master: &Master) -> Machine {
    let mut machine = Machine::unpacked(Made { suite: "bookworm", package: SALT, shares_network: true });
    for directory in ["etc/salt", "etc/sidle/conf.d"] {
        fs::create_dir_all(machine.path(directory)).unwrap();
    }
    fs::write(machine.path("etc/salt/minion"), own(master)).unwrap();
    fs::write(
        machine.path("etc/sidle/conf.d/salt.toml"),
        "start_timeout = \"180s\"\nprobation = \"2s\"\nrehearsal = \"off\"\n",
    )
    .unwrap();
    machine.start();
    machine
}

/// The minion answers with the master's key pinned, and the site's own configuration is as it was.
fn is_served(master: &Master, machine: &Machine, pin: &str) {
    let answer = master.call_within("20", ID, &["test.version"]);
    assert!(answer.contains(RELEASE), "{answer}");
    let first = fs::read_to_string(machine.path("etc/salt/minion.d/10-sidle-setup.conf")).unwrap();
    assert!(first.contains(pin), "{first}");
    assert_eq!(fs::read_to_string(machine.path("etc/salt/minion")).unwrap(), own(master));
}

#[test]
fn a_host_that_has_nothing_gets_a_minion_by_one_push_and_its_key_is_accepted_by_its_fingerprint() {
    let (author, of_master) = (minions::author_of(&minions::LONG_TERM), tree("3008.5"));
    let bundle = author.salt(RELEASE);
    loopback::alone();
    let master = Master::start(&of_master, false);
    let machine = booted(&master);
    let programs = salt_key(&master);
    let release = format!("{RELEASE}-1");
    let mut pusher = Pusher::new((&author, &bundle, &machine), programs.path(), master.address);
    pusher.words.extend(["--program".to_owned(), text(&static_program()).to_owned()]);
    let configuration: PathBuf = master.place().configuration.parent().unwrap().to_owned();
    let accept = ["--accept", "--master-config", text(&configuration)];

    // Without the right to accept, somebody else has to: by the fingerprint that the host has.
    let waits = pusher.push(&["--id", ID]);
    assert_eq!(waits.code, Some(4), "{waits:?}");
    let host = &waits.json()["hosts"][0];
    let mine = fingerprint(&machine.path("etc/salt/pki/minion/minion.pub"));
    let told = host["error"].to_string();
    assert!(
        host["state"] == "pending" && told.contains(&mine) && told.contains(&format!("salt-key -a {ID}")),
        "{host}"
    );
    // A master of 3008.5 prints another fingerprint of the same key: that one is told, too.
    let theirs = printed_by(&programs.path().join("salt-key"), &configuration);
    assert!(theirs != mine && told.contains(&theirs), "{theirs} is not in {told}");
    assert_eq!((keys(&master, "minions_pre"), keys(&master, "minions")), (vec![ID.to_owned()], Vec::new()));
    assert_eq!(machine.property("ActiveState"), "inactive");

    // A host that gives itself a name is not believed: it might be another one's.
    let itself = pusher.push(&accept);
    assert_eq!(itself.code, Some(7), "{itself:?}");
    assert!(itself.stdout.contains("the host calls itself") && keys(&master, "minions").is_empty(), "{itself:?}");

    // As `sha256sum` prints it.
    let pin = fingerprint(&master.keys().join("master.pub"));
    let started = pusher.push(&[&["--id", ID, "--pin-master", &pin.replace(':', "")], &accept[..]].concat());
    assert_eq!(started.code, Some(0), "{started:?}");
    let did = started.json()["hosts"][0]["did"].to_string();
    for expected in [format!("accepted the key of {ID} ({mine})"), format!("started {SALT} {release} as {ID}")] {
        assert!(did.contains(&expected), "{expected:?} is not in {did}");
    }
    assert_eq!(keys(&master, "minions"), [ID]);
    assert_eq!(
        (machine.property("ActiveState"), machine.property("UnitFileState")),
        ("active".into(), "enabled".into())
    );
    is_served(&master, &machine, &pin);
    let again = pusher.push(&[&["--id", ID, "--pin-master", &pin], &accept[..]].concat());
    assert_eq!(again.code, Some(3), "{again:?}");
}

/// The phase of the switch on the host; None: there is none.
fn phase(machine: &Machine) -> Option<String> {
    let (_, said) = machine.try_inside(&["sidle", "--json", "status", SALT]);
    let status: serde_json::Value = serde_json::from_str(&said).ok()?;
    status["instances"][0]["switch"]["phase"].as_str().map(str::to_owned)
}

/// A host that has the program already: this one, which is not static, and its unit.
fn has_the_program(machine: &Machine) {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/sidle@.service");
    fs::copy(SIDLE, machine.path("usr/bin/sidle")).unwrap();
    fs::copy(unit, machine.path("etc/systemd/system/sidle@.service")).unwrap();
    machine.inside(&["systemctl", "daemon-reload"]);
}

/// Pushes, and kills the push in the probation of the first switch; its ssh goes by itself.
fn is_cut_in_the_first_switch(pusher: &Pusher, machine: &Machine, words: &[&str]) {
    let mut pushing = pusher.start(words);
    eventually(START_SECONDS, "the first switch is in its probation", || match phase(machine).as_deref() {
        Some("probation") => Ok(()),
        other => Err(format!("{other:?}: {:?}", pushing.try_wait())),
    });
    let group = Pid::from_raw(pushing.id().try_into().unwrap()).unwrap();
    kill_process_group(group, Signal::KILL).unwrap();
    assert!(!pushing.wait().unwrap().success());
}

#[test]
#[ignore = "`scripts/test --long`: two masters and a booted host; `salt::first_minion` shows the parts on 3008.5"]
fn two_masters_accept_one_after_the_other_and_a_push_that_is_cut_in_the_first_switch_goes_on() {
    let (author, of_master) = (minions::author_of(&minions::LONG_TERM), tree("3008.5"));
    let bundle = author.salt(RELEASE);
    loopback::alone();
    let first = Master::start(&of_master, false);
    let second = first.start_stern_twin_at("127.0.0.2");
    let machine = booted(&first);
    has_the_program(&machine);
    fs::write(
        machine.path("etc/sidle/conf.d/salt.toml"),
        "start_timeout = \"180s\"\nprobation = \"30s\"\nrehearsal = \"off\"\n",
    )
    .unwrap();
    let programs = salt_key(&first);
    let [of_first, of_second] = [&first, &second].map(|each| format!("{}:{}", each.address, each.request_port()));
    let masters = format!("{of_first},{of_second}");
    let pusher = Pusher::new((&author, &bundle, &machine), programs.path(), &masters);
    let configuration: PathBuf = first.place().configuration.parent().unwrap().to_owned();
    let words = ["--id", ID, "--accept", "--master-config", text(&configuration), "--wait", "10s"];

    // This machine's master accepts; at the other one somebody has to.
    let waits = pusher.push(&words);
    assert_eq!(waits.code, Some(4), "{waits:?}");
    let host = &waits.json()["hosts"][0];
    let told = host["error"].to_string();
    assert!(host["state"] == "pending" && told.contains(&format!("on {of_second}: `salt-key -f {ID}`")), "{host}");
    assert!(
        !told.contains(&format!("on {of_first}:")) && host["did"].to_string().contains("accepted the key"),
        "{host}"
    );
    assert_eq!((keys(&first, "minions"), keys(&second, "minions")), (vec![ID.to_owned()], Vec::new()));
    assert_eq!(machine.property("ActiveState"), "inactive");
    second.accept(ID);

    is_cut_in_the_first_switch(&pusher, &machine, &words);
    let again = pusher.push(&words);
    assert!(matches!(again.code, Some(0 | 3)), "{again:?}");
    assert_eq!(phase(&machine), None, "it has waited for the end of the switch: {again:?}");
    for master in [&first, &second] {
        let answer = master.call_within("20", ID, &["test.version"]);
        assert!(answer.contains(RELEASE), "{answer}");
    }
    let (_, history) = machine.try_inside(&["sidle", "--json", "history", SALT]);
    assert_eq!(history.matches("\"requested_at\":").count(), 1, "there was one switch: {history}");
}
