//! What a real minion uses is counted by its guard, in both long-term releases: each kind of module that was called, and none that was not.

use crate::support::eventually;
use crate::support::extension::put_modules;
use crate::support::minions::LONG_TERM;
use crate::support::scene::{ID, MASTER, Scene, Wanted};
use crate::support::stage::{SALT, text};
use serde_json::{Value, json};
use std::fs;

/// A new name is in the file after some seconds; the machine may be busy.
const COUNTED_SECONDS: u64 = 60;

/// What the jobs below and the configuration call, of both releases.
const CALLED: [(&str, &str); 9] = [
    ("module", "test.echo"),
    ("module", "ours.go"),
    ("states", "test.succeed_with_changes"),
    ("render", "jinja.render"),
    ("returner", "rawfile_json.returner"),
    ("sdb", "env.get"),
    ("beacons", "load.beacon"),
    ("executor", "direct_call.execute"),
    ("grains", "ours.facts"),
];

fn uses(scene: &Scene) -> Value {
    scene.host.sidle(&["--json", "uses", SALT]).json()
}

fn times(uses: &Value, kind: &str, name: &str) -> u64 {
    let all = uses["uses"].as_array().into_iter().flatten();
    let mut of = all.filter(|each| each["kind"] == kind && each["name"] == name);
    of.next().and_then(|each| each["times"].as_u64()).unwrap_or(0)
}

/// Jobs of every kind; the names that they use.
fn work(scene: &Scene) {
    let returned = scene.host.path("returned.json");
    for words in [
        &["test.echo", "a secret of vault"][..],
        &["ours.go"],
        &["sdb.get", "sdb://place/HOME"],
        &["state.apply", "used"],
        &["test.ping", "--return", "rawfile_json"],
    ] {
        let said = scene.master().call(ID, words);
        assert!(said.contains(ID), "{words:?}: {said}");
    }
    eventually(COUNTED_SECONDS, "the returner has written", || {
        if returned.exists() { Ok(()) } else { Err(format!("no {}", returned.display())) }
    });
}

fn are_counted(scene: &Scene, called: &[(&str, &str)]) -> Value {
    eventually(COUNTED_SECONDS, "all that was called is counted", || {
        let counted = uses(scene);
        let missing: Vec<_> = called.iter().filter(|(kind, name)| times(&counted, kind, name) == 0).collect();
        if missing.is_empty() { Ok(counted) } else { Err(format!("{missing:?}: {counted}")) }
    })
}

/// The master says that it is older than the release: the switch and the state are refused at once, and nothing begins; with `report` they are not.
fn a_release_that_is_newer_than_its_master_is_refused(scene: &Scene, release: &str) {
    let told = scene.master().call(ID, &["sidle.master_is", "'3007.17'", "minimum_auth_version=3"]);
    assert!(told.contains("3007.17") && told.contains("a job"), "{told}");
    // The scene's own file comes before it.
    let setting = scene.host.path("etc/sidle/conf.d/zz.toml");
    fs::write(&setting, "rehearsal = \"refuse\"\n").unwrap();
    let before = scene.host.sidle(&["--json", "history", SALT]).stdout;
    let (named, from) = (format!("{SALT}@{release}"), format!("file://{}", text(&scene.author.repository())));
    let upgrade = ["upgrade", &named, "--repository", &from];
    for words in [&["switch", SALT, release][..], &["switch", SALT, release, "--dry-run"], &upgrade] {
        let refused = scene.host.sidle(&[&["--json"], words].concat());
        let error = refused.json()["error"].clone();
        assert_eq!((refused.code, &error["reason"]), (Some(1), &"peers".into()), "{refused:?}");
        let message = error["message"].to_string();
        for part in ["runs Salt 3007.17 (by a job of ", "upgrade the master first", "rehearsal = "] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let state = format!("release={release}");
    let said = scene.master().call_within("60", ID, &["state.single", "sidle.current", "name=salt-minion", &state]);
    assert!(said.contains("runs Salt 3007.17") && said.contains("False"), "{said}");
    assert_eq!(scene.host.sidle(&["--json", "history", SALT]).stdout, before, "nothing has begun");
    fs::write(&setting, "rehearsal = \"report\"\n").unwrap();
    scene.host.sidle(&["switch", SALT, release, "--dry-run"]).ok();
    fs::remove_file(setting).unwrap();
}

#[test]
fn what_a_minion_calls_is_counted_in_both_releases_and_refuses_a_release_that_lacks_it() {
    let [old, new] = LONG_TERM;
    let scene = Scene::idle(&Wanted {
        options: "beacons:\n  load:\n    - interval: 1\n    - averages:\n        1m: [0.0, 9.0]\n        5m: [0.0, 9.0]\n        15m: [0.0, 9.0]\nplace:\n  driver: env\n",
        ..Wanted::of(&LONG_TERM)
    });
    let none = scene.host.sidle(&["uses", SALT]);
    assert!(none.code == Some(1) && none.stderr.contains("no release works here yet"), "{none:?}");
    let returned = format!("rawfile_json.filename: {}\n", scene.host.path("returned.json").display());
    fs::write(scene.configuration().join("minion.d/returner.conf"), returned).unwrap();
    let modules = scene.host.path("var/cache/salt/minion/extmods");
    for (kind, text) in [("modules", "def go():\n    return 1\n"), ("grains", "def facts():\n    return {'ours': 1}\n")]
    {
        fs::create_dir_all(modules.join(kind)).unwrap();
        fs::write(modules.join(kind).join("ours.py"), text).unwrap();
    }
    scene.master().file("used.sls", "{% set how = 'well' %}\n{{ how }}:\n  test.succeed_with_changes: []\n");
    put_modules(&scene);
    scene.run(old);
    work(&scene);
    let counted = are_counted(&scene, &CALLED);
    for (kind, name) in
        [("module", "pkg.install"), ("module", "ours.stay"), ("states", "file.managed"), ("grains", "core.os_data")]
    {
        assert_eq!(times(&counted, kind, name), 0, "{kind} {name} was never called: {counted}");
    }
    assert_eq!((times(&counted, "module", "ours.go"), &counted["days"]), (1, &1.into()), "{counted}");
    assert!(!counted.to_string().contains("secret"), "{counted}");
    let shown = scene.verb("uses", &[]).ok();
    assert!(shown.contains("counted on 1 day") && shown.contains("ours.go: once, last on "), "{shown}");

    let release = format!("{new}-1");
    a_release_that_is_newer_than_its_master_is_refused(&scene, &release);
    let fits = scene.host.sidle(&["--json", "rehearse", SALT, &release]).json();
    assert!(fits["peers"].to_string().contains("3007.17") && fits["refuses"] == true, "{fits}");
    scene.master().call(ID, &["sidle.master_is", &format!("'{MASTER}'")]);
    assert_eq!(fits["blocking"], Value::Array(Vec::new()), "nothing that Salt itself calls counts against a release");
    scene.master().call(ID, &["zabbix.apiinfo_version"]);
    are_counted(&scene, &[("module", "zabbix.apiinfo_version")]);
    let ran = scene.host.sidle(&["--json", "rehearse", SALT, &release]);
    let blocking = ran.json()["blocking"].to_string();
    assert!(ran.code == Some(1) && blocking.contains("zabbix.apiinfo_version once, last on"), "{blocking}");
    assert!(blocking.contains("saltext-zabbix==") && ran.json()["peers"] == json!([]), "{blocking}");

    let switched = scene.switch(&[&release, "--mode", "overlap"]);
    assert_eq!(switched.code, Some(0), "rehearsals of a switch are off here: {switched:?}\n{}", scene.logs());
    fs::remove_file(scene.host.path("returned.json")).unwrap();
    let before = times(&uses(&scene), "returner", "rawfile_json.returner");
    work(&scene);
    scene.master().call(ID, &["test.arg", "1"]);
    let counted = are_counted(&scene, &[("module", "test.arg")]);
    assert_eq!(before, 1, "{counted}");
    let scene = scene.stop();
    let counted = uses(&scene);
    for (kind, name) in CALLED.iter().filter(|(kind, _)| *kind != "executor" && *kind != "beacons") {
        assert!(times(&counted, kind, name) >= 2, "{kind} {name} in both releases: {counted}");
    }
    assert_eq!((times(&counted, "module", "ours.go"), times(&counted, "sdb", "env.get")), (2, 2), "{counted}");
}
