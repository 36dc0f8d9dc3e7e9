//! The incident that sidle exists for, replayed on a booted host: a month in which systemd's own cleaner takes from `/var/tmp` what nobody opened,
//! and a stamp that stays. First salt-ssh's way beside a store at its place, then a store that was forced to the same bad place.
//!
//! What is in a month: from systemd 252 on the cleaner goes by the time of the last change alone, which a test sets back by years. systemd 247
//! (bullseye) knows no such rule: there all three times count, of which nobody can set the inode's, and a month is two real seconds.

use crate::support::boot::Machine;
use crate::support::eventually;
use crate::support::stage::{Author, DEMO};
use crate::support::trees;
use serde_json::Value;
use std::fs;

/// What salt-ssh unpacks for root.
const THIN: &str = "/var/tmp/.root_1a2b3c_salt";
/// All that salt-ssh looks at before it uses the tree, as `ssh_py_shim.py` has it: its stamp, and the one program that it starts.
const LOOK: &str = "test -f code-checksum && test \"$(head -n 1 code-checksum)\" = 5ca1ab1e && test -f salt-call";
/// Where a store was forced to.
const FORCED: &str = "/var/tmp/sidle/demo-agent";
/// The files that the releases have in common, but for the agent's own few.
const FILES: u64 = 40;

/// A booted host with releases 1.0, which runs, and 1.1; a bundle file of 1.2 lies in its root.
struct Site {
    suite: &'static str,
    machine: Machine,
}

/// The agent and its supervisor, as they were before all that.
#[derive(Debug, PartialEq)]
struct Alive {
    agent: Option<u64>,
    supervisor: String,
}

impl Site {
    fn new(suite: &'static str) -> Self {
        let author = Author::new();
        let release = |version: &str| {
            author.release_with(version, |tree| {
                for number in 0..FILES {
                    trees::put(tree, &format!("lib/many/file{number:02}"), &trees::noise(number, 5000), 0o644);
                }
            })
        };
        let bundles = [release("1.0"), release("1.1")];
        let mut machine = Machine::new(suite, &author, &bundles);
        fs::copy(release("1.2"), machine.path("1.2.sidle")).unwrap();
        // What is found is found by the watch and before a start, not by a scrub.
        let settings = "probation = \"1s\"\nstop_timeout = \"5s\"\nscrub_every = \"0s\"\n";
        fs::write(machine.path("etc/sidle/sidle.toml"), settings).unwrap();
        let age = if suite == "bullseye" { "2s" } else { "mM:30d" };
        fs::write(machine.path("etc/tmpfiles.d/tmp.conf"), format!("q /var/tmp 1777 root root {age}\n")).unwrap();
        machine.boot();
        let scene = Self { suite, machine };
        scene.sh("sidle switch demo-agent 1.0-1");
        scene.machine.serves("1.0-1");
        scene
    }

    /// What a script prints, which must succeed.
    fn sh(&self, script: &str) -> String {
        self.machine.inside(&["sh", "-ec", script])
    }

    /// A command that must end with this exit code; what it says.
    fn exits(&self, code: u32, command: &str) -> String {
        self.sh(&format!("code=0; {command} 2>&1 || code=$?; test $code = {code} || {{ echo exit $code; exit 1; }}"))
    }

    /// All files below a directory, with what tells a file from another one of the same name.
    fn files(&self, directory: &str) -> String {
        self.sh(&format!("find {directory}/ ! -type d -printf '%i %P\\n' | sort -k 2"))
    }

    fn alive(&self) -> Alive {
        Alive { agent: self.machine.agent(), supervisor: self.machine.property("MainPID") }
    }

    /// What was found broken of a release.
    fn incidents(&self, release: &str) -> Vec<Value> {
        let history = self.machine.inside(&["sidle", "--json", "history", DEMO]);
        let history: Value = serde_json::from_str(&history).unwrap();
        let all = history["incidents"].as_array().unwrap();
        all.iter().filter(|incident| incident["release"] == release).cloned().collect()
    }

    /// This agent does a job.
    fn answers(&self, job: &str, script: &str, alive: &Alive) {
        self.machine.job(job, script);
        self.answered(job, alive);
    }

    fn answered(&self, job: &str, alive: &Alive) {
        let done = self.machine.done(job);
        let expected = format!("exit=0\nrelease=1.0\npid={}\n", alive.agent.expect("it runs"));
        assert_eq!(done, expected, "job {job} was done by another one");
    }

    /// A month in which only these are used, and the cleaning at its end.
    fn month_passes(&self, used: &[String]) {
        self.sh("find /var/tmp /opt/sidle/ -exec touch -h -d 2020-01-01 {} +");
        self.sh(&format!("touch -d tomorrow {}", used.join(" ")));
        if self.suite == "bullseye" {
            eventually(20, "all is older than two seconds", || {
                match self.sh("find /var/tmp /opt/sidle/ -newerct '3 seconds ago'") {
                    found if found.is_empty() => Ok(()),
                    found => Err(found),
                }
            });
        }
        self.sh("systemctl start systemd-tmpfiles-clean.service");
    }
}

/// The control, and beside it a store at its place.
fn salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched(scene: &Site) {
    scene.sh(&format!(
        "mkdir -p {THIN}/pyall/salt; cd {THIN}; echo 5ca1ab1e >code-checksum
        for number in $(seq {FILES}); do echo : >pyall/salt/part$number.py; done
        echo 'set -e; for number in $(seq {FILES}); do . {THIN}/pyall/salt/part$number.py; done; echo True' >salt-call"
    ));
    let (look, call) = (format!("cd {THIN} && {LOOK}"), format!("sh {THIN}/salt-call"));
    assert_eq!(scene.sh(&format!("{look} && {call}")), "True\n");
    let (alive, files) = (scene.alive(), scene.files("/opt/sidle"));

    scene.month_passes(&[format!("{THIN}/code-checksum"), format!("{THIN}/salt-call")]);
    assert_eq!(scene.sh(&format!("find {THIN} -type f | sort")), format!("{THIN}/code-checksum\n{THIN}/salt-call\n"));
    scene.sh(&look);
    let said = scene.exits(2, &call);
    assert!(said.contains("part1.py"), "salt-ssh's tree works: {said}");

    assert_eq!(scene.files("/opt/sidle"), files, "the store was touched");
    for release in ["1.0-1", "1.1-1"] {
        scene.sh(&format!("sidle verify demo-agent {release} --full"));
        assert_eq!(scene.incidents(release), Vec::<Value>::new());
    }
    assert_eq!(scene.alive(), alive);
    scene.answers("beside", "true", &alive);
}

/// The store goes where the month harms it, and one release more.
fn store_is_forced_below_var_tmp(scene: &Site) {
    scene.sh("systemctl stop sidle@demo-agent; mv /opt/sidle /var/tmp/sidle; ln -s /var/tmp/sidle /opt/sidle");
    scene.sh("systemctl start sidle@demo-agent");
    scene.machine.serves("1.0-1");
    let said = scene.exits(1, "sidle install /1.2.sidle");
    assert!(said.contains(&format!("removes what is old in {FORCED}")), "{said}");
    scene.sh("sidle install --force-place /1.2.sidle");
}

/// What runs keeps all its files; what doesn't loses them, and that is noticed before it is started.
fn what_was_cleaned_is_noticed_before_its_next_start(scene: &Site, alive: &Alive) {
    let tree = |release: &str| format!("{FORCED}/versions/{release}");
    let running = scene.files(&tree("1.0-1"));
    // As whoever unpacks a bundle leaves it: a word that all is there.
    scene.sh(&format!("for release in 1.1-1 1.2-1; do echo $release >{FORCED}/versions/$release/stamp; done"));
    // Of 1.1 what no other release has is used, of 1.2 nothing.
    let used = ["1.1-1/stamp", "1.1-1/share/demo-agent/release", "1.2-1/stamp"];
    scene.month_passes(&used.map(tree));

    assert_eq!(scene.files(&tree("1.0-1")), running, "the running release was touched");
    assert_eq!(scene.incidents("1.0-1"), Vec::<Value>::new());
    assert_eq!(scene.alive(), *alive);
    scene.answers("cleaned", "true", alive);
    // The control: hardly anything is left of the others, and their stamps say that all is well.
    assert_eq!(scene.sh(&format!("cd {FORCED}/versions; find 1.1-1 -type f | wc -l; cat 1.1-1/stamp")), "2\n1.1-1\n");
    assert_eq!(scene.sh(&format!("cd {FORCED}/versions; find 1.2-1 -type f | wc -l; cat 1.2-1/stamp")), "1\n1.2-1\n");

    // Out of the release that runs, before its program, which was lost, starts.
    scene.exits(6, "sidle verify demo-agent 1.1-1");
    let said = scene.exits(64, "sidle run demo-agent --release 1.1-1 demo-agent");
    assert!(said.contains("usage: demo-agent -c CONFIG_DIR"), "{said}");
    scene.sh("sidle verify demo-agent 1.1-1 --full");
    let incidents = scene.incidents("1.1-1");
    assert!(matches!(&incidents[..], [one] if one["occasion"] == "start" && one["left"] == 0), "{incidents:?}");

    // What no release here has: it is not started, the host stays where it is, and the bundle file mends it.
    for command in ["sidle switch demo-agent 1.2-1", "sidle run demo-agent --release 1.2-1 demo-agent"] {
        let said = scene.exits(6, command);
        assert!(said.contains("cannot use demo-agent 1.2-1: its files are not what was signed"), "{said}");
    }
    scene.sh("sidle repair demo-agent 1.2-1 --from /1.2.sidle; sidle verify demo-agent 1.2-1 --full");
    assert_eq!(scene.alive(), *alive);
}

/// Files of the running release are deleted by hand: its siblings have them.
fn what_runs_is_mended_at_once(scene: &Site, alive: &Alive) {
    let tree = format!("{FORCED}/versions/1.0-1");
    let files = scene.sh(&format!("cd {tree}; find . -type f ! -path ./share/demo-agent/release | sort"));
    // The program is among them, and a file that is read only when a job wants it.
    let lost: Vec<&str> = files.lines().enumerate().filter(|(n, _)| n % 6 < 2).map(|(_, file)| file).collect();
    assert!(lost.contains(&"./bin/demo-agent") && lost.contains(&"./lib/demo-agent/lazy/greeting"), "{lost:?}");
    scene.sh(&format!("cd {tree}; rm {}", lost.join(" ")));
    scene.answers("while", "true", alive);
    eventually(20, "the running tree is whole again", || {
        let (whole, said) = scene.machine.try_inside(&["sidle", "verify", DEMO, "1.0-1", "--full"]);
        if whole { Ok(()) } else { Err(said) }
    });
    let incidents = eventually(20, "it is remembered", || match scene.incidents("1.0-1") {
        incidents if incidents.is_empty() => Err("none".to_owned()),
        incidents => Ok(incidents),
    });
    assert!(incidents.iter().all(|one| one["occasion"] == "watch" && one["left"] == 0), "{incidents:?}");
    let mended: u64 = incidents.iter().filter_map(|one| one["mended"].as_u64()).sum();
    assert_eq!(mended, lost.len() as u64, "{incidents:?}");
    assert_eq!(scene.alive(), *alive);
    scene.answers("mended", "cat \"$DEMO_HOME/lib/demo-agent/lazy/greeting\"", alive);
}

/// What is deleted while there is no supervisor is seen by the next one, which takes the agent over.
fn what_nobody_saw_is_mended_by_the_next_supervisor(scene: &Site, alive: &Alive) {
    let tree = format!("{FORCED}/versions/1.0-1");
    scene.sh(&format!("kill -KILL {}; rm {tree}/lib/many/file0*", alive.supervisor));
    eventually(20, "another supervisor has mended the running tree", || {
        let (whole, said) = scene.machine.try_inside(&["sidle", "verify", DEMO, "1.0-1", "--full"]);
        if whole && scene.machine.agent().is_some() { Ok(()) } else { Err(said) }
    });
    let again = scene.alive();
    assert!(again.agent == alive.agent && again.supervisor != alive.supervisor, "{again:?}, and before {alive:?}");
    scene.answers("unseen", "true", alive);
}

/// Without the link that boot goes by the journal knows. Then what was mended works.
fn the_host_boots_and_goes_on(mut scene: Site) {
    scene.sh(&format!("rm {FORCED}/current"));
    for release in ["1.0-1", "1.1-1"] {
        scene.machine.cut_power();
        scene.machine.boot();
        scene.machine.serves(release);
        scene.sh("sidle switch demo-agent 1.1-1 || test $? = 3");
        scene.machine.serves("1.1-1");
    }
}

fn replayed(suite: &'static str) {
    let scene = Site::new(suite);
    salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched(&scene);
    store_is_forced_below_var_tmp(&scene);
    let alive = scene.alive();
    scene.answers("before", "true", &alive);
    // One job lasts as long as all this.
    scene.machine.job("through", "for n in $(seq 1200); do test ! -e /run/over || exit 0; sleep 0.1; done; exit 1");
    what_was_cleaned_is_noticed_before_its_next_start(&scene, &alive);
    what_runs_is_mended_at_once(&scene, &alive);
    what_nobody_saw_is_mended_by_the_next_supervisor(&scene, &alive);
    scene.sh("touch /run/over");
    scene.answered("through", &alive);
    the_host_boots_and_goes_on(scene);
}

#[test]
fn the_incident_is_mended_under_the_systemd_of_bullseye() {
    replayed("bullseye");
}

#[test]
fn the_incident_is_mended_under_the_systemd_of_bookworm() {
    replayed("bookworm");
}

#[test]
fn the_incident_is_mended_under_the_systemd_of_trixie() {
    replayed("trixie");
}

#[test]
fn the_incident_is_mended_under_the_systemd_of_sid() {
    replayed("sid");
}
