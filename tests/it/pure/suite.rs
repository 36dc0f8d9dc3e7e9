//! The suite against itself: filters name tests that there are, what has to come alone does, what is not run says why and by what it is run, and a
//! test is no script.

mod filter;
mod source;

use filter::{Filter, alternatives};
use source::{Test, tests_below};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Longest body of a test. In a longer one a failure in the middle hides the rest, and nobody reads it whole: its steps want names.
const LINES_MAXIMUM: usize = 60;

/// Longer tests, with the reason.
const LONGER: [(&str, &str); 1] = [(
    "system::push::broken_hosts_are_named_the_others_are_set_up_and_the_same_command_goes_on",
    "eight hosts are made once, and each step looks at what the step before has left on them",
)];

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn config() -> toml::Table {
    let text = std::fs::read_to_string(project().join(".config/nextest.toml")).unwrap();
    text.parse().unwrap()
}

/// The tests of this program, by the program itself.
pub(super) fn listed() -> BTreeSet<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--list", "--format", "terse"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let all: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    assert!(all.len() > 300, "{}", all.len());
    all
}

fn written() -> Vec<Test> {
    tests_below(&project().join("tests/it"))
}

/// Each override of each profile: the profile, its filter, and its settings.
fn overrides(config: &toml::Table) -> Vec<(String, String, toml::Table)> {
    let mut all = Vec::new();
    for (profile, settings) in config["profile"].as_table().unwrap() {
        for one in settings.get("overrides").and_then(toml::Value::as_array).into_iter().flatten() {
            let one = one.as_table().unwrap().clone();
            // Without a filter it is about a platform.
            let Some(filter) = one.get("filter") else { continue };
            let filter = filter.as_str().unwrap().to_owned();
            all.push((profile.clone(), filter, one));
        }
    }
    assert!(all.len() > 1, "{all:?}");
    all
}

#[test]
fn every_filter_names_tests_that_exist() {
    let config = config();
    let names: BTreeSet<String> =
        listed().into_iter().chain(tests_below(&project().join("src")).into_iter().map(|test| test.name)).collect();
    let mut filters: Vec<String> = overrides(&config).into_iter().map(|(_, filter, _)| filter).collect();
    for settings in config["profile"].as_table().unwrap().values() {
        filters.extend(settings.get("default-filter").map(|filter| filter.as_str().unwrap().to_owned()));
    }
    let mut wrong = Vec::new();
    for text in &filters {
        let filter = Filter::parse(text).unwrap_or_else(|why| panic!("cannot read the filter {text}: {why}"));
        for part in filter.names().iter().flat_map(|matcher| matcher.alternatives()) {
            if !names.iter().any(|name| part.matches(name)) {
                wrong.push(format!("{part:?} of {text}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), ".config/nextest.toml: no test has such a name");
}

fn calls(text: &str) -> usize {
    text.lines().filter(|line| line.trim() == "come_first();").count()
}

/// What measures the machine, or compares with it, disturbs another that does: nextest runs one of its group at a time.
#[test]
fn what_comes_first_comes_alone() {
    let overrides = overrides(&config());
    let group = |name: &str, profile: &str| {
        let of = |wanted: &str| overrides.iter().filter(move |(profile, ..)| profile == wanted).collect::<Vec<_>>();
        // A profile's own overrides go before those of the default; the first that sets a group counts.
        let in_order = if profile == "default" { of("default") } else { [of(profile), of("default")].concat() };
        let hit = in_order.into_iter().find(|(_, filter, settings)| {
            settings.contains_key("test-group") && Filter::parse(filter).unwrap().matches(name)
        });
        hit.map(|(.., settings)| settings["test-group"].as_str().unwrap().to_owned())
    };
    let (listed, mut wrong, mut seen) = (listed(), Vec::new(), 0);
    for test in written() {
        assert!(listed.contains(&test.name), "{} is not in the list", test.name);
        if calls(&test.body) > 0 {
            seen += 1;
            for profile in ["default", "all"] {
                if group(&test.name, profile).as_deref() != Some("first") {
                    wrong.push(format!("{} in profile {profile}", test.name));
                }
            }
        }
    }
    assert!(seen > 3, "{seen}");
    let all = source::files(&project().join("tests/it"), "rs");
    let all: usize = all.iter().map(|(_, text)| calls(text)).sum();
    assert_eq!(all, seen, "only a test itself calls come_first: else nobody can tell which tests it is about");
    assert_eq!(wrong, Vec::<String>::new(), ".config/nextest.toml: not in group `first`");
}

/// The command that runs all tests that are left out of a usual run, measurements and recorders excepted.
const LONG: &str = "long --ignored --skip bench:: --skip ::record_reports";

/// Recorders and measurements assert nothing: as tests that pass they would tell something that nobody has looked at. What a usual run leaves out
/// is little, and runs before a release.
#[test]
fn what_asserts_nothing_is_not_run_as_a_test_and_says_what_runs_it() {
    let (mut ignored, mut long, mut wrong) = (0, 0, Vec::new());
    let all = written();
    assert!(std::fs::read_to_string(project().join("scripts/test")).unwrap().contains(LONG), "scripts/test: {LONG}");
    for test in &all {
        let measures = test.name.starts_with("bench::") || test.function().starts_with("record_");
        match &test.ignored {
            None if measures => wrong.push(format!("{} has no #[ignore]", test.name)),
            None => {}
            Some(reason) if !measures && reason.starts_with("`scripts/test --long`: ") => long += 1,
            Some(_) if !measures => wrong.push(format!("{} is a test, and is not run", test.name)),
            Some(reason) => {
                ignored += 1;
                let command = reason.split('`').nth(1).unwrap_or_default();
                let script = project().join(command.split(' ').next().unwrap());
                let text = std::fs::read_to_string(script).unwrap_or_default();
                // The end of the name may be a variable's value.
                let (beginning, _) = test.function().rsplit_once('_').unwrap();
                if !text.contains(command) || !text.contains(beginning) {
                    wrong.push(format!("{}: no script runs it as its reason says: {reason}", test.name));
                }
            }
        }
    }
    assert!(ignored > 3 && long > 3 && long * 10 <= all.len(), "{ignored}, {long} of {}", all.len());
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_test_is_no_script() {
    let mut long: Vec<Test> = [written(), tests_below(&project().join("src"))].concat();
    assert!(long.len() > 500, "{}", long.len());
    long.retain(|test| test.lines > LINES_MAXIMUM);
    let exceptions: BTreeSet<&str> = LONGER.iter().map(|(name, _)| *name).collect();
    let told: Vec<String> = long
        .iter()
        .filter(|test| !exceptions.contains(&*test.name))
        .map(|test| format!("{}: {} lines", test.name, test.lines))
        .collect();
    assert_eq!(told, Vec::<String>::new(), "longer than {LINES_MAXIMUM} lines: give its steps names");
    for (name, reason) in LONGER {
        assert!(long.iter().any(|test| test.name == name) && !reason.is_empty(), "{name} needs no exception");
    }
}

#[test]
fn the_reader_of_filters_and_tests_reads_them_as_they_are_meant() {
    let reads = |text: &str, name: &str| Filter::parse(text).unwrap().matches(name);
    assert!(reads("binary(it) & test(/^(a|b)::/) - test(=b::x)", "a::x"));
    assert!(!reads("binary(it) & test(/^(a|b)::/) - test(=b::x)", "b::x"));
    assert!(reads("not binary(it) | test(b::)", "a::b::x") && !reads("!(all() and test(~x))", "x"));
    assert!(!reads("none() or test(/(a|b)$/)", "c"));
    for broken in ["test(", "test(/a/) &", "(test(a)", "test(a) test(b)", "huh(a)"] {
        assert!(Filter::parse(broken).is_err(), "{broken}");
    }
    assert_eq!(alternatives("^a::(b|c(d|e))|f$"), ["^a::(b)", "^a::(c(d))", "^a::(c(e))", "f$"]);
    assert_eq!(alternatives(r"a\|b[(|)]c"), [r"a\|b[(|)]c"]);
    assert_eq!(alternatives("(a|b)(c|d)"), ["(a)(c|d)", "(b)(c|d)", "(a|b)(c)", "(a|b)(d)"]);

    let text = "#[test]\n#[ignore = \"why\"]\nfn one() {\n    x();\n}\n\nmod system {\n    #[test]\n    fn two() {\n        y();\n        z();\n    }\n}\n";
    let found = source::tests_of(text, "a::b");
    let told: Vec<_> = found.iter().map(|test| (&*test.name, test.lines, test.ignored.as_deref())).collect();
    assert_eq!(told, [("a::b::one", 1, Some("why")), ("a::b::system::two", 2, None)]);
}
