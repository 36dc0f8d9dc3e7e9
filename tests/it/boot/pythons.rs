//! Releases on the Python of a new Debian, on that Debian: each tree is built in a root of the suite, from the suite's own Python, and a real minion on the
//! booted suite is switched from one release to the other and back under a stream of jobs.

use super::portable::{ROUNDS_MINIMUM, configure, there_and_back};
use crate::support::boot::{Machine, Made};
use crate::support::salt::{Master, tree};
use crate::support::scene::{ID, MASTER};
use crate::support::stage::{Author, SALT};
use crate::support::suite_python::packed_in_suite;
use std::fs;

const SUITE: &str = "sid";
/// Of the suite's Python, at least.
const MINOR: u32 = 14;

/// The suite's own Python, of which each release has a copy: `Python 3.14.2`.
fn python_of(machine: &Machine) -> String {
    let own = machine.inside(&["/usr/bin/python3", "--version"]).trim().to_owned();
    let minor = own.strip_prefix("Python 3.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    assert!(minor.is_some_and(|minor| minor >= MINOR), "{own}");
    own
}

/// A minion of each release runs on such a Python, which is the release's own.
fn runs_on(machine: &Machine, master: &Master, python: &str, release: &str) {
    machine.serves(release);
    let program = format!("/opt/sidle/{SALT}/versions/{release}/bin/python3");
    assert_eq!(machine.inside(&[&program, "--version"]).trim(), python);
    let numbers = python.trim_start_matches("Python ").replace('.', ", ");
    let grain = master.call(ID, &["grains.get", "pythonversion"]);
    assert!(grain.contains(&format!("[{numbers}, ")), "{grain}");
    let executable = master.call(ID, &["grains.get", "pythonexecutable"]);
    assert!(executable.contains(&format!("/versions/{release}/bin/python3")), "{executable}");
}

/// A booted host of the suite, on which two releases of trees of its own Python are switched.
fn are_switched([old, new]: [&str; 2]) {
    let author = Author::new();
    let bundles = packed_in_suite(SUITE, &author, [old, new]);
    let master = Master::start(&tree(MASTER), true);
    let mut machine = Machine::of(Made { suite: SUITE, package: SALT, shares_network: true }, &author, &[]);
    let marks = configure(&machine.path(""), &master);
    machine.start();
    // From inside: the releases need the C library of the suite.
    for bundle in &bundles {
        fs::copy(bundle, machine.path("srv/release.sidle")).unwrap();
        machine.inside(&["sidle", "install", "/srv/release.sidle"]);
    }
    machine.inside(&["systemctl", "restart", &format!("sidle@{SALT}.service")]);
    let python = python_of(&machine);
    let what = format!("{old} and {new} on {python} of {SUITE}");
    there_and_back((&what, ROUNDS_MINIMUM), [old, new], &|words| machine.inside(words), &master, &marks);
    runs_on(&machine, &master, &python, old);
    machine.inside(&["sidle", "switch", SALT, new]);
    runs_on(&machine, &master, &python, new);
}

#[test]
#[ignore = "`scripts/test --long`: boots the newest Debian twice, with releases that are built there"]
fn releases_on_the_python_of_sid_are_switched_on_a_booted_sid() {
    // Two builds of one Salt, and two versions of Salt.
    for releases in [["3008.5-1", "3008.5-2"], ["3007.17-1", "3008.5-1"]] {
        are_switched(releases);
    }
}
