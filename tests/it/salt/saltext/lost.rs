//! Jobs that do not reach a minion that runs, and returns that do not reach this master, on each Salt.

use super::why::Fleet;
use crate::support::eventually;
use crate::support::relay::{Relay, Way};
use crate::support::salt::{Master, Minion, tree, tree_of_python};
use crate::support::stage::SIDLE;
use std::process::Command;
use std::time::{Duration, Instant};

/// Jobs that are published so soon after a start, or after a key was accepted, are told of as such.
const RECONNECT: Duration = Duration::from_secs(30);

const OLDER: &str = "3006.30";

/// Later than that is the master's of every release but this one.
const OLDER_PYTHON: &str = "3.10";

/// Its main process gives up a return within seconds.
const IMPATIENT: &str = "return_retry_timer: 2\nreturn_retry_timer_max: 3\nreturn_retry_tries: 1\n";

/// As a syndic publishes a job that its master of masters has given an id.
fn publish_as(master: &Master, jid: &str) {
    let code = "import sys, salt.client; salt.client.LocalClient(sys.argv[1]).pub('hot', 'test.ping', jid=sys.argv[2])";
    let place = master.place();
    let done =
        Command::new(place.python).args(["-E", "-s", "-B", "-c", code]).arg(place.configuration).arg(jid).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Two masters publish a job of one id, as two syndics of one master of masters do. The minion runs it for one of them.
fn goes_to_the_other_master(version: &str) {
    let fleet = Fleet::new(version, "");
    let twin = fleet.master.start_twin_at("127.0.0.2");
    let masters = [&fleet.master, &twin];
    let names = masters.map(|each| format!("{}:{}", each.address, each.request_port()));
    let own = format!("master: {names:?}\nlog_level_logfile: info\nsidle: {{program: {SIDLE}}}\n");
    let hot = Minion::start(&tree(version), "hot", &own);
    fleet.master.accept("hot");
    fleet.syncs("hot");
    twin.hears(&["hot"]);
    let jid = &twin.publish("hot", &["test.ping"]);
    let has_it = || twin.runner(&["jobs.lookup_jid", jid])["hot"] == true;
    eventually(30, "the other one has the return", || if has_it() { Ok(()) } else { Err(hot.log()) });
    publish_as(&fleet.master, jid);
    let told = fleet.comes_to(&["hot", jid], "returned-elsewhere");
    assert!(told["remedy"].to_string().contains("127.0.0.2"), "{told:#}");
}

/// A minion whose Python is older than the master's does not know such a pattern; nor does a much older Salt know each compound target.
fn is_not_understood(fleet: &Fleet) {
    let _older =
        fleet.minion_of(&tree_of_python(OLDER, OLDER_PYTHON), ("older", "127.0.0.63"), "log_level_logfile: info\n");
    fleet.master.accept("older");
    fleet.syncs("older");
    for target in [["-E", "olde++r"], ["-C", "E@olde++r"]] {
        let jid = fleet.master.publish(target[0], &[target[1], "test.ping"]);
        fleet.comes_to(&["older", &jid], "target-not-understood");
    }
}

fn each_is_named(version: &str) {
    let fleet = Fleet::new(version, "");
    let relays = [fleet.master.request_port(), fleet.master.publish_port()].map(|port| {
        let relay = Relay::start();
        relay.lead_to(port);
        relay
    });
    let [request, publish] = &relays;
    let start = |id, address, level: &str| {
        let options = format!("log_level_logfile: {level}\n{IMPATIENT}");
        fleet.minion_by(&tree(version), (id, address), (request.port, publish.port), &options)
    };
    let web1 = start("web1", "127.0.0.61", "info");
    let _web2 = start("web2", "127.0.0.62", "warning");
    for id in ["web1", "web2"] {
        fleet.master.accept(id);
    }
    let accepted = Instant::now();
    for id in ["web1", "web2"] {
        fleet.syncs(id);
    }
    std::thread::sleep(RECONNECT.saturating_sub(accepted.elapsed()));

    publish.treat(Way::Swallow);
    publish.cut();
    let missed = fleet.master.publish("*", &["test.ping"]);
    publish.treat(Way::Pass);
    publish.cut();
    for id in ["web1", "web2"] {
        fleet.answers(id);
    }
    fleet.comes_to(&["web1", &missed], "not-received");
    fleet.comes_to(&["web2", &missed], "undecided");

    let unreturned = fleet.master.publish("web1", &["test.sleep", "5"]);
    web1.busy_with("test.sleep");
    request.treat(Way::Swallow);
    request.cut();
    eventually(60, "the minion gives up", || match web1.log() {
        log if log.contains(&format!("failed to return the job information for job {unreturned}")) => Ok(()),
        log => Err(log),
    });
    request.treat(Way::Pass);
    request.cut();
    fleet.answers("web1");
    fleet.comes_to(&["web1", &unreturned], "return-timed-out");
    if version != OLDER {
        is_not_understood(&fleet);
    }
}

#[test]
#[ignore = "`scripts/test --long`: connections are cut, and waited for"]
fn what_is_lost_on_its_way_is_named_on_3006() {
    each_is_named("3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: connections are cut, and waited for"]
fn what_is_lost_on_its_way_is_named_on_3007() {
    each_is_named("3007.17");
}

#[test]
#[ignore = "`scripts/test --long`: connections are cut, and waited for"]
fn what_is_lost_on_its_way_is_named_on_3008() {
    each_is_named("3008.5");
}

#[test]
#[ignore = "`scripts/test --long`: two masters, which publish one job"]
fn what_another_master_has_is_named_on_3006() {
    goes_to_the_other_master("3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: two masters, which publish one job"]
fn what_another_master_has_is_named_on_3007() {
    goes_to_the_other_master("3007.17");
}

#[test]
#[ignore = "`scripts/test --long`: two masters, which publish one job"]
fn what_another_master_has_is_named_on_3008() {
    goes_to_the_other_master("3008.5");
}
