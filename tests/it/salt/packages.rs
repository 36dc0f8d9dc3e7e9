//! An adopted host on which package managers, configuration management and people go on working.

use crate::support::eventually;
use crate::support::packages::{Kind, NEW, OLD, PackagedHost, UNIT};
use crate::support::salt::START_SECONDS;
use crate::support::scene::ID;
use crate::support::stream::Plan;
use serde_json::Value;
use std::fs;

/// Jobs a second. A package manager takes its minute, and at 2 a second 3007.17, which keeps the process of each job for half a minute, falls behind
/// beside another test.
const RATE: f64 = 1.0;
const AROUND_SECONDS: u64 = 3;

impl PackagedHost {
    /// Does something that would have hurt the package's minion; the same process serves on.
    fn changes_nothing(&self, what: &str, act: impl FnOnce()) {
        let before = self.machine.agent().expect("it runs");
        act();
        let status = self.machine.status();
        assert_eq!(self.machine.agent(), Some(before), "{what}: {status}\n{}", self.logs());
        assert!(status["switch"].is_null(), "{what}: {status}");
        self.serves_new(what);
        assert_eq!(self.minions(), 1, "{what}");
    }

    /// The new release answers the first time it is asked.
    fn serves_new(&self, what: &str) {
        let said = self.version();
        assert!(said.contains(NEW), "{what}: {said}\n{}", self.logs());
    }

    fn systemctl(&self, verb: &str) -> String {
        self.machine.inside(&["systemctl", verb, UNIT])
    }
}

fn package_managers(kind: Kind) {
    let host = PackagedHost::new(kind);
    assert_eq!(host.state(), ["active", "enabled"]);
    let stream = host.stream(RATE);
    stream.run(AROUND_SECONDS);
    host.adopt();
    host.serves_new("adopted");
    fs::write(host.machine.path("etc/salt/minion"), "# Changed by its owner.\nlog_level: info\n").unwrap();
    host.systemctl("restart");
    eventually(START_SECONDS, "the change is taken up", || match host.machine.status() {
        status if status["switch"].is_null() && status["last"]["purpose"] == "restart" => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(host.machine.status()["last"]["mode"], "overlap");
    for verb in ["restart", "reload", "try-restart", "reload-or-restart", "stop", "start"] {
        host.changes_nothing(verb, || drop(host.systemctl(verb)));
    }
    let upgrade = host.package("2");
    host.changes_nothing("upgrade", || drop(host.install(&upgrade)));
    assert_eq!(host.state(), ["active", "enabled"], "after the upgrade");
    let shim = host.shim("100");
    host.changes_nothing("shim", || drop(host.install(&shim)));
    assert!(!host.machine.path("opt/saltstack").exists(), "the package's Python is gone");
    assert_eq!(host.state(), ["active", "enabled"], "with the shim");
    for file in ["minion", "minion.d/test.conf"] {
        assert!(host.machine.path("etc/salt").join(file).exists(), "{file}");
    }
    assert!(fs::read_to_string(host.machine.path("etc/salt/minion")).unwrap().contains("Changed"));
    let called = host.machine.inside(&["/usr/bin/salt-call", "--version"]);
    assert!(called.contains(NEW), "{called}");
    host.changes_nothing("removal", || drop(host.remove()));
    let refused = host.machine.try_inside(&["sidle", "unadopt", "salt-minion"]);
    assert!(!refused.0 && refused.1.contains("install the package again"), "{refused:?}");
    host.serves_new("after a refused release");
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless(&format!("{kind:?}: adopted, upgraded, replaced by a shim, removed"));
}

#[test]
#[ignore = "`scripts/test --long`: an rpm shows the same; a deb is upgraded by a highstate and given back after a boot, and `system::shim` has its shim"]
fn a_deb_can_be_upgraded_replaced_and_removed_under_an_adopted_minion() {
    package_managers(Kind::Deb);
}

#[test]
fn an_rpm_can_be_upgraded_replaced_and_removed_under_an_adopted_minion() {
    package_managers(Kind::Rpm);
}

/// What a formula does: a configuration file, the package in its latest version, the service that watches both; then something more.
const FORMULA: &str = "configuration:
  file.managed:
    - name: /etc/salt/minion.d/formula.conf
    - contents: 'grains: {formula: STAGE}'
package:
  pkg.latest:
    - name: salt-minion
service:
  service.running:
    - name: salt-minion
    - enable: True
    - watch:
      - file: configuration
      - pkg: package
after:
  cmd.run:
    - name: sleep 3 && echo after
    - require:
      - service: service
";

#[test]
fn a_highstate_that_upgrades_and_restarts_its_own_minion_returns_and_loses_nothing() {
    let host = PackagedHost::new(Kind::Deb);
    host.adopt();
    let sources = "deb [trusted=yes] file:/srv/packages ./\n";
    for old in fs::read_dir(host.machine.path("etc/apt/sources.list.d")).into_iter().flatten().flatten() {
        fs::remove_file(old.path()).unwrap();
    }
    fs::write(host.machine.path("etc/apt/sources.list"), sources).unwrap();
    host.package("2");
    host.index();
    host.master.file("top.sls", "base:\n  '*':\n    - formula\n");
    host.master.file("formula.sls", &FORMULA.replace("STAGE", "one"));
    // While a job of several functions runs, Salt fails to begin a highstate: `saltutil.is_running` takes its list of functions for a name.
    let stream = host.stream_of(&Plan { compound_every: 0, ..Plan::of(RATE) });
    stream.run(AROUND_SECONDS);

    // By hand, as people and formulas do it, without a change: nothing happens.
    host.changes_nothing("service.restart", || {
        let said = host.master.call(ID, &["service.restart", "salt-minion"]);
        assert!(said.contains("True"), "{said}");
    });
    host.changes_nothing("service.status", || {
        let said = host.master.call(ID, &["service.status", "salt-minion"]);
        assert!(said.contains("True"), "{said}");
    });
    host.changes_nothing("minion.restart", || {
        let said = host.master.call(ID, &["minion.restart"]);
        assert!(said.contains("Service restart successful") && said.contains("'killed': None"), "{said}");
    });
    // With a change it is a restart, and the job that asks for it returns.
    let before = host.machine.agent();
    fs::write(host.machine.path("etc/salt/minion.d/asked.conf"), "grains: {asked: yes}\n").unwrap();
    let said = host.master.call(ID, &["minion.restart"]);
    assert!(said.contains("Service restart successful"), "{said}");
    eventually(START_SECONDS, "the minion is restarted", || match host.machine.status() {
        status if status["switch"].is_null() && host.machine.agent() != before => Ok(()),
        status => Err(status.to_string()),
    });
    assert_eq!(host.minions(), 1);
    let first = host.machine.agent();
    let said = host.master.call_within("120", ID, &["state.highstate"]);
    for part in ["formula.conf", "'after'", "3006.30-2"] {
        assert!(said.contains(part), "{part}: {said}\n{}", host.logs());
    }
    assert!(!said.contains("'result': False"), "{said}\n{}", host.logs());
    eventually(START_SECONDS, "the change is taken up", || match host.machine.status() {
        status if status["switch"].is_null() && host.machine.agent() != first => Ok(()),
        status => Err(status.to_string()),
    });
    let last = host.machine.status()["last"].clone();
    assert_eq!((last["purpose"].as_str(), last["mode"].as_str()), (Some("restart"), Some("overlap")), "{last}");
    assert!(host.master.call(ID, &["grains.get", "formula"]).contains("one"));
    assert_eq!(host.minions(), 1);
    // The second time nothing changes, and nothing is restarted.
    host.changes_nothing("highstate", || {
        let said = host.master.call_within("120", ID, &["state.highstate"]);
        assert!(said.contains("'after'") && !said.contains("'result': False"), "{said}");
    });
    stream.run(AROUND_SECONDS);
    stream.end().assert_lossless("a highstate upgrades the package, and restarts its minion");
}

/// What states do that change a host to a package of another name: the configuration is copied, the other unit started, and then what
/// there was is disabled and loses its master.
const OTHER_NAME: &str = "copied:
  cmd.run:
    - name: mkdir -p /etc/venv-salt-minion && cp -a /etc/salt/. /etc/venv-salt-minion/
other:
  service.running:
    - name: venv-salt-minion
    - enable: True
    - require:
      - cmd: copied
disabled:
  service.disabled:
    - name: salt-minion
    - require:
      - service: other
forgotten:
  file.absent:
    - name: /etc/salt/minion.d/test.conf
    - require:
      - service: disabled
";

/// Another package with the same agent does not start a second one, and the state that wants it fails before it harms the first.
fn another_name_is_refused(host: &PackagedHost) {
    let unit = fs::read_to_string(host.machine.path("lib/systemd/system").join(UNIT)).unwrap();
    let other = unit.replace("/usr/bin/salt-minion", "/opt/saltstack/salt/bin/salt-minion -c /etc/venv-salt-minion");
    fs::write(host.machine.path("lib/systemd/system/venv-salt-minion.service"), other).unwrap();
    host.machine.inside(&["systemctl", "daemon-reload"]);
    host.master.file("other.sls", OTHER_NAME);
    host.changes_nothing("another name", || {
        let said = host.master.call_within("120", ID, &["state.apply", "other"]);
        assert!(said.contains("'comment': 'One or more requisite failed: other.other'"), "{said}");
    });
    assert_eq!(host.state(), ["active", "enabled"]);
    assert!(host.machine.path("etc/salt/minion.d/test.conf").exists());
    let told = host.machine.inside(&["journalctl", "--no-pager", "--unit", "venv-salt-minion"]);
    assert!(told.contains(&format!("sidle runs minion {ID} of master")) && told.contains("sidle unadopt"), "{told}");
    // A minion of another master is nobody's double.
    let configuration = host.machine.path("etc/venv-salt-minion/minion.d/test.conf");
    let text = fs::read_to_string(&configuration).unwrap().replace("master_port:", "master_port: 1 #");
    fs::write(configuration, text).unwrap();
    let asked = ["sidle", "may-start", "venv-salt-minion.service", "salt-minion", "--instance", "salt-minion"];
    host.machine.inside(&asked);
}

/// A chain of states, as management systems run them on: what comes next waits in a file beside the minion's configuration, and the event of
/// the minion's start makes the master ask for it.
const REACTOR: &str = "fileserver_list_cache_time: 0\nreactor:\n  - salt/minion/*/start:\n    - salt://resume.sls\n";
const RESUME: &str = "resume:\n  local.chain.resume:\n    - tgt: {{ data['id'] }}\n";
const CHAIN: &str = "import os
import time
import yaml

def _place():
    return os.path.join(os.path.dirname(__opts__['conf_file']), 'minion.d', '_chain.conf')

def then(sls):
    with open(_place(), 'w') as file:
        file.write(yaml.safe_dump({'next_of_chain': sls}))
    return True

def resume():
    if not os.path.exists(_place()):
        return {}
    with open(_place()) as file:
        sls = yaml.safe_load(file)['next_of_chain']
    os.remove(_place())
    # `queue=True` here would make 3007.17 put a job without a function on its queue.
    for _ in range(100):
        if not __salt__['state.running']():
            break
        time.sleep(0.2)
    return __salt__['state.sls'](sls)
";

/// One link: it is noted that it ran, what follows is set down, and then something is done.
fn link(name: &str, next: Option<&str>, act: &str) -> String {
    let next = next.map_or("test.ping: []".to_owned(), |next| format!("chain.then:\n      - sls: {next}"));
    format!(
        "ran:\n  cmd.run:\n    - name: echo {name} >>/srv/chain\n    - order: 1\n\
         then:\n  module.run:\n    - {next}\n    - order: 2\n\
         act:\n  cmd.run:\n    - name: {act}\n    - order: 3\n"
    )
}

/// Variables and limits of the package's unit, of its drop-ins and of the files of its scripts are the adopted process's, too.
fn has_what_its_unit_had(host: &PackagedHost) {
    let pid = host.machine.agent().expect("it runs").to_string();
    let environment = host.machine.inside(&["cat", &format!("/proc/{pid}/environ")]);
    for expected in ["https_proxy=http://proxy:3128/a%20b", "SALT_EXTRAS_DIR=/srv/site-extras"] {
        assert!(environment.split('\0').any(|line| line == expected), "{expected}: {environment}");
    }
    let limits = host.machine.inside(&["cat", &format!("/proc/{pid}/limits")]);
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!((limit("Max open files"), limit("Max core file size")), (vec!["8192".into(); 2], vec!["0".into(); 2]));
}

/// Waits until these links have run, each once.
fn chain_has_run(host: &PackagedHost, links: &str) {
    let place = host.machine.path("srv/chain");
    eventually(START_SECONDS, &format!("the chain has run {links}"), || {
        let ran = fs::read_to_string(&place).unwrap_or_default();
        let ran = ran.split_whitespace().collect::<Vec<_>>().join(" ");
        if ran == links { Ok(()) } else { Err(format!("{ran}\n{}", host.logs())) }
    });
}

/// The first two links: a restart by the name of the package's unit makes the second one run.
fn begin_chain(host: &PackagedHost) {
    host.master.file("_modules/chain.py", CHAIN);
    host.master.file("resume.sls", RESUME);
    host.master.file("one.sls", &link("one", Some("two"), "systemctl restart salt-minion"));
    host.master.file("two.sls", &link("two", Some("three"), "'true'"));
    host.master.file("three.sls", &link("three", None, "'true'"));
    let said = host.master.call(ID, &["saltutil.sync_modules"]);
    assert!(said.contains("modules.chain"), "{said}");
    let said = host.master.call_within("60", ID, &["state.apply", "one"]);
    assert!(said.contains("'result': True") && !said.contains("'result': False"), "{said}");
    chain_has_run(host, "one two");
    let waits = host.machine.path("etc/salt/minion.d/_chain.conf");
    eventually(START_SECONDS, "the third link waits", || {
        fs::read_to_string(&waits).map(drop).map_err(|error| error.to_string())
    });
}

/// The packaged minion still works on its last job, so that its unit has no replacement yet. After a boot the mask below /run was gone: both minions ran,
/// and neither knew of the other.
fn an_adoption_that_a_boot_cuts_off_leaves_one_minion(host: &mut PackagedHost) {
    let drop_in = host.machine.path("etc/systemd/system").join(format!("{UNIT}.d/zzz-sidle-adopted.conf"));
    host.master.publish(ID, &["test.sleep", "600"]);
    host.machine.inside(&["systemd-run", "--collect", "sidle", "adopt", "salt-minion"]);
    let journal = host.machine.path("var/lib/sidle/instances/salt-minion/journal");
    eventually(START_SECONDS, "the release is current, and the packaged minion at its last job", || {
        let journal = fs::read(&journal).map_err(|error| error.to_string())?;
        let journal: Value = serde_json::from_slice(&journal).unwrap();
        let phase = journal["live"]["phase"].clone();
        if phase == "finishing-old" { Ok(()) } else { Err(format!("{phase}\n{}", host.logs())) }
    });
    assert!(drop_in.exists());
    // Whoever is refused must not have been the only one that a boot starts.
    host.machine.inside(&["systemctl", "disable", "sidle@salt-minion"]);
    host.machine.cut_power();
    host.machine.boot();
    host.answers(NEW);
    host.machine.inside(&["systemctl", "enable", "sidle@salt-minion"]);
    eventually(START_SECONDS, "the package's unit is refused", || match host.state() {
        [state, _] if state == "failed" => Ok(()),
        state => Err(format!("{state:?}\n{}", host.logs())),
    });
    assert_eq!(host.minions(), 1);
    let told = host.machine.inside(&["journalctl", "--no-pager", "--unit", UNIT]);
    assert!(told.contains("sidle runs its agent already") && told.contains("completes the adoption"), "{told}");
    let completed = host.machine.inside(&["sidle", "adopt", "salt-minion"]);
    assert!(completed.contains("the adoption that was cut off is completed"), "{completed}");
    assert_eq!(host.state(), ["active", "enabled"]);
    assert!(!drop_in.exists() && host.minions() == 1);
}

#[test]
fn an_adopted_minion_survives_a_boot_and_is_given_back_to_its_package() {
    let mut host = PackagedHost::with_master(Kind::Deb, REACTOR);
    // What an administrator may have added to the package's unit starts and stops nothing of its name any more.
    let units = host.machine.path("etc/systemd/system");
    let drop_ins = units.join(format!("{UNIT}.d"));
    let own = "[Service]\nRestart=always\nExecStartPre=/bin/touch /srv/started\nExecStop=/bin/touch /srv/stopped\n\
        Environment=\"https_proxy=http://proxy:3128/a%%20b\"\nLimitCORE=0\nMemoryMax=2G\n";
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("own.conf"), own).unwrap();
    host.machine.inside(&["systemctl", "daemon-reload"]);
    // Upstream's scripts read this file, and its unit does not name it: the directory was lost without a word.
    fs::create_dir_all(host.machine.path("etc/sysconfig")).unwrap();
    fs::write(host.machine.path("etc/sysconfig/salt-minion-setup"), "SALT_EXTRAS_DIR='/srv/site-extras'\n").unwrap();
    let steps = host.machine.inside(&["sidle", "adopt", "salt-minion", "--dry-run"]);
    let setup = "SALT_EXTRAS_DIR=/srv/site-extras from /etc/sysconfig/salt-minion-setup";
    for part in ["LimitCORE=0", "https_proxy=…", "leave to you", "MemoryMax=2G", setup] {
        assert!(steps.contains(part), "{part}: {steps}");
    }
    assert!(!steps.contains("proxy:3128"), "a value may be a secret: {steps}");
    an_adoption_that_a_boot_cuts_off_leaves_one_minion(&mut host);
    has_what_its_unit_had(&host);
    for file in ["started", "stopped"] {
        fs::remove_file(host.machine.path("srv").join(file)).ok();
    }
    for verb in ["stop", "restart"] {
        host.changes_nothing(verb, || drop(host.systemctl(verb)));
    }
    another_name_is_refused(&host);
    begin_chain(&host);

    host.machine.cut_power();
    host.machine.boot();
    host.answers(NEW);
    eventually(START_SECONDS, "its name is there again", || match host.state() {
        state if state == ["active", "enabled"] => Ok(()),
        state => Err(format!("{state:?}")),
    });
    assert_eq!(host.minions(), 1);
    chain_has_run(&host, "one two three");
    has_what_its_unit_had(&host);
    for file in ["started", "stopped"] {
        assert!(!host.machine.path("srv").join(file).exists(), "a drop-in of the package's unit was obeyed: {file}");
    }

    let released = host.machine.try_inside(&["sidle", "unadopt", "salt-minion"]);
    assert!(released.0, "{}\n{}", released.1, host.logs());
    host.answers(OLD);
    assert_eq!(host.state(), ["active", "enabled"]);
    assert_ne!(host.unit("MainPID"), "0", "systemd runs the package's minion");
    assert_eq!(host.minions(), 1);
    assert!(!units.join(UNIT).exists() && !drop_ins.join("zzz-sidle.conf").exists());
    assert!(!units.join("venv-salt-minion.service.d").exists());
    assert!(!units.join("sidle@salt-minion.service.d/adopted.conf").exists());
}
