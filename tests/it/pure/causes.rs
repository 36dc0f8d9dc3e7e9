//! The causes for which a minion does not return (`sidle.why`): each one says on which Salt it was seen, and by which test.

use super::suite::listed;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TESTS: &str = "salt::saltext::";

fn text(relative: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)).unwrap()
}

/// The causes of the code, in their order.
fn causes(code: &str) -> Vec<String> {
    code.split("Cause(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

/// What is wrong with the table of a page, against these causes, tests, and the text of the file of a test.
fn wrong(page: &str, causes: &[String], tests: &BTreeSet<String>, file: impl Fn(&str) -> String) -> Vec<String> {
    let table = page.split("| cause seen | Salt | test |\n").nth(1).expect("the page has the table");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let mut wrong = Vec::new();
    if rows.iter().map(|row| row[0]).ne(causes.iter().map(String::as_str)) {
        wrong.push(format!("the causes of the code are {causes:?}, in this order"));
    }
    for row in rows {
        let (cause, releases, pattern) = (row[0], row[1], row[2]);
        for release in releases.split(", ") {
            let name = format!("{TESTS}{}", pattern.replace("SUFFIX", release.split('.').next().unwrap()));
            if !tests.contains(&name) {
                wrong.push(format!("{cause}: there is no test {name}"));
            }
        }
        let module = pattern.split("::").next().unwrap();
        if !file(module).contains(&format!("\"{cause}\"")) {
            wrong.push(format!("{cause}: {module}.rs does not look for it"));
        }
    }
    wrong
}

fn file_of(module: &str) -> String {
    text(&format!("tests/it/salt/saltext/{module}.rs"))
}

#[test]
fn each_cause_says_on_which_salt_it_was_seen_and_by_which_test() {
    let causes = causes(&text("packaging/saltext-sidle/src/saltext/sidle/fleet/causes.py"));
    assert!(causes.len() > 30, "{causes:?}");
    assert_eq!(wrong(&text("docs/why.md"), &causes, &listed(), file_of), Vec::<String>::new(), "docs/why.md");
}

#[test]
fn a_cause_without_a_line_and_a_line_without_its_test_are_found() {
    let code = "Cause(\"hung\", \"…\"),\n    Cause(\"gone\", \"…\"),\n";
    let tests: BTreeSet<String> = [format!("{TESTS}causes::on_3006")].into();
    let page = |rows: &str| format!("| cause seen | Salt | test |\n|---|---|---|\n{rows}\n");
    let found = |rows: &str| wrong(&page(rows), &causes(code), &tests, |_| "\"hung\" \"gone\"".to_owned()).len();
    let good = "| `hung` | 3006.30 | `causes::on_SUFFIX` |\n| `gone` | 3006.30 | `causes::on_SUFFIX` |";
    assert_eq!(found(good), 0);
    assert_eq!(found(good.lines().next().unwrap()), 1, "a cause without a line");
    assert_eq!(found(&good.replace("gone", "died")), 2, "a line without its cause, of which no test knows");
    assert_eq!(found(&good.replacen("3006.30", "3006.30, 3008.5", 1)), 1, "a test that does not exist");
    assert_eq!(found(&good.replacen("on_SUFFIX", "of_SUFFIX", 1)), 1, "the same, by its name");
}
