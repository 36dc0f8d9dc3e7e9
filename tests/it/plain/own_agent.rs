//! `examples/plain-agent`: an agent without Rust is packed, installed, run, switched when idle, and taken back.

use crate::support::eventually;
use crate::support::stage::{Author, Host, Ran, sidle, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAIN: &str = "plain-agent";

/// Packs the example as this version, with `health` as given.
fn packed(author: &Author, version: &str, health: Option<&str>) -> Ran {
    let home = author.directory().join(format!("plain-{version}"));
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/plain-agent");
    assert!(Command::new("cp").arg("-r").arg(example).arg(&home).status().unwrap().success());
    fs::write(home.join("tree/share/version"), format!("{version}\n")).unwrap();
    if let Some(health) = health {
        fs::write(home.join("tree/bin/health"), format!("#!/bin/sh\n{health}\n")).unwrap();
    }
    let (recipe, repository, key, output) =
        (home.join("plain-agent.toml"), author.repository(), author.key(), bundle(author, version));
    let arguments = ["pack", text(&recipe), "--version", version, "--repo", text(&repository)];
    sidle(&[&arguments[..], &["--key", text(&key), "--output", text(&output)]].concat(), &[])
}

fn bundle(author: &Author, version: &str) -> PathBuf {
    author.directory().join(format!("plain-{version}.sidle"))
}

/// Does a job, and gives the version that did it.
fn version_that_works(host: &Host, job: &str) -> String {
    fs::write(host.path("etc/plain-agent/jobs").join(job), "true\n").unwrap();
    let done = host.path("etc/plain-agent/finished").join(job);
    let seen = eventually(20, "the job is done", || {
        fs::read_to_string(&done).ok().filter(|text| !text.is_empty()).ok_or_else(|| "not yet".to_owned())
    });
    seen.trim().to_owned()
}

#[test]
fn an_agent_of_two_commands_is_switched_when_it_is_idle_and_taken_back() {
    let author = Author::new();
    let host = Host::new(&author);
    fs::create_dir_all(host.path("etc/plain-agent")).unwrap();
    for (version, health) in [("1.0", None), ("1.1", None), ("1.2", Some("echo no way to work; exit 1"))] {
        packed(&author, version, health).ok();
        host.install(&bundle(&author, version)).ok();
    }
    let supervisor = host.supervise_instance(PLAIN);
    host.sidle(&["switch", PLAIN, "1.0-1"]).ok();
    assert_eq!(version_that_works(&host, "first"), "1.0");

    fs::write(host.path("etc/plain-agent/jobs/long"), "sleep 3\n").unwrap();
    let told = host.sidle(&["switch", PLAIN, "1.1-1", "--mode", "idle"]).ok();
    assert!(told.contains("waiting until no job runs") && told.contains("job long"), "{told}");
    assert_eq!(fs::read_to_string(host.path("etc/plain-agent/finished/long")).unwrap(), "1.0\n");
    assert_eq!(version_that_works(&host, "second"), "1.1");

    let bad = host.sidle(&["switch", PLAIN, "1.2-1", "--mode", "idle"]);
    assert!(bad.code == Some(5) && bad.stdout.contains("no way to work"), "{bad:?}");
    assert_eq!(version_that_works(&host, "third"), "1.1");

    host.sidle(&["rollback", PLAIN]).ok();
    assert_eq!(version_that_works(&host, "fourth"), "1.0");
    assert!(host.sidle(&["status", PLAIN]).ok().contains("1.0-1"));
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn a_recipe_with_an_unknown_kind_of_agent_or_without_its_commands_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/plain-agent/plain-agent.toml");
    let example = fs::read_to_string(example).unwrap();
    for (from, to, words) in [
        ("agent = \"command\"", "agent = \"zebra\"", "this sidle knows salt, demo, command"),
        ("idle = \"bin/idle\"\n", "", "needs the command `idle`"),
    ] {
        let (recipe, output) = (home.path().join("recipe.toml"), home.path().join("out"));
        fs::write(&recipe, example.replace(from, to)).unwrap();
        let refused = sidle(&["pack", text(&recipe), "--version", "1.0", "--output", text(&output)], &[]);
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{refused:?}");
    }
}
