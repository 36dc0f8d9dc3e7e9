//! The agent's configuration across switches: a snapshot before each trial, put back where the settings say so, never in silence.

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

/// Where an instance's snapshots lie.
const SNAPSHOTS: &str = "var/lib/sidle/instances/demo-agent/configuration";

fn host(settings: &str) -> (Host, Author) {
    let author = Author::new();
    let host = Host::new(&author);
    for (version, behaviour) in [("1.0", "good"), ("1.1", "good"), ("1.2", "hang")] {
        host.install(&author.release(version, behaviour)).ok();
    }
    fs::write(host.path("etc/sidle/conf.d/will.toml"), settings).unwrap();
    for (name, content) in
        [("etc/demo-agent/kept", "kept\n"), ("etc/demo-agent/a/b", "one\n"), ("etc/demo-agent/gone", "gone\n")]
    {
        fs::create_dir_all(host.path(name).parent().unwrap()).unwrap();
        fs::write(host.path(name), content).unwrap();
    }
    fs::set_permissions(host.path("etc/demo-agent/a/b"), fs::Permissions::from_mode(0o640)).unwrap();
    (host, author)
}

/// Sets an attribute where the file system has them; true where it does.
fn label(host: &Host, value: &[u8]) -> bool {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(host.path("etc/demo-agent/a/b"), "user.label", value, flags).is_ok()
}

fn change(host: &Host) {
    fs::write(host.path("etc/demo-agent/a/b"), "two\n").unwrap();
    fs::set_permissions(host.path("etc/demo-agent/a/b"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(host.path("etc/demo-agent/gone")).unwrap();
    fs::create_dir(host.path("etc/demo-agent/new.d")).unwrap();
    fs::write(host.path("etc/demo-agent/new.d/new"), "new\n").unwrap();
}

fn last_notes(host: &Host) -> String {
    let history = host.sidle(&["--json", "history", DEMO]).json();
    history["switches"].as_array().unwrap().last().unwrap()["notes"].to_string()
}

#[test]
fn configuration_goes_back_with_a_rollback_file_by_file_where_the_settings_say_so() {
    let (host, _author) = host("restore_configuration = true\n");
    let labelled = label(&host, b"first");
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    let snapshots = host.path("var/lib/sidle/instances/demo-agent/configuration");
    assert_eq!(fs::metadata(&snapshots).unwrap().mode() & 0o7777, 0o700, "configuration holds secrets");
    let inode = fs::metadata(host.path("etc/demo-agent/kept")).unwrap().ino();
    change(&host);
    label(&host, b"second");
    let plan = host.sidle(&["rollback", DEMO, "--dry-run"]).ok();
    for line in ["a/b as it was", "gone again", "new.d removed", "new.d/new removed"] {
        assert!(plan.contains(&format!("\n  {line}")), "{line}: {plan}");
    }
    assert!(!plan.contains("kept") && !plan.contains("state"), "{plan}");
    assert_eq!(host.current().as_deref(), Some("1.1-1"), "only told");
    host.sidle(&["rollback", DEMO]).ok();
    let b = host.path("etc/demo-agent/a/b");
    assert_eq!(fs::read_to_string(&b).unwrap(), "one\n");
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o7777, 0o640);
    let mut value = [0; 64];
    if labelled {
        let length = rustix::fs::getxattr(&b, "user.label", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"first");
    }
    assert_eq!(fs::read_to_string(host.path("etc/demo-agent/gone")).unwrap(), "gone\n");
    assert!(!host.path("etc/demo-agent/new.d").exists());
    assert_eq!(
        fs::metadata(host.path("etc/demo-agent/kept")).unwrap().ino(),
        inode,
        "what did not change is not touched"
    );
    assert!(
        last_notes(&host).contains("configuration of switch 2 put back: a/b as it was, gone again"),
        "{}",
        last_notes(&host)
    );
    // What was there before the rollback is not lost, and a second one brings it.
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(fs::read_to_string(&b).unwrap(), "two\n");
    assert_eq!(fs::read_to_string(host.path("etc/demo-agent/new.d/new")).unwrap(), "new\n");
}

#[test]
fn configuration_stays_as_it_is_by_default_and_is_not_copied() {
    let (host, _author) = host("");
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    change(&host);
    assert!(host.sidle(&["rollback", DEMO, "--dry-run"]).ok().contains("restore_configuration = false"));
    host.sidle(&["rollback", DEMO]).ok();
    assert_eq!(fs::read_to_string(host.path("etc/demo-agent/a/b")).unwrap(), "two\n");
    assert_eq!(last_notes(&host), "[]");
    assert!(!host.path(SNAPSHOTS).exists(), "nobody asked for copies of it");
}

#[test]
fn the_last_five_snapshots_are_kept() {
    let (host, _author) = host("restore_configuration = true\n");
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    for _ in 0..6 {
        host.sidle(&["restart", DEMO, "--mode", "now"]).ok();
    }
    let kept = fs::read_dir(host.path(SNAPSHOTS)).unwrap();
    let mut kept: Vec<String> = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    kept.sort();
    assert_eq!(kept, ["3", "4", "5", "6", "7"]);
}

#[test]
fn configuration_that_cannot_be_kept_refuses_where_it_is_to_be_put_back() {
    let (host, _author) = host("");
    std::os::unix::fs::symlink("kept", host.path("etc/demo-agent/link")).unwrap();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(last_notes(&host), "[]");
    assert_eq!(supervisor.end(), Some(0));
    fs::write(host.path("etc/sidle/conf.d/will.toml"), "restore_configuration = true\n").unwrap();
    let _supervisor = host.supervise();
    let ran = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("link is a link") && ran.stdout.contains("restore_configuration"), "{ran:?}");
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
}

#[test]
fn configuration_that_a_failed_trial_has_changed_goes_back_with_it() {
    for mode in ["idle", "overlap"] {
        let (host, _author) = host("restore_configuration = true\n");
        let _supervisor = host.supervise();
        host.sidle(&["switch", DEMO, "1.0-1"]).ok();
        assert_eq!(host.sidle(&["switch", DEMO, "1.2-1", "--mode", mode, "--no-wait"]).code, Some(4));
        eventually(10, "the trial runs", || match host.status()["switch"]["phase"].as_str() {
            Some("proving") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        change(&host);
        // On a busy machine the old release may need a second try, after a pause.
        eventually(90, "it came back", || {
            if host.status()["switch"].is_null() { Ok(()) } else { Err("not yet".to_owned()) }
        });
        assert_eq!(host.current().as_deref(), Some("1.0-1"));
        assert_eq!(fs::read_to_string(host.path("etc/demo-agent/a/b")).unwrap(), "one\n", "{mode}");
        assert!(last_notes(&host).contains("configuration put back: a/b as it was"), "{mode}: {}", last_notes(&host));
    }
}
