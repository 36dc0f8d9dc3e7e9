//! `sidle generalize`: an image keeps its releases and its trust, and nothing by which a clone would pass for the host it was made from.

use crate::support::repositories::snapshot_of;
use crate::support::stage::{Author, DEMO, Host, Ran, text, two_releases};
use crate::support::{eventually, pretended};
use serde_json::json;
use std::fs;
use std::path::Path;

fn there(host: &Host, path: &str) -> bool {
    fs::symlink_metadata(host.path(path)).is_ok()
}

fn removed(ran: &Ran) -> Vec<String> {
    let value: serde_json::Value = ran.json();
    value["removed"].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_clone_starts_the_current_release_without_the_history_of_its_pattern() {
    let (host, _author) = two_releases();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["hold", DEMO]).ok();
    let refused = host.sidle(&["generalize"]);
    assert_eq!(refused.code, Some(12), "{refused:?}");
    assert!(refused.stderr.contains("the supervisor of demo-agent runs"), "{refused:?}");
    assert_eq!(supervisor.end(), Some(0));
    fs::create_dir_all(host.path("var/cache/sidle/frames")).unwrap();
    fs::write(host.path("var/cache/sidle/frames/partial"), "half").unwrap();

    let before = snapshot_of(&host.root());
    // The agent's last child may end after it.
    let dry = eventually(10, "nothing is in use", || match host.sidle(&["--json", "generalize", "--dry-run"]) {
        dry if dry.code == Some(0) => Ok(dry),
        refused => Err(format!("{refused:?}")),
    });
    assert!(snapshot_of(&host.root()) == before, "{dry:?}");
    let did = host.sidle(&["--json", "generalize"]);
    assert_eq!((did.code, removed(&did)), (Some(0), removed(&dry)));
    for path in ["var/lib/sidle/instances/demo-agent", "run/sidle/demo-agent", "var/cache/sidle/frames"] {
        assert!(!there(&host, path) && removed(&did).contains(&text(&host.path(path)).to_owned()), "{path}: {did:?}");
    }
    for path in ["var/lib/sidle/trust/floor.json", "etc/sidle/sidle.toml", "opt/sidle/demo-agent/versions/1.1-1"] {
        assert!(there(&host, path), "{path}");
    }
    let again = host.sidle(&["generalize"]);
    assert_eq!(again.code, Some(3), "{again:?}");

    let clone = host.copy();
    assert_eq!(clone.current().as_deref(), Some("1.0-1"));
    let supervisor = clone.supervise();
    assert_eq!(clone.answering("on-the-clone"), "1.0");
    let history = clone.sidle(&["--json", "history", DEMO]).json();
    assert_eq!(history["switches"].as_array().map(Vec::len), Some(0), "{history}");
    clone.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(clone.answering("switched"), "1.1");
    assert_eq!(supervisor.end(), Some(0));
}

#[test]
fn an_agent_that_outlives_its_supervisor_is_in_the_way() {
    let (host, _author) = two_releases();
    let mut supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    supervisor.kill();
    let refused = host.sidle(&["generalize"]);
    assert_eq!(refused.code, Some(12), "{refused:?}");
    assert!(refused.stderr.contains("1.0-1 is in use"), "{refused:?}");
    assert!(there(&host, "var/lib/sidle/instances/demo-agent/journal"));
}

/// What a minion leaves on a host: by `true`, what only this host may have.
const MINION: [(&str, bool); 9] = [
    ("etc/demo-agent/minion_id", true),
    ("etc/demo-agent/pki/minion/minion.pem", true),
    ("etc/demo-agent/pki/minion/minion.pub", true),
    ("etc/demo-agent/pki/minion/minion_master.pub", false),
    ("var/cache/salt/minion/proc/20261123", true),
    ("var/cache/salt/minion/grains.cache.p", true),
    ("var/cache/salt/minion/job_queue/1.p", true),
    ("var/cache/salt/minion/extmods/grains/site.py", false),
    ("etc/demo-agent/grains", false),
];

/// What Salt makes of a configuration whose keys are in `pki_dir`, and whose id is generated or not.
fn answer(pki_dir: &str, id_file: Option<&str>) -> String {
    let mut answer = pretended::answer(json!({"pki_dir": pki_dir}));
    (answer["generated"], answer["id_file"]) = (json!(id_file.map(|_| "file")), json!(id_file));
    answer.to_string()
}

const PKI: &str = "/etc/demo-agent/pki/minion";
const ID_FILE: Option<&str> = Some("/etc/demo-agent/minion_id");

/// An installed release of a minion that has run on this host.
fn minion(author: &Author, answer: &str) -> Host {
    let host = Host::new(author);
    host.install(&author.posing_as_minion("1.0")).ok();
    for (path, _) in MINION {
        let path = host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "own\n").unwrap();
    }
    fs::write(host.path("etc/demo-agent/minion"), "master: salt.example\n").unwrap();
    fs::write(host.path("etc/demo-agent/answer"), answer).unwrap();
    host
}

#[test]
fn the_minions_identity_goes_and_its_configuration_stays() {
    let author = Author::new();
    // As in an image: its paths are meant below the root.
    let host = minion(&author, &answer(PKI, ID_FILE));
    let kept = host.sidle(&["--json", "generalize", "--keep-identity"]);
    assert!(MINION.iter().all(|(path, _)| there(&host, path)), "{kept:?}");
    host.sidle(&["generalize"]).ok();
    for (path, own) in MINION {
        assert_eq!(there(&host, path), !own, "{path}");
    }
    assert!(there(&host, "etc/demo-agent/minion"));

    // A configured id is no generated one.
    let host = minion(&Author::new(), &answer(PKI, None));
    host.sidle(&["generalize"]).ok();
    assert!(there(&host, "etc/demo-agent/minion_id") && !there(&host, "etc/demo-agent/pki/minion/minion.pem"));
}

/// Whoever took "nothing to remove" for an answer would give the key to each clone.
#[test]
fn a_key_that_is_not_where_salt_has_it_is_said_and_nothing_is_removed() {
    let author = Author::new();
    for (told, part) in [
        (answer("/etc/demo-agent/pki/minion/web1", ID_FILE), "its key is not at "),
        ("no JSON".to_owned(), "cannot ask the release"),
        (
            answer(PKI, None).replace(r#""failure":null"#, r#""failure":"Error parsing configuration file""#),
            "Error parsing",
        ),
    ] {
        let host = minion(&author, &told);
        let before = snapshot_of(&host.root());
        let refused = host.sidle(&["generalize"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(part), "{refused:?}");
        assert!(snapshot_of(&host.root()) == before, "{refused:?}");
    }
    // A host on which no minion has run has no key.
    let host = Host::new(&author);
    host.install(&author.posing_as_minion("1.0")).ok();
    fs::create_dir_all(host.path("etc/demo-agent")).unwrap();
    fs::write(host.path("etc/demo-agent/answer"), answer(PKI, ID_FILE)).unwrap();
    let ran = host.sidle(&["generalize"]);
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
}

#[test]
fn a_link_out_of_the_root_is_not_followed() {
    let author = Author::new();
    let host = minion(&author, &answer(PKI, ID_FILE));
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("minion.pem"), "this machine's").unwrap();
    fs::remove_dir_all(host.path("etc/demo-agent/pki/minion")).unwrap();
    std::os::unix::fs::symlink(outside.path(), host.path("etc/demo-agent/pki/minion")).unwrap();
    let refused = host.sidle(&["generalize"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("leads out of the root"), "{refused:?}");
    assert!(Path::new(&outside.path().join("minion.pem")).exists() && there(&host, "etc/demo-agent/minion_id"));
}
