//! Whether two hot masters agree: each learns of the other through a minion that both command.

use crate::support::extension::{modules, source};
use crate::support::salt::{Master, Minion, SHORT_KEY, tree};
use crate::support::scene::MASTER;
use crate::support::stage::text;
use crate::support::stream::Marks;
use serde_json::{Value, json};
use std::fs;

/// Two masters with one key, and a minion of both, `web1`.
fn world() -> ([Master; 2], Minion, Marks) {
    let runners = source().join("src/saltext/sidle/runners");
    let options = format!("runner_dirs: [{}]\nsidle: {{answer_seconds: 60}}\n", text(&runners));
    let first = Master::start_with(&tree(MASTER), true, &format!("{options}id: m1\nnodegroups: {{web: 'web*'}}\n"));
    let second = first.start_twin_with("127.0.0.2", &format!("{options}id: m2\nnodegroups: {{web: 'web* or db*'}}\n"));
    let marks = Marks::new();
    for module in modules("modules") {
        fs::copy(&module, marks.modules().join(module.file_name().unwrap())).unwrap();
    }
    let masters = [first, second];
    // Salt refuses an option that is there twice.
    let options = marks.quiet_configuration(&[&masters[0], &masters[1]]).replace(SHORT_KEY, "");
    let minion = Minion::start(&tree(MASTER), "web1", &options);
    for master in &masters {
        master.hears(&["web1"]);
    }
    (masters, minion, marks)
}

fn asked(master: &Master, words: &[&str]) -> Value {
    let told = master.runner(&[&["sidle.masters"], words, &["format=data"]].concat());
    assert!(told["others"].is_array(), "{told:#}");
    told
}

/// What differs, by section.
fn differences(report: &Value) -> Value {
    let all = report["others"][0]["differences"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
    let some = |each: &&Value| {
        each["here"] != each["there"]
            || each["only_there"] != 0
            || ["only_here", "differs", "among"].iter().any(|key| each[key] != json!([]))
    };
    let named = all.filter(some).map(|each| (each["section"].as_str().unwrap().to_owned(), each.clone()));
    Value::Object(named.collect())
}

#[test]
fn two_hot_masters_find_what_differs_between_them_through_a_minion_of_both() {
    let (masters, _minion, _marks) = world();
    let [first, second] = &masters;
    let keys = |master: &Master| master.place().configuration.ancestors().nth(2).unwrap().join("keys/minions");
    fs::copy(keys(first).join("web1"), keys(first).join("db7")).unwrap();
    first.file("web/init.sls", "web: []\n");
    second.file("web/init.sls", "web: [other]\n");
    second.file("only.sls", "only: []\n");

    let alone = asked(first, &["via=web1"]);
    assert!(alone["notes"].to_string().contains("have left no card there"), "{alone:#}");
    let report = asked(second, &[]);
    let other = &report["others"][0];
    assert_eq!((&other["id"], &other["is_sealed"], &other["version"]), (&json!("m1"), &json!(true), &json!(MASTER)));
    let found = differences(&report);
    assert_eq!((&found["keys"]["only_there"], &found["keys"]["here"]), (&json!(1), &json!(1)), "{found:#}");
    assert_eq!(found["nodegroups"]["differs"], json!(["web"]), "{found:#}");
    assert_eq!(found["file_roots"]["differs"], json!(["base:web/"]), "{found:#}");
    assert_eq!(found["file_roots"]["only_here"], json!(["base:only.sls"]), "{found:#}");
    assert!(found["settings"].is_null() && found["pillar_roots"].is_null(), "{found:#}");

    // The first one sees the same from its side, and names its key.
    let report = asked(first, &[]);
    let found = differences(&report);
    assert_eq!(found["keys"]["only_here"], json!(["db7"]), "{found:#}");
    let shown = first.runner(&["sidle.masters"]);
    let lines = shown.as_str().unwrap();
    for part in ["only here: db7", "on both, and not the same: web", "base:web/", "rsync -rcni"] {
        assert!(lines.contains(part), "{part}: {lines}");
    }
    // Alike again: nothing is left to say.
    fs::copy(keys(first).join("db7"), keys(second).join("db7")).unwrap();
    first.file("web/init.sls", "web: [other]\n");
    first.file("only.sls", "only: []\n");
    asked(first, &["via=web1"]);
    let report = asked(second, &["via=web1"]);
    assert_eq!(differences(&report).as_object().unwrap().keys().collect::<Vec<_>>(), ["nodegroups"], "{report:#}");
}
