//! The environment variables of this process.

use std::ffi::OsString;

/// The value of a variable, where it is set and not empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
