//! The integration tests: a folder for each tier, cheapest first (pure, plain, system, salt, boot), in it a file for each promise or floor.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests set the stage by hand, and a panic is how they fail"
)]

mod bench;
mod boot;
mod plain;
mod pure;
mod salt;
mod support;
mod system;
