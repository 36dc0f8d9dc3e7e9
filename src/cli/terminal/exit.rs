//! Exit codes: what a script can tell apart.

use crate::failure::{Class, Reason, Report};
use serde_json::{Value, json};
use std::process::ExitCode;

/// An exit code as `sidle(8)` and `docs/commands.md` have it.
#[derive(Debug)]
pub struct Code {
    /// The class of failure that ends with it; None: success.
    pub class: Option<Class>,
    /// What happened.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

const fn documented(class: Class, meaning: &'static str, remedy: &'static str) -> Code {
    Code { class: Some(class), meaning, remedy }
}

/// Every exit code, by its number.
pub const CODES: [Code; 13] = [
    Code { class: None, meaning: "ok", remedy: "" },
    documented(Class::Failed, "failed", "read the message and the hint"),
    documented(
        Class::Usage,
        "wrong usage, or settings that cannot be read",
        "correct the command line, or the line of the settings that the message names",
    ),
    documented(Class::NothingToDo, "nothing to do", "nothing"),
    documented(
        Class::Pending,
        "no error: the switch is still in progress, and continues without this command (after `--no-wait` or `--at-window`, in a Salt job of \
         the minion, or until a supervisor runs). `sidle status` returns 4 while a switch is in progress. After `setup --start` and `push --action start`: the masters \
         have not accepted the key of the new minion",
        "`sidle status` shows the progress; accept the key, then run the same command again",
    ),
    documented(
        Class::RolledBack,
        "rolled back: the release on trial did not come up or stay healthy",
        "`sidle history PACKAGE --id N` says why. The old release is the current release",
    ),
    documented(
        Class::Integrity,
        "integrity: bytes are not what was signed",
        "`sidle repair`; copy the bundle again; ask the mirror's owner",
    ),
    documented(
        Class::NotTrusted,
        "not trusted: a bad signature, expired metadata, a withdrawn release, no pinned root, unsafe content, or a directory that \
         other users may write to",
        "`sidle trust show`; `sidle doctor`; ask the repository's owner. Do not force",
    ),
    documented(Class::NoSpace, "no space: bytes or inodes", "`sidle collect`; free space"),
    documented(Class::Locked, "locked by another command", "wait; the message names the process"),
    documented(
        Class::Held,
        "held (`sidle hold`), outside the maintenance windows, or a release that failed on this host",
        "`sidle unhold`; `--at-window` or `--outside-window`; `--force` tries a bad release again",
    ),
    documented(
        Class::Busy,
        "jobs still run at the deadline; nothing was changed",
        "try later, with a longer `--deadline`, or with `--mode overlap`",
    ),
    documented(
        Class::Conflict,
        "conflict: another switch is under way, the release is in use, the host belongs to another rollout, or a minion runs that sidle did not start",
        "`sidle status`; the message names the other switch or process",
    ),
];

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

/// A failure in JSON.
pub fn error(report: &Report) -> Value {
    // Lines of used functions are for programs: the message has them in words.
    let message = if report.reason == Some(Reason::Used) { report.headline() } else { report.to_string() };
    json!({
        "class": report.class, "code": number(report.class), "reason": report.reason, "message": message, "lines": report.lines,
        "hint": report.hint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_failure_are_there_for_programs() {
        let lines = vec!["module vault.read_secret 2026-11-20".to_owned()];
        let report = Report { lines, ..Report::of(Class::Failed, "cannot switch") };
        assert_eq!(error(&report)["lines"][0], "module vault.read_secret 2026-11-20");
        assert_eq!(error(&report)["message"], "cannot switch: module vault.read_secret 2026-11-20");
        assert_eq!(error(&report.reason(Reason::Used))["message"], "cannot switch");
    }

    #[test]
    fn each_code_stands_at_its_own_number() {
        for (place, code) in CODES.iter().enumerate() {
            assert_eq!(code.class.map_or(0, number) as usize, place);
        }
    }
}
