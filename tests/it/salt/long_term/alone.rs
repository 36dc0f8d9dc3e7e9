//! The same for a minion without a master: its pillar comes from saltclass, which 3008 dropped, and nobody but its schedule gives it jobs.

use super::super::layer::Desk;
use super::counted;
use crate::support::eventually;
use crate::support::minions::{self, LONG_TERM};
use crate::support::salt::START_SECONDS;
use crate::support::stage::{Author, Host, SALT, text};
use crate::support::stream::Marks;
use std::fs;
use std::path::{Path, PathBuf};

const SETTINGS: &str = "start_timeout = \"180s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\nrehearsal_timeout = \"600s\"\nrehearsal = \"refuse\"\n";
const PILLAR: (&str, &str) = ("pillar", "saltclass.ext_pillar");
const BEACON: (&str, &str) = ("beacons", "wtmp.beacon");
/// What its state writes from the pillar.
const CONTENT: &str = "8080 one,two";

/// A masterless minion whose schedule applies a state with values of saltclass.
fn host(author: &Author, marks: &Marks) -> Host {
    let host = Host::new(author);
    let written = host.path("srv/written");
    for (path, content) in [
        ("srv/saltclass/nodes/alone.yml", "environment: base\nclasses: [web]\n".to_owned()),
        ("srv/saltclass/classes/web.yml", "pillars:\n  port: 8080\n  names: [one, two]\n".to_owned()),
        (
            "srv/states/told.sls",
            format!(
                "{}:\n  file.managed:\n    - contents: '{{{{ pillar['port'] }}}} {{{{ pillar['names'] | join(',') }}}}'\n",
                text(&written)
            ),
        ),
        ("srv/states/started.sls", "started:\n  mark.made: []\n".to_owned()),
        ("etc/sidle/conf.d/salt.toml", SETTINGS.to_owned()),
        (
            "etc/salt/minion",
            format!(
                "id: alone\nuser: root\nroot_dir: {}\nlog_level_logfile: info\n{}  told: {{function: state.apply, args: [told], seconds: 10, run_on_start: True}}\n\
                 file_roots: {{base: [{}]}}\next_pillar: [saltclass: [{{path: {}}}]]\nbeacons:\n  wtmp:\n    - interval: 1\n",
                text(&host.root()),
                marks.configuration(&[]),
                text(&host.path("srv/states")),
                text(&host.path("srv/saltclass"))
            ),
        ),
    ] {
        let path = host.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    host
}

/// Waits until the state writes its file anew, with the pillar's values.
fn writes(host: &Host, release: &str) {
    let file = host.path("srv/written");
    let _ = fs::remove_file(&file);
    eventually(START_SECONDS, &format!("{release} applies the state"), || {
        let content = fs::read_to_string(&file).unwrap_or_default();
        if content.trim() == CONTENT { Ok(()) } else { Err(format!("{content:?}")) }
    });
}

/// The count's file, once the schedule's jobs and the beacon are in it.
fn uses(host: &Host) -> PathBuf {
    let file = host.path("uses.json");
    eventually(START_SECONDS, "the pillar's module and the beacon are counted", || {
        let ran = host.sidle(&["--json", "uses", SALT]);
        fs::write(&file, &ran.stdout).unwrap();
        let uses = ran.json();
        let is_used = |name| counted(&uses, name).is_some_and(|(times, ..)| times > 0);
        if is_used(PILLAR) && is_used(BEACON) { Ok(()) } else { Err(ran.stdout) }
    });
    file
}

/// The next revision of 3008, with what the file of uses wants.
fn packed(author: &Author, host: &Host, uses: &Path) -> PathBuf {
    let [old, new] = LONG_TERM.map(|version| author.salt(version));
    let words = ["--json", "pack", "--suggest-extras", text(&old), text(&new), "--uses", text(uses)];
    let keep = host.sidle(&words).json()["suggested"]["keep_modules"].clone();
    let keep: Vec<&str> = keep.as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert_eq!(keep.len(), 2, "{keep:?}");
    let (key, repository) = (author.key(), author.repository());
    let bundle = author.directory().join("with-saltclass.sidle");
    let more = ["--base", text(&new), "--revision", "2", "--keep-modules", &keep.join(","), "--from", text(&old)];
    let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
    Desk::new().pack(&[], &[&more[..], &to[..]].concat()).ok();
    bundle
}

#[test]
#[ignore = "`scripts/test --long`: two idle switches of a real minion; `salt::layer` shows the pillar with `salt-call`"]
fn a_minion_without_a_master_keeps_its_saltclass_pillar_from_one_long_term_release_to_the_next_and_back() {
    let (author, marks) = (minions::author_of(&LONG_TERM), Marks::new());
    let host = host(&author, &marks);
    let [old, lacking, whole] = [(0, 1), (1, 1), (1, 2)].map(|(of, revision)| format!("{}-{revision}", LONG_TERM[of]));
    for version in LONG_TERM {
        host.install(&author.salt(version)).ok();
    }
    let supervisor = host.supervise_instance(SALT);
    host.sidle(&["switch", SALT, &old]).ok();
    writes(&host, &old);
    let uses = uses(&host);

    let refused = host.sidle(&["rehearse", SALT, &lacking]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for (kind, name) in [PILLAR, BEACON] {
        let told = format!("would vanish, and is used here ({kind}): {name} ");
        assert!(refused.stdout.contains(&told), "{told}: {refused:?}");
    }
    assert!(refused.stdout.contains("ext_pillar needs the pillar module saltclass"), "{refused:?}");
    let switched = host.sidle(&["switch", SALT, &lacking]);
    assert_ne!(switched.code, Some(0), "{switched:?}");

    host.install(&packed(&author, &host, &uses)).ok();
    host.sidle(&["rehearse", SALT, &whole]).ok();
    host.sidle(&["switch", SALT, &whole]).ok();
    writes(&host, &whole);
    host.sidle(&["rollback", SALT]).ok();
    writes(&host, &old);
    assert_eq!(supervisor.end(), Some(0));
}
