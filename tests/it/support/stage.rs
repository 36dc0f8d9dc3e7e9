//! A stage for the demonstration agent: an author's key and repository, a private root, and the real program.

use super::eventually;
use super::leftovers;
use super::mounts::Mounted;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The program under test.
pub const SIDLE: &str = env!("CARGO_BIN_EXE_sidle");
/// The demonstration agent's package, and its default instance.
pub const DEMO: &str = "demo-agent";

/// The Salt minion's package, and its default instance.
pub const SALT: &str = "salt-minion";
/// The same under the names of Uyuni's bundle.
pub const VENV_SALT: &str = "venv-salt-minion";

/// An author's key and repository, and the bundles exported from it.
pub struct Author {
    directory: TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; None: killed by a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The output of a command that must have succeeded.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The output of a `--json` command.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

/// Runs the program with these arguments and variables; what it prints with `--json` is as its schema says.
pub fn sidle(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output =
        Command::new(SIDLE).args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let ran = Ran {
        code: output.status.code().filter(|_| output.status.signal().is_none()),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    super::schema::check(arguments, &ran.stdout);
    ran
}

/// What `sidle upgrade sidle` leaves where the program was: a link, to a program that is another than the formula's. Gives both.
pub fn upgraded_by_itself(work: &Path) -> (PathBuf, PathBuf) {
    let (program, release) = (work.join("linked-sidle"), work.join("opt/sidle/sidle/current/bin/sidle"));
    fs::create_dir_all(release.parent().unwrap()).unwrap();
    fs::copy(SIDLE, &release).unwrap();
    fs::OpenOptions::new().append(true).open(&release).unwrap().write_all(b"+").unwrap();
    symlink(&release, &program).unwrap();
    (program, release)
}

/// A path of a test as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are text")
}

impl Author {
    /// A key and an empty repository.
    pub fn new() -> Self {
        let author = Self { directory: tempfile::Builder::new().prefix("author").tempdir().unwrap() };
        sidle(&["key", "new", text(&author.key())], &[]).ok();
        sidle(&["repo", "init", text(&author.repository()), "--key", text(&author.key())], &[]).ok();
        author
    }

    /// One whose key and repository lie here already.
    pub fn of(directory: TempDir) -> Self {
        Self { directory }
    }

    /// Where all that is the author's lies.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The one key of the repository.
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    pub fn repository(&self) -> PathBuf {
        self.directory.path().join("repository")
    }

    /// Packs a release of the demonstration agent that behaves so, and exports it.
    pub fn release(&self, version: &str, behaviour: &str) -> PathBuf {
        self.packed(version, behaviour, |recipe| recipe)
    }

    /// A good release with more in its tree.
    pub fn release_with(&self, version: &str, more: impl FnOnce(&Path)) -> PathBuf {
        let tree = self.tree(version, "good");
        more(&tree);
        self.packed_from(version, &tree, |recipe| recipe)
    }

    /// A good release whose guard was tried with another version of the agent.
    pub fn untried(&self, version: &str) -> PathBuf {
        self.packed(version, "good", |recipe| {
            recipe.replace("[guard]\nprotocol = 1\n", "[guard]\nprotocol = 1\ntried = [\"9\"]\n")
        })
    }

    /// A good release without a guard.
    pub fn unguarded(&self, version: &str) -> PathBuf {
        self.packed(version, "good", |recipe| recipe.replace("[guard]\nprotocol = 1\n", ""))
    }

    /// A good release that needs this glibc, or a newer one.
    pub fn needing_glibc(&self, version: &str, glibc: &str) -> PathBuf {
        let needs = format!("[requires]\nglibc = \"{glibc}\"\n");
        self.packed(version, "good", |recipe| recipe.replace("[requires]\n", &needs))
    }

    /// A good release that needs more memory for two than any host has.
    pub fn ravenous(&self, version: &str) -> PathBuf {
        let (usual, all) = ("overlap_memory_bytes = 4194304", "overlap_memory_bytes = 1152921504606846976");
        self.packed(version, "good", |recipe| recipe.replace(usual, all))
    }

    /// A good release under the name of another package.
    pub fn posing(&self, package: &str, version: &str) -> PathBuf {
        let own = format!("package = \"{DEMO}\"");
        self.packed(version, "good", |recipe| recipe.replace(&own, &format!("package = \"{package}\"")))
    }

    /// A release that calls itself a minion's. Its Python is none: whatever it is asked, it prints `answer` in the configuration directory.
    pub fn posing_as_minion(&self, version: &str) -> PathBuf {
        self.posing_as_minion_with(version, "cat \"$5/answer\"")
    }

    /// The same with this script as its Python.
    pub fn posing_as_minion_with(&self, version: &str, script: &str) -> PathBuf {
        let packed = self.directory.path().join(format!("{DEMO}-{version}.sidle"));
        if packed.exists() {
            return packed;
        }
        let tree = self.tree(version, "good");
        let python = tree.join("bin/python3");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        self.packed_from(version, &tree, |recipe| recipe.replace("agent = \"demo\"", "agent = \"salt\""))
    }

    /// A release that calls itself a minion's, prints its environment and ends. The recipe sets these variables.
    pub fn printing_its_environment(&self, version: &str, environment: &str) -> PathBuf {
        let tree = self.tree(version, "good");
        fs::write(tree.join("bin/demo-agent"), "#!/bin/sh\nexec /usr/bin/env -0\n").unwrap();
        self.packed_from(version, &tree, |recipe| {
            let recipe = recipe.replace("agent = \"demo\"", "agent = \"salt\"");
            recipe.replace("environment = {}", &format!("environment = {{ {environment} }}"))
        })
    }

    /// A good release whose rehearsal says this.
    pub fn refused(&self, version: &str, rehearsal: &str) -> PathBuf {
        let tree = self.tree(version, "good");
        fs::write(tree.join("share/demo-agent/rehearsal"), format!("{rehearsal}\n")).unwrap();
        self.packed_from(version, &tree, |recipe| recipe)
    }

    fn tree(&self, version: &str, behaviour: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent");
        let tree = self.directory.path().join(format!("tree-{version}"));
        let copied = Command::new("cp").arg("-r").arg(source.join("tree")).arg(&tree).status().unwrap();
        assert!(copied.success());
        fs::write(tree.join("share/demo-agent/release"), format!("{version}\n")).unwrap();
        fs::write(tree.join("share/demo-agent/behaviour"), format!("{behaviour}\n")).unwrap();
        tree
    }

    fn packed(&self, version: &str, behaviour: &str, change: impl FnOnce(String) -> String) -> PathBuf {
        let tree = self.tree(version, behaviour);
        self.packed_from(version, &tree, change)
    }

    fn packed_from(&self, version: &str, tree: &Path, change: impl FnOnce(String) -> String) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent");
        let bundle = self.directory.path().join(format!("{DEMO}-{version}.sidle"));
        let recipe = self.directory.path().join(format!("{version}.toml"));
        fs::write(&recipe, change(fs::read_to_string(source.join("demo-agent.toml")).unwrap())).unwrap();
        let key = self.key();
        let repository = self.repository();
        let arguments =
            ["pack", text(&recipe), "--version", version, "--tree", text(tree), "--repo", text(&repository)];
        sidle(&[&arguments[..], &["--key", text(&key), "--output", text(&bundle)]].concat(), &[]).ok();
        bundle
    }

    /// Packs a real Salt minion from a tree that was built already, and exports it; once.
    pub fn salt(&self, version: &str) -> PathBuf {
        let packed = self.directory.path().join(format!("{SALT}-{version}.sidle"));
        if packed.exists() { packed } else { self.salt_from(version, &super::salt::tree(version)) }
    }

    /// The same from another tree.
    pub fn salt_from(&self, version: &str, tree: &Path) -> PathBuf {
        self.minion_from(SALT, version, tree)
    }

    /// The same as Uyuni's package of that name.
    pub fn venv_salt(&self, version: &str) -> PathBuf {
        let tree = self.directory.path().join(format!("{VENV_SALT}-tree-{version}"));
        super::salt::copy_renamed(&super::salt::tree(version), &tree, Some(VENV_SALT));
        self.minion_from(VENV_SALT, version, &tree)
    }

    fn minion_from(&self, package: &str, version: &str, tree: &Path) -> PathBuf {
        let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/salt-minion");
        let recipe = recipes.join(format!("{package}.toml"));
        let bundle = self.directory.path().join(format!("{package}-{version}.sidle"));
        let (key, repository) = (self.key(), self.repository());
        let what = ["pack", text(&recipe), "--version", version, "--tree", text(tree), "--level", "1"];
        let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
        sidle(&[&what[..], &to[..]].concat(), &[]).ok();
        bundle
    }

    /// The fingerprint of the first root.
    pub fn fingerprint(&self) -> String {
        let root = fs::read(self.repository().join("metadata/1.root.json")).unwrap();
        sidle::digest::Digest::of(&root).to_string()
    }
}

/// A private root that trusts an author. The fields go in this order: what is mounted on the root, the root.
pub struct Host {
    over: Option<Over>,
    directory: TempDir,
}

/// A root that others have, too, and where the changes of one's own go.
struct Over {
    _mounted: Mounted,
    _changes: TempDir,
}

impl Host {
    /// A root with short times and the author's root pinned.
    pub fn new(author: &Author) -> Self {
        Self::trusting(&author.repository().join("metadata/1.root.json"), &author.fingerprint())
    }

    /// The same with this root.
    pub fn trusting(root: &Path, fingerprint: &str) -> Self {
        let host = Self::bare();
        for directory in ["etc/sidle/conf.d", "etc/demo-agent"] {
            fs::create_dir_all(host.path(directory)).unwrap();
        }
        fs::write(host.path("etc/sidle/sidle.toml"), SETTINGS).unwrap();
        host.sidle(&["trust", "pin", text(root), "--fingerprint", fingerprint]).ok();
        host
    }

    /// An empty root.
    pub fn bare() -> Self {
        Self { over: None, directory: tempfile::Builder::new().prefix("host").tempdir().unwrap() }
    }

    /// A root with what lies in `shared`, which nothing changes: what this host changes is its own. Needs root.
    pub fn over(shared: &Path) -> Self {
        let mut host = Self::bare();
        let changes = tempfile::Builder::new().prefix("changes").tempdir().unwrap();
        let mounted = Mounted::overlay_at(&host.root(), shared, changes.path());
        host.over = Some(Over { _mounted: mounted, _changes: changes });
        host
    }

    /// Another root with the same content. Nothing may be running on this one.
    pub fn copy(&self) -> Self {
        self.copy_to(&std::env::temp_dir())
    }

    /// The same below a directory.
    pub fn copy_to(&self, place: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("host").tempdir_in(place).unwrap();
        let from = self.directory.path().join(".");
        assert!(Command::new("cp").arg("-a").arg(from).arg(directory.path()).status().unwrap().success());
        Self { over: None, directory }
    }

    /// The root itself.
    pub fn root(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// A path below the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    /// Runs the program on this root.
    pub fn sidle(&self, arguments: &[&str]) -> Ran {
        self.sidle_with(arguments, &[])
    }

    /// The same with variables.
    pub fn sidle_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        sidle(&[&["--root", text(self.directory.path())], arguments].concat(), variables)
    }

    /// Installs a bundle.
    pub fn install(&self, bundle: &Path) -> Ran {
        self.sidle(&["install", text(bundle)])
    }

    /// Starts a supervisor and waits until it listens.
    pub fn supervise(&self) -> Supervisor {
        self.supervise_instance(DEMO)
    }

    /// The same for another package's default instance.
    pub fn supervise_instance(&self, instance: &str) -> Supervisor {
        self.supervise_instance_by(Path::new(SIDLE), instance, &[])
    }

    /// The same with another copy of the program, and variables in its environment.
    pub fn supervise_instance_by(&self, program: &Path, instance: &str, variables: &[(&str, &str)]) -> Supervisor {
        let path = self.path("run/sidle").join(instance).join("control");
        let made =
            || fs::symlink_metadata(&path).ok().map(|socket| (socket.ino(), socket.ctime(), socket.ctime_nsec()));
        // That of a killed supervisor is there, too.
        let before = made();
        let supervisor = self.supervisor_by(program, instance, variables);
        eventually(20, "the supervisor listens", || match made() {
            Some(socket) if before != Some(socket) => Ok(()),
            _ => Err(supervisor.log()),
        });
        supervisor
    }

    /// Starts a supervisor with variables in its environment.
    pub fn supervise_with(&self, variables: &[(&str, &str)]) -> Supervisor {
        self.supervisor_of(DEMO, variables)
    }

    /// The same with another copy of the program.
    pub fn supervise_by(&self, program: &Path) -> Supervisor {
        self.supervise_instance_by(program, DEMO, &[])
    }

    fn supervisor_of(&self, instance: &str, variables: &[(&str, &str)]) -> Supervisor {
        self.supervisor_by(Path::new(SIDLE), instance, variables)
    }

    fn supervisor_by(&self, program: &Path, instance: &str, variables: &[(&str, &str)]) -> Supervisor {
        let log = self.path("supervisor.log");
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(program);
        command.arg("--root").arg(self.directory.path()).args(["supervise", instance]).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Supervisor { child: command.spawn().unwrap(), log }
    }

    /// What `current` names; None: there is no such link. Its target is whole.
    pub fn current(&self) -> Option<String> {
        let target = fs::read_link(self.path("opt/sidle/demo-agent/current")).ok()?;
        let release = target.strip_prefix("versions").expect("it points into versions").to_str().unwrap().to_owned();
        let verified = self.sidle(&["verify", DEMO, &release, "--full"]);
        assert_eq!(verified.code, Some(0), "current is not whole: {verified:?}");
        Some(release)
    }

    /// The status of the default instance.
    pub fn status(&self) -> Value {
        self.sidle(&["--json", "status", "--no-trees", DEMO]).json()["instances"][0].clone()
    }

    /// Gives the agent a job: a shell script.
    pub fn job(&self, name: &str, script: &str) {
        let jobs = self.path("etc/demo-agent/state/jobs");
        fs::create_dir_all(&jobs).unwrap();
        fs::write(jobs.join(format!(".{name}")), script).unwrap();
        fs::rename(jobs.join(format!(".{name}")), jobs.join(name)).unwrap();
    }

    /// Waits until a job runs.
    pub fn running(&self, name: &str) {
        let file = self.path("etc/demo-agent/state/running").join(name);
        eventually(20, "the job runs", || if file.exists() { Ok(()) } else { Err("not yet".to_owned()) });
    }

    /// Waits until the live switch is in this phase.
    pub fn reaches(&self, phase: &str) {
        eventually(20, &format!("the switch is in {phase}"), || match self.status() {
            status if status["switch"]["phase"] == phase => Ok(()),
            status => Err(status.to_string()),
        });
    }

    /// The last switch that ended, as the history has it.
    pub fn last(&self) -> Value {
        let history = self.sidle(&["--json", "history", DEMO]).json();
        history["switches"].as_array().unwrap().last().unwrap().clone()
    }

    /// Waits until a job is done; gives `exit`, `release` and `pid`.
    pub fn done(&self, name: &str) -> BTreeMap<String, String> {
        let path = self.path("etc/demo-agent/state/done").join(name);
        let text = eventually(30, &format!("job {name} is done"), || {
            fs::read_to_string(&path).map_err(|error| error.to_string())
        });
        text.lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// Does a job now and gives the release that did it.
    pub fn answering(&self, name: &str) -> String {
        self.job(name, "true");
        let done = self.done(name);
        assert_eq!(done["exit"], "0");
        done["release"].clone()
    }

    /// The pids of the agents that run from this root's trees (their shells' scripts lie there).
    pub fn agents(&self) -> Vec<u32> {
        let marker = format!("{}/opt/sidle/", text(self.directory.path()));
        let processes = sidle::os::proc_fs::all().unwrap().into_iter().filter(sidle::os::proc_fs::Process::is_alive);
        let is_leader = |pid: u32| {
            let variable = |name| sidle::os::proc_fs::environment_variable(pid, name).ok().flatten();
            let command = sidle::os::proc_fs::command_line(pid).ok().flatten().unwrap_or_default();
            command.iter().any(|word| word.starts_with(&marker))
                && variable("SIDLE_LEADER").is_some_and(|leader| *leader == *pid.to_string())
        };
        processes.map(|process| process.pid).filter(|pid| is_leader(*pid)).collect()
    }
}

/// A host on which releases 1.0 and 1.1 are installed.
pub fn two_releases() -> (Host, Author) {
    let author = Author::new();
    let (old, new) = (author.release("1.0", "good"), author.release("1.1", "good"));
    let host = Host::new(&author);
    host.install(&old).ok();
    host.install(&new).ok();
    (host, author)
}

/// The whole command line of a process, with blanks between its words.
pub fn command_of(pid: u32) -> String {
    sidle::os::proc_fs::command_line(pid).ok().flatten().unwrap_or_default().join(" ")
}

impl Drop for Host {
    fn drop(&mut self) {
        leftovers::kill(self.directory.path());
    }
}

/// Short times, so that tests need no patience.
const SETTINGS: &str = "probation = \"300ms\"\nstart_timeout = \"8s\"\nstop_timeout = \"4s\"\nrestart_pause = \"100ms\"\nrestart_pause_limit = \"1s\"\n";

/// A running supervisor; ended with its agent when dropped.
pub struct Supervisor {
    child: Child,
    log: PathBuf,
}

impl Supervisor {
    /// What supervisors of this root have printed.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: sidle::os::process::SignalNumber) {
        let identity = sidle::os::process::Identity::of(self.child.id()).unwrap().expect("the supervisor lives");
        assert!(identity.signal(signal).unwrap());
    }

    /// Kills it where it is still there, and waits for nothing that it has started.
    pub fn abandon(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// True once it is gone.
    pub fn is_gone(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Tells it to end and waits; gives its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.terminate()
    }

    fn terminate(&mut self) -> Option<i32> {
        if self.child.try_wait().unwrap().is_none() {
            let identity = sidle::os::process::Identity::of(self.child.id()).unwrap();
            if let Some(identity) = identity {
                identity.signal(sidle::os::process::SignalNumber::TERM).unwrap();
            }
        }
        let child = &mut self.child;
        eventually(20, "the supervisor ends", || match child.try_wait().unwrap() {
            Some(status) => Ok(status.code()),
            None => Err("it lives".to_owned()),
        })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon();
        } else {
            self.terminate();
        }
    }
}
