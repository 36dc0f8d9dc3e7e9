//! What of `plain::doctor` needs root or a package: see there.

use crate::plain::doctor::*;
use crate::support::mounts::Mounted;
use crate::support::stage::{Author, Host, Ran, SIDLE, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

#[test]
fn mount_options_and_room_are_found() {
    let author = Author::new();
    let host = Host::new(&author);
    fs::create_dir(host.path("opt")).unwrap();
    let store = Mounted::tmpfs_at(&host.path("opt"), "size=64m,nr_inodes=1000");
    host.install(&author.release_with("1.0", |tree| {
        fs::write(tree.join("share/large"), crate::support::trees::noise(3, 4 << 20)).unwrap();
    }))
    .ok();
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        assert!(Command::new("mount").args(["-o", &options, text(&store.path())]).status().unwrap().success());
    };
    let seen = found(&host);
    assert_eq!(seen.get("volatile-file-system").map(String::as_str), Some("note"), "{seen:?}");
    for (options, back, id, severity, code) in [
        ("noexec", "exec", "no-exec", "error", 1),
        ("ro", "rw", "read-only", "error", 1),
        ("size=10m", "size=64m", "space-low", "warning", 8),
        ("size=6m", "size=64m", "no-space", "error", 8),
        ("nr_inodes=25", "nr_inodes=1000", "no-inodes", "error", 8),
    ] {
        assert!(!found(&host).contains_key(id), "{id} before");
        remount(options);
        assert_eq!(found(&host).get(id).map(String::as_str), Some(severity), "{options}");
        assert_eq!(host.sidle(&["doctor"]).code, Some(code), "{options}");
        remount(back);
    }
}

#[test]
fn trust_and_the_clock_are_found() {
    let (host, _author, _supervisor) = well();
    let at = |time: &str| {
        let mut command = Command::new("faketime");
        command.args(["-f", time, SIDLE, "--root", text(&host.path("")), "--json", "doctor"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        findings(&Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    };
    let severity = |found: &BTreeMap<String, String>, id: &str| found.get(id).cloned();
    assert_eq!(severity(&at(FUTURE), "trust-expired").as_deref(), Some("error"));
    assert_eq!(severity(&at("+350d"), "trust-expires").as_deref(), Some("warning"));
    assert_eq!(severity(&at("+20d"), "trust-late").as_deref(), Some("note"));
    assert_eq!(severity(&at("+200d"), "trust-late").as_deref(), Some("warning"));
    assert_eq!(severity(&at("-400d"), "clock-behind").as_deref(), Some("error"));

    let trust = host.path("var/lib/sidle/trust");
    let floor = fs::read(trust.join("floor.json")).unwrap();
    fs::write(trust.join("floor.json"), "{").unwrap();
    assert_eq!(severity(&found(&host), "trust-damaged").as_deref(), Some("error"));
    assert_eq!(host.sidle(&["doctor"]).code, Some(7));
    fs::remove_file(trust.join("floor.json")).unwrap();
    assert_eq!(severity(&found(&host), "trust-unpinned").as_deref(), Some("warning"));
    fs::write(trust.join("floor.json"), floor).unwrap();
    assert_eq!(worse_than_notes(&host), Vec::<String>::new());
}

#[test]
fn what_could_not_be_looked_at_is_never_silently_good() {
    let (host, _author, _supervisor) = well();
    fs::set_permissions(host.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = host.path("sidle-program");
    fs::copy(SIDLE, &program).unwrap();
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", text(&program)]);
        let output = command.args(["--root", text(&host.path("")), "--json", "doctor"]).output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    };
    let staging = "opt/sidle/demo-agent/staging";
    let ran = as_nobody();
    assert_eq!(findings(&ran).get("could-not-look").map(String::as_str), Some("unknown"), "{ran:?}");
    assert!(ran.stdout.contains(staging) && ran.stdout.contains("run `sidle doctor` as root"), "{ran:?}");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let closed = host.path("var/lib/sidle/trust");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let ran = as_nobody();
    assert!(ran.stdout.contains("the trust store") && !ran.stdout.contains("trust-unpinned"), "{ran:?}");
    assert!(!found(&host).contains_key("could-not-look"));
}
