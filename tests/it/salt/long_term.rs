//! The upgrade that everybody makes, on a host that uses what 3008 has dropped for a week: `rehearse` names it with how often, `--suggest-extras` prints what
//! brings it back, a site adds that to a release that it did not build, and then the host goes there and back three times under a stream of jobs, with the same
//! answers everywhere.

mod alone;

use super::layer::Desk;
use crate::support::clock::{Clock, PASSED};
use crate::support::eventually;
use crate::support::minions::LONG_TERM;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::{SALT, text};
use crate::support::stream::Plan;
use jiff::civil::Date;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Of each kind one: what brings it back is an extension, or its own file of 3006.
const GONE: [(&str, &str); 6] = [
    ("module", "zabbix.compare_params"),
    ("module", "tomcat.extract_war_version"),
    ("states", "sqlite3.table_present"),
    ("returner", "sqlite3.returner"),
    ("module", SCHEDULED),
    ("beacons", BEACON),
];
const EXTRA: &str = "saltext-zabbix==1.0.0";

/// Called by the schedule once a day, and by the minion's main process once a second.
const SCHEDULED: &str = "rvm.is_installed";
const BEACON: &str = "wtmp.beacon";

/// Days on which jobs are counted before anything is switched: each calls each name once.
const DAYS: u64 = 7;
/// So much later on each day, so that what is due once a day is due.
const LATER_MINUTES: u64 = 20;
/// A new day of a name is in the file after some seconds; the machine may be busy.
const COUNTED_SECONDS: u64 = 90;

/// The answers that may not change, of what 3008 dropped, of a custom module and of a custom grain.
fn answers(scene: &Scene) -> Vec<String> {
    let master = scene.master();
    [
        &["zabbix.compare_params", "one", "two"][..],
        &["tomcat.extract_war_version", "/srv/shop-1.7.2.war"],
        &["ours.go"],
        &["grains.get", "place"],
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

/// A custom execution module and a custom grain, which begin with this.
fn write_own(scene: &Scene, head: &str) {
    let grains = scene.host.path("var/cache/salt/minion/extmods/grains");
    fs::create_dir_all(&grains).unwrap();
    fs::write(scene.marks.modules().join("ours.py"), format!("{head}def go():\n    return 'ours'\n")).unwrap();
    let grain = format!("{head}def facts():\n    return {{'place': 'north'}}\n");
    // On the master, too: a highstate removes what is not there.
    scene.master().file("_grains/place.py", &grain);
    fs::write(grains.join("place.py"), grain).unwrap();
}

/// A host with a use of each kind.
fn scene() -> (Scene, Clock) {
    let mut scene = Scene::idle(&Wanted {
        options: "tomcat-manager.user: nobody\ntomcat-manager.passwd: nothing\nsqlite3.timeout: 5.0\nbeacons:\n  wtmp:\n    - interval: 1\n",
        schedule: &format!("  daily: {{function: {SCHEDULED}, seconds: 86400, run_on_start: True}}\n"),
        settings: &format!("rehearsal = \"refuse\"\nrehearsal_timeout = \"600s\"\n[instances.{SALT}]\n{PASSED}"),
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
    write_own(&scene, "import salt.ext.tornado.gen\n\n\n");
    let managed = scene.host.path("srv/managed");
    scene.master().file("top.sls", "base: {'*': [used]}\n");
    scene.master().file(
        "used.sls",
        &format!(
            "{}:\n  file.managed: [{{contents: {{{{ grains['place'] }}}}}}]\nrows:\n  sqlite3.table_present:\n    - db: {}\n    - schema: CREATE TABLE rows (one INTEGER)\n",
            text(&managed),
            text(&used)
        ),
    );
    let clock = Clock::at(scene.host.path("clock"));
    clock.set(DAYS, 0);
    scene.crash_into(&clock.variables());
    scene.run(LONG_TERM[0]);
    (scene, clock)
}

/// How often a name was called, on how many days, and the last of them, by `sidle uses`.
fn counted<'a>(uses: &'a Value, (kind, name): (&str, &str)) -> Option<(u64, u64, &'a str)> {
    let mut all = uses["uses"].as_array()?.iter();
    let found = all.find(|each| each["kind"] == kind && each["name"] == name)?;
    Some((found["times"].as_u64()?, found["days"].as_u64()?, found["last"].as_str()?))
}

/// A week of the minion's own clock, each day with its jobs, which the guard counts: the answers, the highstate, the last day, and the file of uses.
fn week(scene: &Scene, clock: &Clock) -> (Vec<String>, Vec<(String, String)>, Date, PathBuf) {
    let (file, mut all) = (scene.host.path("uses.json"), Vec::new());
    for past in 1..=DAYS {
        let day = clock.set(DAYS + 1 - past, past * LATER_MINUTES);
        eventually(COUNTED_SECONDS, "the minion's clock is set", || {
            let said = scene.master().call(ID, &["status.time", "format=%Y-%m-%d"]);
            if said.contains(&day.to_string()) { Ok(()) } else { Err(said) }
        });
        all.push((answers(scene), highstate(scene), day));
        eventually(COUNTED_SECONDS, "all that was called on this day is counted", || {
            let ran = scene.host.sidle(&["--json", "uses", SALT]);
            let uses = ran.json();
            fs::write(&file, &ran.stdout).unwrap();
            let found = GONE.map(|name| counted(&uses, name));
            let is_counted =
                found.iter().all(|found| found.is_some_and(|found| (found.1, found.2) == (past, &*day.to_string())));
            if is_counted { Ok(()) } else { Err(format!("{day}: {found:?}")) }
        });
    }
    for pair in all[1..].windows(2) {
        assert_eq!((&pair[0].0, &pair[0].1), (&pair[1].0, &pair[1].1), "the same on each day");
    }
    let (answers, highstate, day) = all.pop().unwrap();
    (answers, highstate, day, file)
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
    let (mut scene, clock) = scene();
    let (before, applied, last, uses) = week(&scene, &clock);
    assert!(
        before[1].contains("1.7.2") && applied.iter().all(|(_, result)| result.starts_with("true")),
        "{before:?} {applied:?}"
    );
    let [old, new] = LONG_TERM;
    let refused = scene.host.sidle(&["rehearse", SALT, &format!("{new}-1")]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for (kind, name) in GONE {
        let told = format!("{name} {DAYS} times on {DAYS} days, last on {last}");
        let told = if name == BEACON { format!("{name} ") } else { told };
        let found =
            refused.stdout.lines().find(|line| line.contains(&format!("used here ({kind})")) && line.contains(&told));
        assert!(found.is_some_and(|line| line.contains(&format!("on {DAYS} days"))), "{kind} {told}: {refused:?}");
    }
    for name in ["the custom execution module ours", "the custom grains module place", "salt.ext.tornado"] {
        assert!(refused.stdout.contains(name), "{name}: {refused:?}");
    }
    let bundle = packed(&scene, &uses);
    scene.host.install(&bundle).ok();
    write_own(&scene, "");
    let fits = scene.host.sidle(&["rehearse", SALT, &format!("{new}-2")]);
    assert_eq!(fits.code, Some(0), "{fits:?}");

    // Without variables: the minion has the machine's clock again.
    scene.boot();
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
