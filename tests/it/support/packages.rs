//! A host that boots and has its minion from a package, as distributions build them; a master outside it; a stream of jobs from there.

use super::boot::{ALL_PACKAGE_MANAGERS, Machine, Made};
use super::eventually;
use super::minions;
use super::salt::{Master, START_SECONDS, packaged_tree, tree};
use super::scene::{ID, MASTER};
use super::stage::{Author, SALT, text};
use super::stream::{Marks, Plan, Stream};
use sidle::os::proc_fs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the package brings.
pub const OLD: &str = "3006.30";
/// What sidle runs.
pub const NEW: &str = "3007.17";
/// The package's unit.
pub const UNIT: &str = "salt-minion.service";

/// Inside the host: where packages lie.
const PLACE: &str = "srv/packages";
const SETTINGS: &str = "start_timeout = \"180s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\nrestart_pause = \"1s\"\n";

/// A kind of package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Deb,
    Rpm,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }

    /// Installs a package, or upgrades to it.
    fn install(self, package: &str) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Deb => &["dpkg", "-i"],
            Self::Rpm => &["rpm", "-U", "--nodeps"],
        };
        words.iter().copied().chain([package]).map(str::to_owned).collect()
    }

    fn remove(self) -> [&'static str; 3] {
        match self {
            Self::Deb => ["dpkg", "-r", SALT],
            Self::Rpm => ["rpm", "-e", SALT],
        }
    }
}

/// The host. The fields go in this order: the minion before its master.
pub struct PackagedHost {
    pub kind: Kind,
    pub marks: Marks,
    pub machine: Machine,
    pub master: Master,
    pub author: Author,
}

/// Runs a script of this project; gives what it prints.
pub fn script(path: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    let output = command.args(arguments).env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
    assert!(output.status.success(), "{path} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl PackagedHost {
    /// A booted host on which the package's minion answers, a release is installed, and a supervisor has nothing to run.
    pub fn new(kind: Kind) -> Self {
        Self::with_master(kind, "")
    }

    /// The same with more lines of the master's configuration.
    pub fn with_master(kind: Kind, options: &str) -> Self {
        let suite = if kind == Kind::Deb { "bookworm" } else { ALL_PACKAGE_MANAGERS };
        let host = Self::without_package(kind, suite, NEW, options);
        let package = host.package("1");
        host.install(&package);
        host.answers(OLD);
        host.marks.started(1);
        host
    }

    /// The same before the package is there, with this release.
    pub fn without_package(kind: Kind, suite: &'static str, release: &str, options: &str) -> Self {
        let author = minions::author();
        let master = Master::start_with(&tree(MASTER), true, options);
        let made = Made { suite, package: SALT, shares_network: true };
        let mut machine = Machine::of(made, &author, &[author.salt(release)]);
        fs::create_dir(machine.path(PLACE)).unwrap();
        let marks = Marks::below(&machine.path(""), &machine.path("srv"));
        fs::write(machine.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
        fs::create_dir_all(machine.path("etc/salt/minion.d")).unwrap();
        let own = format!("id: {ID}\nuser: root\nlog_level_logfile: info\n{}", marks.configuration(&[&master]));
        fs::write(machine.path("etc/salt/minion.d/test.conf"), own).unwrap();
        machine.boot();
        Self { kind, marks, machine, master, author }
    }

    pub fn outside(&self) -> PathBuf {
        self.machine.path(PLACE)
    }

    pub fn inside(built: &str) -> String {
        format!("/{PLACE}/{}", Path::new(built).file_name().unwrap().to_str().unwrap())
    }

    /// Builds the package with this revision; gives its path inside.
    pub fn package(&self, revision: &str) -> String {
        let (tree, output) = (packaged_tree(OLD), self.outside());
        let arguments = [self.kind.name(), text(&tree), OLD, revision, text(&output)];
        Self::inside(&script("tests/it/support/packaged/build", &arguments))
    }

    /// Builds the package that takes its place; gives its path inside.
    pub fn shim(&self, release: &str) -> String {
        let output = self.outside();
        let what = [self.kind.name(), "--name", SALT, "--version", OLD, "--release", release];
        Self::inside(&script("packaging/shim/build", &[&what[..], &["--output", text(&output)]].concat()))
    }

    /// Makes a repository for apt of the debs.
    pub fn index(&self) {
        let mut command = Command::new("dpkg-scanpackages");
        let output = command.args(["--multiversion", "."]).current_dir(self.outside()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(self.outside().join("Packages"), output.stdout).unwrap();
    }

    /// Installs or upgrades; gives what the package manager says.
    pub fn install(&self, package: &str) -> String {
        let words = self.kind.install(package);
        self.machine.inside(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Removes the package.
    pub fn remove(&self) -> String {
        self.machine.inside(&self.kind.remove())
    }

    /// The main process of the package's unit, as the inside numbers it; 0: none.
    pub fn unit(&self, property: &str) -> String {
        self.machine.inside(&["systemctl", "show", "--value", "--property", property, UNIT]).trim().to_owned()
    }

    /// The minion's version, as its master learns it.
    pub fn version(&self) -> String {
        self.master.call(ID, &["test.version"])
    }

    /// Waits until a minion of this version answers.
    pub fn answers(&self, version: &str) {
        self.master.hears(&[ID]);
        eventually(START_SECONDS, &format!("{version} answers"), || {
            match self.master.call_within("10", ID, &["test.version"]) {
                answer if answer.contains(version) => Ok(()),
                answer => Err(format!("{answer}\n{}", self.logs())),
            }
        });
    }

    /// Begins a stream of jobs.
    pub fn stream(&self, rate: f64) -> Stream {
        self.stream_of(&Plan::of(rate))
    }

    /// Begins this stream of jobs.
    pub fn stream_of(&self, plan: &Plan) -> Stream {
        Stream::begin(ID, &self.marks, &[&self.master], plan)
    }

    /// Lets sidle take the minion over.
    pub fn adopt(&self) {
        let told = self.machine.try_inside(&["sidle", "adopt", SALT]);
        assert!(told.0, "{}\n{}", told.1, self.logs());
        assert_eq!(self.state(), ["active", "enabled"], "the name of the package's unit");
    }

    /// Whether the package's unit counts as running, and as started by a boot.
    pub fn state(&self) -> [String; 2] {
        ["is-active", "is-enabled"].map(|verb| self.machine.try_inside(&["systemctl", verb, UNIT]).1.trim().to_owned())
    }

    /// First processes of minions: those whose parent is no minion.
    pub fn minions(&self) -> usize {
        let root = self.machine.path("");
        let is_minion = |pid: u32| {
            let command = proc_fs::command_line(pid).ok().flatten().unwrap_or_default();
            let here = fs::read_link(format!("/proc/{pid}/root")).is_ok() && same_root(pid, &root);
            here && command.iter().any(|word| word.contains("/bin/salt-minion"))
        };
        let all = proc_fs::all().unwrap().into_iter().filter(proc_fs::Process::is_alive);
        all.filter(|process| is_minion(process.pid) && !is_minion(process.parent)).count()
    }

    /// What there is to tell of a failure.
    pub fn logs(&self) -> String {
        let minion = fs::read_to_string(self.machine.path("var/log/salt/minion")).unwrap_or_default();
        let journal = self.machine.try_inside(&["journalctl", "--no-pager", "-n", "60"]).1;
        let last: Vec<&str> = minion.lines().rev().take(60).collect();
        format!("{}\n{journal}", last.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

/// Whether a process has this directory as its root.
fn same_root(pid: u32, root: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let its = fs::metadata(format!("/proc/{pid}/root/srv/packages"));
    let ours = fs::metadata(root.join(PLACE));
    matches!((its, ours), (Ok(its), Ok(ours)) if (its.dev(), its.ino()) == (ours.dev(), ours.ino()))
}
