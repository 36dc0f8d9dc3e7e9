//! The incident that sidle exists for, replayed on a booted host: a month in which systemd's own cleaner takes from `/var/tmp` what nobody opened,
//! and a stamp that stays. First the real salt-ssh beside a store at its place, then a store that was forced to the same bad place. The agent is
//! the real minion under the newest systemd, and the demonstration agent under the oldest, whose suite's C library is older than the one that the trees
//! here are built against. Under those between is the cleaner alone.
//!
//! What is in a month: from systemd 252 on the cleaner goes by the time of the last change alone, which a test sets back by years. systemd 247
//! (bullseye) knows no such rule: there all three times count, of which nobody can set the inode's, and a month is two real seconds.

use crate::support::boot::{Machine, Made};
use crate::support::eventually;
use crate::support::ssh::{Preflight, SaltSsh, Target};
use crate::support::stage::{Author, DEMO, SALT};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

mod demonstration;
mod minion;

/// What salt-ssh unpacks for root, and what it believes for ever.
const THIN: &str = "/var/tmp/.root_*_salt";
const STAMP: &str = "code-checksum";
/// Where a store was forced to.
const FORCED: &str = "/var/tmp/sidle";
/// Inside: a list of files.
const LIST: &str = "srv/list";

/// A booted host with two releases, of which the first one runs.
struct Site {
    suite: &'static str,
    package: &'static str,
    machine: Machine,
}

/// The agent and its supervisor, as they were before all that.
#[derive(Debug, Clone, PartialEq)]
struct Alive {
    agent: Option<u64>,
    supervisor: String,
}

impl Site {
    /// A host that has booted; its agent isn't there yet.
    fn new(suite: &'static str, package: &'static str, author: &Author, bundles: &[PathBuf]) -> Self {
        let machine = Machine::of(Made { suite, package, shares_network: true }, author, bundles);
        // What is found is found by the watch and before a start, not by a scrub or a rehearsal.
        let settings = "probation = \"1s\"\nstart_timeout = \"60s\"\nstop_timeout = \"2s\"\nscrub_every = \"0s\"\nrehearsal = \"off\"\n";
        fs::write(machine.path("etc/sidle/sidle.toml"), settings).unwrap();
        let age = if suite == "bullseye" { "2s" } else { "mM:30d" };
        fs::write(machine.path("etc/tmpfiles.d/tmp.conf"), format!("q /var/tmp 1777 root root {age}\n")).unwrap();
        Self { suite, package, machine }
    }

    /// What a script prints, which must succeed.
    fn sh(&self, script: &str) -> String {
        self.machine.inside(&["sh", "-ec", script])
    }

    /// A command that must end with this exit code; what it says.
    fn exits(&self, code: u32, command: &str) -> String {
        self.sh(&format!("code=0; {command} 2>&1 || code=$?; test $code = {code} || {{ echo exit $code; exit 1; }}"))
    }

    fn unit(&self) -> String {
        format!("sidle@{}", self.package)
    }

    /// The tree of a release in the store that was forced to the bad place.
    fn forced(&self, release: &str) -> String {
        format!("{FORCED}/{}/versions/{release}", self.package)
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
        let history = self.machine.inside(&["sidle", "--json", "history", self.package]);
        let history: Value = serde_json::from_str(&history).unwrap();
        let all = history["incidents"].as_array().unwrap();
        all.iter().filter(|incident| incident["release"] == release).cloned().collect()
    }

    /// Whether a release's files are what was signed: all of them are hashed.
    fn is_whole(&self, release: &str) -> Result<(), String> {
        match self.machine.try_inside(&["sidle", "verify", self.package, release, "--full"]) {
            (true, _) => Ok(()),
            (false, said) => Err(said),
        }
    }

    /// Writes a list for scripts: a file a line.
    fn list(&self, files: &[impl AsRef<str>]) {
        let lines: Vec<&str> = files.iter().map(AsRef::as_ref).collect();
        fs::write(self.machine.path(LIST), lines.join("\n")).unwrap();
    }

    /// Deletes these files of a release in the bad place.
    fn lose(&self, release: &str, files: &[impl AsRef<str>]) {
        self.list(files);
        self.sh(&format!("cd {}; xargs -d '\\n' rm </{LIST}", self.forced(release)));
    }

    /// Whether these files of a release in the bad place are there: a look that costs nothing, before all of the release is hashed.
    fn are_there(&self, release: &str, files: &[impl AsRef<str>]) -> Result<(), String> {
        let tree = self.machine.path(self.forced(release).trim_start_matches('/'));
        let missing = files.iter().map(AsRef::as_ref).find(|file| !tree.join(file).exists());
        missing.map_or(Ok(()), |file| Err(format!("{file} is missing")))
    }

    /// A month in which only these are used, and the cleaning at its end.
    fn month_passes(&self, used: &[impl AsRef<str>]) {
        self.list(used);
        self.sh("find /var/tmp /opt/sidle/ -exec touch -h -d 2020-01-01 {} +");
        self.sh(&format!("xargs -d '\\n' touch -d tomorrow </{LIST}"));
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

    /// The way to it that salt-ssh takes.
    fn reached_by_salt_ssh(&self, version: &str) -> SaltSsh {
        SaltSsh::new(version, Target::Inside(&self.machine))
    }

    /// The store goes where the month harms it; the release runs from there.
    fn store_is_forced_below_var_tmp(&self, release: &str) {
        let unit = self.unit();
        self.sh(&format!("systemctl stop {unit}; mv /opt/sidle {FORCED}; ln -s {FORCED} /opt/sidle"));
        self.sh(&format!("systemctl start {unit}"));
        self.machine.serves(release);
    }

    /// What was deleted of the release that runs is there again, by the watch alone, and the same process goes on.
    fn was_mended_at_once(&self, release: &str, lost: &[impl AsRef<str>], alive: &Alive) {
        eventually(30, "the running tree is whole again", || {
            self.are_there(release, lost)?;
            self.is_whole(release)
        });
        eventually(20, "it is remembered", || {
            let incidents = self.incidents(release);
            let seen = incidents.iter().filter(|one| one["occasion"] == "watch" && one["left"] == 0);
            let mended: u64 = seen.filter_map(|one| one["mended"].as_u64()).sum();
            if mended == lost.len() as u64 { Ok(()) } else { Err(format!("{incidents:?}")) }
        });
        assert_eq!(self.alive(), *alive);
    }

    /// What is deleted while there is no supervisor is seen by the next one, which takes the agent over.
    fn what_nobody_saw_is_mended_by_the_next_supervisor(&self, release: &str, lost: &[impl AsRef<str>], alive: &Alive) {
        self.sh(&format!("kill -KILL {}", alive.supervisor));
        self.lose(release, lost);
        eventually(30, "another supervisor has mended the running tree", || {
            self.are_there(release, lost)?;
            self.is_whole(release)?;
            self.machine.agent().map(drop).ok_or_else(|| "no agent".to_owned())
        });
        let again = self.alive();
        assert!(again.agent == alive.agent && again.supervisor != alive.supervisor, "{again:?}, and before {alive:?}");
    }
}

/// The control, and beside it a store at its place, in which `releases` lie.
fn salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched(site: &Site, ssh: &SaltSsh, releases: [&str; 2]) {
    let (alive, files) = (site.alive(), site.files("/opt/sidle"));
    // Calls read the stamp, the configuration and Python's bytecode.
    let thin = site.sh(&format!("echo {THIN}")).trim().to_owned();
    let used = site.sh(&format!("find {thin} -name '*.pyc'; find {thin} -maxdepth 1 -type f"));
    site.month_passes(&used.lines().collect::<Vec<_>>());

    let [stamp, source] = [STAMP, "pyall/salt/exceptions.py"].map(|file| {
        let path = Path::new(&thin).join(file);
        site.machine.path(path.strip_prefix("/").unwrap().to_str().unwrap())
    });
    let left = || (stamp.exists(), source.exists());
    assert_eq!(left(), (true, false), "the cleaner took the stamp, or left the sources");
    // As often as one likes: the stamp says that all is well.
    for _ in 0..2 {
        let said = ssh.fails();
        assert!(said.contains("No module named 'salt."), "{said}");
        assert_eq!(left(), (true, false), "salt-ssh has noticed");
    }
    ssh.answers(Preflight::Ours);
    assert_eq!(left(), (true, true), "it was not deployed anew");
    ssh.answers(Preflight::None);

    assert_eq!(site.files("/opt/sidle"), files, "the store was touched");
    for release in releases {
        site.is_whole(release).unwrap();
        assert_eq!(site.incidents(release), Vec::<Value>::new());
    }
    assert_eq!(site.alive(), alive);
}

#[test]
fn the_incident_is_mended_under_the_systemd_of_bullseye() {
    demonstration::replayed("bullseye");
}

#[test]
fn what_the_systemd_of_bookworm_cleans_is_noticed() {
    demonstration::cleaned("bookworm");
}

#[test]
fn what_the_systemd_of_trixie_cleans_is_noticed() {
    demonstration::cleaned("trixie");
}

#[test]
fn the_incident_is_mended_under_a_real_minion_and_the_systemd_of_sid() {
    minion::replayed("sid", ["3006.30", "3008.5"], "3008.5");
}

#[test]
fn a_deaf_minion_is_brought_back_by_systemctl_restart_under_the_systemd_of_sid() {
    minion::moved("sid", "3006.30");
}
