//! What ssh and a host's shell say when they fail, as reports with a remedy.

use crate::failure::{Class, Report};
use crate::os::OsError;
use std::io::ErrorKind;

/// The exit code with which ssh says that the connection failed, not the command.
pub const BROKEN: i32 = 255;
/// The exit code with which a shell says that there is no such command.
const NO_COMMAND: i32 = 127;

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

/// The report of a conversation that ended by silence or in disorder.
pub fn of_silence(attempted: &str, error: &OsError, seconds: u64, complaint: &str) -> Report {
    if error.kind() == ErrorKind::TimedOut {
        let said = if complaint.is_empty() { String::new() } else { format!("; it said: {}", last_line(complaint)) };
        return Report::of(Class::Failed, format!("cannot {attempted}: no byte came or went for {seconds} s{said}"))
            .hint("look at the host; --patience sets this time; then run the same `sidle push` again: it goes on where it stopped");
    }
    Report::of(error.class(), format!("cannot {attempted}: {error}"))
}

fn reason(errors: &str, code: Option<i32>) -> String {
    let line = last_line(errors);
    match (line.is_empty(), code) {
        (false, _) => line.to_owned(),
        (true, Some(BROKEN)) => "the connection broke".to_owned(),
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
