//! `sidle rehearse` on real Salt, from one long-term release to the next: what is lost is named with what brings it back, and nothing is changed.

use crate::support::minions;
use crate::support::stage::{Host, SALT, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The module of this name that was lost.
fn lost<'a>(told: &'a Value, kind: &str, module: &str) -> Option<&'a Value> {
    told["lost"].as_array().unwrap().iter().find(|lost| lost["kind"] == kind && lost["module"] == module)
}

/// What brings back all that is lost, and what a fleet uses of it.
fn recipe_lines_are_suggested(host: &Host, old: &Path, new: &Path) {
    let suggested = |more: &[&str]| {
        let words = ["--json", "pack", "--suggest-extras", text(old), text(new)];
        host.sidle(&[&words[..], more].concat()).json()["suggested"].clone()
    };
    let of = |found: &Value, list: &str| -> Vec<String> {
        found[list].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let all = suggested(&[]);
    let (extras, keep) = (of(&all, "extras"), of(&all, "keep_modules"));
    assert!(
        extras.iter().any(|package| package.starts_with("saltext-zabbix==")) && all["lost"] == all["wanted"],
        "{all}"
    );
    assert!(keep.contains(&"states.tomcat".to_owned()) && !keep.iter().any(|name| name.ends_with(".zabbix")), "{all}");
    let file = host.path("uses.json");
    let fleet = r#"{"schema":1,"package":"salt-minion","hosts":812,"enough":800,"uncounted":{},"uses":[
        {"kind":"module","name":"vault.read_secret","hosts":812,"times":9000,"last":"2026-11-20"},
        {"kind":"states","name":"tomcat.war_deployed","hosts":3,"times":4,"last":"2026-11-02"},
        {"kind":"module","name":"test.ping","hosts":812,"times":812,"last":"2026-11-20"}]}"#;
    fs::write(&file, fleet).unwrap();
    let used = suggested(&["--uses", text(&file)]);
    assert_eq!((of(&used, "extras").len(), of(&used, "keep_modules")), (1, vec!["states.tomcat".to_owned()]), "{used}");
    assert!(of(&used, "extras")[0].starts_with("saltext-vault==") && used["wanted"] == 2, "{used}");
    let words = host.sidle(&["pack", "--suggest-extras", text(old), text(new), "--uses", text(&file)]).ok();
    for part in ["2 of them used", "extras = [\"saltext-vault==", "--keep-modules states.tomcat --from "] {
        assert!(words.contains(part), "{part}: {words}");
    }
    fs::write(&file, "{}").unwrap();
    let refused = host.sidle(&["pack", "--suggest-extras", text(old), text(new), "--uses", text(&file)]);
    assert!(refused.code == Some(2) && refused.stderr.contains("cannot read the uses in"), "{refused:?}");
}

fn the_lists_alone_name_what_is_lost(host: &Host, release: &str, bundle: &Path) {
    let (bundle_text, page) = (text(bundle), host.path("page.html"));
    let by_lists = ["--json", "rehearse", SALT, release, "--manifest", bundle_text, "--page", text(&page)];
    let listed = host.sidle(&by_lists).json();
    assert!(fs::read_to_string(page).unwrap().contains("saltext-vault=="));
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
}

/// Nothing has run here yet, so nobody has counted: configuration and log say what they can, and that it is no count.
fn what_is_named_is_said_where_nobody_has_counted(host: &Host) {
    let log = host.path("var/log/salt/minion");
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(log, "[INFO] User root Executing command zabbix.apiinfo_version with jid 20261120091500123456\n")
        .unwrap();
    let told = host.sidle(&["--json", "uses", SALT]).json();
    assert!(told["counted"] == false && told["why"].as_str().unwrap().contains("nothing has run here yet"), "{told}");
    let of = |kind: &str, name: &str| {
        let mut all = told["uses"].as_array().unwrap().iter();
        all.find(|each| each["kind"] == kind && each["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {told}"))
            .clone()
    };
    let logged = of("module", "zabbix.apiinfo_version");
    assert_eq!(
        (&logged["where"][0], &logged["last"], &logged["times"]),
        (&"log".into(), &"2026-11-20".into(), &0.into())
    );
    assert_eq!(of("returner", "mongo_future.returner")["where"][0], "return");
    let words = host.sidle(&["uses", SALT]).ok();
    for part in ["not counted: ", "more may be used", "zabbix.apiinfo_version: log, last on 2026-11-20"] {
        assert!(words.contains(part), "{part}: {words}");
    }
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
    the_lists_alone_name_what_is_lost(&host, &release, &bundle);
    recipe_lines_are_suggested(&host, &author.salt(old), &bundle);

    host.install(&bundle).ok();
    let modules = host.path("var/cache/salt/minion/extmods/modules");
    fs::create_dir_all(&modules).unwrap();
    fs::write(modules.join("ours.py"), "import salt.ext.tornado.gen\n\n\ndef go():\n    return 1\n").unwrap();
    fs::create_dir_all(host.path("etc/salt")).unwrap();
    let options = format!("root_dir: {}\nid: one\nmaster: 127.0.0.1\nreturn: mongo_future\n", host.root().display());
    fs::write(host.path("etc/salt/minion"), options).unwrap();
    what_is_named_is_said_where_nobody_has_counted(&host);
    let ran = host.sidle(&["--json", "rehearse", SALT, &release]);
    let told = ran.json();
    assert!(told["notes"].to_string().contains("not known: the Salt version of its master 127.0.0.1"), "{told}");
    assert!(
        told["notes"].to_string().contains("is named here (module): zabbix.apiinfo_version (log, last on"),
        "{told}"
    );
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
    let mut left = left.map(|entry| entry.unwrap().file_name());
    assert_eq!(left.find(|name| name.to_string_lossy().starts_with("dry-run-")), None);
}
