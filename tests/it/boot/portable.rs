//! Trees from a portable Python on hosts whose C library is older than that of the machine that built them: real minions are switched from one
//! long-term release to the next and back under a stream of jobs, and a tree of the building machine's own Python is refused before a byte is written.
//! One host is a booted Debian 11, the other one a root with the C library of RHEL 7 and without an init.

use crate::support::boot::{Machine, Made};
use crate::support::eventually;
use crate::support::minions::LONG_TERM;
use crate::support::mounts::Mounted;
use crate::support::release::static_program;
use crate::support::salt::{Master, START_SECONDS, portable_tree, tree};
use crate::support::scene::{ID, MASTER};
use crate::support::stage::{Author, SALT, sidle, text};
use crate::support::stream::{Marks, Plan, Stream};
use serde_json::Value;
use sidle::os::proc_fs;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// glibc 2.31 and systemd 247.
const SUITE: &str = "bullseye";
const SETTINGS: &str = "probation = \"3s\"\nstart_timeout = \"60s\"\nstop_timeout = \"10s\"\nrestart_pause = \"1s\"\n";
/// There and back so many times; one of the ways back is a rollback.
const ROUNDS: usize = 5;

/// The two long-term releases, packed from portable trees.
fn packed(author: &Author) -> [PathBuf; 2] {
    LONG_TERM.map(|version| author.salt_from(version, &portable_tree(version)))
}

/// Writes the settings and the minion's configuration below a root.
fn configure(root: &Path, master: &Master) -> Marks {
    for directory in ["etc/salt", "etc/sidle"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("etc/sidle/sidle.toml"), SETTINGS).unwrap();
    let marks = Marks::below(root, &root.join("srv"));
    let own = format!("id: {ID}\nuser: root\nlog_level_logfile: info\n{}", marks.configuration(&[master]));
    fs::write(root.join("etc/salt/minion"), own).unwrap();
    marks
}

/// Ten switches under a stream; `inside` runs a command on the host, which must succeed.
fn there_and_back(what: &str, inside: &dyn Fn(&[&str]) -> String, master: &Master, marks: &Marks) {
    let [old, new] = LONG_TERM.map(|version| format!("{version}-1"));
    let serves = |release: &str, version: &str| {
        eventually(START_SECONDS, &format!("{release} serves alone, and answers"), || {
            let status: Value = serde_json::from_str(&inside(&["sidle", "--json", "status", SALT])).unwrap();
            let instance = &status["instances"][0];
            let agent = &instance["supervisor"]["agent"];
            if agent["release"] != *release || !agent["lacks"].is_null() || !instance["switch"].is_null() {
                return Err(status.to_string());
            }
            let answer = master.call_within("10", ID, &["test.version"]);
            if answer.contains(version) { Ok(()) } else { Err(answer) }
        });
    };
    inside(&["sidle", "switch", SALT, &old]);
    serves(&old, LONG_TERM[0]);
    marks.started(1);
    let stream = Stream::begin(ID, marks, &[master], &Plan::of(0.7));
    for round in 0..ROUNDS {
        inside(&["sidle", "switch", SALT, &new]);
        serves(&new, LONG_TERM[1]);
        if round == 1 {
            inside(&["sidle", "rollback", SALT]);
        } else {
            inside(&["sidle", "switch", SALT, &old]);
        }
        serves(&old, LONG_TERM[0]);
    }
    let report = stream.end();
    report.assert_lossless(what);
    assert_eq!(report.doubled(), 0, "{report:#?}");
    let history: Value = serde_json::from_str(&inside(&["sidle", "--json", "history", SALT])).unwrap();
    let modes: Vec<&str> =
        history["switches"].as_array().unwrap().iter().filter_map(|each| each["mode"].as_str()).collect();
    assert_eq!(modes.iter().filter(|mode| **mode == "overlap").count(), 2 * ROUNDS, "{history}");
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_on_bullseye_and_its_c_library_refuses_a_newer_tree() {
    let author = Author::new();
    let bundles = packed(&author);
    let master = Master::start(&tree(MASTER), true);
    let mut machine = Machine::of(Made { suite: SUITE, package: SALT, shares_network: true }, &author, &bundles);
    let marks = configure(&machine.path(""), &master);
    machine.boot();
    there_and_back("switches on bullseye", &|words| machine.inside(words), &master, &marks);
    of_a_newer_c_library_nothing_is_written(&machine, &author);
}

/// The tree of the Python of the machine that builds. What the signed metadata of the file says of the repository is kept, as always.
fn of_a_newer_c_library_nothing_is_written(machine: &Machine, author: &Author) {
    let bundle = author.salt_from("3007.17", &tree("3007.17"));
    fs::copy(&bundle, machine.path("srv/newer.sidle")).unwrap();
    let places = "find /opt/sidle /var/lib/sidle -path /var/lib/sidle/trust -prune -o -printf '%p %s %T@\\n'";
    let held = || machine.inside(&["sh", "-ec", places]);
    let before = held();
    let (is_done, said) = machine.try_inside(&["sidle", "install", "/srv/newer.sidle"]);
    assert!(!is_done, "{said}");
    for words in ["this host has 2.31", "Debian GNU/Linux 11 (bullseye)", "it starts on"] {
        assert!(said.contains(words), "{words} is missing: {said}");
    }
    assert_eq!(held(), before, "something was written");
    let (is_done, tried) = machine.try_inside(&["sidle", "try", "/srv/newer.sidle"]);
    assert!(!is_done && tried.contains("this host has 2.31"), "{tried}");
    println!("{said}");
}

/// A root whose only C library is glibc 2.17, without an init: the supervisor is its first process.
struct Oldest {
    outer: Child,
    first: u32,
    root: Mounted,
    _directory: TempDir,
}

impl Oldest {
    fn new(author: &Author, bundles: &[PathBuf], master: &Master) -> (Self, Marks) {
        let directory = tempfile::Builder::new().prefix("oldest").tempdir().unwrap();
        let point = directory.path().join("root");
        fs::create_dir(&point).unwrap();
        let root = Mounted::tmpfs_at(&point, "size=3g,mode=755");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/old-root");
        assert!(Command::new(script).arg(&point).status().unwrap().success(), "scripts/old-root failed");
        fs::copy(static_program(), point.join("usr/bin/sidle")).unwrap();
        let marks = configure(&point, master);
        let metadata = author.repository().join("metadata/1.root.json");
        let outside = |words: &[&str]| sidle(&[&["--root", text(&point)], words].concat(), &[]).ok();
        outside(&["trust", "pin", text(&metadata), "--fingerprint", &author.fingerprint()]);
        for bundle in bundles {
            outside(&["install", text(bundle)]);
        }
        let script = r#"mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$1" /usr/bin/sidle supervise salt-minion"#;
        let log = fs::File::create(point.join("supervisor.log")).unwrap();
        let mut container = Command::new("unshare");
        container.args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private"]);
        container
            .args(["sh", "-c", script, "sh", text(&point)])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        container.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        let outer = container.spawn().unwrap();
        let first = eventually(20, "the supervisor listens", || {
            let children = proc_fs::children(outer.id()).unwrap();
            let is_there = point.join("run/sidle/salt-minion/control").exists();
            let first = children.first().filter(|_| is_there).map(|child| child.pid);
            first.ok_or_else(|| fs::read_to_string(point.join("supervisor.log")).unwrap_or_default())
        });
        (Self { outer, first, root, _directory: directory }, marks)
    }

    /// Runs a command inside, which must succeed; gives what it prints.
    fn inside(&self, words: &[&str]) -> String {
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &self.first.to_string(), "--mount", "--pid", "--ipc", "--root", "--wd=/", "--"]);
        let output = enter.args(words).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
        let log = || fs::read_to_string(self.root.path().join("supervisor.log")).unwrap_or_default();
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
        assert!(output.status.success(), "{words:?}: {said:?}\n{}", log());
        said[0].clone()
    }
}

impl Drop for Oldest {
    fn drop(&mut self) {
        // With the first process all others of its namespace end.
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_where_glibc_is_2_17_and_nothing_else_is_there() {
    let author = Author::new();
    let bundles = packed(&author);
    let master = Master::start(&tree(MASTER), true);
    let (oldest, marks) = Oldest::new(&author, &bundles, &master);
    assert!(oldest.inside(&["/lib64/libc.so.6"]).contains("version 2.17"));
    fs::copy(&bundles[1], oldest.root.path().join("srv/new.sidle")).unwrap();
    let tried = oldest.inside(&["sidle", "try", "/srv/new.sidle"]);
    assert!(tried.contains("works  salt-call --local test.ping: local: True"), "{tried}");
    there_and_back("switches on glibc 2.17", &|words| oldest.inside(words), &master, &marks);
}
