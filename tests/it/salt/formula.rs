//! The formula, applied by a real `salt-call` to a private root.

use crate::support::salt::tree;
use crate::support::stage::{Author, DEMO, Host, SIDLE, text, upgraded_by_itself};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Applies the state; gives each state's return, by its id.
fn apply(tree: &Path, work: &Path, pillar: &Value, test: bool) -> Vec<(String, Value)> {
    let formula = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/salt/formula");
    std::fs::write(work.join("minion"), format!("root_dir: {}\nid: formula\nfile_client: local\n", text(work)))
        .unwrap();
    let mut command = Command::new(tree.join("bin/salt-call"));
    command.args(["--local", "--out", "json", "--retcode-passthrough", "-l", "error", "--config-dir", text(work)]);
    command.args([
        "--file-root",
        text(&formula),
        "state.apply",
        "sidle",
        &format!("test={}", if test { "True" } else { "False" }),
    ]);
    let output = command.arg(format!("pillar={pillar}")).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let states = said["local"].as_object().unwrap_or_else(|| panic!("{output:?}"));
    states.values().map(|state| (state["__id__"].as_str().unwrap().to_owned(), state.clone())).collect()
}

#[test]
fn the_formula_sets_a_host_up_once_and_shows_it_first() {
    let tree = tree("3007.17");
    let author = Author::new();
    author.release("1.0", "good");
    let (host, work) = (Host::bare(), tempfile::tempdir().unwrap());
    let pillar = json!({"sidle": {
        "program": SIDLE, "root": text(&host.root()), "package": DEMO, "settings": "keep_extra = 2\n",
        "unit": concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/sidle@.service"),
        "repository": format!("file://{}", text(&author.repository())), "fingerprint": author.fingerprint(),
    }});
    let of = |states: &[(String, Value)], id: &str| {
        states.iter().find(|(own, _)| own == id).unwrap_or_else(|| panic!("{id}: {states:?}")).1.clone()
    };
    let shown = apply(&tree, work.path(), &pillar, true);
    assert_eq!(of(&shown, "sidle-setup")["result"], Value::Null, "{shown:?}");
    assert!(!host.path("etc/sidle").exists() && !host.path("opt").exists());
    let did = apply(&tree, work.path(), &pillar, false);
    assert!(did.iter().all(|(_, state)| state["result"] == true), "{did:?}");
    assert!(host.path("opt/sidle/demo-agent/versions/1.0-1").exists(), "{did:?}");
    let again = apply(&tree, work.path(), &pillar, false);
    assert!(again.iter().all(|(_, state)| state["result"] == true && state["changes"] == json!({})), "{again:?}");

    let (program, release) = upgraded_by_itself(work.path());
    let mut linked = pillar;
    linked["sidle"]["program"] = text(&program).into();
    linked["sidle"]["source"] = SIDLE.into();
    let kept = apply(&tree, work.path(), &linked, false);
    assert_eq!(
        (&of(&kept, "sidle-program")["result"], &of(&kept, "sidle-program")["changes"]),
        (&json!(true), &json!({}))
    );
    assert!(std::fs::read(&release).unwrap().ends_with(b"+") && std::fs::read_link(&program).is_ok(), "{kept:?}");
}
