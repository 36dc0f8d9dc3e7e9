//! Exit codes: what a script can tell apart.

use crate::failure::Class;
use std::process::ExitCode;

/// The exit code of a class of failure; success is 0.
pub fn number(class: Class) -> u8 {
    match class {
        Class::Failed => 1,
        Class::Usage => 2,
        Class::NothingToDo => 3,
        Class::Pending => 4,
        Class::RolledBack => 5,
        Class::Integrity => 6,
        Class::NotTrusted => 7,
        Class::NoSpace => 8,
        Class::Locked => 9,
        Class::Held => 10,
        Class::Busy => 11,
        Class::Conflict => 12,
    }
}

/// The same for `main`.
pub fn code(class: Class) -> ExitCode {
    ExitCode::from(number(class))
}

/// The word for a class in JSON.
pub fn word(class: Class) -> &'static str {
    match class {
        Class::Failed => "failed",
        Class::Usage => "usage",
        Class::NothingToDo => "nothing-to-do",
        Class::Pending => "pending",
        Class::RolledBack => "rolled-back",
        Class::Integrity => "integrity",
        Class::NotTrusted => "not-trusted",
        Class::NoSpace => "no-space",
        Class::Locked => "locked",
        Class::Held => "held",
        Class::Busy => "busy",
        Class::Conflict => "conflict",
    }
}
