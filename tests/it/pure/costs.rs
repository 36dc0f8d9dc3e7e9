//! By what the tests are packed: tests/costs.tsv and tests/long.tsv name tests that are there, and each test gets its share of the machine.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read real files, and run a script")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How this program is called in the table.
const PREFIX: &str = "sidle::it::";

fn own(relative: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)).unwrap()
}

/// Who takes longer has a reason in tests/long.tsv; as in scripts/suite.
const LONG_SECONDS: f64 = 120.0;

/// The rows of a table, its comments left out.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect()).collect()
}

/// The names of the tests of this program.
fn tests() -> BTreeSet<String> {
    let listed = Command::new(std::env::current_exe().unwrap()).args(["--list", "--format", "terse"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect()
}

/// What the table has that is no test any more.
fn strangers<'a>(named: impl Iterator<Item = &'a str>, tests: &BTreeSet<String>) -> Vec<&'a str> {
    named.filter(|name| !tests.contains(*name)).collect()
}

#[test]
fn every_test_with_a_measured_cost_or_a_reason_to_be_long_is_there() {
    let (costs, long, tests) = (own("tests/costs.tsv"), own("tests/long.tsv"), tests());
    let costs = rows(&costs);
    let named = costs.iter().filter_map(|row| row[4].strip_prefix(PREFIX));
    assert_eq!(strangers(named.clone(), &tests), Vec::<&str>::new(), "scripts/test --record makes the table anew");
    // Real Salt and booted hosts are what a run takes its time for.
    for tier in ["salt::", "system::", "plain::"] {
        assert!(
            named.clone().filter(|name| name.starts_with(tier)).count() >= 10,
            "too few tests of {tier} have a cost"
        );
    }
    let long = rows(&long);
    let unexplained = costs.iter().filter(|row| row[1].parse::<f64>().unwrap() > LONG_SECONDS);
    let unexplained = unexplained.filter_map(|row| row[4].strip_prefix(PREFIX));
    let unexplained: Vec<_> = unexplained.filter(|name| !long.iter().any(|row| row[0] == *name)).collect();
    assert_eq!(unexplained, Vec::<&str>::new(), "shorten it, or give a reason in tests/long.tsv");
    assert_eq!(strangers(long.iter().map(|row| row[0]), &tests), Vec::<&str>::new());
    assert!(long.iter().all(|row| row.len() == 2 && row[1].len() > 20), "each has a reason: {long:?}");
    assert_eq!(strangers(["plain::no_such_test"].into_iter(), &tests).len(), 1, "a stranger would be seen");
}

#[test]
fn each_test_takes_its_share_of_the_machine_and_none_takes_more_than_there_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nextest.toml");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/suite");
    let made = Command::new("python3")
        .arg("-B")
        .arg(script)
        .args(["config", "2", "24000", "150"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let units: i64 = String::from_utf8(made.stdout).unwrap().trim().parse().unwrap();
    let config: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
    let overrides = config["profile"]["default"]["overrides"].as_array().unwrap();
    let costs = own("tests/costs.tsv");
    for row in rows(&costs).into_iter().filter(|row| row[4].starts_with(PREFIX)) {
        let name = format!("test(={})", row[4].strip_prefix(PREFIX).unwrap());
        let of = |key: &str| {
            let matching = overrides.iter().filter(|one| one["filter"].as_str().unwrap().contains(&name));
            matching.filter_map(|one| one.get(key)?.as_integer()).collect::<Vec<_>>()
        };
        let weights = of("threads-required");
        assert!(weights.len() == 1 && (1..=units).contains(&weights[0]), "{name}: {weights:?} of {units}");
        assert_eq!(of("priority").len(), 1, "{name}");
        // Whoever keeps a core busy takes most of it from the others.
        let (cpu, wall): (f64, f64) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert!(cpu < wall * 0.7 || weights[0] >= 7, "{name}: {cpu} of {wall} s is {weights:?} of {units}");
    }
}
