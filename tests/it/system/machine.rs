//! Every world of the switch machine: what `pure::machine` does with some. Minutes of both cores.

use crate::pure::machine::walk;

#[test]
fn every_world_converges_under_one_crash_and_a_cancellation() {
    println!("worlds and states: {:?}", walk(1, 1, 1));
}

#[test]
fn every_world_converges_under_every_two_crashes() {
    println!("worlds and states: {:?}", walk(1, 2, 0));
}
