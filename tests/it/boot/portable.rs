//! Trees from a portable Python on a host whose C library is older than that of the machine that built them: real minions are switched from one
//! long-term release to the next and back under a stream of jobs, and a tree of the building machine's own Python is refused before a byte is written.

use crate::support::boot::{Machine, Made};
use crate::support::eventually;
use crate::support::minions::LONG_TERM;
use crate::support::salt::{Master, START_SECONDS, portable_tree, tree};
use crate::support::scene::{ID, MASTER};
use crate::support::stage::{Author, SALT, text};
use crate::support::stream::{Marks, Plan, Stream};
use std::fs;

/// glibc 2.31 and systemd 247.
const SUITE: &str = "bullseye";
const SETTINGS: &str = "probation = \"3s\"\nstart_timeout = \"60s\"\nstop_timeout = \"10s\"\nrestart_pause = \"1s\"\n";
/// There and back so many times; one of the ways back is a rollback.
const ROUNDS: usize = 5;

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_on_bullseye_and_its_own_libraries_refuse_a_newer_tree() {
    let author = Author::new();
    let bundles = LONG_TERM.map(|version| author.salt_from(version, &portable_tree(version)));
    let master = Master::start(&tree(MASTER), true);
    let mut machine = Machine::of(Made { suite: SUITE, package: SALT, shares_network: true }, &author, &bundles);
    fs::write(machine.path("etc/sidle/sidle.toml"), SETTINGS).unwrap();
    let marks = Marks::below(&machine.path(""), &machine.path("srv"));
    fs::create_dir_all(machine.path("etc/salt")).unwrap();
    let own = format!("id: {ID}\nuser: root\nlog_level_logfile: info\n{}", marks.configuration(&[&master]));
    fs::write(machine.path("etc/salt/minion"), own).unwrap();
    machine.boot();
    let answers = |version: &str| {
        machine.serves(&format!("{version}-1"));
        eventually(START_SECONDS, &format!("{version} answers"), || {
            let answer = master.call_within("10", ID, &["test.version"]);
            if answer.contains(version) { Ok(()) } else { Err(answer) }
        });
    };
    machine.inside(&["sidle", "switch", SALT, &format!("{}-1", LONG_TERM[0])]);
    answers(LONG_TERM[0]);
    marks.started(1);

    let stream = Stream::begin(ID, &marks, &[&master], &Plan::of(0.7));
    for round in 0..ROUNDS {
        machine.inside(&["sidle", "switch", SALT, &format!("{}-1", LONG_TERM[1])]);
        answers(LONG_TERM[1]);
        let back = [vec!["sidle", "switch", SALT, "3006.30-1"], vec!["sidle", "rollback", SALT]];
        machine.inside(&back[usize::from(round == 1)]);
        answers(LONG_TERM[0]);
    }
    let report = stream.end();
    println!("{}", report.row("switches on bullseye"));
    report.assert_lossless("switches on bullseye");
    assert_eq!(report.doubled(), 0);

    of_a_newer_c_library_nothing_is_written(&machine, &author);
}

/// The tree of the Python of the machine that builds.
fn of_a_newer_c_library_nothing_is_written(machine: &Machine, author: &Author) {
    let bundle = author.salt_from("3007.17", &tree("3007.17"));
    fs::copy(&bundle, machine.path("srv/newer.sidle")).unwrap();
    let held = || machine.inside(&["find", "/opt/sidle", "/var/lib/sidle", "-printf", "%p %s %T@\n"]);
    let before = held();
    let (is_done, said) = machine.try_inside(&["sidle", "install", "/srv/newer.sidle"]);
    assert!(!is_done, "{said}");
    for words in ["this host has 2.31", "Debian GNU/Linux 11 (bullseye)", "it starts on"] {
        assert!(said.contains(words), "{words} is missing: {said}");
    }
    assert_eq!(held(), before, "something was written: {}", text(&bundle));
    println!("{said}");
}
