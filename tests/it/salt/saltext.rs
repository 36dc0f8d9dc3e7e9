//! The Salt extension (`packaging/saltext-sidle`): on each Salt, as a wheel and copied into a file root; and below a real master.

mod carry;
mod causes;
mod cut;
mod fleet;
mod job;
mod lacking;
mod lost;
mod masters;
mod missed;
mod missing;
mod refused;
mod rollout;
mod syndic;
mod whole;
mod why;
mod wrapper;

use crate::support::extension::{copy_into, source};
use crate::support::salt::tree;
use crate::support::stage::{Author, DEMO, Host, SIDLE, text, two_releases};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The releases of Salt on which it has to load.
const SALTS: [&str; 3] = ["3006.30", "3007.17", "3008.5"];

/// A minion without a master: its configuration and file root, on a host of the demonstration agent.
struct Caller {
    tree: PathBuf,
    place: TempDir,
}

impl Caller {
    fn new(salt: &str, host: &Host) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("files")).unwrap();
        let text = format!(
            "root_dir: {0}\nid: caller\nfile_client: local\nfile_roots: {{base: [{0}/files]}}\nsidle:\n  program: {SIDLE}\n  root: {1}\n  package: {DEMO}\n",
            text(place.path()),
            text(&host.root()),
        );
        fs::write(place.path().join("minion"), text).unwrap();
        Self { tree: tree(salt), place }
    }

    fn files(&self) -> PathBuf {
        self.place.path().join("files")
    }

    fn extras(&self) -> PathBuf {
        self.place.path().join("extras")
    }

    /// What a function returns, and the exit code.
    fn call(&self, words: &[&str]) -> (Value, i32) {
        let mut command = Command::new(self.tree.join("bin/salt-call"));
        command.env("SALT_EXTRAS_DIR", self.extras());
        command.args(["--local", "--out", "json", "--retcode-passthrough", "-l", "error", "--config-dir"]);
        let output = command.arg(self.place.path()).args(words).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (said["local"].clone(), output.status.code().unwrap())
    }

    /// Each state's return, by its function and name.
    fn apply(&self, states: &Value, test: bool) -> Vec<(String, Value)> {
        fs::write(self.files().join("wanted.sls"), format!("#!json\n{states}")).unwrap();
        let (said, _) = self.call(&["state.apply", "wanted", if test { "test=True" } else { "test=False" }]);
        let all = said.as_object().unwrap_or_else(|| panic!("{said}"));
        let mut states: Vec<&Value> = all.values().collect();
        states.sort_by_key(|state| state["__run_num__"].as_u64());
        states.into_iter().map(|state| (state["__id__"].as_str().unwrap().to_owned(), state.clone())).collect()
    }
}

/// What is given away of the extension: the wheel, and the archive for a file root.
struct GivenAway(TempDir);

impl GivenAway {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/saltext");
        let output = Command::new(script).arg(place.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(place)
    }

    fn wheel(&self) -> PathBuf {
        let found = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        found.into_iter().find(|path| path.extension().is_some_and(|end| end == "whl")).expect("a wheel")
    }

    /// Unpacks the archive into a file root.
    fn unpack(&self, files: &Path) {
        let archive = self.0.path().join("saltext-sidle-sync.zip");
        let unpacked = Command::new("python3").args(["-m", "zipfile", "-e"]).arg(archive).arg(files).status().unwrap();
        assert!(unpacked.success());
    }
}

#[test]
fn the_extension_loads_on_each_salt_as_a_wheel_and_by_sync() {
    let given_away = GivenAway::new();
    let wheel = given_away.wheel();
    for salt in SALTS {
        let author = Author::new();
        let host = Host::new(&author);
        host.install(&author.release("1.0", "good")).ok();
        for is_wheel in [true, false] {
            let caller = Caller::new(salt, &host);
            if is_wheel {
                let mut pip = Command::new(caller.tree.join("bin/salt-pip"));
                pip.env("SALT_EXTRAS_DIR", caller.extras()).args(["install", "--no-deps", "--no-index"]).arg(&wheel);
                let output = pip.output().unwrap();
                assert!(output.status.success(), "{output:?}");
            } else {
                given_away.unpack(&caller.files());
                let (synced, code) = caller.call(&["saltutil.sync_all"]);
                let parts = json!([
                    "modules._sidle_cards",
                    "modules._sidle_files",
                    "modules._sidle_program",
                    "modules.sidle",
                    "modules.sidle_store"
                ]);
                assert_eq!((code, &synced["modules"]), (0, &parts), "{salt}: {synced}");
            }
            let (listed, code) = caller.call(&["sidle.list"]);
            assert_eq!(code, 0, "{salt} {is_wheel}: {listed}");
            assert_eq!(listed["releases"][0]["release"], "1.0-1", "{salt} {is_wheel}: {listed}");
            let (states, _) = caller.call(&["sys.list_state_functions", "sidle"]);
            assert!(states.as_array().unwrap().contains(&json!("sidle.current")), "{salt} {is_wheel}: {states}");
            let (grain, _) = caller.call(&["grains.get", "sidle:instances:demo-agent:installed"]);
            assert_eq!(grain, json!(["1.0-1"]), "{salt} {is_wheel}");
        }
    }
}

#[test]
fn its_own_tests_pass_with_the_python_of_each_salt() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/saltext-test");
    let output = Command::new(script).args(SALTS).env("SIDLE", SIDLE).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((said.matches(" passed").count(), said.contains("skipped")), (SALTS.len(), false), "{said}");
}

/// A host without sidle.
fn without_sidle_is_told_in_words(caller: &Caller) {
    let minion = fs::read_to_string(caller.place.path().join("minion")).unwrap();
    fs::write(caller.place.path().join("minion"), minion.replace(SIDLE, "/nowhere/sidle")).unwrap();
    let (said, code) = caller.call(&["sidle.status"]);
    assert!(code == 127 && said["error"]["message"].as_str().unwrap().contains("no program sidle"), "{code} {said}");
}

#[test]
fn its_functions_have_the_programs_answers_and_return_codes() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    let caller = Caller::new("3007.17", &host);
    copy_into(&caller.files());
    caller.call(&["saltutil.sync_all"]);

    let (documented, _) = caller.call(&["sys.doc", "sidle"]);
    let lacks = |(_, text): &(&String, &Value)| text.as_str().is_none_or(str::is_empty);
    let undocumented: Vec<_> = documented.as_object().unwrap().iter().filter(lacks).collect();
    assert!(undocumented.is_empty() && documented["sidle.switch"].is_string(), "{undocumented:?}");
    assert_eq!(caller.call(&["sidle.version"]).0, env!("CARGO_PKG_VERSION"));

    let (said, code) = caller.call(&["sidle.rehearse", "release=1.0-1"]);
    assert_eq!((code, &said["dry_run"], &said["to"]), (0, &json!(true), &json!("1.0-1")), "{said}");
    assert_eq!(host.current(), None, "nothing was changed");
    let (said, code) = caller.call(&["sidle.switch", "release=1.0-1", "wait=True", "reason=--force is no option here"]);
    assert_eq!((code, &said["code"], &said["result"]), (0, &json!(0), &json!("committed")), "{said}");
    assert_eq!(said["reason"], "--force is no option here");
    // Nothing to do is no failure.
    let (said, code) = caller.call(&["sidle.switch", "release=1.0-1"]);
    assert_eq!((code, &said["code"]), (0, &json!(3)), "{said}");
    // What goes on is none, either.
    let (said, code) = caller.call(&["sidle.switch", "release=1.1-1"]);
    assert_eq!((code, &said["code"], &said["pending"]), (0, &json!(4), &json!(true)), "{said}");
    crate::support::eventually(30, "the switch ends", || match host.current() {
        Some(release) if release == "1.1-1" && host.status()["switch"].is_null() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (said, code) = caller.call(&["sidle.hold", "reason=year's end", "test=True"]);
    assert_eq!((code, &said["dry_run"]), (0, &json!(true)), "{said}");
    assert!(host.status()["hold"].is_null());
    caller.call(&["sidle.hold", "reason=year's end", "lasting=2h"]);
    let (said, code) = caller.call(&["sidle.switch", "release=1.0-1"]);
    assert_eq!((code, &said["error"]["class"]), (10, &json!("held")), "{said}");
    let (_, code) = caller.call(&["sidle.unhold"]);
    assert_eq!(code, 0);
    let (said, code) = caller.call(&["sidle.rollback", "wait=True"]);
    assert_eq!((code, &said["to"]), (0, &json!("1.0-1")), "{said}");
    let (said, code) = caller.call(&["sidle.history", "number=3"]);
    assert_eq!((code, &said["switch"]["purpose"]), (0, &json!("rollback")), "{said}");
    for words in [&["sidle.status"][..], &["sidle.verify", "full=True"], &["sidle.trust"]] {
        let (said, code) = caller.call(words);
        assert_eq!((code, &said["code"]), (0, &json!(0)), "{words:?}: {said}");
    }
    let (said, code) = caller.call(&["sidle.collect", "keep=0", "test=True"]);
    assert_eq!((code, &said["code"], &said["dry_run"]), (0, &json!(3), &json!(true)), "{said}");
    // Damage has its own code, and is repaired out of the other release.
    let damaged = host.path("opt/sidle/demo-agent/versions/1.1-1/bin/demo-agent");
    fs::write(&damaged, "damaged\n").unwrap();
    let (said, code) = caller.call(&["sidle.verify", "release=1.1-1", "full=True"]);
    assert_eq!((code, &said["releases"][0]["sound"]), (6, &json!(false)), "{said}");
    let (said, code) = caller.call(&["sidle.repair", "release=1.1-1", "full=True", "offline=True"]);
    assert_eq!((code, &said["code"]), (0, &json!(0)), "{said}");
    // An option that does not exist is an error, and not ignored.
    let (said, code) = caller.call(&["sidle.switch", "relase=1.1-1"]);
    assert!(code == 2 && said["error"]["message"].as_str().unwrap().contains("no option relase"), "{code} {said}");
    without_sidle_is_told_in_words(&caller);
}

fn untouched(states: &[(String, Value)]) {
    assert!(states.iter().all(|(_, state)| state["result"] == true && state["changes"] == json!({})), "{states:?}");
}

/// From then on its state fails, and says why.
fn a_bad_release_is_tried_once(caller: &Caller, host: &Host, bundle: &str) {
    let both = json!({
        "there": {"sidle.installed": [{"name": DEMO}, {"release": "1.2-1"}, {"source": bundle}]},
        "now": {"sidle.current": [{"name": DEMO}, {"release": "1.2-1"}, {"wait": true}, {"require": [{"sidle": "there"}]}]},
    });
    let shown = caller.apply(&both, true);
    assert!(
        shown.iter().all(|(_, state)| state["result"].is_null()),
        "what is not there yet may be so soon: {shown:?}"
    );
    let failed = caller.apply(&both, false);
    assert_eq!((&failed[0].1["result"], &failed[1].1["result"]), (&json!(true), &json!(false)), "{failed:?}");
    assert_eq!(host.current().as_deref(), Some("1.0-1"));
    let tried = host.last()["id"].clone();
    let again = caller.apply(&both, false);
    assert!(again[1].1["comment"].as_str().unwrap().contains("marked as bad"), "{again:?}");
    assert_eq!(host.last()["id"], tried, "it was not tried again");
}

fn are_held_and_freed(caller: &Caller) {
    let held = json!({"kept": {"sidle.held": [{"name": DEMO}, {"reason": "year's end"}]}});
    assert!(caller.apply(&held, true)[0].1["result"].is_null());
    assert_eq!(caller.apply(&held, false)[0].1["changes"]["new"]["reason"], "year's end");
    untouched(&caller.apply(&held, false));
    let over = json!({"kept": {"sidle.held": [{"name": DEMO}, {"reason": "last year"}, {"until": "2020-01-01"}]}});
    untouched(&caller.apply(&over, false));
    let free = json!({"free": {"sidle.unheld": [{"name": DEMO}]}});
    assert_eq!(caller.apply(&free, false)[0].1["changes"]["old"], "year's end");
    untouched(&caller.apply(&free, false));
}

#[test]
fn its_states_bring_a_host_where_it_should_be_once_and_show_it_first() {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let bad = author.release("1.2", "crash");
    let host = Host::bare();
    fs::create_dir_all(host.path("etc/demo-agent")).unwrap();
    let caller = Caller::new("3008.5", &host);
    copy_into(&caller.files());
    fs::create_dir(caller.files().join("sidle")).unwrap();
    for bundle in [&old, &new, &bad] {
        fs::copy(bundle, caller.files().join("sidle").join(bundle.file_name().unwrap())).unwrap();
    }
    fs::copy(author.repository().join("metadata/1.root.json"), caller.files().join("sidle/1.root.json")).unwrap();
    caller.call(&["saltutil.sync_all"]);

    let short = "probation = \"300ms\"\nstart_timeout = \"8s\"\nstop_timeout = \"4s\"\nrestart_pause = \"100ms\"\nrestart_pause_limit = \"1s\"\n";
    let bundle = |version: &str| format!("salt://sidle/{DEMO}-{version}.sidle");
    let wanted = |version: &str| {
        json!({
            "signer": {"sidle.trusted": [{"source": "salt://sidle/1.root.json"}, {"fingerprint": author.fingerprint()}]},
            "50-site": {"sidle.settings": [{"contents": short}]},
            "there": {"sidle.installed": [{"name": DEMO}, {"release": format!("{version}-1")}, {"source": bundle(version)}]},
        })
    };

    // A test shows trust and settings, and writes nothing. What can't be known yet (a bundle of somebody untrusted) fails in words.
    let shown = caller.apply(&wanted("1.0"), true);
    assert!(shown[..2].iter().all(|(_, state)| state["result"].is_null()), "{shown:?}");
    assert!(!host.path("etc/sidle").exists() && !host.path("opt").exists(), "{shown:?}");
    let did = caller.apply(&wanted("1.0"), false);
    assert!(did.iter().all(|(_, state)| state["result"] == true && state["changes"] != json!({})), "{did:?}");
    untouched(&caller.apply(&wanted("1.0"), false));
    untouched(&caller.apply(&wanted("1.0"), true));
    let cached = caller.place.path().join("var/cache/salt/minion/files/base/sidle").join(old.file_name().unwrap());
    assert!(!cached.exists(), "the cache has it beside the store");

    // Settings that sidle can't read are refused, and the file stays.
    let wrong = json!({"50-site": {"sidle.settings": [{"contents": "keep_extra = \"many\"\n"}]}});
    let refused = &caller.apply(&wrong, false)[0].1;
    assert!(refused["result"] == false && refused["comment"].as_str().unwrap().contains("keep_extra"), "{refused}");
    assert_eq!(fs::read_to_string(host.path("etc/sidle/conf.d/50-site.toml")).unwrap().trim(), short.trim());

    let _supervisor = host.supervise();
    let current = |version: &str| json!({"now": {"sidle.current": [{"name": DEMO}, {"release": format!("{version}-1")}, {"wait": true}]}});
    let shown = &caller.apply(&current("1.0"), true)[0].1;
    assert!(
        shown["result"].is_null() && shown["comment"].as_str().unwrap().contains("would be switched to 1.0-1"),
        "{shown}"
    );
    assert_eq!(host.current(), None);
    let did = &caller.apply(&current("1.0"), false)[0].1;
    assert!(did["result"] == true && did["changes"]["new"] == "1.0-1", "{did}");
    untouched(&caller.apply(&current("1.0"), false));

    a_bad_release_is_tried_once(&caller, &host, &bundle("1.2"));
    are_held_and_freed(&caller);
}

/// What a master has in its cache of minions: with grains, written as this Salt writes them; without; and without a key.
const CACHED: &str = r#"
import json, os, sys, time
import salt.cache, salt.config, salt.version
from saltext.sidle.fleet import asking
from saltext.sidle.fleet import plan as planning

opts = salt.config.master_config(None)
opts.update(cachedir=sys.argv[1], pki_dir=sys.argv[1] + "/pki", id="m_master", interface="127.0.0.1", minimum_auth_version=3)
opts["sidle"] = {"masters": {"m2.example": {"version": 3006.9, "minimum_auth_version": 2}}}
cache = salt.cache.factory(opts)
for each, family in (("red", "RedHat"), ("suse", "Suse"), ("deleted", "RedHat")):
    grains = {"os_family": family, "saltversion": "3006.9", "site": "lab"}
    if salt.version.__saltstack_version__.major >= 3008:
        cache.store("grains", each, grains)
    else:
        cache.store(f"minions/{each}", "data", {"grains": grains})
for each in ("red", "suse", "new"):
    os.makedirs(opts["pki_dir"] + "/minions", exist_ok=True)
    open(f"{opts['pki_dir']}/minions/{each}", "w").close()
sent = []
own = asking.Asking(opts, lambda ids, function, arguments, kwarg=None, seconds=None, read=None, most=None: sent.append((ids, function)) or {})
wanted = planning.Wanted("salt-minion", "3007.17-1", canary=0, percents=[100], by="site")
plan = asking.planned(own, wanted, ("G@os_family:RedHat or L@suse", "compound"))
names = ["127.0.0.1", "m2.example", "127.0.0.2"]
own.masters.look_up([names])
print(json.dumps({
    "compound": asking.resolve(opts, "G@os_family:RedHat", "compound"), "glob": asking.resolve(opts, "*", "glob"),
    "plan": planning.write(plan), "masters": {name: vars(each) for name, each in own.masters.of(names).items()},
    "several": asking.masters_of({"supervisor": {"reaches": ["m1", "m2"]}}, "m1", "salt-minion"),
    "one": asking.masters_of({"supervisor": None}, "m1", "salt-minion"), "alone": list(own.masters.of(["salt.invalid"])), "sent": sent[0],
    "dry": [asking.Asking(opts, None, source)._dry_run(wanted) for source in (None, "salt://salt-minion.sidle", ["salt://repo", "x"])],
}))
"#;

#[test]
fn a_plan_knows_of_silent_minions_what_the_master_of_each_salt_has_cached() {
    for salt in SALTS {
        let place = tempfile::tempdir().unwrap();
        let mut python = Command::new(tree(salt).join("bin/python3"));
        python.args(["-B", "-c", CACHED, text(place.path())]).env("PYTHONPATH", source().join("src"));
        let output = python.output().unwrap();
        let said: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{salt}: {error}: {output:?}"));
        // What is not known does not match, nor does a minion without a key.
        assert_eq!(said["compound"], json!([["red"], ["new"]]), "{salt}: {said}");
        assert_eq!(said["glob"], json!([["new", "red", "suse"], []]), "{salt}: {said}");
        let (plan, suse) = (&said["plan"], &said["plan"]["hosts"]["suse"]);
        assert_eq!(plan["waves"], json!([["red", "suse"]]), "by the site in the cache, {salt}: {said}");
        assert_eq!(
            (&suse["verdict"], &suse["family"], &suse["running"]),
            (&json!("offline"), &json!("Suse"), &json!("3006.9")),
            "{salt}: {said}"
        );
        let notes = plan["notes"].to_string();
        assert!(notes.contains("Relax it (minimum_auth_version: 2)") && notes.contains("of them in its cache: new"));
        let masters = &said["masters"];
        assert_eq!(
            (&masters["127.0.0.1"]["version"], &masters["127.0.0.1"]["minimum_auth"]),
            (&json!(salt), &json!(3))
        );
        assert_eq!(masters["m2.example"], json!({"version": "3006.9", "minimum_auth": 2}), "{salt}: {said}");
        assert_eq!(masters["127.0.0.2"], json!({"version": null, "minimum_auth": null}), "{salt}: {said}");
        assert_eq!(said["alone"], json!(["salt.invalid"]), "it answers this master, {salt}: {said}");
        assert_eq!(said["sent"][0], json!(["red", "suse"]), "jobs go by ids, {salt}: {said}");
        assert_eq!((&said["several"], &said["one"]), (&json!(["m1", "m2"]), &json!("m1")), "{salt}");
        let named = "salt-minion@3007.17-1";
        let dry = json!([
            ["sidle.upgrade", [], {"source": named, "test": true}],
            ["sidle.upgrade", [], {"source": "salt://salt-minion.sidle", "test": true}],
            ["sidle.upgrade", [], {"source": named, "repository": "salt://repo", "test": true}],
        ]);
        assert_eq!(said["dry"], dry, "{salt}");
    }
}
