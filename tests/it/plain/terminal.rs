//! What people read: no line is wider than the terminal, colours only where they are wanted, times of the host's zone, progress on a terminal alone.

use crate::support::pty::sidle_at;
use crate::support::stage::{DEMO, Host, text, two_releases};
use std::fs;

const WIDE: &str = "the audit of the third quarter of the year, as the change board of the site asked for; see the ticket, which has all dates";

/// A host about which there is much to say.
fn talkative() -> (Host, crate::support::stage::Author) {
    let (host, author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1", "--reason", WIDE]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    host.sidle(&["hold", DEMO, "--reason", WIDE]).ok();
    fs::write(host.path("opt/sidle/demo-agent/versions/1.0-1/share/demo-agent/release"), "x").unwrap();
    (host, author)
}

fn at(host: &Host, columns: u16, words: &[&str], variables: &[(&str, &str)]) -> String {
    sidle_at(columns, &[&["--root", text(&host.root())], words].concat(), variables)
}

/// The text without blanks, and without numbers, which are ages.
fn content(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !c.is_ascii_digit()).collect()
}

#[test]
fn no_line_is_wider_than_the_terminal_and_nothing_is_lost() {
    let (host, _author) = talkative();
    for words in [&["status"][..], &["list"], &["history", DEMO], &["history", DEMO, "--id", "1"], &["doctor"]] {
        let piped = host.sidle(words).stdout;
        assert!(piped.lines().any(|line| line.chars().count() > 80), "{words:?} has a long line in a pipe: {piped}");
        for columns in [60, 80, 132] {
            let shown = at(&host, columns, words, &[("NO_COLOR", "1")]);
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= usize::from(columns), "{words:?} at {columns}: {widest}\n{shown}");
            assert_eq!(content(&shown), content(&piped), "{words:?} at {columns}:\n{shown}");
        }
    }
    let metrics = at(&host, 80, &["metrics"], &[]);
    assert!(metrics.lines().any(|line| line.chars().count() > 80), "what a program reads stays as it is: {metrics}");
}

#[test]
fn colours_are_on_a_terminal_that_wants_them_and_nowhere_else() {
    let (host, _author) = talkative();
    for (words, coloured) in [
        (&["status"][..], "\u{1b}[33mWARNING\u{1b}[0m"),
        (&["list"], "\u{1b}[32mcurrent\u{1b}[0m"),
        (&["history", DEMO], "\u{1b}[32m: done\u{1b}[0m"),
        (&["doctor"], "\u{1b}[31mERROR\u{1b}[0m"),
        (&["switch", DEMO, "1.0-1"], "\u{1b}[31msidle:\u{1b}[0m cannot switch"),
    ] {
        let shown = at(&host, 400, words, &[]);
        assert!(shown.contains(coloured), "{words:?}: {shown:?}");
        // As in continuous integration, too.
        let plain = |variable| at(&host, 400, words, &[variable, ("CI", "true")]);
        let json = at(&host, 400, &[&["--json"], words].concat(), &[]);
        let piped = host.sidle_with(words, &[("CLICOLOR_FORCE", "1")]);
        for shown in [plain(("NO_COLOR", "1")), plain(("TERM", "dumb")), json, piped.stdout, piped.stderr] {
            assert!(!shown.contains('\u{1b}'), "{words:?}: {shown:?}");
        }
    }
}

#[test]
fn times_are_of_the_hosts_zone_for_people_and_utc_for_programs() {
    let (host, _author) = talkative();
    let zone = [("TZ", "IST-5:30")];
    let history = host.sidle_with(&["--json", "history", DEMO], &zone).json();
    assert_eq!(history, host.sidle_with(&["--json", "history", DEMO], &[("TZ", "UTC")]).json());
    let ended: jiff::Timestamp = history["switches"][0]["ended_at"].as_str().unwrap().parse().unwrap();
    let ahead = ended.checked_add(jiff::SignedDuration::from_mins(330)).unwrap();
    let expected = ahead.strftime("%Y-%m-%dT%H:%M:%S+05:30").to_string();
    let shown = host.sidle_with(&["history", DEMO], &zone).ok();
    assert!(shown.starts_with(&expected), "{expected} does not begin {shown}");
    let shown = host.sidle_with(&["history", DEMO], &[("TZ", "UTC")]).ok();
    assert!(shown.starts_with(&ended.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()), "{shown}");
    for words in [&["status", DEMO][..], &["list"], &["history", DEMO, "--id", "1"], &["doctor"]] {
        let shown = host.sidle_with(words, &zone).stdout;
        let is_utc = |word: &str| {
            word.len() > 19 && word.contains('T') && word.trim_end_matches([',', ';', ':', ')']).ends_with('Z')
        };
        assert!(shown.contains("+05:30") || words == ["doctor"], "{words:?}: {shown}");
        assert!(!shown.split(' ').any(is_utc), "{words:?}: {shown}");
    }
    let refused = host.sidle_with(&["switch", DEMO, "1.0-1"], &zone).stderr;
    assert!(refused.contains("+05:30") && !refused.contains("Z,"), "{refused}");
}

#[test]
fn progress_shows_bytes_on_a_terminal_alone() {
    let (host, author) = two_releases();
    // Not to be compressed: what is shown is the size, whatever the rate.
    let noise = |state: &mut u32, _| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    let content: Vec<u8> = (0..3 << 20).scan(1_u32, noise).collect();
    let big = author.release_with("2.0", |tree| fs::write(tree.join("share/demo-agent/big"), content).unwrap());
    let shown = at(&host, 100, &["install", text(&big)], &[]);
    assert!(shown.contains("installing") && shown.contains("MiB/"), "{shown:?}");
    let scrub = at(&host, 100, &["scrub", DEMO], &[]);
    assert!(scrub.contains("hashing") && scrub.contains("MiB/"), "{scrub:?}");
    let piped = host.sidle(&["scrub", DEMO]);
    assert_eq!(piped.stderr, "", "{piped:?}");
    let quiet = at(&host, 100, &["--quiet", "scrub", DEMO], &[]);
    assert_eq!(quiet, "");
}
