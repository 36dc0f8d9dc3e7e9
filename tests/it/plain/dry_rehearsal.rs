//! A dry run that rehearses: what a switch would find is known before, and the host stays as it is.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, Ran};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn rehearsed(host: &Host, release: &str) -> Ran {
    host.sidle(&["--json", "switch", DEMO, release, "--dry-run", "--rehearse"])
}

fn left(host: &Host) -> Vec<String> {
    let names = fs::read_dir(host.path("run/sidle/demo-agent")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("dry-run-")).collect()
}

#[test]
fn a_dry_run_that_rehearses_finds_what_the_switch_would_find_and_leaves_nothing() {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    host.install(&author.refused("1.1", "refuse: a module is lost")).ok();
    host.install(&author.refused("1.2", "note: a function is gone")).ok();
    host.install(&author.refused("1.3", "hang")).ok();
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let (agents, last) = (host.agents(), host.last());

    let refused = rehearsed(&host, "1.1-1");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(refused.json()["error"]["message"], "cannot switch to 1.1-1: a module is lost");
    let noted = rehearsed(&host, "1.2-1");
    assert_eq!((noted.code, &noted.json()["rehearsed"]), (Some(0), &true.into()), "{noted:?}");
    assert_eq!(noted.json()["notes"], serde_json::json!(["a function is gone"]));
    let plain = host.sidle(&["--json", "switch", DEMO, "1.1-1", "--dry-run"]);
    assert!(plain.code == Some(0) && plain.json()["rehearsed"].is_null(), "{plain:?}");
    assert_ne!(rehearsed(&host, "9.9-1").code, Some(0));
    assert_eq!(host.sidle(&["switch", DEMO, "1.1-1", "--rehearse"]).code, Some(2));

    for signal in ["TERM", "KILL"] {
        let root = host.root();
        let mut hangs = Command::new(env!("CARGO_BIN_EXE_sidle"))
            .args(["--root", root.to_str().unwrap(), "switch", DEMO, "1.3-1", "--dry-run", "--rehearse"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let directory = format!("run/sidle/demo-agent/{}", "rehearsal/process");
        let process = eventually(20, "it rehearses", || {
            let name = left(&host).pop().ok_or("no directory")?;
            let path = host.path(&directory.replace("rehearsal/", &format!("{name}/rehearsal/")));
            let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
            serde_json::from_str::<serde_json::Value>(&text).map_err(|error| error.to_string())
        });
        let kill = Command::new("kill").args([&format!("-{signal}"), &hangs.id().to_string()]).status().unwrap();
        assert!(kill.success() && !hangs.wait().unwrap().success());
        assert_eq!(left(&host).len(), usize::from(signal == "KILL"), "{signal}");
        assert_eq!(rehearsed(&host, "1.2-1").code, Some(0));
        let program = format!("/proc/{}", process["pid"]);
        eventually(20, "its program is gone", || {
            if Path::new(&program).join("exe").read_link().is_ok() { Err(program.clone()) } else { Ok(()) }
        });
    }

    fs::write(host.path("etc/sidle/conf.d/rehearsal.toml"), "rehearsal = \"report\"\n").unwrap();
    assert_eq!(rehearsed(&host, "1.1-1").json()["notes"], serde_json::json!(["a module is lost"]));
    fs::write(host.path("etc/sidle/conf.d/rehearsal.toml"), "rehearsal = \"off\"\n").unwrap();
    let off = rehearsed(&host, "1.1-1").json();
    assert!(off["rehearsed"] == false && off["notes"][0].as_str().unwrap().starts_with("not rehearsed: "), "{off}");
    assert_eq!((host.agents(), host.last()), (agents, last));
    assert!(left(&host).is_empty());
}

/// Nobody has looked at a release whose rehearsal can't be done, so it is not known to work. Such switches were done once, with a note.
#[test]
fn a_release_that_cannot_be_rehearsed_is_refused_unless_it_has_worked_on_this_host() {
    let author = Author::new();
    let host = Host::new(&author);
    for (release, lines) in [("1.0", "note: it was rehearsed"), ("1.1", "unknown: no program"), ("1.2", "crash")] {
        host.install(&author.refused(release, lines)).ok();
    }
    let settings = host.path("etc/sidle/conf.d/rehearsal.toml");
    let supervised = |policy: &str| {
        fs::write(&settings, format!("rehearsal = \"{policy}\"\n")).unwrap();
        host.supervise()
    };
    let noted = || host.last()["notes"].as_array().unwrap().contains(&"no program".into());
    let supervisor = supervised("refuse");
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    // The running release can't be rehearsed either: there is no comparison.
    let broken = host.path("etc/demo-agent/rehearsal-1.0-1");
    for (release, why) in [("1.1-1", "no program"), ("1.2-1", "it exited with code 1: crashed as told")] {
        fs::write(&broken, if release == "1.2-1" { "crash\n" } else { "" }).unwrap();
        let dry = rehearsed(&host, release);
        assert!(dry.code == Some(1) && dry.stdout.contains(why), "{dry:?}");
        let ran = host.sidle(&["switch", DEMO, release]);
        assert!(ran.code == Some(1) && ran.stdout.contains(why), "{ran:?}");
        assert_eq!(host.current().as_deref(), Some("1.0-1"));
    }
    fs::remove_file(broken).unwrap();
    supervisor.end();

    let supervisor = supervised("report");
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert!(noted(), "{}", host.last());
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    supervisor.end();

    let _supervisor = supervised("refuse");
    host.sidle(&["rollback", DEMO]).ok();
    assert!(host.current().as_deref() == Some("1.1-1") && noted(), "{}", host.last());
    // On the host as it was when the release was proven a restart needs no rehearsal; without that knowledge it does.
    host.sidle(&["restart", DEMO]).ok();
    let fingerprints = host.path("var/lib/sidle/instances/demo-agent/host-fingerprints");
    for content in [None, Some("{}")] {
        fs::remove_file(&fingerprints).unwrap();
        if let Some(content) = content {
            fs::write(&fingerprints, content).unwrap();
        }
        let ran = host.sidle(&["restart", DEMO]);
        assert!(
            ran.code == Some(1) && ran.stdout.contains("nobody can tell whether it would come up again"),
            "{ran:?}"
        );
        fs::write(&fingerprints, "{}").unwrap();
    }
}
