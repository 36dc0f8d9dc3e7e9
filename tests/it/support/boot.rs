//! A root file system of a Debian suite, booted by its own systemd in namespaces of its own: services, stops, power cuts. A machine that can't
//! do that fails the test.

use super::eventually;
use super::mounts::Mounted;
use super::release::release_file;
use super::salt::START_SECONDS;
use super::stage::{Author, DEMO, Ran, sidle, text};
use serde_json::Value;
use sidle::os::proc_fs;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// The unit of the demonstration agent.
pub const UNIT: &str = "sidle@demo-agent.service";
/// Inside the root: sidle's own package.
pub const PACKAGE: &str = "srv/sidle.deb";

/// What salt-ssh wants to find: its tree has no Python of its own, and it asks for `scp` before it sends one.
const REACHED_BY_SALT_SSH: &str = "openssh-client+python3";
/// Suites whose own Python trees are built with, and what that takes.
const BUILDS_TREES: [&str; 2] = ["trixie", "sid"];
const BUILDS: &str = "python3-pip+python3-venv";

/// A suite with RPM's package managers beside Debian's own.
pub const ALL_PACKAGE_MANAGERS: &str = "bookworm+rpm+dnf+zypper+createrepo-c+debsums";

/// What a machine is made of.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    /// The suite, perhaps with packages beside systemd: `bookworm+rpm`.
    pub suite: &'static str,
    /// The package whose default instance its service runs.
    pub package: &'static str,
    /// It shares this machine's loopback, where a master listens.
    pub shares_network: bool,
}

/// A root that can be booted, and is, until its power is cut.
pub struct Machine {
    made: Made,
    running: Option<Running>,
    root: Mounted,
    directory: TempDir,
}

struct Running {
    outer: Child,
    init: u32,
    group: PathBuf,
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "this test needs root, namespaces and mounts: {command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The file that holds a suite's root, made if it isn't there. What is in it is what `scripts/roots` makes when it is not told what to make.
pub fn archive(suite: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/roots");
    let suite = match suite {
        _ if suite.contains('+') => suite.to_owned(),
        _ if BUILDS_TREES.contains(&suite) => format!("{suite}+{REACHED_BY_SALT_SSH}+{BUILDS}"),
        _ => format!("{suite}+{REACHED_BY_SALT_SSH}"),
    };
    let output = Command::new(script).arg(&suite).stderr(Stdio::inherit()).output().expect("scripts/roots starts");
    assert!(output.status.success(), "scripts/roots {suite} failed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// The cgroup v2 hierarchy's directory of this process.
fn own_group() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let point = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
    let point = point.expect("this test needs a cgroup v2 hierarchy")[1].to_owned();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).expect("a process is in the v2 hierarchy");
    Path::new(&point).join(path)
}

impl Machine {
    /// A root of `suite` with the program, its unit, and these releases of the demonstration agent; not booted yet.
    pub fn new(suite: &'static str, author: &Author, bundles: &[PathBuf]) -> Self {
        Self::of(Made { suite, package: DEMO, shares_network: false }, author, bundles)
    }

    /// The same of something else.
    pub fn of(made: Made, author: &Author, bundles: &[PathBuf]) -> Self {
        let machine = Self::unpacked(made);
        machine.furnish();
        for directory in ["etc/sidle/conf.d", "etc/demo-agent"] {
            fs::create_dir_all(machine.path(directory)).unwrap();
        }
        let metadata = author.repository().join("metadata/1.root.json");
        machine.outside(&["trust", "pin", text(&metadata), "--fingerprint", &author.fingerprint()]).ok();
        for bundle in bundles {
            machine.outside(&["install", text(bundle)]).ok();
        }
        machine
    }

    /// A root of `suite` that has nothing of sidle.
    pub fn bare(suite: &'static str) -> Self {
        Self::unpacked(Made { suite, package: DEMO, shares_network: false })
    }

    /// The same of something else.
    pub fn unpacked(made: Made) -> Self {
        let directory = tempfile::Builder::new().prefix("machine").tempdir().unwrap();
        let point = directory.path().join("root");
        fs::create_dir(&point).unwrap();
        let root = Mounted::tmpfs_at(&point, "size=4g,mode=755");
        let machine = Self { made, running: None, root, directory };
        let archive = archive(made.suite);
        done(command("tar").args(["--zstd", "-xf", text(&archive), "-C", text(&point), "--exclude=./dev/*"]));
        // A container has no kernel of its own to load modules into, or to set the network of.
        for service in ["systemd-modules-load", "systemd-sysctl"] {
            let masked = machine.path(&format!("etc/systemd/system/{service}.service"));
            std::os::unix::fs::symlink("/dev/null", masked).unwrap();
        }
        fs::write(machine.path("etc/machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        machine
    }

    /// sidle's own package, installed by the root's dpkg: the program that runs inside is the one that is given away.
    fn furnish(&self) {
        let package = release_file("deb");
        fs::copy(&package, self.path(PACKAGE)).unwrap();
        let root = self.path("");
        done(
            command("chroot").args([text(&root), "dpkg", "--install", &format!("/{PACKAGE}")]).env("LC_ALL", "C.UTF-8"),
        );
        let wants = self.path("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink("/usr/lib/systemd/system/sidle@.service", wants.join(self.unit())).unwrap();
    }

    /// A path below the root, as this machine sees it.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    fn outside(&self, arguments: &[&str]) -> Ran {
        sidle(&[&["--root", text(&self.root.path())], arguments].concat(), &[])
    }

    /// Boots, and waits until the unit is active.
    pub fn boot(&mut self) {
        let unit = self.unit();
        self.boot_until(&["systemctl", "is-active", &unit]);
    }

    /// Boots, and waits until systemd has reached what is enabled.
    pub fn start(&mut self) {
        self.boot_until(&["systemctl", "is-active", "multi-user.target"]);
    }

    /// Boots, and waits until a command inside succeeds.
    pub fn boot_until(&mut self, words: &[&str]) {
        static BOOTS: AtomicU32 = AtomicU32::new(0);
        let number = BOOTS.fetch_add(1, Ordering::SeqCst);
        // By the directory's random name: another run may number its processes as this one does, in a namespace of its own.
        let name = self.directory.path().file_name().unwrap_or_default().to_string_lossy();
        let group = own_group().join(format!("sidle-test-{name}-{number}"));
        fs::create_dir(&group).unwrap_or_else(|error| panic!("this test needs to make {}: {error}", group.display()));
        let boot_id = format!("00000000-0000-4000-8000-{:06x}{number:06x}", std::process::id());
        let mut unshare = command("unshare");
        unshare.args(["--mount", "--uts", "--ipc", "--pid", "--cgroup", "--fork", "--kill-child"]);
        unshare.args(["--net"].iter().filter(|_| !self.made.shares_network)).args(["sh", "-c"]);
        unshare.arg(include_str!("boot.sh")).args(["boot", text(&self.root.path()), &boot_id]);
        let log = fs::File::create(self.path("boot.log")).unwrap();
        unshare.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        // The group has to be entered before the namespace is made: it is the namespace's root.
        let mut entering = command("sh");
        entering.args(["-c", "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"", "enter", text(&group)]);
        entering.arg(unshare.get_program()).args(unshare.get_args());
        let log = fs::OpenOptions::new().append(true).open(self.path("boot.log")).unwrap();
        entering.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        let mut outer = entering.spawn().unwrap();
        let log = self.path("boot.log");
        let init = eventually(10, "the first process runs systemd", || {
            let said = || fs::read_to_string(&log).unwrap_or_default();
            assert!(outer.try_wait().unwrap().is_none(), "it did not boot: {}", said());
            let children = proc_fs::children(outer.id()).unwrap();
            let init = children.first().filter(|child| proc_fs::title(child.pid).starts_with("systemd"));
            init.map(|child| child.pid).ok_or_else(said)
        });
        self.running = Some(Running { outer, init, group });
        eventually(30, "it is up", || match self.try_inside(words) {
            (true, _) => Ok(()),
            (false, said) => Err(format!("{said}; {}", fs::read_to_string(&log).unwrap_or_default())),
        });
    }

    /// Everything stops at once, and nothing is written any more.
    pub fn cut_power(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let _ = running.outer.kill();
        let _ = running.outer.wait();
        // What was in it is dead, and gone as soon as the kernel is done with it.
        for _ in 0..500 {
            if remove_groups(&running.group) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        eprintln!("still there: {}", running.group.display());
    }

    /// Its first process, as this machine numbers it.
    pub fn init(&self) -> u32 {
        self.running.as_ref().expect("it is booted").init
    }

    /// The words before a command that is to run inside.
    pub fn enter(&self) -> String {
        format!("nsenter --target {} --mount --uts --ipc --net --pid --cgroup --", self.init())
    }

    fn entering(&self, words: &[&str]) -> Command {
        let before = self.enter();
        let mut before = before.split(' ');
        let mut enter = command(before.next().expect("a program"));
        enter.args(before).args(words);
        enter.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        enter
    }

    /// Runs a command inside; gives whether it succeeded, and what it prints.
    pub fn try_inside(&self, words: &[&str]) -> (bool, String) {
        let output = self.entering(words).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Runs a command inside, which must succeed; gives what it prints.
    pub fn inside(&self, words: &[&str]) -> String {
        let (well, said) = self.try_inside(words);
        assert!(well, "{words:?}: {said}");
        said
    }

    fn unit(&self) -> String {
        format!("sidle@{}.service", self.made.package)
    }

    /// A property of the unit.
    pub fn property(&self, name: &str) -> String {
        let said = self.inside(&["systemctl", "show", "--property", name, &self.unit()]);
        said.trim().split_once('=').map(|(_, value)| value.to_owned()).unwrap_or_default()
    }

    /// The status of the agent.
    pub fn status(&self) -> Value {
        let (_, said) = self.try_inside(&["sidle", "--json", "status", "--no-trees", self.made.package]);
        serde_json::from_str::<Value>(&said).unwrap_or_else(|error| panic!("{error}: {said}"))["instances"][0].clone()
    }

    /// The pid of the agent that serves, as the inside numbers it.
    pub fn agent(&self) -> Option<u64> {
        self.status()["supervisor"]["agent"]["leader"]["pid"].as_u64()
    }

    /// Waits until a healthy agent runs this release, alone.
    pub fn serves(&self, release: &str) {
        eventually(START_SECONDS, &format!("{release} serves"), || {
            let status = self.status();
            let agent = &status["supervisor"]["agent"];
            let well = agent["release"] == release && agent["lacks"].is_null() && status["switch"].is_null();
            if well && status["current"] == release { Ok(()) } else { Err(status.to_string()) }
        });
        let listed = self.inside(&["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"]);
        assert!(listed.contains(&format!("/sidle/{}/versions/{release}/bin/", self.made.package)), "{listed}");
    }

    /// Gives the agent a job: a shell script.
    pub fn job(&self, name: &str, script: &str) {
        let jobs = self.path("etc/demo-agent/state/jobs");
        fs::create_dir_all(&jobs).unwrap();
        fs::write(jobs.join(format!(".{name}")), script).unwrap();
        fs::rename(jobs.join(format!(".{name}")), jobs.join(name)).unwrap();
        let state = self.path("etc/demo-agent/state");
        eventually(10, "the job is taken", || {
            let taken = ["running", "done"].iter().any(|place| state.join(place).join(name).exists());
            if taken { Ok(()) } else { Err("not yet".to_owned()) }
        });
    }

    /// Waits until a job has ended well; gives what it left: `exit`, `release` and `pid`.
    pub fn done(&self, name: &str) -> String {
        let path = self.path("etc/demo-agent/state/done").join(name);
        let text = eventually(30, &format!("job {name} is done"), || {
            fs::read_to_string(&path).map_err(|error| error.to_string())
        });
        assert!(text.starts_with("exit=0\n"), "{text}");
        text
    }
}

/// Removes a group and all below it; true when nothing is left.
fn remove_groups(group: &Path) -> bool {
    let Ok(entries) = fs::read_dir(group) else { return !group.exists() };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_groups(&entry.path());
    }
    fs::remove_dir(group).is_ok()
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.cut_power();
    }
}
