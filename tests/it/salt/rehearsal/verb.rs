//! `sidle rehearse` on real Salt, from one long-term release to the next: what is lost is named with what brings it back, and nothing is changed.

use crate::support::minions;
use crate::support::stage::{Host, SALT, text};
use serde_json::Value;
use std::fs;

/// The module of this name that was lost.
fn lost<'a>(told: &'a Value, kind: &str, module: &str) -> Option<&'a Value> {
    told["lost"].as_array().unwrap().iter().find(|lost| lost["kind"] == kind && lost["module"] == module)
}

#[test]
fn a_release_is_rehearsed_by_a_verb_that_names_what_is_lost_and_what_brings_it_back() {
    let [old, new] = minions::LONG_TERM;
    let author = minions::author_of(&minions::LONG_TERM);
    let host = Host::new(&author);
    host.install(&author.salt(old)).ok();
    host.sidle(&["test-flip", SALT, &format!("{old}-1")]).ok();
    let release = format!("{new}-1");

    let absent = host.sidle(&["rehearse", SALT, &release]);
    assert!(absent.code == Some(1) && absent.stderr.contains("it is not installed"), "{absent:?}");
    let bundle = author.salt(new);
    let listed = host.sidle(&["--json", "rehearse", SALT, &release, "--manifest", text(&bundle)]).json();
    assert_eq!((&listed["compared"], &listed["refuses"]), (&"lists".into(), &false.into()));
    let vault = lost(&listed, "module", "vault").unwrap();
    assert!(vault["successor"].as_str().unwrap().starts_with("saltext-vault=="), "{vault}");
    assert!(
        vault["functions"].as_array().unwrap().contains(&"read_secret".into()) && vault["whole"] == true,
        "{vault}"
    );
    let redis = lost(&listed, "module", "redis").unwrap();
    assert!(
        redis["successor"].as_str().unwrap().starts_with("saltext-redis=="),
        "by its name, not by its file's: {redis}"
    );
    assert_eq!(lost(&listed, "states", "tomcat").unwrap()["successor"], Value::Null);
    assert!(lost(&listed, "module", "test").is_none(), "both have it");

    host.install(&bundle).ok();
    let modules = host.path("var/cache/salt/minion/extmods/modules");
    fs::create_dir_all(&modules).unwrap();
    fs::write(modules.join("ours.py"), "import salt.ext.tornado.gen\n\n\ndef go():\n    return 1\n").unwrap();
    fs::create_dir_all(host.path("etc/salt")).unwrap();
    let root = host.root();
    let options = format!("root_dir: {}\nid: one\nmaster: 127.0.0.1\nreturn: mongo_future\n", text(&root));
    fs::write(host.path("etc/salt/minion"), options).unwrap();
    let ran = host.sidle(&["--json", "rehearse", SALT, &release]);
    let told = ran.json();
    assert_eq!((ran.code, &told["compared"], &told["refuses"]), (Some(1), &"loaded".into(), &true.into()), "{told}");
    let highstate = &told["highstate"];
    assert_eq!((&highstate["compared"], &highstate["refuses"]), (&"nothing".into(), &false.into()), "{highstate}");
    assert!(highstate["why"].as_str().unwrap().contains("the pillar is not cached"), "{highstate}");
    let blocking = told["blocking"].to_string();
    assert!(
        blocking.contains("the custom execution module ours") && blocking.contains("salt.ext.tornado"),
        "{blocking}"
    );
    assert_eq!(lost(&told, "pillar", "saltclass").unwrap()["whole"], true);
    let zabbix = lost(&told, "module", "zabbix").unwrap();
    assert!(zabbix["successor"].as_str().unwrap().starts_with("saltext-zabbix=="), "{zabbix}");
    assert!(lost(&told, "module", "mongodb").is_none(), "it never loaded here");
    let words = host.sidle(&["rehearse", SALT, &release]);
    for part in ["refuses", "`extras = [\"saltext-zabbix==", "--keep-modules NAME", " of kind pillar: "] {
        assert!(words.stdout.contains(part), "{part}: {words:?}");
    }
    let left = fs::read_dir(host.path(&format!("run/sidle/{SALT}"))).unwrap();
    let left: Vec<_> = left
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("dry-run-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
