//! What ssh and a host's shell say when they fail, as reports with a remedy.

use crate::failure::{Class, Report};
use crate::os::OsError;
use std::io::ErrorKind;
use std::time::Duration;

/// The exit code with which ssh says that the connection failed, not the command.
pub const BROKEN: i32 = 255;
/// The exit code with which a shell says that there is no such command.
const NO_COMMAND: i32 = 127;
/// Longest text of a line of a host in a message.
const LINE_CHARACTERS_MAXIMUM: usize = 200;

/// The report of a failed step.
pub fn report(attempted: &str, code: Option<i32>, errors: &str) -> Report {
    let of = |class, hint: &str| Report::of(class, format!("cannot {attempted}: {}", reason(errors, code))).hint(hint);
    let says = |words: &[&str]| words.iter().any(|word| errors.contains(word));
    if says(&["REMOTE HOST IDENTIFICATION HAS CHANGED", "host key for", "Offending "]) && says(&["changed", "CHANGED"])
    {
        let hint =
            "find out why: a new host in its place, or somebody between. Then remove the old key: `ssh-keygen -R HOST`";
        return Report::of(Class::NotTrusted, format!("cannot {attempted}: the host key has changed")).hint(hint);
    }
    if says(&[
        "Host key verification failed",
        "key is known by any other names",
        "No ED25519 host key is known",
        "host key is known for",
    ]) {
        let hint = "compare the key with the host's, and add it to known_hosts; `-o StrictHostKeyChecking=accept-new` accepts keys of new hosts";
        return Report::of(Class::NotTrusted, format!("cannot {attempted}: its host key is not known")).hint(hint);
    }
    if says(&["Permission denied (", "Too many authentication failures"]) {
        return of(
            Class::Failed,
            "give ssh a key that the host accepts, in an agent or with -i: no password is asked for",
        );
    }
    if says(&["a password is required", "sudo: a terminal is required", "not in the sudoers"]) {
        return of(Class::Failed, "allow the user to run `sudo -n` without a password, or push as root");
    }
    if says(&["No space left on device", "Disk quota exceeded"]) {
        return of(
            Class::NoSpace,
            "free space or inodes on the host, then run the same `sidle push` again: it goes on where it stopped",
        );
    }
    if says(&["Read-only file system"]) {
        return of(Class::Failed, "remount the file system of the host, then run the same `sidle push` again");
    }
    if code == Some(NO_COMMAND) {
        return of(Class::Failed, "the command is missing on the host: install it, or check PATH of the user's shell");
    }
    if code == Some(BROKEN) || code.is_none() {
        return of(
            Class::Failed,
            "check the network, and `ssh HOST true`; then run the same `sidle push` again: it goes on where it stopped",
        );
    }
    if says(&["ermission denied", "cannot create"]) {
        return of(Class::Failed, "push as root, or with --sudo");
    }
    of(Class::Failed, "correct that on the host, then run the same `sidle push` again: it goes on where it stopped")
}

/// The report of a conversation that ended by silence of this time, or in disorder.
pub fn of_broken(attempted: &str, error: &OsError, silence: Duration, errors: &str) -> Report {
    if error.kind() == ErrorKind::TimedOut {
        return late(attempted, &format!("no byte came or went for {} s", silence.as_secs()), "--patience", errors);
    }
    Report::of(error.class(), format!("cannot {attempted}: {error}"))
}

/// The report of a host that is not done when the time for it is over.
pub fn of_total(attempted: &str, total: Duration, errors: &str) -> Report {
    late(attempted, &format!("the host is not done after {} s", total.as_secs()), "--total-timeout", errors)
}

/// The report of a program that has said all, and does not end.
pub fn of_endless(attempted: &str, silence: Duration, errors: &str) -> Report {
    late(
        attempted,
        &format!("it did not end within {} s after its last answer", silence.as_secs()),
        "--patience",
        errors,
    )
}

fn late(attempted: &str, reason: &str, option: &str, errors: &str) -> Report {
    let said = if errors.is_empty() { String::new() } else { format!("; it said: {}", last_line(errors)) };
    Report::of(Class::Failed, format!("cannot {attempted}: {reason}{said}")).hint(format!(
        "look at the host; {option} sets this time; then run the same `sidle push` again: it goes on where it stopped"
    ))
}

/// The report of a host that printed this, and no result.
pub fn of_no_result(attempted: &str, code: Option<i32>, errors: &str, printed: &Printed) -> Report {
    if code != Some(0) || !errors.is_empty() || printed.bytes == 0 {
        return report(attempted, code, errors);
    }
    let last: String = printed.last.chars().take(LINE_CHARACTERS_MAXIMUM).collect();
    let cut = if last.len() < printed.last.len() { "…" } else { "" };
    let message = format!(
        "cannot {attempted}: it ended with exit code 0, without a result of sidle; of {} bytes that it printed the last line is: {last}{cut}",
        printed.bytes
    );
    Report::of(Class::Failed, message)
        .hint("look at what the user's shell on the host prints and starts: `ssh HOST sidle --version`")
}

/// What a host printed besides requests and a result.
#[derive(Debug, Default)]
pub struct Printed {
    /// Bytes of all lines.
    pub bytes: usize,
    /// The last line that is not empty.
    pub last: String,
}

impl Printed {
    /// Takes a line.
    pub fn take(&mut self, line: &[u8]) {
        self.bytes = self.bytes.saturating_add(line.len() + 1);
        let text = String::from_utf8_lossy(line);
        if !text.trim().is_empty() {
            text.trim().clone_into(&mut self.last);
        }
    }
}

fn reason(errors: &str, code: Option<i32>) -> String {
    let line = last_line(errors);
    match (line.is_empty(), code) {
        (false, _) => line.to_owned(),
        (true, Some(BROKEN)) => "the connection broke".to_owned(),
        (true, Some(0)) => "it ended with exit code 0, and printed no result".to_owned(),
        (true, Some(code)) => format!("it ended with exit code {code}, and said nothing"),
        (true, None) => "it was killed".to_owned(),
    }
}

/// The last line that says something; ssh's own closing words say less than what comes before.
fn last_line(errors: &str) -> &str {
    let says = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("Connection to ") && !line.starts_with("Shared connection to ")
    };
    errors.lines().rev().find(says).unwrap_or_else(|| errors.lines().next_back().unwrap_or("")).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_prints_garbage_is_not_silent() {
        let mut printed = Printed::default();
        let garbage = "x".repeat(200_000);
        printed.take(garbage.as_bytes());
        printed.take(b"");
        let report = of_no_result("set up x", Some(0), "", &printed);
        let said = "of 200002 bytes that it printed the last line is: xxx";
        assert!(report.message.contains(said) && report.message.len() < 400 && report.hint.is_some(), "{report}");
        let silent = of_no_result("set up x", Some(0), "", &Printed::default());
        assert!(silent.message.ends_with("printed no result"), "{silent}");
        let failed = of_no_result("set up x", Some(127), "sh: sidle: not found", &printed);
        assert!(failed.message.ends_with("not found"), "{failed}");
    }

    #[test]
    fn each_complaint_has_its_class_and_its_remedy() {
        let changed = "@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n…\nHost key for [127.0.0.1]:2222 has changed \
                       and you have requested strict checking.\nHost key verification failed.";
        for (errors, code, class, words) in [
            (changed, 255, Class::NotTrusted, "ssh-keygen -R"),
            (
                "No ED25519 host key is known for x and you have requested strict checking.\nHost key verification failed.",
                255,
                Class::NotTrusted,
                "known_hosts",
            ),
            ("root@x: Permission denied (publickey).", 255, Class::Failed, "-i"),
            ("sudo: a password is required", 1, Class::Failed, "sudo -n"),
            ("cat: write error: No space left on device", 1, Class::NoSpace, "free space"),
            ("sh: 1: cannot create /usr/bin/.sidle: Read-only file system", 2, Class::Failed, "remount"),
            ("sh: 1: cannot create /usr/bin/.sidle: Permission denied", 2, Class::Failed, "--sudo"),
            ("ssh: connect to host x port 22: Connection refused", 255, Class::Failed, "goes on where it stopped"),
            ("", 255, Class::Failed, "goes on where it stopped"),
        ] {
            let report = report("connect to x", Some(code), errors);
            assert_eq!(report.class, class, "{errors}");
            assert!(report.hint.as_ref().unwrap().contains(words), "{errors}: {report:?}");
        }
        assert!(report("x", Some(255), changed).message.ends_with("the host key has changed"));
        let last = report("x", Some(255), "ssh: no route\nConnection to x closed.\n");
        assert!(last.message.ends_with("no route"), "{last}");
    }
}
