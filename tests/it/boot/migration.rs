//! A migration of the distribution under a minion: the C library, systemd, bash and Python of the host are replaced while the minion runs, and it answers
//! each job. What is loaded for the first time afterwards is the release's own; what comes from the host is the newer one's.

use crate::support::boot::{Machine, Made};
use crate::support::eventually;
use crate::support::minions;
use crate::support::salt::{Master, START_SECONDS, tree};
use crate::support::scene::{ID, MASTER};
use crate::support::stage::{SALT, text};
use crate::support::stream::{Marks, Plan, Stream};
use std::fs;

const RELEASES: [&str; 2] = ["3006.30", "3008.5"];
/// From the suite of the trees' C library to the next one.
const SUITES: [&str; 2] = ["bookworm", "trixie"];
const SETTINGS: &str = "probation = \"1s\"\nstart_timeout = \"60s\"\nstop_timeout = \"2s\"\n";
/// Answers of maintainer scripts are those of the package; what is configured here stays.
const UPGRADE: &str = "DEBIAN_FRONTEND=noninteractive apt-get -y -o Dpkg::Options::=--force-confold dist-upgrade";

/// The root's apt knows the next suite, and has all packages of it.
fn knows_the_next_suite(machine: &Machine) {
    let mirror = std::env::var("MIRROR").unwrap_or_else(|_| "http://deb.debian.org/debian".to_owned());
    let sources = format!("deb {mirror} {} main\n", SUITES[1]);
    fs::write(machine.path("etc/apt/sources.list"), sources).unwrap();
    fs::copy("/etc/resolv.conf", machine.path("etc/resolv.conf")).unwrap();
    let fetch = format!("apt-get -q update && {UPGRADE} --download-only");
    machine.inside(&["sh", "-ec", &fetch]);
}

fn version(machine: &Machine, package: &str) -> String {
    machine.inside(&["dpkg-query", "-W", "-f", "${Version}", package])
}

/// A glibc that is replaced under a process has its lazily loaded parts replaced, too; a systemd that executes itself anew must know its services still.
#[test]
#[ignore = "`scripts/test --long`: a release of the distribution is fetched and unpacked"]
fn a_migration_of_the_distribution_costs_no_job_and_the_next_switch_works() {
    let author = minions::author();
    let master = Master::start(&tree(MASTER), true);
    let bundles = RELEASES.map(|version| author.salt(version));
    let made = Made { suite: SUITES[0], package: SALT, shares_network: true };
    let mut machine = Machine::of(made, &author, &bundles);
    fs::write(machine.path("etc/sidle/sidle.toml"), SETTINGS).unwrap();
    let marks = Marks::below(&machine.path(""), &machine.path("srv"));
    fs::create_dir_all(machine.path("etc/salt")).unwrap();
    let own = format!("id: {ID}\nuser: root\nlog_level_logfile: info\n{}", marks.configuration(&[&master]));
    fs::write(machine.path("etc/salt/minion"), own).unwrap();
    machine.boot();
    knows_the_next_suite(&machine);
    let [old, new] = RELEASES.map(|version| format!("{version}-1"));
    let answers = |machine: &Machine, version: &str| {
        machine.serves(&format!("{version}-1"));
        eventually(START_SECONDS, &format!("{version} answers"), || {
            let answer = master.call_within("10", ID, &["test.version"]);
            if answer.contains(version) { Ok(()) } else { Err(answer) }
        });
    };
    machine.inside(&["sidle", "switch", SALT, &old]);
    answers(&machine, RELEASES[0]);
    let agent = machine.agent();
    let before = ["libc6", "systemd"].map(|package| version(&machine, package));

    let stream = Stream::begin(ID, &marks, &[&master], &Plan::short(1.0));
    let said = machine.inside(&["sh", "-ec", &format!("{UPGRADE} --no-download 2>&1")]);
    let after = ["libc6", "systemd"].map(|package| version(&machine, package));
    println!("libc6 {} -> {}, systemd {} -> {}", before[0], after[0], before[1], after[1]);
    assert!(before[0] != after[0] && before[1] != after[1], "{said}");
    assert_eq!(machine.agent(), agent, "the minion is the same process: {said}");
    assert_eq!(machine.property("ActiveState"), "active");
    // A module that was never used before, and a name that the newer library resolves.
    let lazily = master.call(ID, &["network.ip_addrs"]);
    assert!(!lazily.contains("rror"), "{lazily}");
    let port = format!("port={}", master.request_port());
    let connected = master.call(ID, &["network.connect", "localhost", &port, "family=ipv4"]);
    assert!(connected.contains("Successfully connected"), "{connected}");
    let report = stream.end();
    println!("{}", report.row("a migration of the distribution"));
    report.assert_lossless("a migration of the distribution");

    let stream = Stream::begin(ID, &marks, &[&master], &Plan::short(1.0));
    machine.inside(&["sidle", "switch", SALT, &new]);
    answers(&machine, RELEASES[1]);
    stream.end().assert_lossless("a switch on the migrated host");
    let found = machine.inside(&["sidle", "verify", SALT, "--full"]);
    assert!(!found.contains("damaged"), "{found}");

    machine.cut_power();
    machine.boot();
    answers(&machine, RELEASES[1]);
    let root = machine.path("");
    println!("{} is {}", text(&root), machine.inside(&["cat", "/etc/debian_version"]).trim());
}
