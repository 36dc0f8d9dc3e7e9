//! The host's own highstate in two releases: what differs is named with its cause, what is the same is said to be so, and no value gets out.

use super::{Host, NEW, OLD, one, plain, script};
use crate::support::eventually;
use crate::support::salt::tree;
use serde_json::Value;
use sidle::os::proc_fs;
use sidle::rehearsal::Rehearsal;
use sidle::rehearsal::states::{Asked, Depth, Extent, What};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

const SECRET: &str = "correct-horse-battery";

/// Ten states of a site. Five are not the same in both releases: the default of an option (`gpg_decrypt_must_succeed`), the words of two
/// results (`grains.list_present`, `file.keyvalue`), a function that needs an extension now (`openstack_config`), and what a filter of templates gives.
const TEN: &str = r#"
file:
  file.managed:
    - name: {root}/srv/app.conf
    - contents: "password={{ pillar['password'] }}"
    - mode: '0600'
command:
  cmd.run:
    - name: echo {{ pillar['password'] }}
    - unless: test -e /etc/passwd
    - require: [{file: file}]
watcher:
  test.configurable_test_state:
    - watch: [{cmd: command}]
link:
  file.symlink:
    - name: {root}/srv/link
    - target: {root}/srv/app.conf
call:
  module.run:
    - test.ping: []
default:
  test.configurable_test_state:
    - comment: "{{ opts['gpg_decrypt_must_succeed'] }}"
words:
  grains.list_present:
    - name: roles
    - value: web
lines:
  file.keyvalue:
    - name: {root}/srv/lines
    - separator: ': '
    - uncomment: '#'
    - key_values: {a: 2, c: 4}
filter:
  test.configurable_test_state:
    - comment: "{{ 'web1' | regex_search('web') }}"
gone:
  {gone}:
    - name: {{ pillar['password'] }}
"#;
const GONE: &str = "openstack_config.present";

/// A minion without a master: files and pillar are its own.
fn masterless(states: &str) -> Host {
    let host = Host::new("file_client: local\ngrains: {roles: [web]}\n");
    let root = host.root.path().to_str().unwrap();
    host.put(
        "etc/minion.d/roots.conf",
        &format!("file_roots: {{base: [{root}/salt]}}\npillar_roots: {{base: [{root}/pillar]}}\n"),
    );
    host.put("pillar/top.sls", "base: {'*': [own]}\n");
    host.put("pillar/own.sls", &format!("password: {SECRET}\n"));
    host.put("salt/top.sls", "base: {'*': [site]}\n");
    host.put("salt/site.sls", &states.replace("{root}", root).replace("{gone}", GONE));
    host.put("srv/lines", "a: 1\nb: 2\n#c: 3\n");
    host
}

/// A minion with a master, whose files it has in its cache; its pillar is there if `pillar` is.
fn cached(states: &str, pillar: Option<&str>) -> Host {
    let host = Host::new("");
    let files = "var/cache/salt/minion/files/base";
    host.put(&format!("{files}/top.sls"), "base: {'*': [site]}\n");
    host.put(&format!("{files}/site.sls"), states);
    if let Some(pillar) = pillar {
        host.put("var/cache/salt/minion/pillar/cache.sls", pillar);
    }
    host
}

fn asked(depth: Depth, longest: u64) -> Option<Asked> {
    Asked::new(depth, Duration::from_secs(4 * longest)).unwrap()
}

impl Host {
    fn states(&self, depth: Depth) -> Rehearsal {
        let found = self.compared(plain(NEW), Some(plain(OLD)), asked(depth, 60));
        assert!(!format!("{found:?}").contains(SECRET), "{found:?}");
        found
    }

    /// What the program of one release says, in all its channels.
    fn highstate(&self, version: &str, depth: Depth, longest: u64) -> Value {
        let asked = asked(depth, longest).unwrap();
        let words = format!("{} {longest} {}", if depth == Depth::Test { "test" } else { "render" }, asked.key);
        let output = self.program_with(version, &script(), &[], &[("SIDLE_HIGHSTATE", &words)]);
        for said in [&output.stdout, &output.stderr] {
            assert!(!String::from_utf8_lossy(said).contains(SECRET), "a value of the pillar got out");
        }
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["highstate"].take()
    }

    /// What each state came to, as Salt itself applies them, and whether it changed anything.
    fn applied(&self, version: &str) -> BTreeMap<String, (bool, bool)> {
        let enter = "import sys\nsys.argv[0] = 'salt-call'\nimport salt.scripts\nsalt.scripts.salt_call()\n";
        let mut call = Command::new(tree(version).join("bin/python3"));
        call.args(["-E", "-s", "-B", "-W", "ignore", "-c", enter, "-c"]).arg(self.root.path().join("etc"));
        let output = call.args(["--local", "--out", "json", "-l", "critical", "state.highstate"]).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let state = |(tag, came): (&String, &Value)| {
            let changed = came["changes"].as_object().is_some_and(|changes| !changes.is_empty());
            (tag.clone(), (came["result"] == true, changed))
        };
        said["local"].as_object().unwrap().iter().map(state).collect()
    }
}

#[test]
fn of_ten_states_the_five_that_change_between_two_releases_are_named_with_their_causes() {
    let host = masterless(TEN);
    let found = host.states(Depth::Test);
    let states = found.states.as_ref().unwrap();
    assert_eq!((states.compared, states.states, &states.why), (Extent::Tested, 10, &None));
    let ids: Vec<&str> = states.differences.iter().map(|difference| difference.id.as_str()).collect();
    assert_eq!(ids, ["default", "words", "lines", "filter", "gone"]);
    let what: Vec<&[What]> = states.differences.iter().map(|difference| difference.what.as_slice()).collect();
    let (rendered, text) = (&[What::Arguments, What::Text][..], &[What::Text][..]);
    assert_eq!(what, [rendered, text, text, rendered, &[What::Function, What::Text]]);
    assert_eq!(states.differences[0].arguments, ["comment"]);
    let cause = "the default of the option gpg_decrypt_must_succeed, which its text names, was False, and is True";
    let causes: Vec<&[String]> = states.differences.iter().map(|difference| difference.causes.as_slice()).collect();
    assert_eq!(causes, [&[cause.to_owned()][..], &[], &[], &[], &["the function is gone".to_owned()]]);
    let gone = one(&found.blocking, "the function is gone");
    assert!(gone.starts_with(&format!("the highstate differs: gone, {GONE} in site: it cannot be applied")), "{gone}");
    one(&found.blocking, "filter, test.configurable_test_state in site: other arguments: comment");
    one(
        &found.notes,
        "5 states of the highstate differ: 10 states, rendered, and tested with test=True from this host's own files",
    );
    one(&found.notes, "only the text of the result differs: words (grains.list_present), lines (file.keyvalue)");
    assert_eq!(host.highstate(NEW, Depth::Test, 60)["states"].as_array().unwrap().len(), 10);
}

/// The five states that no release changed, applied by Salt itself on the way up and on the way down.
#[test]
fn a_highstate_that_is_said_to_be_the_same_gives_the_same_when_it_is_run_and_after_a_rollback() {
    let (same, _) = TEN.split_once("default:").unwrap();
    let host = masterless(&same.replace("- watch:", "- changes: False\n    - watch:"));
    let found = host.states(Depth::Test);
    assert!(found.states.as_ref().unwrap().differences.is_empty() && !found.refuses(), "{found:?}");
    one(&found.notes, "the highstate is the same with both releases: 5 states, rendered, and tested with test=True");
    assert!(!host.root.path().join("srv/app.conf").exists(), "a rehearsal applies nothing");
    let first = host.applied(OLD);
    assert!(first.len() == 5 && first.values().all(|(succeeded, _)| *succeeded), "{first:?}");
    let before = host.applied(OLD);
    assert_eq!(host.applied(NEW), before);
    assert_eq!(host.applied(OLD), before, "after the rollback");
}

#[test]
fn a_highstate_from_the_cache_is_compared_only_if_its_pillar_is_there_too() {
    let state = "one:\n  test.nop:\n    - name: {{ pillar['password'] }} {{ pillar['text'] }}\n";
    let host = cached(state, None);
    let found = host.states(Depth::Render);
    let note = one(&found.notes, "the highstate was not compared: the pillar is not cached on this host");
    assert!(note.contains("minion_pillar_cache") && !found.refuses(), "{note}");
    // A pillar is data: Salt has rendered it.
    host.put("var/cache/salt/minion/pillar/cache.sls", &format!("password: {SECRET}\ntext: '{{{{ no template }}}}'\n"));
    let found = host.states(Depth::Render);
    assert!(!found.refuses(), "{found:?}");
    let note =
        one(&found.notes, "the highstate is the same with both releases: 1 state, rendered from the minion's cache");
    assert!(note.contains("its pillar was cached less than an hour ago"), "{note}");
    host.put("var/cache/salt/minion/files/base/site.sls", "include: [elsewhere]\n");
    let reasons = &host.highstate(NEW, Depth::Render, 60)["reasons"];
    assert_eq!((&reasons[0]["kind"], &reasons[0]["name"]), (&"sls".into(), &"elsewhere".into()), "{reasons}");
}

#[test]
fn a_highstate_that_the_new_release_cannot_render_is_a_reason_not_to_switch() {
    let states = "before:\n  test.nop\nafter:\n  test.nop:\n    - require: [{sls: site}]\n";
    let host = cached(states, Some("{}"));
    let found = host.states(Depth::Render);
    let text = one(&found.blocking, "the new release cannot render the highstate, and the running release can: ");
    assert!(text.contains("after in site requires itself, which the release no longer accepts"), "{text}");
    // What Salt says of it is full of what it has rendered.
    host.put("var/cache/salt/minion/pillar/cache.sls", &format!("password: {SECRET}\n"));
    host.put(
        "var/cache/salt/minion/files/base/site.sls",
        "{{ pillar['password'] }}: [\n{{ salt['vault.read_secret']('x') }}\n",
    );
    let reasons = &host.highstate(NEW, Depth::Render, 60)["reasons"];
    assert_eq!(
        (&reasons[0]["kind"], &reasons[0]["name"]),
        (&"function".into(), &"vault.read_secret".into()),
        "{reasons}"
    );
}

/// Its files in memory have no name outside it: with its mounts they are gone.
fn ends_with_its_parent(host: &Host) {
    let scratch = tempfile::tempdir().unwrap();
    let key = asked(Depth::Render, 60).unwrap().key;
    let mut program = Command::new(tree(OLD).join("bin/python3"));
    program.args(["-E", "-s", "-B"]).arg(script()).arg("-c").arg(host.root.path().join("etc"));
    program.arg("--scratch").arg(scratch.path()).env("SIDLE_HIGHSTATE", format!("render 60 {key}"));
    let mut program = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let memory = scratch.path().join("memory");
    let child = eventually(60, "the child that renders has its room", || {
        // Below the program are others too, some for a moment: what loads custom code, and the programs that grains ask.
        let below = proc_fs::descendants(program.id()).unwrap_or_default();
        let has_room = |pid: &u32| {
            let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap_or_default();
            mounts.contains(memory.to_str().unwrap())
        };
        below.iter().map(|child| child.pid).find(has_room).ok_or_else(|| format!("{below:?}"))
    });
    assert_eq!(fs::read_dir(memory).unwrap().count(), 0, "nobody else sees what is in memory");
    program.kill().unwrap();
    program.wait().unwrap();
    eventually(20, "the child is gone", || {
        let lives = proc_fs::process(child).unwrap().is_some_and(|process| process.is_alive());
        if lives { Err("it lives".to_owned()) } else { Ok(()) }
    });
}

#[test]
fn a_highstate_is_bounded_and_leaves_nothing_when_its_program_is_killed() {
    let host = cached(
        "{% for one in range(9999) %}{% for two in range(9999) %}{% for three in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
        Some("{}"),
    );
    let reasons = &host.highstate(OLD, Depth::Render, 1)["reasons"];
    assert_eq!(reasons[0]["kind"], "time", "{reasons}");
    ends_with_its_parent(&host);
    host.put("var/cache/salt/minion/files/base/site.sls", "{% set all = 'x' * 10 ** 11 %}\n");
    let reasons = &host.highstate(OLD, Depth::Render, 60)["reasons"];
    assert!(["failed", "render"].contains(&reasons[0]["kind"].as_str().unwrap()), "{reasons}");
}
