//! The extension below the real salt-ssh: a host without a minion is asked, and gets a bundle of the master.

use super::{GivenAway, SALTS};
use crate::support::ssh::{Preflight, SaltSsh, Target};
use crate::support::stage::{Author, DEMO, Host, SIDLE, text};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

#[test]
fn salt_ssh_installs_a_bundle_of_the_master_on_a_host_without_a_minion_and_leaves_no_copy() {
    let given_away = GivenAway::new();
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    // The oldest and the newest: each deploys a tree of its own, which takes longest.
    for salt in [SALTS[0], SALTS[SALTS.len() - 1]] {
        let host = Host::new(&author);
        let ssh = SaltSsh::new(salt, Target::Here("thin"));
        let options = format!(
            "  minion_opts:\n    grains_cache: False\n    sidle: {{program: {SIDLE}, root: {}, package: {DEMO}}}\n",
            text(&host.root())
        );
        ssh.about_host(&options);
        let mut pip = Command::new(ssh.python().with_file_name("salt-pip"));
        pip.env("SALT_EXTRAS_DIR", ssh.path("extras")).args(["install", "--no-deps", "--no-index"]);
        let output = pip.arg(given_away.wheel()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        given_away.unpack(&ssh.path("files"));
        fs::copy(&bundle, ssh.path("files/demo.sidle")).unwrap();
        let call = |words: &[&str]| ssh.call(Preflight::None, &[&["target"], words].concat());

        let shown = call(&["sidle.install", "salt://demo.sidle", "test=True"]);
        assert_eq!((&shown["code"], &shown["dry_run"]), (&json!(0), &json!(true)), "{salt}: {shown}");
        let installed = call(&["sidle.install", "salt://demo.sidle"]);
        assert_eq!((&installed["code"], &installed["release"]), (&json!(0), &json!("1.0-1")), "{salt}: {installed}");
        assert!(host.path("opt/sidle").join(DEMO).join("versions/1.0-1").is_dir());
        let copies = Command::new("find").arg(ssh.path("thin")).args(["-name", "*.sidle"]).output().unwrap();
        assert!(copies.stdout.is_empty(), "{salt}: {copies:?}");
        // What the master does not have is named.
        let missing = call(&["sidle.install", "salt://nothing.sidle"]);
        let message = missing["error"]["message"].as_str().unwrap_or_else(|| panic!("{salt}: {missing}"));
        assert_eq!(message, "cannot find salt://nothing.sidle on the master", "{salt}");
        let grain: Value = call(&["grains.get", "sidle:instances:demo-agent:installed"]);
        assert_eq!(grain, json!(["1.0-1"]), "{salt}");
    }
}
