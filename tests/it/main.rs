//! The integration tests: one file per promise or floor.

mod bundle;
mod machine;
mod support;
