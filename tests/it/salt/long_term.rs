//! The upgrade that everybody makes, on a host that uses what 3008 has dropped: `rehearse` names it, `--suggest-extras` prints what brings it back, a site adds
//! that to a release that it did not build, and then the host goes there and back three times under a stream of jobs, with the same answers everywhere.

use super::layer::Desk;
use crate::support::eventually;
use crate::support::minions::LONG_TERM;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::{SALT, text};
use crate::support::stream::Plan;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Of each kind one: what brings it back is an extension, or its own file of 3006.
const GONE: [(&str, &str); 5] = [
    ("module", "zabbix.compare_params"),
    ("module", "tomcat.extract_war_version"),
    ("states", "sqlite3.table_present"),
    ("returner", "sqlite3.returner"),
    ("beacons", "wtmp.beacon"),
];
const EXTRA: &str = "saltext-zabbix==1.0.0";

/// The answers that may not change, of what 3008 dropped and of a custom module.
fn answers(scene: &Scene) -> Vec<String> {
    let master = scene.master();
    [
        &["zabbix.compare_params", "one", "two"][..],
        &["tomcat.extract_war_version", "/srv/shop-1.7.2.war"],
        &["ours.go"],
        &["test.echo", "kept", "--return", "sqlite3"],
    ]
    .map(|words| master.call(ID, words))
    .into()
}

/// The highstate's results by state: id and result, without times.
fn highstate(scene: &Scene) -> Vec<(String, String)> {
    let said = scene.master().call_within("120", ID, &["state.apply", "--out", "json"]);
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let states = told[ID].as_object().unwrap_or_else(|| panic!("{said}"));
    let mut results: Vec<_> =
        states.iter().map(|(id, state)| (id.clone(), format!("{} {}", state["result"], state["changes"]))).collect();
    results.sort();
    results
}

/// A host with a use of each kind.
fn scene() -> Scene {
    let scene = Scene::idle(&Wanted {
        options: "tomcat-manager.user: nobody\ntomcat-manager.passwd: nothing\nsqlite3.timeout: 5.0\nbeacons:\n  wtmp:\n    - interval: 1\n",
        settings: "rehearsal = \"refuse\"\n",
        ..Wanted::of(&LONG_TERM)
    });
    let (kept, used) = (scene.host.path("srv/returned.db"), scene.host.path("srv/used.db"));
    fs::create_dir_all(scene.host.path("srv")).unwrap();
    // As the head of the returner has it.
    let schema = "CREATE TABLE jids (jid TEXT PRIMARY KEY, load TEXT NOT NULL);\
                  CREATE TABLE salt_returns (fun TEXT, jid TEXT, id TEXT, fun_args TEXT, date TEXT, full_ret TEXT, success TEXT)";
    let make = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    assert!(Command::new("python3").args(["-c", make]).arg(&kept).arg(schema).status().unwrap().success());
    let options = format!("sqlite3.database: {}\n", text(&kept));
    fs::write(scene.configuration().join("minion.d/sqlite.conf"), options).unwrap();
    fs::write(scene.marks.modules().join("ours.py"), "import salt.ext.tornado.gen\n\n\ndef go():\n    return 'ours'\n")
        .unwrap();
    let managed = scene.host.path("srv/managed");
    scene.master().file("top.sls", "base: {'*': [used]}\n");
    scene.master().file(
        "used.sls",
        &format!(
            "{}:\n  file.managed: [{{contents: kept}}]\nrows:\n  sqlite3.table_present:\n    - db: {}\n    - schema: CREATE TABLE rows (one INTEGER)\n",
            text(&managed),
            text(&used)
        ),
    );
    scene.run(LONG_TERM[0]);
    scene
}

/// Waits until all that was called is counted; gives the file of uses.
fn counted(scene: &Scene) -> std::path::PathBuf {
    let file = scene.host.path("uses.json");
    eventually(60, "all that was called is counted", || {
        let said = scene.host.sidle(&["--json", "uses", SALT]).stdout;
        fs::write(&file, &said).unwrap();
        let names = GONE.map(|(_, name)| name);
        names.iter().all(|name| said.contains(name)).then_some(()).ok_or(said)
    });
    file
}

/// The next revision of 3008, with what the file of uses wants; nothing of Salt is built.
fn packed(scene: &Scene, uses: &std::path::Path) -> std::path::PathBuf {
    let [old, new] = LONG_TERM.map(|version| scene.author.salt(version));
    let words = ["--json", "pack", "--suggest-extras", text(&old), text(&new), "--uses", text(uses)];
    let found = scene.host.sidle(&words).json()["suggested"].clone();
    let list = |key: &str| -> Vec<String> {
        found[key].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list("extras"), [EXTRA], "{found}");
    assert_eq!(list("partly").len() + list("nowhere").len(), 0, "{found}");
    let (desk, keep) = (Desk::new(), list("keep_modules").join(","));
    desk.pack(&[EXTRA], &["--lock"]).ok();
    let (key, repository) = (scene.author.key(), scene.author.repository());
    let bundle = scene.author.directory().join("with-all.sidle");
    let more = ["--base", text(&new), "--revision", "2", "--keep-modules", &keep, "--from", text(&old)];
    let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
    desk.pack(&[EXTRA], &[&more[..], &to[..]].concat()).ok();
    bundle
}

#[test]
#[ignore = "`scripts/test --long`: six switches under a stream; `salt::uses`, `salt::layer` and `salt::rehearsal` show each step"]
fn a_host_that_uses_what_3008_dropped_goes_there_and_back_and_loses_nothing() {
    let scene = scene();
    let (before, applied) = (answers(&scene), highstate(&scene));
    assert!(
        before[1].contains("1.7.2") && applied.iter().all(|(_, result)| result.starts_with("true")),
        "{before:?} {applied:?}"
    );
    let applied = highstate(&scene);
    let uses = counted(&scene);
    let [old, new] = LONG_TERM;
    let refused = scene.host.sidle(&["rehearse", SALT, &format!("{new}-1")]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for name in GONE.map(|(_, name)| name).iter().chain(&["the custom execution module ours", "salt.ext.tornado"]) {
        assert!(refused.stdout.contains(name), "{name}: {refused:?}");
    }
    let bundle = packed(&scene, &uses);
    scene.host.install(&bundle).ok();
    fs::write(scene.marks.modules().join("ours.py"), "def go():\n    return 'ours'\n").unwrap();
    let fits = scene.host.sidle(&["rehearse", SALT, &format!("{new}-2")]);
    assert_eq!(fits.code, Some(0), "{fits:?}");

    let stream = scene.stream(&Plan::short(2.0));
    for _ in 0..3 {
        for release in [format!("{new}-2"), format!("{old}-1")] {
            let ran = scene.switch(&[&release, "--mode", "overlap"]);
            assert_eq!(ran.code, Some(0), "{ran:?}\n{}", scene.logs());
            assert_eq!(answers(&scene), before, "{release}");
            assert_eq!(highstate(&scene), applied, "{release}");
        }
    }
    while stream.age() < 250.0 {
        stream.run(5);
    }
    let report = stream.end();
    report.assert_lossless("3006 and 3008, three times");
    report.assert_watched();
    assert!(report.published >= 500, "{}", report.published);
}
