//! A clock that a test sets for a real agent, by libfaketime: sidle itself keeps the machine's.

use jiff::Span;
use jiff::civil::Date;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// The variables that reach the agent: a line of an instance's settings.
pub const PASSED: &str = "pass_environment = [\"LD_PRELOAD\", \"FAKETIME*\", \"NO_FAKE_STAT\"]\n";

/// The wall clock of programs that have its variables.
pub struct Clock {
    file: PathBuf,
    library: String,
    /// Days since 1970, when it was made.
    today: u64,
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Clock {
    /// A clock that reads its setting from this file.
    pub fn at(file: PathBuf) -> Self {
        let asked = Command::new("faketime").args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"]).output();
        let asked = asked.expect("faketime is installed: apt-get install faketime");
        assert!(asked.status.success(), "{asked:?}");
        let library = String::from_utf8(asked.stdout).unwrap().trim().to_owned();
        Self { file, library, today: seconds() / SECONDS_PER_DAY }
    }

    /// The variables of a program that is to have it. Waits, and ages by the machine's start, stay true.
    pub fn variables(&self) -> [(&str, &str); 6] {
        [
            ("LD_PRELOAD", &self.library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.to_str().unwrap()),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_SKIP_CMDS", "sidle"),
            ("NO_FAKE_STAT", "1"),
        ]
    }

    /// Sets it to so many minutes after noon in UTC, so many days ago; gives that day. It goes on from there.
    pub fn set(&self, days: u64, minutes: u64) -> Date {
        let day = self.today - days;
        let time = day * SECONDS_PER_DAY + SECONDS_PER_DAY / 2 + minutes * 60;
        // Replaced whole: the agent reads it at any time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("-{}\n", seconds() - time)).unwrap();
        fs::rename(new, &self.file).unwrap();
        Date::new(1970, 1, 1).unwrap() + Span::new().days(i64::try_from(day).unwrap())
    }
}
