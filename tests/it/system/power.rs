//! Real power cuts: ext4 and xfs on loop devices are shut down without a flush of their journals at an instant of install, repair, collect or switch,
//! or just after it was said to be done, mounted again, and looked at as `plain::durability` does. `SIDLE_POWER_CUTS=200` cuts so often in each of them.

use crate::plain::crash::{instants, supervised};
use crate::plain::durability::{
    COLLECT, TREE, after_boot, after_collect, after_install, after_repair, after_switch, damage, settled,
};
use crate::support::leftovers;
use crate::support::mounts::Mounted;
use crate::support::stage::{Author, DEMO, Host, SIDLE, text};
use crate::support::trees;
use std::process::Command;

/// How often in an act, on each file system, where nobody says otherwise; in a switch, after which an agent is brought up.
const CUTS: usize = 6;
const CUTS_OF_A_SWITCH: usize = 3;

const BOTH: [&str; 2] = ["ext4", "xfs"];

fn cuts(usual: usize) -> usize {
    std::env::var("SIDLE_POWER_CUTS").map_or(usual, |text| text.parse().expect("SIDLE_POWER_CUTS is a number"))
}

/// Does something with these variables in its environment.
type Act<'a> = &'a dyn Fn(&Host, &[(&str, &str)]);
/// What is wrong; the act was said to be done.
type Look<'a> = &'a dyn Fn(&Host, bool) -> Result<(), String>;

/// One cut after `act` on a copy of `host`, and what is wrong then.
fn cut(
    disk: &Mounted,
    host: &Host,
    act: &dyn Fn(&Host),
    look: &dyn Fn(&Host) -> Result<(), String>,
) -> Result<(), String> {
    let host = host.copy_to(&disk.path());
    rustix::fs::syncfs(std::fs::File::open(disk.path()).unwrap()).unwrap();
    act(&host);
    disk.cut_power();
    leftovers::kill(&host.root());
    disk.offline(|_| ());
    look(&host)
}

/// Cuts the power at instants of `act` that are spread over all of it, and after it.
fn survives_cuts(host: &Host, cuts: usize, act: Act<'_>, look: Look<'_>) {
    let traced = host.copy();
    let trace = traced.path("trace");
    act(&traced, &[("SIDLE_CRASH_TRACE", text(&trace))]);
    let instants = instants(&trace);
    assert!(instants.len() >= 4, "only {} instants: are the crash points compiled in?", instants.len());
    for kind in BOTH {
        let disk = Mounted::journaled(kind);
        cut(&disk, host, &|host| act(host, &[]), &|host| look(host, true))
            .unwrap_or_else(|what| panic!("{kind}, just after it was said to be done: {what}"));
        for number in 0..cuts {
            let instant = &instants[number * instants.len() / cuts % instants.len()];
            cut(&disk, host, &|host| act(host, &[("SIDLE_CRASH_AT", instant)]), &|host| look(host, false))
                .unwrap_or_else(|what| panic!("{kind}, at {instant}: {what}"));
        }
    }
}

#[test]
fn a_power_cut_in_an_install_leaves_a_whole_release_or_none() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    survives_cuts(
        &Host::new(&author),
        cuts(CUTS),
        &|host, variables| drop(host.sidle_with(&["install", text(&bundle)], variables)),
        &|host, is_end| after_install(host, &bundle, is_end),
    );
}

#[test]
fn a_power_cut_in_a_repair_moves_nothing_in_that_is_half_written() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let signed = trees::contents(&host.path(TREE));
    damage(&host);
    survives_cuts(
        &host,
        cuts(CUTS),
        &|host, variables| drop(host.sidle_with(&["repair", DEMO, "--from", text(&bundle)], variables)),
        &|host, is_end| after_repair(host, &bundle, &signed, is_end),
    );
}

#[test]
fn a_power_cut_in_a_collection_leaves_whole_releases_only() {
    let author = Author::new();
    let host = Host::new(&author);
    for version in ["1.0", "1.1", "1.2"] {
        host.install(&author.release(version, "good")).ok();
    }
    survives_cuts(&host, cuts(CUTS), &|host, variables| drop(host.sidle_with(COLLECT, variables)), &after_collect);
}

#[test]
fn a_power_cut_in_a_switch_leaves_a_release_that_worked() {
    let author = Author::new();
    survives_cuts(
        &settled(&author),
        cuts(CUTS_OF_A_SWITCH),
        &|host, variables| {
            supervised(host, &["switch", DEMO, "1.1-1"], variables);
        },
        &|host, is_end| after_switch(host, is_end).and_then(|()| after_boot(host)),
    );
}

/// One cut may find all on the disk: a sync(2) of another program is for all file systems, and a journal is written by itself each few seconds.
const TRIES: usize = 5;

#[test]
fn a_program_whose_syncs_do_nothing_is_found_out_by_a_power_cut() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    for kind in BOTH {
        let disk = Mounted::journaled(kind);
        let act = |host: &Host| {
            let mut traced = Command::new("strace");
            traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync,syncfs"]);
            traced.args(["-e", "inject=fsync,fdatasync,syncfs:retval=0", SIDLE, "--root", text(&host.root())]);
            assert!(traced.args(["install", text(&bundle)]).status().unwrap().success());
        };
        let found = (0..TRIES).find_map(|_| cut(&disk, &host, &act, &|host| after_install(host, &bundle, true)).err());
        println!("{kind}: {}", found.expect("an install without syncs passes for a safe one"));
    }
}
