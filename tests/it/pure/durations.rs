//! Each duration in docs/overlap.md is that of the program, of the guard or of the unit.

use sidle::config::keys::SECTIONS;
use sidle::switch::Phase;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Where a duration is defined.
enum Of {
    /// A constant of the program, of the guard, or a key of a unit: the file below the project, and the name.
    Constant(&'static str, &'static str),
    /// The default of a setting.
    Setting(&'static str),
    /// The pause between two looks in a phase.
    Interval(Phase),
    /// The longest time to two round trips without an answer.
    TwoRoundTrips,
    /// The time in which the guard looks for each claim that it remembers.
    AllClaims,
}

use Of::{AllClaims, Constant, Interval, Setting, TwoRoundTrips};

const GUARD: &str = "bundles/salt-minion/guard/sidle_guard/";
const PROOFS: &str = "src/switch/gate/proofs.rs";

/// The phrases of the page with each duration; `{}`: the duration. A phrase may stand at several places.
#[rustfmt::skip] // a table is read by its columns
const TABLE: &[(Of, &[&str])] = &[
    (Setting("start_timeout"), &["`start_timeout` ({})"]),
    (Setting("rehearsal_timeout"), &["`rehearsal_timeout` ({})"]),
    (Setting("probation"), &["`probation` ({})"]),
    (Setting("retire_timeout"), &["`retire_timeout` ({})"]),
    (Setting("drain_timeout"), &["`drain_timeout` ({})"]),
    (Setting("stop_timeout"), &["`stop_timeout` ({})"]),
    (Interval(Phase::Proving), &["The supervisor looks every {};"]),
    (TwoRoundTrips, &["get no answer (within {})"]),
    (Constant(PROOFS, "PROOF_INTERVAL"), &["round trips with all masters at once, then every {}"]),
    (Constant(PROOFS, "PROOF_INTERVAL_SOON"), &["{} after one that failed"]),
    (Constant(PROOFS, "PROOF_WAIT"), &["{} after one of which", "A restart goes on after {} at most", "killed after {} if its last report",
        "replaces the new process after {}"]),
    (Constant("src/switch/driver/hearing.rs", "CATCH_UP_MAXIMUM"), &["and {} more while the old process is not caught up"]),
    (Constant("src/switch/driver/hearing.rs", "HEARING_WAIT"), &["a job was unheard for {}", "The {} of a job begin"]),
    (Constant("src/switch/driver/hearing.rs", "LATENESS_MAXIMUM"), &[", for {});"]),
    (Constant("src/switch/driver/hearing.rs", "ON_ITS_WAY"), &["counts if it is older than {}", "after another for {} and more"]),
    (Constant("src/switch/driver/proving.rs", "OTHERS_WAIT"), &["every configured master, or after {} at least one"]),
    (Constant("src/switch/driver/proving.rs", "SILENCE_MAXIMUM"), &["writes no report for {}", "after {} without a report"]),
    (Constant("src/switch/driver/leaving.rs", "SILENCE_MAXIMUM"), &["is killed after it was silent for {}", "in `draining-new` after it was silent for {}"]),
    (Constant("src/switch/driver/leaving.rs", "RETURN_WAIT"), &["no master answers it for {}"]),
    (Constant("src/switch/process/finishing.rs", "SILENCE_MAXIMUM"), &["has been silent for {}:"]),
    (Constant("src/agent/gate.rs", "REPORT_AGE_MAXIMUM_SECONDS"), &["report of its guard is older than {}.)"]),
    (Constant("src/supervise/pace.rs", "HEALTH_INTERVAL"), &["name it within {}"]),
    (Constant("src/cli/switches/reach.rs", "COMMITTED_WAIT"), &["wait for that for up to {}"]),
    (Constant("packaging/systemd/sidle@.service", "RestartSec"), &["starts the next supervisor after {}"]),
    (Constant("guard.py", "POLL_SECONDS"), &["and every {}", "at the next look ({})", "for the claim file every {}"]),
    (Constant("decision.py", "PATIENCE_SECONDS"), &["makes none for {}", "claims a job after {} without", "claim and run after {} without",
        "else after {}", "claims the job after {}", "wait {} before they claim", "the new process claims after {}", "the old process claims after {}",
        "an unclaimed job waits {} at most", "process is held for {}"]),
    (Constant("report.py", "LONGEST_SILENCE_SECONDS"), &["every {} while two processes run"]),
    (Constant("proof.py", "TIME_LIMIT_SECONDS"), &["gives up after {}"]),
    (Constant("missing.py", "DOUBT_SECONDS"), &["was caught up for {}"]),
    (Constant("subscriptions.py", "STANDING_SECONDS"), &["at least {} ago"]),
    (Constant("singletons.py", "CLEANING_SECONDS"), &["Every {} the guard"]),
    (Constant("singletons.py", "ENGINES_SECONDS"), &["is started again within {}"]),
    (Constant("singletons.py", "LONGEST_WAIT_SECONDS"), &["waits for that file for {}"]),
    (Constant("claims.py", "KEPT_SECONDS"), &["deletes a claim {} after", "hangs for over {}"]),
    (Constant("owed.py", "REMEMBERED_SECONDS"), &["more than {} late", "its claims of the last {}"]),
    (AllClaims, &["looks for all of them within {}"]),
    (Constant("owed.py", "OWED_SECONDS"), &["the missing claims of the last {}"]),
    (Constant("gate.py", "OWED_SECONDS"), &["has the lock, for {} at most"]),
];

/// The definition of a constant: what stands after its name and its type.
fn definition(file: &str, name: &str) -> String {
    let file = if file.contains('/') { file.to_owned() } else { format!("{GUARD}{file}") };
    let content = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file)).unwrap();
    let defined = content.lines().find_map(|line| {
        let (left, right) = line.split_once('=')?;
        let left = left.split(':').next().unwrap();
        (left.split_whitespace().last() == Some(name)).then(|| right.trim().trim_end_matches(';').to_owned())
    });
    defined.unwrap_or_else(|| panic!("no {name} in {file}"))
}

/// The milliseconds of `Duration::from_secs(10 * 60)`, `from_millis(250)`, `2.0` or `3600`.
fn milliseconds(definition: &str) -> u64 {
    let (unit, number) = match definition.strip_prefix("Duration::from_") {
        Some(call) => (if call.starts_with("millis") { 1.0 } else { 1000.0 }, call.split(['(', ')']).nth(1).unwrap()),
        None => (1000.0, definition),
    };
    let factors = number.split('*').map(|factor| factor.trim().parse::<f64>().unwrap());
    format!("{:.0}", unit * factors.product::<f64>()).parse().unwrap()
}

impl Of {
    fn milliseconds(&self) -> u64 {
        match self {
            Constant(file, name) => milliseconds(&definition(file, name)),
            Setting(name) => {
                let mut keys = SECTIONS.iter().flat_map(|section| section.keys);
                let default = keys.find(|key| key.name == *name).unwrap().default.trim_matches(['`', '"']);
                let (number, unit) = default.split_at(default.len() - 1);
                number.parse::<u64>().unwrap() * if unit == "m" { 60_000 } else { 1000 }
            }
            Interval(phase) => u64::try_from(phase.interval().as_millis()).unwrap(),
            TwoRoundTrips => {
                let of = |name| Constant(PROOFS, name).milliseconds();
                of("PROOF_INTERVAL") + 2 * of("PROOF_WAIT")
            }
            AllClaims => {
                let looks: u64 = definition("owed.py", "LOOKS_FOR_ALL").parse().unwrap();
                looks * Constant("guard.py", "POLL_SECONDS").milliseconds()
            }
        }
    }
}

/// A duration as the page writes it.
fn written(milliseconds: u64) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    match (seconds, rest) {
        (3600, 0) => "1 hour".to_owned(),
        (300.., 0) if seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        (_, 0) => format!("{seconds} s"),
        (0, 100) => "0.1 s".to_owned(),
        _ => format!("{milliseconds} ms"),
    }
}

/// What the page and the table do not agree on.
fn differences(page: &str) -> Vec<String> {
    let mut rest = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for (of, phrases) in TABLE {
        for phrase in *phrases {
            let phrase = phrase.replace("{}", &written(of.milliseconds()));
            if !rest.contains(&phrase) {
                found.push(format!("docs/overlap.md does not say \"{phrase}\""));
            }
            rest = rest.replace(&phrase, "");
        }
    }
    let words: Vec<&str> = rest.split(' ').collect();
    for pair in words.windows(2) {
        let unit = pair[1].trim_matches(|c: char| !c.is_ascii_alphabetic());
        let is_number = pair[0].trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit());
        if is_number && ["ms", "s", "second", "seconds", "minute", "minutes", "hour", "hours"].contains(&unit) {
            found.push(format!("no row of this test has a phrase for \"{}\"", pair.join(" ")));
        }
    }
    found
}

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/overlap.md")).unwrap()
}

#[test]
fn each_duration_of_the_page_on_overlap_is_that_of_the_code() {
    assert_eq!(differences(&page()), Vec::<String>::new());
}

#[test]
fn each_duration_of_the_page_on_overlap_is_compared() {
    let page = page();
    let digits: Vec<usize> = page.match_indices(char::is_numeric).map(|(place, _)| place).collect();
    let units = [" s", " ms", " minutes", " hour"];
    let mut changed = 0;
    for place in digits {
        // The last digit of a duration: 24 s becomes 25 s.
        let rest = &page[place + 1..];
        let is_unit = |end: &str| !end.starts_with(char::is_alphanumeric);
        if !units.iter().any(|unit| rest.strip_prefix(unit).is_some_and(is_unit)) {
            continue;
        }
        let other = if page[place..].starts_with('5') { "6" } else { "5" };
        let wrong = format!("{}{other}{rest}", &page[..place]);
        assert!(!differences(&wrong).is_empty(), "nobody sees another number before: {}", rest.lines().next().unwrap());
        changed += 1;
    }
    assert!(changed > 50, "{changed}");
    assert_eq!(milliseconds("Duration::from_secs(10 * 60)"), 600_000);
    assert_eq!(Duration::from_millis(milliseconds("0.25")), Duration::from_millis(250));
}

#[test]
fn the_numbers_of_the_page_on_overlap_are_those_of_the_code() {
    let words = ["no", "one", "two", "three", "four"];
    let page = page().split_whitespace().collect::<Vec<_>>().join(" ");
    let repeats = words[usize::try_from(sidle::switch::machine::SETBACKS_MAXIMUM).unwrap()];
    assert!(page.contains(&format!("That happens {repeats} times at most")));
    let looks = words[definition("quiet.py", "LOOKS").parse::<usize>().unwrap()];
    assert!(page.contains(&format!("empty at {looks} looks in a row")));
    let claims = definition("owed.py", "MOST_REMEMBERED");
    assert_eq!(claims.len(), 5, "written with a comma after two digits");
    assert!(page.contains(&format!("({},{} at most)", &claims[..2], &claims[2..])));
}
