//! `plain::durability` after every single step, with more ways to shuffle: a minute of both cores.

use crate::plain::durability::{
    Extent, adopt, collect, failed_switch, give_back, install, install_from_a_repository, repair, switch,
};

#[test]
fn an_install_cut_off_after_every_step_leaves_a_whole_release_or_none() {
    install(Extent::Every);
}

#[test]
#[ignore = "`scripts/test --long`: ten seconds of a core; `plain::durability` cuts the same act off after some of its steps"]
fn a_repair_cut_off_after_every_step_moves_nothing_in_that_is_half_written() {
    repair(Extent::Every);
}

#[test]
#[ignore = "`scripts/test --long`: ten seconds of a core; `plain::durability` cuts the same act off after some of its steps"]
fn a_collection_cut_off_after_every_step_leaves_whole_releases_only() {
    collect(Extent::Every);
}

#[test]
#[ignore = "`scripts/test --long`: ten seconds of a core; `plain::durability` cuts the same act off after some of its steps"]
fn a_switch_cut_off_after_every_step_leaves_a_release_that_worked() {
    switch(Extent::Every);
}

#[test]
fn an_adoption_cut_off_after_every_step_can_be_taken_back() {
    adopt(Extent::Every);
}

#[test]
fn an_adoption_given_back_and_cut_off_after_every_step_leaves_no_unit_without_a_record() {
    give_back(Extent::Every);
}

#[test]
#[ignore = "`scripts/test --long`: ten seconds of a core; `plain::durability` cuts the same act off after some of its steps"]
fn an_install_from_a_repository_cut_off_after_every_step_leaves_a_whole_release_or_none() {
    install_from_a_repository(Extent::Every);
}

#[test]
fn a_failed_switch_cut_off_after_every_step_leaves_the_release_that_worked_and_its_verdict() {
    failed_switch(Extent::Every);
}
