//! The worlds of the switch machine: what `pure::machine` does with some. Minutes of both cores.

use crate::pure::machine::walk;

#[test]
fn every_world_converges_under_one_crash_and_a_cancellation() {
    println!("worlds and states: {:?}", walk(1, 1, 1));
}

/// A prime, so that each former, trial and hitch meets each other in some of them.
#[test]
fn a_fifth_of_the_worlds_converges_under_every_two_crashes() {
    println!("worlds and states: {:?}", walk(5, 2, 0));
}

#[test]
#[ignore = "`scripts/test --long`: two minutes of both cores; a fifth of the worlds is in `--all`"]
fn every_world_converges_under_every_two_crashes() {
    println!("worlds and states: {:?}", walk(1, 2, 0));
}
