//! The judge of switches is judged: a stream without a switch loses nothing, a restart as packages do it loses jobs, and two minions
//! under one name run them twice; each is seen.

use crate::support::salt::{Master, Minion, START_SECONDS, tree};
use crate::support::scene::RATES;
use crate::support::stream::{Marks, Plan, Report, Stream, calibrate};
use crate::support::{come_first, eventually};

/// The release that ends soonest after SIGTERM: 3006 and 3007 take half a minute longer, and lose more.
const RELEASE: &str = "3008.5";

/// systemd's `TimeoutStopSec`, as a distribution's unit has it by default.
const STOP_SECONDS: u64 = 90;

fn answers(master: &Master) {
    eventually(START_SECONDS, "the minion answers", || match master.call_within("10", "judged", &["test.ping"]) {
        answer if answer.contains("True") => Ok(()),
        answer => Err(answer),
    });
}

#[test]
fn what_a_restart_loses_and_what_a_second_minion_doubles_is_seen_and_a_stream_without_either_is_whole() {
    come_first();
    let tree = tree(RELEASE);
    let master = Master::start(&tree, true);
    let marks = Marks::new();
    let mut minion = Minion::start(&tree, "judged", &marks.configuration(&[&master]));
    answers(&master);
    marks.started(1);
    marks.booted(1);
    let (rate, control) = calibrate("judged", &marks, &[&master], &RATES);
    control.assert_lossless("no switch");
    control.assert_steady_schedule("no switch");

    let stream = Stream::begin("judged", &marks, &[&master], &Plan::of(rate));
    stream.run(4);
    minion.terminate(STOP_SECONDS);
    minion.start_again();
    stream.run(20);
    let restarted = stream.end();
    println!("{}\n{}", Report::titles(), restarted.row("SIGTERM and start"));
    assert!(restarted.lost.iter().any(|job| job.kind == "long"), "{restarted:#?}");
    assert_eq!(restarted.starts.len(), 1, "{restarted:#?}");
    assert_eq!(restarted.startup_states, 1, "{restarted:#?}");
    assert_eq!(restarted.ticks.on_start, 1, "{restarted:#?}");
    assert_eq!(restarted.mine_updates, 1, "{restarted:#?}");

    // Another minion with the same keys: nothing keeps the two apart.
    answers(&master);
    let other = minion.start_twin("judged", &marks.configuration(&[&master]));
    other.healthy();
    let stream = Stream::begin("judged", &marks, &[&master], &Plan::short(1.0));
    stream.run(8);
    let doubled = stream.end();
    println!("{}", doubled.row("two minions of one name"));
    assert!(!doubled.executed_twice.is_empty() && !doubled.returned_twice.is_empty(), "{doubled:#?}");
}
