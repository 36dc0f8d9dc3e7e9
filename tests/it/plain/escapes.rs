//! Text of strangers (unsigned metadata, signed names, titles of processes, reasons) reaches no terminal and no log as it is.

use crate::support::releases::members;
use crate::support::stage::{Author, DEMO, Host, Ran, sidle, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A line that looks like one of sidle's own.
const FORGED: &str = "installed  demo-agent 9.9-9";
/// A title for the terminal, a cleared screen, a line of its own, 8-bit controls, a changed direction, an invisible character.
const HOSTILE: &str = "\u{1b}]0;PWNED\u{7}\u{1b}[2J\r\ninstalled  demo-agent 9.9-9\u{9b}2J\u{202e}\u{feff}\u{2028}";

/// Nothing in what a command printed moves the cursor, ends a line or begins one that looks like sidle's.
#[track_caller]
fn is_harmless(ran: &Ran) {
    for output in [&ran.stdout, &ran.stderr] {
        let bad = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{feff}\u{2028}".contains(c);
        assert!(!output.contains(bad), "{output:?}");
        assert!(!output.lines().any(|line| line.trim_start().starts_with(FORGED)), "{output:?}");
        assert!(output.lines().all(|line| line.chars().count() < 10_000), "{} characters", output.len());
    }
}

/// The same, where the hostile text is told.
#[track_caller]
fn tells_it(ran: &Ran) {
    is_harmless(ran);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("\\u{1b}"), "{ran:?}");
}

/// The bundle with another content of a member.
fn replaced(bundle: &Path, name: &str, content: &[u8]) -> Vec<u8> {
    let bundle = fs::read(bundle).unwrap();
    let mut made = Vec::new();
    let all = members(&bundle);
    for member in &all {
        let whole = member.header.start..member.padding.end;
        if member.name != name {
            made.extend_from_slice(&bundle[whole]);
            continue;
        }
        let mut header = bundle[member.header.clone()].to_vec();
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
        made.extend(header);
        made.extend_from_slice(content);
        made.resize(made.len().next_multiple_of(512), 0);
    }
    made.extend_from_slice(&bundle[all.last().unwrap().padding.end..]);
    made
}

/// Timestamps that nobody has signed.
fn hostile_timestamps(author: &Author) -> Vec<Vec<u8>> {
    let good: Value =
        serde_json::from_slice(&fs::read(author.repository().join("metadata/timestamp.json")).unwrap()).unwrap();
    let signature = json!({"keyid": HOSTILE, "sig": "aa"});
    let mut doubled = good.clone();
    doubled["signatures"] = json!([signature, signature]);
    let mut named = good.clone();
    named["signed"]["meta"] = json!({HOSTILE: {}});
    let mut typed = good;
    typed["signed"]["_type"] = json!(HOSTILE);
    [doubled, named, typed].iter().map(|value| serde_json::to_vec(value).unwrap()).collect()
}

#[test]
fn what_unsigned_metadata_says_reaches_no_terminal() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    let repository = host.path("mirror");
    let copied = Command::new("cp").arg("-r").arg(author.repository()).arg(&repository).status().unwrap();
    assert!(copied.success());
    for timestamp in hostile_timestamps(&author) {
        let file = host.path("hostile.sidle");
        fs::write(&file, replaced(&bundle, "metadata/timestamp.json", &timestamp)).unwrap();
        for (verb, code) in [("inspect", 0), ("install", 7)] {
            let ran = host.sidle(&[verb, text(&file)]);
            assert_eq!(ran.code, Some(code), "{ran:?}");
            tells_it(&ran);
        }
        fs::write(repository.join("metadata/timestamp.json"), &timestamp).unwrap();
        let online = format!("file://{}", text(&repository));
        let ran = host.sidle(&["install", DEMO, "--repository", &online]);
        assert_eq!(ran.code, Some(7), "{ran:?}");
        tells_it(&ran);
        let alone = host.path("timestamp.json");
        fs::write(&alone, &timestamp).unwrap();
        is_harmless(&host.sidle(&["inspect", text(&alone)]));
    }
}

#[test]
fn names_in_signed_metadata_reach_no_terminal() {
    let author = Author::new();
    let host = Host::new(&author);
    let role = json!({"name": HOSTILE, "keyids": ["a"], "threshold": 1, "terminating": false, "paths": [HOSTILE]});
    let long = "x".repeat(200_000);
    let signed = json!({
        "_type": "targets", "version": HOSTILE, "expires": HOSTILE, "spec_version": "1.0.31",
        "targets": {HOSTILE: {"length": 1, "hashes": {}}, long: {"length": 1, "hashes": {}}},
        "delegations": {"keys": {}, "roles": [role]},
    });
    let file = host.path("targets.json");
    fs::write(&file, json!({"signatures": [], "signed": signed}).to_string()).unwrap();
    let ran = host.sidle(&["inspect", text(&file)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    tells_it(&ran);
}

#[test]
fn the_reason_of_a_hold_and_of_a_switch_reaches_no_terminal() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let switched = host.sidle(&["switch", DEMO, "--no-wait", "--reason", HOSTILE]);
    is_harmless(&switched);
    tells_it(&host.sidle(&["hold", DEMO, "--reason", HOSTILE]));
    for arguments in [&["status"][..], &["list"], &["switch", DEMO], &["restart", DEMO], &["doctor", DEMO]] {
        is_harmless(&host.sidle(arguments));
    }
    tells_it(&host.sidle(&["status"]));
    tells_it(&host.sidle(&["list"]));
    let supervisor = host.supervise();
    host.sidle(&["unhold", DEMO]).ok();
    crate::support::eventually(20, "the switch is over", || {
        let ran = host.sidle(&["history", DEMO]);
        if ran.stdout.contains("#1") { Ok(()) } else { Err(ran.stdout) }
    });
    tells_it(&host.sidle(&["history", DEMO]));
    tells_it(&host.sidle(&["history", DEMO, "--id", "1"]));
    let log = supervisor.log();
    is_harmless(&Ran { code: None, stdout: log, stderr: String::new() });
}

/// Ended when the test is.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_title_of_a_process_reaches_no_terminal() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let tree = host.path("opt/sidle/demo-agent/versions/1.0-1");
    let holder = Command::new("sleep").arg0(HOSTILE).arg("1000").current_dir(tree).spawn().unwrap();
    let _holder = Ended(holder);
    let removed = host.sidle(&["remove", DEMO, "1.0-1"]);
    assert_eq!(removed.code, Some(12), "{removed:?}");
    tells_it(&removed);
    tells_it(&host.sidle(&["collect", DEMO, "--keep", "0"]));
    is_harmless(&host.sidle(&["doctor", DEMO]));
}

#[test]
fn settings_with_long_lines_are_told_in_short_ones() {
    let author = Author::new();
    let host = Host::new(&author);
    let line = format!("probatoin = \"{}\u{9b}\"\n", "x".repeat(200_000));
    fs::write(host.path("etc/sidle/conf.d/long.toml"), line).unwrap();
    let ran = host.sidle(&["switch", DEMO, "1.0-1"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    is_harmless(&ran);
    assert!(ran.stderr.len() < 20_000, "{}", ran.stderr.len());
    assert!(ran.stderr.contains("long.toml") && ran.stderr.contains("probatoin"), "{ran:?}");
}

#[test]
fn a_file_name_reaches_no_terminal() {
    let host = Host::bare();
    let name: PathBuf = host.path(&format!("{HOSTILE}.sidle"));
    tells_it(&sidle(&["inspect", text(&name)], &[]));
    // Arguments that the grammar refuses, too.
    let ran = sidle(&["list", "\u{1b}[2J"], &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    is_harmless(&ran);
}

#[test]
fn a_minisign_signature_by_a_stranger_is_called_that_and_nothing_that_was_not_compared_is_called_whole() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let stranger = author.directory().join("stranger.pem");
    let stranger = sidle::signer::FileSigner::create(&stranger, None).unwrap();
    let content = fs::read(&bundle).unwrap();
    let of = |end: &str| members(&content).into_iter().find(|member| member.name.ends_with(end)).unwrap();
    let list = &content[of("SHA256SUMS").content];
    let signed = sidle::trust::minisign::sign(&stranger, list).unwrap();
    let host = Host::new(&author);
    let file = host.path("strange.sidle");
    fs::write(&file, replaced(&bundle, &of(".minisig").name, signed.as_bytes())).unwrap();
    let seen = host.sidle(&["inspect", text(&file)]).ok();
    assert!(seen.contains("does not sign for this repository") && !seen.contains("every byte"), "{seen}");
    let installed = host.install(&file);
    assert!(installed.stderr.contains("does not sign for this repository now"), "{installed:?}");
    assert!(!installed.stderr.contains("no longer"), "{installed:?}");
    let good = host.sidle(&["inspect", text(&bundle)]).ok();
    assert!(good.contains("by a key that signs for this repository"), "{good}");
}
