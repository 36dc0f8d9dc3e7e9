//! Minions that a master does not let in, or whose messages it drops, on each Salt.

use super::why::Fleet;
use crate::support::eventually;
use crate::support::salt::{Minion, START_SECONDS};
use std::fs;

/// What the master asks for. It logs that it takes no more minions at this level only; 3008 cannot check a signature without the last line.
const MASTER: &str = "max_minions: 2\nrequest_server_ttl: 60\nrequire_minion_sign_messages: True\nlog_level_logfile: info\n\
    signing_algorithm: PKCS1v15-SHA1\n";

const SIGNS: &str = "minion_sign_messages: True\n";

fn writes(minion: &Minion, words: &str) {
    eventually(START_SECONDS, words, || match minion.log() {
        log if log.contains(words) => Ok(()),
        log => Err(log),
    });
}

fn each_is_named(version: &str) {
    let fleet = Fleet::new(version, MASTER);
    let start = |id: &str, address: &str, options: &str| {
        let minion = fleet.minion(version, (id, address), options);
        fleet.master.accept(id);
        minion
    };
    let _web1 = start("web1", "127.0.0.51", SIGNS);
    fleet.answers("web1");
    let web2 = start("web2", "127.0.0.52", "");
    writes(&web2, "Minion is ready to receive requests!");
    let mut web3 = start("web3", "127.0.0.53", SIGNS);
    fleet.answers("web3");
    web3.end();
    web3.start_with_clock(Some("-600s"));
    let jid = fleet.master.publish("*", &["test.ping"]);
    fleet.comes_to(&["web2", &jid], "signature");
    fleet.comes_to(&["web3", &jid], "clock");

    // Its clock is right again: three are connected, and the next one is too many.
    web3.start_with_clock(None);
    fleet.answers("web3");
    let web4 = fleet.minion(version, ("web4", "127.0.0.54"), SIGNS);
    let public = web4.path("keys/minion.pub");
    eventually(START_SECONDS, "it has a key", || if public.exists() { Ok(()) } else { Err(web4.log()) });
    // A master that is full does not even store the key.
    fs::copy(public, fleet.master.keys().join("minions/web4")).unwrap();
    let jid = fleet.master.publish("*", &["test.ping"]);
    fleet.comes_to(&["web4", &jid], "too-many-minions");
    let told = fleet.why(&["web1", &jid]);
    assert!(told["text"].as_str().unwrap().starts_with("web1 did return"), "{told:#}");
}

#[test]
#[ignore = "`scripts/test --long`: four minions, and what a master refuses by its options"]
fn refusals_are_named_on_3006() {
    each_is_named("3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: four minions, and what a master refuses by its options"]
fn refusals_are_named_on_3007() {
    each_is_named("3007.17");
}

#[test]
#[ignore = "`scripts/test --long`: four minions, and what a master refuses by its options"]
fn refusals_are_named_on_3008() {
    each_is_named("3008.5");
}
