//! The integration tests: one file per promise or floor.

mod machine;
