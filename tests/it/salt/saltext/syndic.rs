//! A rollout below a syndic: from the syndic's own master as anywhere; from the master of masters refused, with words that say where to run it.

use super::{GivenAway, source};
use crate::support::eventually;
use crate::support::salt::{Master, Minion, SHORT_KEY, START_SECONDS, Tree, tree};
use crate::support::stage::{Author, DEMO, Host, SIDLE, text};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The syndic of 3008.5 signs in here, and hears nothing.
const SALT: &str = "3006.30";

const ENTER: &str = "import sys\nsys.argv[0] = 'salt-syndic'\nimport salt.scripts\nsalt.scripts.salt_syndic()\n";

/// The syndic of a master, below another one; what it says lies in `place`.
fn syndic(low: &Master, top: &Master, place: &Path) -> Tree {
    let own = low.place();
    let root = own.configuration.ancestors().nth(2).unwrap();
    // Else it would listen where its own master publishes.
    let port = top.publish_port();
    let minion =
        format!("id: syndic1\nroot_dir: {}\npki_dir: /syndic-keys\npublish_port: {port}\n{SHORT_KEY}", text(root));
    fs::write(own.configuration.with_file_name("minion"), minion).unwrap();
    let more = format!("syndic_master: {}\nsyndic_master_port: {}\n", top.address, top.request_port());
    fs::write(&own.configuration, fs::read_to_string(&own.configuration).unwrap() + &more).unwrap();
    let mut command = Command::new(own.python);
    command.args(["-E", "-s", "-B", "-c", ENTER, "-l", "info", "-c"]).arg(own.configuration.parent().unwrap());
    Tree::start(&mut command, &place.join("out"))
}

/// What a syndic has written.
fn said_by(place: &Path) -> String {
    fs::read_to_string(place.join("out")).unwrap_or_default()
}

#[test]
#[ignore = "`scripts/test --long`: a syndic's own master is a master like any other; the words are a unit test's, too"]
fn a_rollout_below_a_syndic_goes_from_its_own_master_and_is_refused_above_it_with_words() {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let options = format!(
        "runner_dirs: [{}]\nsidle: {{package: {DEMO}, answer_seconds: 60}}\n",
        text(&source().join("src/saltext/sidle/runners"))
    );
    let top = Master::start_with(&tree(SALT), true, &format!("order_masters: True\n{options}"));
    let low = Master::start_with(&tree(SALT), true, &options);
    GivenAway::new().unpack(&low.files());
    let place = tempfile::tempdir().unwrap();
    let _syndic = syndic(&low, &top, place.path());
    let host = Host::new(&author);
    for bundle in [&old, &new] {
        host.install(bundle).ok();
    }
    let _supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    let own = format!(
        "master: {}\nmaster_port: {}\npublish_port: {}\nsidle:\n  program: {SIDLE}\n  root: {}\n  package: {DEMO}\n",
        low.address,
        low.request_port(),
        low.publish_port(),
        text(&host.root())
    );
    let _minion = Minion::start(&tree(SALT), "web1", &own);
    low.hears(&["web1"]);
    eventually(START_SECONDS, "the minion answers", || match low.call_within("10", "web1", &["saltutil.sync_all"]) {
        said if said.contains("modules.sidle") || low.call("web1", &["sidle.version"]).contains("0.") => Ok(()),
        said => Err(said + &low.log()),
    });
    eventually(START_SECONDS, "the master of masters has an answer, too", || {
        match top.call_within("20", "web*", &["test.ping"]) {
            said if said.contains("web1: True") => Ok(()),
            said => Err(format!("{said}\n{}\n{}", top.log(), said_by(place.path()))),
        }
    });
    for target in ["web*", "*"] {
        let refused = top.runner(&["sidle.rollout", target, "1.1-1", "name=r1", "splay=0s"]);
        let words = refused["error"].as_str().unwrap_or_else(|| panic!("{refused}"));
        assert!(words.contains("a master of masters") && words.contains("on the syndic's own master"), "{refused}");
        assert!(words.contains("syndic1"), "{refused}");
        assert_eq!(top.runner(&["sidle.rollouts"]), json!({}), "nothing was left");
    }
    let quick = ["splay=0s", "soak_seconds=0", "ask_seconds=1"];
    let done = low.runner(&[&["sidle.rollout", "*", "1.1-1", "name=r1"][..], &quick].concat());
    assert_eq!((&done["status"], &done["counts"]), (&json!("ended"), &json!({"done": 1})), "{done}");
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
}
