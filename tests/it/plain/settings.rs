//! Where settings come from: the administrator's files, those of packages below them, or a file that the command line names.

use crate::support::eventually;
use crate::support::stage::{DEMO, Host, SIDLE, text, two_releases};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

/// How many of the two releases the setting `keep_extra` lets go.
#[track_caller]
fn collectable(host: &Host, options: &[&str]) -> usize {
    let ran = host.sidle(&[options, &["--json", "collect", "--dry-run"]].concat());
    ran.json()["packages"][0]["removed"].as_array().unwrap_or_else(|| panic!("{ran:?}")).len()
}

#[test]
fn the_administrators_file_masks_the_vendors_and_a_named_file_replaces_all() {
    let (host, _author) = two_releases();
    fs::create_dir_all(host.path("usr/lib/sidle/conf.d")).unwrap();
    assert_eq!(collectable(&host, &[]), 1);
    let (vendor, own) = (host.path("usr/lib/sidle/conf.d/50-site.toml"), host.path("etc/sidle/conf.d/50-site.toml"));
    fs::write(&vendor, "keep_extra = 0\n").unwrap();
    assert_eq!(collectable(&host, &[]), 2, "the vendor's file counts");
    fs::write(host.path("etc/sidle/conf.d/10-early.toml"), "keep_extra = 2\n").unwrap();
    assert_eq!(collectable(&host, &[]), 2, "the later name counts, wherever it lies");
    fs::write(host.path("etc/sidle/conf.d/90-late.toml"), "keep_extra = 2\n").unwrap();
    assert_eq!(collectable(&host, &[]), 0);
    for name in ["10-early", "90-late"] {
        fs::remove_file(host.path(&format!("etc/sidle/conf.d/{name}.toml"))).unwrap();
    }
    fs::write(&own, "").unwrap();
    assert_eq!(collectable(&host, &[]), 1, "an empty file masks");
    fs::remove_file(&own).unwrap();
    symlink("/dev/null", &own).unwrap();
    assert_eq!(collectable(&host, &[]), 1, "a link to /dev/null masks");
    fs::remove_file(&own).unwrap();
    fs::write(&vendor, "keep_xtra = 0\n").unwrap();
    let wrong = host.sidle(&["collect", "--dry-run"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("usr/lib/sidle/conf.d/50-site.toml"), "{wrong:?}");
    let named = host.path("named.toml");
    fs::write(&named, "keep_extra = 0\n").unwrap();
    assert_eq!(collectable(&host, &["--config", text(&named)]), 2, "no other file is read");
    let missing = host.sidle(&["--config", "/nowhere/x.toml", "collect", "--dry-run"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("/nowhere/x.toml"), "{missing:?}");
}

#[test]
fn a_supervisor_and_the_commands_that_it_starts_read_the_file_that_it_was_given() {
    let (host, _author) = two_releases();
    let named = host.path("named.toml");
    fs::rename(host.path("etc/sidle/sidle.toml"), &named).unwrap();
    fs::write(host.path("etc/sidle/sidle.toml"), "nonsense = 1\n").unwrap();
    let mut supervisor = Command::new(SIDLE)
        .args(["--root", text(&host.root()), "--config", text(&named), "supervise", DEMO])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually(20, "the supervisor listens", || {
        host.path("run/sidle/demo-agent/control").exists().then_some(()).ok_or_else(String::new)
    });
    host.sidle(&["--config", text(&named), "switch", DEMO, "1.0-1"]).ok();
    assert_eq!(host.status()["supervisor"]["agent"]["release"], "1.0-1");
    rustix::process::kill_process(rustix::process::Pid::from_child(&supervisor), rustix::process::Signal::TERM)
        .unwrap();
    assert!(supervisor.wait().unwrap().success());
}
