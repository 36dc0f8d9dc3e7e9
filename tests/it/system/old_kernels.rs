//! The static program that is given away, on the kernels and in the containers of `plain::old_kernels`.

use crate::plain::old_kernels::works;
use crate::support::kernels::{Answer, Clone3, KERNEL_3_10, KERNEL_4_4, KERNEL_4_12, KERNEL_4_18};
use crate::support::release::static_program;

#[test]
fn the_static_program_works_on_old_kernels() {
    for kernel in [KERNEL_3_10, KERNEL_4_4, KERNEL_4_12, KERNEL_4_18] {
        works(&static_program(), kernel, Answer::NoSuchCall, Clone3::AsOthers);
    }
}

/// It brings its own C library: that one meets EPERM in place of clone3, too.
#[test]
fn the_static_program_works_in_containers_that_forbid_newer_calls() {
    for kernel in [KERNEL_3_10, KERNEL_4_18] {
        works(&static_program(), kernel, Answer::NotPermitted, Clone3::AsOthers);
    }
}
