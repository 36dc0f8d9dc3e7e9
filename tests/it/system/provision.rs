//! The Ansible role, really played on a private root. Needs python3 with venv, and the package index on first use.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make and look at real files, and run python"
)]

use super::python_tuf::cached_python;
use crate::support::stage::{Author, DEMO, Host, SIDLE, text, upgraded_by_itself};
use std::fs;
use std::path::Path;
use std::process::Command;

/// With Python 3.10 to 3.12, as the oldest supported distributions of controllers have.
const REQUIREMENTS: [&str; 1] = ["ansible-core==2.17.14"];

/// Plays the role; gives the recap: `changed=…` and the rest.
fn play(work: &Path, variables: &serde_json::Value, more: &[&str]) -> (Option<i32>, String) {
    let book = "- hosts: all\n  gather_facts: false\n  roles: [sidle]\n";
    fs::write(work.join("play.yml"), book).unwrap();
    let roles = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/ansible/roles");
    let python = cached_python(&REQUIREMENTS);
    let mut command = Command::new("timeout");
    command.arg("120").arg(python.with_file_name("ansible-playbook")).args(["-i", "localhost,", "-c", "local"]);
    command.arg("-e").arg(format!("ansible_python_interpreter={}", text(&python)));
    command.args(["-e", &variables.to_string()]).args(more).arg("play.yml").current_dir(work);
    command.env("ANSIBLE_ROLES_PATH", roles).env("ANSIBLE_LOCAL_TEMP", work.join("local")).env("HOME", work);
    command.env("ANSIBLE_REMOTE_TEMP", work.join("remote")).env("ANSIBLE_NOCOLOR", "1").env("LC_ALL", "C.UTF-8");
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// A text would be a master for each of its letters, and a minion is either the first or there already.
fn first_minions_are_planned_and_need_a_list_of_masters(work: &Path, variables: &serde_json::Value) {
    let with = |more: serde_json::Value| {
        let mut all = variables.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        play(work, &all, &["--check"])
    };
    let (code, said) = with(serde_json::json!({"sidle_masters": ["m1.example"], "sidle_id": "web1"}));
    assert!(code == Some(0) && said.contains("changed=1"), "{said}");
    for wrong in [
        serde_json::json!({"sidle_masters": "m1.example"}),
        serde_json::json!({"sidle_masters": ["m1.example"], "sidle_adopt": true}),
    ] {
        let (code, said) = with(wrong);
        assert!(code == Some(2) && said.contains("Write sidle_masters as a list"), "{code:?}: {said}");
    }
}

#[test]
fn the_ansible_role_sets_a_host_up_once_and_shows_it_first() {
    let author = Author::new();
    author.release("1.0", "good");
    let (host, work) = (Host::bare(), tempfile::tempdir().unwrap());
    let program = work.path().join("bin-sidle");
    let variables = serde_json::json!({
        "sidle_root": text(&host.root()), "sidle_program": text(&program), "sidle_binary": SIDLE, "sidle_package": DEMO,
        "sidle_repository": format!("file://{}", text(&author.repository())), "sidle_fingerprint": author.fingerprint(),
        "sidle_settings": "keep_extra = 2\n", "sidle_unit": concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/sidle@.service"),
    });
    let (code, said) = play(work.path(), &variables, &["--check"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!host.path("etc").exists() && !program.exists(), "{said}");

    let (code, said) = play(work.path(), &variables, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(host.path("opt/sidle/demo-agent/versions/1.0-1").exists(), "{said}");
    assert_eq!(fs::read_to_string(host.path("etc/sidle/conf.d/50-ansible.toml")).unwrap(), "keep_extra = 2\n");
    assert!(host.path("etc/systemd/system/sidle@.service").exists(), "{said}");
    for more in [&[][..], &["--check"]] {
        let (code, said) = play(work.path(), &variables, more);
        assert!(code == Some(0) && said.contains("changed=0"), "{said}");
    }

    author.release("1.1", "good");
    let (code, said) = play(work.path(), &variables, &["--check"]);
    assert!(code == Some(0) && said.contains("changed=1"), "a newer release is shown: {said}");
    assert!(!host.path("opt/sidle/demo-agent/versions/1.1-1").exists(), "{said}");
    first_minions_are_planned_and_need_a_list_of_masters(work.path(), &variables);
    let (linked, release) = upgraded_by_itself(work.path());
    let mut own = variables.clone();
    own["sidle_program"] = text(&linked).into();
    let (code, said) = play(work.path(), &own, &[]);
    assert!(code == Some(0) && fs::read(&release).unwrap().ends_with(b"+") && fs::read_link(&linked).is_ok(), "{said}");
    let mut wrong = variables;
    wrong["sidle_fingerprint"] = "0".repeat(64).into();
    let (code, said) = play(work.path(), &wrong, &[]);
    assert!(code == Some(2) && said.contains("step trust"), "{code:?}: {said}");
}
