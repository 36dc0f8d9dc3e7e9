//! Every verb has a JSON schema, and prints as it says. Every other test that runs the program compares, too (`support/schema.rs`).

use crate::support::eventually;
use crate::support::schema::{self, PUBLISHED};
use crate::support::stage::{Author, DEMO, Host, sidle, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The verbs that `help` lists, and those below them: `repo-publish`.
fn verbs(above: &[&str]) -> BTreeSet<String> {
    let help = sidle(&[above, &["--help"]].concat(), &[]).ok();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let rows = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = rows.filter_map(|line| line.split_whitespace().next()).filter(|n| *n != "help").collect();
    let prefix = above.concat();
    names
        .iter()
        .flat_map(|name| {
            if ["key", "repo", "rollout", "trust"].contains(name) {
                verbs(&[name])
            } else {
                [own(&prefix, name)].into()
            }
        })
        .collect()
}

fn own(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}-{name}") }
}

/// The schemas that the document offers for lines of output.
fn offered() -> BTreeSet<String> {
    let document: Value = serde_json::from_str(PUBLISHED).unwrap();
    let named = document["anyOf"].as_array().unwrap().iter();
    named.map(|one| one["$ref"].as_str().unwrap().strip_prefix("#/$defs/").unwrap().to_owned()).collect()
}

#[test]
fn the_schemas_are_valid_and_a_key_or_a_word_that_they_do_not_name_is_seen() {
    let document: Value = serde_json::from_str(PUBLISHED).unwrap();
    assert!(jsonschema::meta::is_valid(&document));
    let whole = jsonschema::validator_for(&document).unwrap();
    let good = json!({"schema": 1, "dry_run": false, "instance": DEMO, "lifted": true});
    assert_eq!(schema::complaints("unhold", &good), Vec::<String>::new());
    let with = |key: &str, value: Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed
    };
    for (wrong, words) in [
        (with("extra", json!(1)), "extra"),
        (with("lifted", json!("yes")), "/lifted"),
        (with("schema", json!(2)), "/schema"),
        (json!({"schema": 1}), "required"),
    ] {
        let told = schema::complaints("unhold", &wrong).join("\n");
        assert!(told.contains(words), "{words:?} is not in {told:?} about {wrong}");
    }
    assert!(whole.is_valid(&good) && whole.is_valid(&with("extra", json!(1))), "readers ignore keys of a later sidle");
}

#[test]
fn every_verb_prints_json_as_its_schema_says() {
    let all = verbs(&[]);
    let mut documented = offered();
    assert!(documented.remove("error"), "{documented:?}");
    assert_eq!(documented, all, "docs/schema/sidle.json names the verbs of `sidle --help`");

    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    host_verbs(&author, &old, &new);
    author_verbs(&author);
    push(&author);

    // These have no result: `run` becomes its program, a supervisor works until it is ended, nothing here is a distribution's package, and no guard counts.
    let without = ["run", "supervise", "adopt", "unadopt", "uses"].map(str::to_owned);
    let unseen: Vec<&String> = all.iter().filter(|verb| !schema::seen().contains(*verb)).collect();
    assert_eq!(
        unseen.into_iter().cloned().collect::<BTreeSet<_>>(),
        BTreeSet::from(without),
        "every other verb was run"
    );
}

/// A push to a port where nobody listens.
fn push(author: &Author) {
    let url = format!("file://{}", text(&author.repository()));
    let from = ["--json", "push", "--repository", &url, "--fingerprint", &author.fingerprint()];
    let failed = Host::bare().sidle(&[&from[..], &["127.0.0.1", "-p", "1"]].concat());
    assert_eq!(failed.code, Some(1), "{failed:?}");
}

/// The verbs of an author, on a repository with a release.
fn author_verbs(author: &Author) {
    let (repository, key, directory) = (author.repository(), author.key(), author.directory());
    let (repository, key) = (text(&repository), text(&key));
    let path = |name: &str| directory.join(name).display().to_string();
    let author_side = |words: &[&str]| sidle(&[&["--json"], words].concat(), &[]);
    author_side(&["key", "new", &path("second.pem")]).ok();
    author_side(&["key", "show", key]).ok();
    author_side(&["key", "sign", key, &path("1.0.toml")]).ok();
    author_side(&[
        "repo",
        "init",
        &path("waits"),
        "--root-key",
        key,
        "--root-key",
        &path("second.pem"),
        "--root-threshold",
        "2",
        "--targets-key",
        key,
        "--online-key",
        key,
    ])
    .ok();
    author_side(&["repo", "status", &path("waits")]).ok();
    author_side(&["repo", "init", &path("other"), "--key", key]).ok();
    author_side(&[
        "pack",
        &path("1.0.toml"),
        "--version",
        "3.0",
        "--tree",
        &path("tree-1.0"),
        "--output",
        &path("packed"),
    ])
    .ok();
    author_side(&["inspect", &path("packed/manifest.json.zst")]).ok();
    author_side(&["inspect", &path("repository/metadata/1.root.json")]).ok();
    author_side(&["repo", "add", &path("other"), &path("packed")]).ok();
    author_side(&["repo", "delegate", &path("other"), "team", "--path", "x/*/*/*", "--key", &path("second.pem")]).ok();
    author_side(&["repo", "stage", &path("other")]).ok();
    author_side(&["repo", "status", &path("other")]).ok();
    author_side(&["repo", "sign", &path("other"), "--key", key]).ok();
    author_side(&["repo", "sign", &path("other"), "--key", &path("second.pem")]).ok();
    author_side(&["repo", "publish", &path("other"), "--key", key]).ok();
    author_side(&["repo", "undelegate", &path("other"), "team"]).ok();
    author_side(&["repo", "rotate", &path("other"), "targets", "--add", &path("second.pem")]).ok();
    author_side(&["repo", "refresh", repository, "--online-key", key, "--force"]).ok();
    author_side(&["export", repository, DEMO, "--output", &path("exported.sidle")]).ok();
    author_side(&["repo", "withdraw", repository, "demo-agent@1.0-1", "--reason", "bad"]).ok();
    author_side(&["repo", "status", repository]).ok();
    author_side(&["repo", "publish", repository, "--key", key]).ok();
}

/// The verbs of a host, with releases 1.0 and 1.1 in bundles.
fn host_verbs(author: &Author, old: &Path, new: &Path) {
    let (repository, directory) = (author.repository(), author.directory());
    let repository = text(&repository);
    let path = |name: &str| directory.join(name).display().to_string();
    let host = Host::new(author);
    let ran = |words: &[&str], code: i32| {
        let ran = host.sidle(&[&["--json"], words].concat());
        assert_eq!(ran.code, Some(code), "{words:?}: {ran:?}");
        assert_eq!(ran.stdout.lines().count(), 1, "one line for a command: {words:?}: {ran:?}");
    };
    let root = path("repository/metadata/1.root.json");
    ran(&["status"], 0);
    ran(&["list"], 0);
    ran(&["trust", "show"], 0);
    ran(&["trust", "pin", &root, "--fingerprint", &author.fingerprint()], 3);
    ran(
        &[
            "setup",
            "--repository",
            &format!("file://{repository}"),
            "--fingerprint",
            &author.fingerprint(),
            "--package",
            DEMO,
            "--release",
            "1.0-1",
        ],
        0,
    );
    ran(&["inspect", text(new)], 0);
    ran(&["install", text(new)], 0);
    ran(&["install", text(old)], 3);
    ran(&["install", "/nowhere/file"], 1);
    ran(&["switch", DEMO, "1.0-1", "--reason", "before a supervisor"], 4);
    ran(&["status", DEMO], 4);
    ran(&["history", DEMO, "--id", "1"], 0);
    ran(&["switch", DEMO, "1.1-1"], 12);
    ran(&["cancel", DEMO], 0);
    ran(&["cancel", DEMO], 3);
    let supervisor = host.supervise();
    ran(&["switch", DEMO, "1.0-1"], 0);
    ran(&["rehearse", DEMO, "1.1-1"], 0);
    ran(&["upgrade", DEMO], 0);
    ran(&["upgrade", DEMO], 3);
    ran(&["rollback", DEMO, "--dry-run"], 0);
    ran(&["rollback", DEMO], 0);
    ran(&["restart", DEMO], 0);
    ran(&["status"], 0);
    ran(&["history", DEMO], 0);
    ran(&["history", DEMO, "--id", "2"], 0);
    ran(&["history", DEMO, "--id", "99"], 1);
    ran(&["job", "20261124091200123456"], 0);
    ran(&["missed"], 0);
    ran(&["rollout", "claim", DEMO, "r1", "--epoch", "1"], 0);
    ran(&["switch", DEMO, "1.1-1", "--rollout", "r2", "--epoch", "1"], 12);
    ran(&["status", DEMO], 0);
    ran(&["rollout", "unclaim", DEMO, "r1"], 0);
    ran(&["hold", DEMO, "--reason", "an audit", "--all"], 0);
    ran(&["switch", DEMO, "1.1-1"], 10);
    ran(&["list"], 0);
    ran(&["status", DEMO], 0);
    ran(&["unhold", DEMO], 0);
    ran(&["metrics"], 0);
    ran(&["metrics", "--output", text(&host.path("sidle.prom"))], 0);
    let doctor = host.sidle(&["--json", "doctor"]);
    assert!(doctor.json()["examined"].is_array(), "{doctor:?}");
    let doctor = host.sidle(&["--json", "doctor", "--find", "unsupervised"]);
    assert!(doctor.code.is_some(), "{doctor:?}");
    let damaged = host.path("opt/sidle/demo-agent/versions/1.1-1/share/demo-agent/release");
    fs::remove_file(&damaged).unwrap();
    ran(&["verify", DEMO], 6);
    ran(&["repair", DEMO], 0);
    fs::remove_file(&damaged).unwrap();
    ran(&["scrub", DEMO], 0);
    ran(&["scrub"], 0);
    ran(&["verify", DEMO, "--full"], 0);
    ran(&["mirror", &path("copy"), "--repository", &format!("file://{repository}")], 0);
    ran(&["adopt", DEMO], 1);
    ran(&["unadopt", DEMO], 3);
    assert_eq!(host.sidle(&["--json", "supervise", DEMO]).code, Some(9));
    drop(supervisor);
    ran(&["collect", "--keep", "0", "--dry-run"], 3);
    host.install(&author.release("1.2", "good")).ok();
    ran(&["collect", "--keep", "0", "--dry-run"], 0);
    ran(&["try", text(new)], 0);
    ran(&["remove", DEMO, "1.2-1"], 0);
    // The demo agent's last child ends a moment after it, and is a user of the release until then.
    eventually(20, "nothing is in use", || match host.sidle(&["generalize", "--dry-run"]) {
        ran if ran.code == Some(12) => Err(ran.stdout),
        _ => Ok(()),
    });
    ran(&["generalize", "--dry-run"], 0);
    ran(&["trust", "reset-clock"], 0);
    ran(&["trust", "reset-clock"], 3);
}
