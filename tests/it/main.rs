//! The integration tests: one file per promise or floor.

#![expect(clippy::disallowed_methods, reason = "tests set the stage by hand")]

mod bundle;
mod crash;
mod demo;
mod machine;
mod salt;
mod support;
mod switching;
