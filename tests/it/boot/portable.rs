//! Trees from a portable Python on hosts whose C library is older than that of the machine that built them: real minions are switched from one
//! long-term release to the next and back under a stream of jobs, and a tree of the building machine's own Python is refused before a byte is written.
//! Hosts are booted Debians from 11 on, and a root with the C library of RHEL 7 and without an init.

use crate::support::boot::{Machine, Made};
use crate::support::eventually;
use crate::support::minions::LONG_TERM;
use crate::support::oldest::Oldest;
use crate::support::salt::{Master, START_SECONDS, portable_tree, tree};
use crate::support::scene::{ID, MASTER};
use crate::support::stage::{Author, Host, SALT, text};
use crate::support::stream::{Marks, Plan, Stream};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// glibc 2.31 and systemd 247.
const SUITE: &str = "bullseye";
const SETTINGS: &str = "probation = \"3s\"\nstart_timeout = \"60s\"\nstop_timeout = \"10s\"\nrestart_pause = \"1s\"\n";
/// There and back so many times; the second way back is a rollback.
const ROUNDS: usize = 5;
/// Where other tests switch more often.
pub(super) const ROUNDS_MINIMUM: usize = 2;

/// Two releases, packed from portable trees. They ask for no kernel: those of their hosts are older than this machine's.
pub(super) fn packed(author: &Author, versions: [&str; 2]) -> [PathBuf; 2] {
    let host = Host::new(author);
    versions.map(|version| {
        let bundle = author.salt_from(version, &portable_tree(version));
        let told = host.sidle(&["inspect", text(&bundle)]).ok();
        assert!(told.contains(" 2.17 or newer") && !told.contains("needs Linux"), "{told}");
        bundle
    })
}

/// Writes the settings and the minion's configuration below a root.
pub(super) fn configure(root: &Path, master: &Master) -> Marks {
    for directory in ["etc/salt", "etc/sidle"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("etc/sidle/sidle.toml"), SETTINGS).unwrap();
    let marks = Marks::below(root, &root.join("srv"));
    let own = format!("id: {ID}\nuser: root\nlog_level_logfile: info\n{}", marks.configuration(&[master]));
    fs::write(root.join("etc/salt/minion"), own).unwrap();
    marks
}

/// The two long-term releases, by their names.
pub(super) const LONG_TERM_RELEASES: [&str; 2] = ["3006.30-1", "3008.5-1"];

/// Two switches a round between two releases under a stream; `inside` runs a command on the host, which must succeed.
pub(super) fn there_and_back(
    (what, rounds): (&str, usize),
    [old, new]: [&str; 2],
    inside: &dyn Fn(&[&str]) -> String,
    master: &Master,
    marks: &Marks,
) {
    let serves = |release: &str| {
        eventually(START_SECONDS, &format!("{release} serves alone, and answers"), || {
            let status: Value = serde_json::from_str(&inside(&["sidle", "--json", "status", SALT])).unwrap();
            let instance = &status["instances"][0];
            let agent = &instance["supervisor"]["agent"];
            if agent["release"] != *release || !agent["lacks"].is_null() || !instance["switch"].is_null() {
                return Err(status.to_string());
            }
            let answer = master.call_within("10", ID, &["test.version"]);
            let (version, _) = release.rsplit_once('-').expect("a version and a number");
            if answer.contains(version) { Ok(()) } else { Err(answer) }
        });
    };
    inside(&["sidle", "switch", SALT, old]);
    serves(old);
    marks.started(1);
    let stream = Stream::begin(ID, marks, &[master], &Plan::of(0.7));
    for round in 0..rounds {
        inside(&["sidle", "switch", SALT, new]);
        serves(new);
        if round == 1 {
            inside(&["sidle", "rollback", SALT]);
        } else {
            inside(&["sidle", "switch", SALT, old]);
        }
        serves(old);
    }
    let report = stream.end();
    println!("{}", report.row(what));
    report.assert_lossless(what);
    assert_eq!(report.doubled(), 0, "{report:#?}");
    let history: Value = serde_json::from_str(&inside(&["sidle", "--json", "history", SALT])).unwrap();
    let modes: Vec<&str> =
        history["switches"].as_array().unwrap().iter().filter_map(|each| each["mode"].as_str()).collect();
    assert_eq!(modes.iter().filter(|mode| **mode == "overlap").count(), 2 * rounds, "{history}");
}

/// A booted host of a suite, on which the two releases were switched so often.
fn serve_on(suite: &'static str, rounds: usize) -> (Machine, Author) {
    let author = Author::new();
    let bundles = packed(&author, LONG_TERM);
    let master = Master::start(&tree(MASTER), true);
    let mut machine = Machine::of(Made { suite, package: SALT, shares_network: true }, &author, &bundles);
    let marks = configure(&machine.path(""), &master);
    machine.boot();
    let what = format!("portable trees on {suite}");
    there_and_back((&what, rounds), LONG_TERM_RELEASES, &|words| machine.inside(words), &master, &marks);
    (machine, author)
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_on_bullseye_and_its_c_library_refuses_a_newer_tree() {
    let (machine, author) = serve_on(SUITE, ROUNDS);
    of_a_newer_c_library_nothing_is_written(&machine, &author);
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_on_bookworm_and_on_trixie() {
    for suite in ["bookworm", "trixie"] {
        serve_on(suite, ROUNDS_MINIMUM);
    }
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_on_sid() {
    serve_on("sid", ROUNDS_MINIMUM);
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

/// A root with glibc 2.17 in which a supervisor works, with these releases.
fn oldest(author: &Author, bundles: &[PathBuf], master: &Master) -> (Oldest, Marks) {
    let mut oldest = Oldest::new();
    oldest.has_the_program();
    let marks = configure(oldest.root(), master);
    oldest.install(author, bundles);
    oldest.supervise();
    assert!(oldest.inside(&["/lib64/libc.so.6"]).contains("version 2.17"));
    (oldest, marks)
}

/// `sidle try` where the C library is as old as that.
fn can_be_tried(oldest: &Oldest, bundle: &Path) {
    fs::copy(bundle, oldest.root().join("srv/tried.sidle")).unwrap();
    let tried = oldest.inside(&["sidle", "try", "/srv/tried.sidle"]);
    println!("{tried}");
    assert!(tried.contains("works  salt-call --local test.ping: local: True"), "{tried}");
}

/// Where no cache has the portable Python, this test compiles it: on one processor, beside other tests.
#[test]
fn releases_of_one_portable_python_serve_where_glibc_is_2_17() {
    let author = Author::new();
    let bundles = packed(&author, [LONG_TERM[0], "3007.17"]);
    let master = Master::start(&tree(MASTER), true);
    let (oldest, marks) = oldest(&author, &bundles, &master);
    can_be_tried(&oldest, &bundles[1]);
    let what = ("releases of one Python on glibc 2.17", ROUNDS_MINIMUM);
    there_and_back(what, ["3006.30-1", "3007.17-1"], &|words| oldest.inside(words), &master, &marks);
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_where_glibc_is_2_17_and_nothing_else_is_there() {
    let author = Author::new();
    let bundles = packed(&author, LONG_TERM);
    let master = Master::start(&tree(MASTER), true);
    let (oldest, marks) = oldest(&author, &bundles, &master);
    can_be_tried(&oldest, &bundles[1]);
    let what = ("switches on glibc 2.17", ROUNDS);
    there_and_back(what, LONG_TERM_RELEASES, &|words| oldest.inside(words), &master, &marks);
}
