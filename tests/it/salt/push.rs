//! `sidle push --action call`: real Salt on a host without an agent, by its own Python, from a bundle.

use crate::support::minions;
use crate::support::release::static_program;
use crate::support::roots::{Kind, Roots};
use crate::support::stage::{Host, SALT, text};
use std::fs;

const VERSION: &str = "3007.17";

#[test]
fn salt_answers_on_a_host_without_an_agent_and_leaves_nothing_in_tmp() {
    let author = minions::author();
    let bundle = author.salt(VERSION);
    let roots = Roots::new(&[Kind::WithLibraries]);
    let (host, config, program) = (Host::bare(), roots.config(), static_program());
    let own = [
        "--json",
        "push",
        "r0",
        "-F",
        text(&config),
        "--package",
        SALT,
        "--release",
        "3007.17-1",
        "--program",
        text(&program),
    ];
    let from = ["--repository", text(&bundle), "--fingerprint", &author.fingerprint(), "--action", "call", "--"];
    let call = |words: &[&str]| host.sidle(&[&own[..], &from[..], words].concat());
    let ran = call(&["--out=json", "cmd.run_stdout", "echo \"it's $0\"; echo '$HOME'; echo $TMPDIR"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let printed = ran.json()["hosts"][0]["output"].as_str().unwrap().to_owned();
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let lines: Vec<&str> = answer["local"].as_str().unwrap().lines().collect();
    assert!(
        lines[0].starts_with("it's ") && lines[1] == "$HOME" && lines[2] == "/var/cache/sidle/call/tmp",
        "{lines:?}"
    );
    let root = &roots.hosts[0];
    for place in ["tmp", "var/tmp", "var/cache/sidle/call/tmp"] {
        assert_eq!(fs::read_dir(root.path(place)).unwrap().count(), 0, "{place}");
    }
    assert!(!root.path("etc/salt").exists(), "the call has a configuration of its own");

    let failed = call(&["--retcode-passthrough", "cmd.run", "exit 3"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert_eq!(failed.json()["hosts"][0]["step"], "call", "{failed:?}");
}
