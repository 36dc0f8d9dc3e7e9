//! The first form of every format, as bytes that were written once and are never written again (`tests/golden/v1`): a host with a history, journals in
//! every phase, the files of the gate, a bundle. Today's program reads them, loses nothing of them, and goes on from them. What a newer program
//! has written is refused with its reason, left as it is, and no host is without its agent for that.

use crate::support::eventually;
use crate::support::inside::{Inside, bytes};
use crate::support::stage::{DEMO, Host};
use crate::support::trees;
use serde_json::Value;
use sidle::adoption::record::{Adoption, Stage};
use sidle::agent::gate::{GateRole, GuardReport, Roles};
use sidle::bundle::manifest::{Manifest, decompress};
use sidle::bundle::part::Part;
use sidle::layout::Layout;
use sidle::os::process::Identity;
use sidle::saved::Saved as _;
use sidle::store::index::Index;
use sidle::switch::journal::hold::Hold;
use sidle::switch::journal::host_fingerprints::HostFingerprints;
use sidle::switch::journal::repeated::RehearsedAgain;
use sidle::switch::journal::verdicts::Verdicts;
use sidle::switch::process::on_record;
use sidle::switch::{History, Journal, Phase};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an instance's files lie below a root.
const STATE: &str = "var/lib/sidle/instances/demo-agent";
const RECEIPT: &str = "var/lib/sidle/demo-agent/1.0-1";

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

fn of_host(name: &str) -> Vec<u8> {
    bytes(&golden("host").join(name))
}

/// The host of old. Git keeps one bit of a mode, and whose file it is nobody.
fn host_of_old() -> Host {
    let host = Host::bare();
    let copied = Command::new("cp").arg("-rPT").arg(golden("host")).arg(host.root()).status().unwrap();
    assert!(copied.success());
    let mut paths = vec![host.root()];
    while let Some(path) = paths.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        if stat.is_symlink() {
            continue;
        }
        let mode = if stat.is_dir() || stat.permissions().mode() & 0o100 != 0 { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        if stat.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.ends_with("index") && stat.uid() != 0 {
            // It says that all is root's, as it was; without it, all belongs to who owns the tree. `files_of_the_first_version_lose_nothing_when_they_are_written_again` reads it.
            fs::remove_file(&path).unwrap();
        }
    }
    host
}

/// Whether all of `old` is in `new`: a later program may know more, and must forget nothing.
fn holds(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| holds(new, old)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| holds(new, old))
        }
        (new, old) => new == old,
    }
}

fn assert_holds(new: &[u8], old: &[u8]) {
    let values = |bytes: &[u8]| -> Vec<Value> {
        bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    };
    let (new_values, old_values) = (values(new), values(old));
    let all =
        new_values.len() == old_values.len() && new_values.iter().zip(&old_values).all(|(new, old)| holds(new, old));
    assert!(all, "{}\nis written as\n{}", String::from_utf8_lossy(old), String::from_utf8_lossy(new));
}

#[test]
fn a_host_of_the_first_version_is_read_as_it_was_and_goes_on() {
    let host = host_of_old();
    let status = host.status();
    for (pointer, value) in [
        ("/current", "1.0-1"),
        ("/previous", "1.1-1"),
        ("/hold/reason", "audit until Friday"),
        ("/last/purpose", "rollback"),
        ("/last/reason", "jobs hang"),
    ] {
        assert_eq!(status.pointer(pointer).and_then(Value::as_str), Some(value), "{status}");
    }
    assert_eq!(status["unread"], serde_json::json!([]), "{status}");
    let history = host.sidle(&["--json", "history", DEMO]).json();
    assert_eq!(history["switches"].as_array().unwrap().len(), 9);
    assert_eq!(history["incidents"][0]["problems"][0], "bin/demo-agent has other content");
    assert_eq!(history["rehearsed_again"][0]["notes"][0], "it loads");
    for release in ["1.0-1", "1.1-1", "1.2-1"] {
        host.sidle(&["verify", DEMO, release]).ok();
        host.sidle(&["verify", DEMO, release, "--full"]).ok();
    }
    host.sidle(&["trust", "show"]).ok();
    let supervisor = host.supervise();
    assert_eq!(host.answering("job"), "1.0");
    let refused = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert!(refused.code == Some(10) && refused.stderr.contains("audit until Friday"), "{refused:?}");
    host.sidle(&["unhold", DEMO]).ok();
    let refused = host.sidle(&["switch", DEMO, "1.2-1"]);
    assert!(refused.code == Some(10) && refused.stderr.contains("exited with code 1"), "{refused:?}");
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!((host.answering("after").as_str(), host.last()["id"].as_u64()), ("1.1", Some(10)));
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn a_manifest_with_extras_kept_modules_and_offers_is_read_and_written_as_it_was() {
    let old = bytes(&golden("manifest"));
    let manifest = Manifest::parse(&old).unwrap();
    assert_eq!(manifest.extras[0].provides["sdb"], ["vault"]);
    assert!(manifest.offers.functions()["module"]["pkg"].contains("install"));
    assert_eq!([manifest.to_json().unwrap(), b"\n".to_vec()].concat(), old, "byte for byte");
}

#[test]
fn files_of_the_first_version_lose_nothing_when_they_are_written_again() {
    let old = |name: &str| of_host(&format!("{STATE}/{name}"));
    assert_holds(&Journal::parse(&old("journal")).unwrap().to_bytes(), &old("journal"));
    assert_holds(&History::parse(&old("history")).unwrap().to_bytes(), &old("history"));
    assert_holds(&Verdicts::parse(&old("verdicts")).unwrap().to_bytes(), &old("verdicts"));
    assert_holds(&Hold::parse(&old("hold")).unwrap().to_bytes(), &old("hold"));
    assert_holds(&HostFingerprints::parse(&old("host-fingerprints")).unwrap().to_bytes(), &old("host-fingerprints"));
    assert_holds(&RehearsedAgain::parse(&old("rehearsed-again")).unwrap().to_bytes(), &old("rehearsed-again"));
    let receipt = |name: &str| of_host(&format!("{RECEIPT}/{name}"));
    let index = Index::parse(receipt("index"), Path::new("index")).unwrap();
    assert_eq!(index.to_bytes(), receipt("index"));
    let manifest = decompress(&receipt("manifest.json.zst")).unwrap();
    assert_eq!(Manifest::parse(&manifest).unwrap().release().to_string(), "1.0-1");
    let root = tempfile::tempdir().unwrap();
    trees::put(root.path(), "var/lib/sidle/adopt/a/record", &bytes(&golden("adoption")), 0o644);
    let adoption = Adoption::read(&Layout::new(root.path()), &"a".parse().unwrap()).unwrap().unwrap();
    assert_eq!((adoption.stage, adoption.unit.as_str(), adoption.commands.len()), (Stage::Held, "a.service", 1));
}

#[test]
fn journals_of_the_first_version_are_read_in_every_phase() {
    let text = bytes(&golden("journals"));
    let mut phases = BTreeSet::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let journal = Journal::parse(line).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(line)));
        assert_holds(&journal.to_bytes(), line);
        phases.extend(journal.live.map(|live| live.phase.word()));
    }
    let all: BTreeSet<&str> = Phase::ALL.iter().map(|phase| phase.word()).collect();
    assert_eq!(phases, all, "an example of each");
}

#[test]
fn the_gate_of_the_first_version_is_read_and_written_as_it_was() {
    let roles = fs::read_to_string(golden("run/roles")).unwrap();
    let report = GuardReport::parse(&bytes(&golden("run/report.json"))).unwrap();
    assert_eq!(
        (report.leader, report.role, report.singletons, report.announced),
        (19003, GateRole::Active, true, true)
    );
    assert_eq!((report.serial, report.wrapped.len(), report.peers[0].name.as_str()), (73, 1, "demo"));
    let slot =
        sidle::agent::gate::Slot { leader: 19003, role: GateRole::Active, origin: sidle::agent::gate::Origin::Switch };
    let same = Roles { slots: vec![slot], announce: Some(19003), prove: 0, prover: None };
    // Guards of older releases read it, byte by byte.
    assert_eq!(same.to_text(73), roles);
    assert_eq!(Roles::serial_of(&roles), 73);
    // On record is who lives: this process stands for the one of old.
    let root = tempfile::tempdir().unwrap();
    let own = Identity::own().unwrap();
    let record = fs::read_to_string(golden("run/processes")).unwrap();
    let record = record.replace("19ec1d72-32bb-4c4a-9201-ba6d7218add0", &own.boot_id);
    let record = record.replace("19003", &own.pid.to_string()).replace("1475649", &own.start_time.to_string());
    trees::put(root.path(), "run/sidle/demo-agent/processes", record.as_bytes(), 0o644);
    assert_eq!(on_record(&Layout::new(root.path()), &DEMO.parse().unwrap()).unwrap(), [own]);
}

#[test]
fn a_bundle_of_the_first_version_is_installed_as_it_was() {
    let inside = Inside::new(&bytes(&golden("1.root.json")));
    // When it was signed: metadata expires.
    let installed = inside.install_on("2026-11-23T18:30:31Z".parse().unwrap(), &bytes(&golden("bundle"))).unwrap();
    assert_eq!(installed.release.to_string(), "1.0-1");
    let tree = "opt/sidle/demo-agent/versions/1.0-1";
    assert_eq!(trees::contents(&inside.path(tree)), trees::contents(&host_of_old().path(tree)));
    assert_eq!(
        bytes(&inside.path(RECEIPT).join("manifest.json.zst")),
        of_host(&format!("{RECEIPT}/manifest.json.zst"))
    );
}

/// What a newer program might have written in the place of what is there.
fn newer(text: &str) -> [String; 2] {
    let text = text.replace("\"schema\": 1", "\"schema\":1");
    let another_form = text.replace("\"schema\":1", "\"schema\":2");
    let another_field = text.replace("\"schema\":1", "\"schema\":1,\"soaked\":true");
    assert!(another_form != text && another_field != text);
    [another_form, another_field]
}

#[test]
fn a_bundle_file_with_a_part_of_a_release_is_installed_as_it_was() {
    let inside = Inside::new(&bytes(&golden("part/1.root.json")));
    let (base, part) = (bytes(&golden("part/base")), bytes(&golden("part/part")));
    let signed_at = "2026-11-26T20:00:00Z".parse().unwrap();
    let refused = inside.install_on(signed_at, &part).unwrap_err();
    assert!(refused.message.contains("only what changed since 1.0-1"), "{refused:?}");
    for (bundle, release) in [(&base, "1.0-1"), (&part, "1.1-1")] {
        let installed = inside.install_on(signed_at, bundle).unwrap();
        assert!(installed.fresh && installed.release.to_string() == release, "{installed:?}");
    }
    let file = |release: &str, name: &str| {
        bytes(&inside.path(&format!("opt/sidle/demo-agent/versions/{release}/share")).join(name))
    };
    assert_eq!(file("1.1-1", "version"), b"version 1.1\n");
    assert_eq!(file("1.1-1", "table"), file("1.0-1", "table"), "what the part leaves out");
    // As docs/formats.md has it, byte for byte.
    let text = bytes(&golden("part/frames"));
    assert!(part.windows(text.len()).any(|bytes| bytes == text), "the member FRAMES");
    assert_eq!(Part::parse(&text).unwrap().to_string().as_bytes(), text);
}

#[test]
fn a_journal_of_a_newer_program_switches_nothing_and_current_runs_all_the_same() {
    let text = String::from_utf8(of_host(&format!("{STATE}/journal"))).unwrap();
    for newer in newer(&text) {
        let host = host_of_old();
        host.sidle(&["unhold", DEMO]).ok();
        let journal = host.path(STATE).join("journal");
        fs::write(&journal, &newer).unwrap();
        let told = host.sidle(&["status", DEMO]);
        assert!(told.stdout.contains("trouble") && told.stdout.contains("written by a newer sidle"), "{told:?}");
        let mut supervisor = host.supervise();
        assert_eq!(host.answering("job"), "1.0");
        eventually(10, "the supervisor tells of it", || match host.status()["supervisor"]["trouble"].as_str() {
            Some(trouble) if trouble.contains("written by a newer sidle") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        for verb in [
            &["switch", DEMO, "1.1-1"][..],
            &["restart", DEMO],
            &["restart", DEMO, "--if-changed"],
            &["rollback", DEMO],
            &["cancel", DEMO],
        ] {
            let refused = host.sidle(verb);
            assert_eq!(refused.code, Some(1), "{refused:?}");
            assert!(refused.stderr.contains("written by a newer sidle"), "{refused:?}");
            assert!(refused.stderr.contains("install the version of sidle that wrote it"), "{refused:?}");
        }
        // Nobody is ended for it, and who dies is started again.
        let before = host.agents();
        assert!(Identity::of(before[0]).unwrap().unwrap().signal(sidle::os::process::SignalNumber::KILL).unwrap());
        eventually(10, "it is started again", || match host.agents() {
            agents if agents.len() == 1 && agents != before => Ok(()),
            agents => Err(format!("{agents:?}")),
        });
        assert_eq!(host.answering("again"), "1.0");
        let before = host.agents();
        supervisor.kill();
        let supervisor = host.supervise();
        assert_eq!((host.answering("taken over").as_str(), host.agents()), ("1.0", before));
        assert_eq!(
            host.sidle(&["run", DEMO, "--", "--version"]).code,
            host_of_old().sidle(&["run", DEMO, "--", "--version"]).code
        );
        assert_eq!(supervisor.end(), Some(0));
        assert_eq!(fs::read_to_string(&journal).unwrap(), newer, "it is left as it is");
    }
}

#[test]
fn an_older_program_beside_a_newer_ones_store_changes_nothing_and_runs_the_agent() {
    let files = ["history", "verdicts", "hold", "host-fingerprints", "rehearsed-again"];
    let places = files.iter().map(|name| format!("{STATE}/{name}"));
    for place in places.chain(["var/lib/sidle/trust/floor.json".to_owned()]) {
        let host = host_of_old();
        host.sidle(&["unhold", DEMO]).ok();
        let text = String::from_utf8(of_host(&place)).unwrap();
        for newer in newer(&text) {
            // Nothing of the trust store is lost by what is not known of it.
            if place.ends_with("floor.json") && newer.contains("soaked") {
                continue;
            }
            fs::write(host.path(&place), &newer).unwrap();
            let supervisor = host.supervise();
            assert_eq!(host.answering("job"), "1.0", "{place}");
            let refused = host.sidle(&["switch", DEMO, "1.1-1", "--force"]);
            let needed = ["history", "verdicts", "hold"].iter().any(|name| place.ends_with(name));
            if needed {
                assert!(
                    refused.code == Some(1) && refused.stderr.contains("written by a newer sidle"),
                    "{place}: {refused:?}"
                );
                assert_eq!(host.current().as_deref(), Some("1.0-1"), "{place}");
            } else {
                assert_eq!(refused.code, Some(0), "{place}: {refused:?}");
                host.sidle(&["switch", DEMO, "1.0-1", "--force"]).ok();
            }
            let status = host.sidle(&["status", DEMO]);
            assert!(matches!(status.code, Some(0 | 1)), "{place}: {status:?}");
            assert_eq!(supervisor.end(), Some(0));
            assert_eq!(fs::read_to_string(host.path(&place)).unwrap(), newer, "{place} is left as it is");
            let _ = fs::remove_dir_all(host.path("etc/demo-agent/state"));
        }
    }
}
