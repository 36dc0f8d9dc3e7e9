//! The integration tests: one file per promise or floor.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests set the stage by hand, and a panic is how they fail"
)]

mod bundle;
mod crash;
mod demo;
mod install;
mod machine;
mod messages;
mod salt;
mod support;
mod switching;
mod tamper;
