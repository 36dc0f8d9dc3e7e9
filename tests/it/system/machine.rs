//! The worlds of the switch machine: what `pure::machine` does with some. Minutes of both cores.

use crate::pure::machine::walk;

/// A prime, so that each former, trial and hitch meets each other in some of them.
const ONE_IN: usize = 5;

#[test]
fn a_fifth_of_the_worlds_converges_under_one_crash_and_a_cancellation() {
    println!("worlds and states: {:?}", walk(ONE_IN, 1, 1));
}

#[test]
#[ignore = "`scripts/test --long`: half a minute of both cores; a fifth of the worlds is in `--all`"]
fn every_world_converges_under_one_crash_and_a_cancellation() {
    println!("worlds and states: {:?}", walk(1, 1, 1));
}

#[test]
fn a_fifth_of_the_worlds_converges_under_every_two_crashes() {
    println!("worlds and states: {:?}", walk(ONE_IN, 2, 0));
}

#[test]
#[ignore = "`scripts/test --long`: a minute of both cores; a fifth of the worlds is in `--all`"]
fn every_world_converges_under_every_two_crashes() {
    println!("worlds and states: {:?}", walk(1, 2, 0));
}
