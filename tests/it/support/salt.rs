//! A real Salt master on loopback and real minions, each in a private root that goes away with it.

use super::keys;
use super::leftovers;
use super::ports::Ports;
use super::programs::{Begun, Programs};
use super::shared;
use super::stage::text;
use super::{crowded, eventually};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use sidle::agent::{Activity, Agent as _, AgentSettings, Answers, Health, Subject};
use sidle::digest::Digest;
use sidle::os::proc_fs;
use sidle::os::process::{self, Identity, SignalNumber};
use sidle::rehearsal::Part;
use sidle::salt::SaltMinion;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Starting Salt on a busy machine with two cores.
pub const START_SECONDS: u64 = 90;

/// Lines of the configuration of a master and of a minion: a key of Salt's default length takes a second of the processor to make, this a tenth.
/// `scripts/quickstart` leaves Salt its own.
pub const SHORT_KEY: &str = "keysize: 2048\n";

/// Lines of a master's configuration: each worker loads all modules, and all grains, which take longest, unless they are kept.
const FRUGAL: &str = "worker_threads: 1\ngrains_cache: True\n";

/// The master's configuration, the minion, seconds, and a list of calls in JSON: an answer a line.
const CALLS: &str = "import json, sys
import salt.client, salt.utils.args
client = salt.client.LocalClient(sys.argv[1])
for words in json.loads(sys.argv[4]):
    given = salt.utils.args.parse_input(words[1:])
    print(repr(client.cmd(sys.argv[2], words[0], given, timeout=int(sys.argv[3]))))
";

/// Publishes `test.ping` again and again until each of these minions has returned one; says who has not.
const HEARS: &str = "import sys, time
import salt.client
client = salt.client.LocalClient(sys.argv[1])
silent, until = set(sys.argv[3:]), time.monotonic() + float(sys.argv[2])
while silent and time.monotonic() < until:
    try:
        job = client.run_job(sorted(silent), 'test.ping', tgt_type='list')
    except Exception as error:
        print(error, file=sys.stderr)
        job = None
    again = time.monotonic() + 3
    while silent and time.monotonic() < again:
        if job:
            silent -= set(client.get_cache_returns(job['jid']))
        time.sleep(0.1)
if silent:
    sys.exit('no answer of ' + ', '.join(sorted(silent)))
";

const LOOPBACK: &str = "127.0.0.1";

/// The tree of a Salt version, as `scripts/trees` keeps it: built if it isn't there.
pub fn tree(version: &str) -> PathBuf {
    kept(version, &[])
}

/// The same without a guard, as a distribution's package brings it.
pub fn packaged_tree(version: &str) -> PathBuf {
    kept(version, &["--without-guard"])
}

/// The same from this machine's Python of a minor version, such as `3.10`: for what differs between two Pythons.
pub fn tree_of_python(version: &str, python: &str) -> PathBuf {
    made(version, &[], &[("SIDLE_PYTHON", &format!("host:{python}"))])
}

/// The same from the portable Python that the recipe takes for this version; compiled once, which takes minutes of one processor: the others are for
/// other tests.
pub fn portable_tree(version: &str) -> PathBuf {
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).expect("this thread runs on one"));
    // What a thread starts inherits it.
    sched_setaffinity(None, &one).unwrap();
    let tree = made(version, &[], &[("SIDLE_PYTHON", "portable")]);
    sched_setaffinity(None, &all).unwrap();
    tree
}

/// False: Salt of this version cannot run on any Python that is here. A tree that cannot be built for another reason fails the test.
pub fn runs_here(version: &str) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/trees");
    let output = Command::new(script).arg(version).output().expect("scripts/trees starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || said.contains("cannot run on Python"), "scripts/trees {version}: {said}");
    output.status.success()
}

/// Who runs the tests: masters, and minions that are nobody else's.
pub fn own_user() -> String {
    process::user_name(process::user())
}

/// Asked once: the script reads all of the builder to find a tree's place.
static KEPT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());

fn kept(version: &str, options: &[&str]) -> PathBuf {
    let mut all = KEPT.lock().unwrap();
    all.entry(format!("{version} {options:?}")).or_insert_with(|| made(version, options, &[])).clone()
}

/// The script reads all of the builder to tell where a tree is: that is kept for the other tests of a run.
fn made(version: &str, options: &[&str], variables: &[(&str, &str)]) -> PathBuf {
    let Some(shared) = shared() else { return ask_for(version, options, variables) };
    let told = Digest::of(format!("{version} {options:?} {variables:?}").as_bytes()).to_string();
    let told = shared.join(format!("tree-{}", &told[..16]));
    if let Ok(tree) = fs::read_to_string(&told) {
        return PathBuf::from(tree);
    }
    let tree = ask_for(version, options, variables);
    let own = told.with_extension(std::process::id().to_string());
    fs::write(&own, text(&tree)).unwrap();
    fs::rename(own, told).unwrap();
    tree
}

fn ask_for(version: &str, options: &[&str], variables: &[(&str, &str)]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/trees");
    let output = Command::new(script)
        .args(options)
        .arg(version)
        .envs(variables.iter().copied())
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/trees starts");
    assert!(output.status.success(), "scripts/trees {version} failed");
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(format!("salt-{version}"))
}

/// Copies a tree; `name`: what Salt's own directories are called then (/etc/NAME and so on).
pub fn copy_renamed(tree: &Path, copy: &Path, name: Option<&str>) {
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    // No hard links: making and removing them changes the ctime of files that another test may be packing.
    assert!(Command::new("cp").args(["-a", "--reflink=auto"]).arg(tree).arg(copy).status().unwrap().success());
    let Some(name) = name else { return };
    // As `build-tree --paths` does.
    let builder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/salt-minion");
    let code = "import pathlib, sys\nsys.path.insert(0, sys.argv[1])\nfrom builder import commands\n\
        commands.write_syspaths(pathlib.Path(sys.argv[2]), sys.argv[3])\n";
    let mut python = Command::new("python3");
    let named = python.args(["-B", "-c", code]).arg(builder).arg(copy).arg(name).status().unwrap();
    assert!(named.success());
}

/// Copies a tree and changes a line of one of Salt's own files, such as `minion.py`: what is packed of it is another release.
pub fn copy_changed(tree: &Path, copy: &Path, file: &str, (line, other): (&str, &str)) {
    copy_renamed(tree, copy, None);
    let path = copy.join("lib/python3.11/site-packages/salt").join(file);
    let whole = fs::read_to_string(&path).unwrap();
    assert!(whole.contains(line), "Salt has another form: {line}");
    fs::write(&path, whole.replace(line, other)).unwrap();
    // What was compiled would be taken for what is changed: its times are not compared.
    let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
    for entry in fs::read_dir(path.with_file_name("__pycache__")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{stem}.")) {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// A process with all that descends from it; ends with the test.
pub struct Tree {
    pub child: Child,
}

impl Tree {
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let log = fs::File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { child: command.env("PYTHONDONTWRITEBYTECODE", "1").process_group(0).spawn().expect("it starts") }
    }

    fn end(&mut self) {
        kill_all(self.child.id());
        let _ = self.child.wait();
    }
}

/// A process and all below it.
fn all_of(leader: u32) -> Vec<Identity> {
    let below = proc_fs::descendants(leader).unwrap_or_default();
    let all = below.iter().map(|process| process.pid).chain([leader]);
    all.filter_map(|pid| Identity::of(pid).ok().flatten()).collect()
}

fn signal_all(leader: u32, signal: SignalNumber) {
    for identity in all_of(leader) {
        identity.signal(signal).unwrap();
    }
}

fn kill_all(leader: u32) {
    let mut all = Vec::new();
    // Twice: a process may have forked between the look and the signal.
    for _ in 0..2 {
        all = all_of(leader);
        for identity in &all {
            let _ = identity.signal(SignalNumber::STOP);
        }
    }
    for identity in &all {
        let _ = identity.signal(SignalNumber::KILL);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end();
    }
}

/// A master.
pub struct Master {
    root: TempDir,
    process: Option<Begun>,
    /// What speaks to it, and starts it.
    pub programs: Arc<Programs>,
    ports: Arc<Ports>,
    /// Where it listens, on loopback.
    pub address: &'static str,
}

/// What a program needs that works on a master's own files beside it.
#[derive(Clone)]
pub struct MasterPlace {
    /// The Python of its tree.
    pub python: PathBuf,
    /// Its configuration file.
    pub configuration: PathBuf,
    /// Its cache, with the job cache in it.
    pub cache: PathBuf,
}

/// How a runner is called, so that it says its answer and nothing else.
const AS_JSON: [&str; 4] = ["--out", "json", "-l", "error"];

impl Master {
    /// Starts a master of the tree on two neighbouring free ports.
    pub fn start(tree: &Path, accept: bool) -> Self {
        Self::start_with(tree, accept, "")
    }

    /// The same with more lines of its configuration.
    pub fn start_with(tree: &Path, accept: bool, options: &str) -> Self {
        Self::with_keys(Arc::new(Programs::of(tree)), (accept, options), LOOPBACK, Arc::new(Ports::take()), None)
    }

    /// Starts another master with the same keys, as a minion of several masters wants it: it remembers one key for all.
    pub fn start_twin(&self) -> Self {
        self.start_twin_at(LOOPBACK)
    }

    /// The same at another address of loopback. A minion sends what two masters of one name are to get to both of them.
    pub fn start_twin_at(&self, address: &'static str) -> Self {
        Self::with_keys(Arc::clone(&self.programs), (true, ""), address, Arc::new(Ports::take()), Some(&self.keys()))
    }

    /// The same on this one's ports: a minion that fails over looks for its master by one port for all.
    pub fn start_heir_at(&self, address: &'static str) -> Self {
        Self::with_keys(Arc::clone(&self.programs), (true, ""), address, Arc::clone(&self.ports), Some(&self.keys()))
    }

    /// Another master, with keys of its own.
    pub fn start_at(other: &Self, address: &'static str) -> Self {
        Self::with_keys(Arc::clone(&other.programs), (true, ""), address, Arc::new(Ports::take()), None)
    }

    /// The same with more lines of its configuration.
    pub fn start_twin_with(&self, address: &'static str, options: &str) -> Self {
        Self::with_keys(
            Arc::clone(&self.programs),
            (true, options),
            address,
            Arc::new(Ports::take()),
            Some(&self.keys()),
        )
    }

    /// The same, at which a person has to accept each key.
    pub fn start_stern_twin_at(&self, address: &'static str) -> Self {
        Self::with_keys(Arc::clone(&self.programs), (false, ""), address, Arc::new(Ports::take()), Some(&self.keys()))
    }

    /// `salt-run` on this master with these words, in JSON.
    pub fn salt_run(&self, words: &[&str]) -> Command {
        let place = self.place();
        let enter = "import sys\nsys.argv[0] = 'salt-run'\nimport salt.scripts\nsalt.scripts.salt_run()\n";
        let mut command = Command::new(&place.python);
        command.args(["-E", "-s", "-B", "-c", enter, "-c"]).arg(place.configuration.parent().unwrap());
        command.args(AS_JSON).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// What a function of a runner gives.
    pub fn runner(&self, words: &[&str]) -> Value {
        let configuration = self.place().configuration;
        let where_it_is = ["-c", configuration.parent().unwrap().to_str().unwrap()];
        let (status, said, errors) = self.programs.salt_run(&[&where_it_is[..], &AS_JSON, words].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: exit {status}: {said}\n{errors}"))
    }

    /// The directory of its keys.
    pub fn keys(&self) -> PathBuf {
        self.root.path().join("keys")
    }

    fn with_keys(
        programs: Arc<Programs>,
        (accept, options): (bool, &str),
        address: &'static str,
        ports: Arc<Ports>,
        keys: Option<&Path>,
    ) -> Self {
        let root = tempfile::Builder::new().prefix("m").tempdir().unwrap();
        let text = format!(
            "root_dir: {}\ninterface: {address}\npublish_port: {}\nret_port: {}\nauto_accept: {}\nuser: {}\n\
             {FRUGAL}{SHORT_KEY}log_level: warning\npki_dir: {}\nfile_roots: {{base: [{}]}}\n{options}",
            root.path().display(),
            ports.first(),
            ports.second(),
            if accept { "True" } else { "False" },
            own_user(),
            root.path().join("keys").display(),
            root.path().join("files").display(),
        );
        fs::create_dir(root.path().join("files")).unwrap();
        fs::create_dir(root.path().join("keys")).unwrap();
        match keys {
            None => keys::put(&root.path().join("keys"), "master"),
            Some(others) => {
                for name in ["master.pem", "master.pub"] {
                    fs::copy(others.join(name), root.path().join("keys").join(name)).unwrap();
                }
            }
        }
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/master"), text).unwrap();
        let mut master = Self { root, process: None, programs, ports, address };
        master.start_again();
        master
    }

    /// Starts it (again) on its configuration, keys and cache.
    pub fn start_again(&mut self) {
        self.process = Some(self.programs.master(&self.root.path().join("etc"), &self.root.path().join("out")));
        eventually(START_SECONDS, "the master listens", || {
            let both = [self.publish_port(), self.request_port()];
            let refused = both.into_iter().find_map(|port| TcpStream::connect((self.address, port)).err());
            refused.map_or(Ok(()), |error| Err(format!("{error}\n{}", self.log())))
        });
    }

    /// Where its minions hear of jobs.
    pub fn publish_port(&self) -> u16 {
        self.ports.first()
    }

    /// Where they sign in, and return.
    pub fn request_port(&self) -> u16 {
        self.ports.second()
    }

    /// What it has written.
    pub fn log(&self) -> String {
        let own = fs::read_to_string(self.root.path().join("var/log/salt/master")).unwrap_or_default();
        fs::read_to_string(self.root.path().join("out")).unwrap_or_default() + &own
    }

    pub fn place(&self) -> MasterPlace {
        MasterPlace {
            python: self.programs.python().to_owned(),
            configuration: self.root.path().join("etc/master"),
            cache: self.root.path().join("var/cache/salt/master"),
        }
    }

    /// Where its files are that its minions can ask for.
    pub fn files(&self) -> PathBuf {
        self.root.path().join("files")
    }

    /// Writes a file that its minions can ask for: `salt://name`.
    pub fn file(&self, name: &str, content: &str) {
        let path = self.root.path().join("files").join(name);
        fs::create_dir_all(path.parent().expect("it is below the files")).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Takes such a file away again.
    pub fn remove_file(&self, name: &str) {
        fs::remove_file(self.root.path().join("files").join(name)).unwrap();
    }

    /// Publishes a job and gives its answer, once it is there.
    pub fn call(&self, minion: &str, arguments: &[&str]) -> String {
        self.call_within("60", minion, arguments)
    }

    /// The same with another patience, in seconds.
    pub fn call_within(&self, seconds: &str, minion: &str, arguments: &[&str]) -> String {
        self.salt(&[&["--out=txt", "-t", seconds, minion], arguments].concat()).1
    }

    /// Publishes jobs one after the other, each with this patience in seconds: their answers, without a new program for each.
    pub fn calls(&self, seconds: u32, minion: &str, calls: &[&[&str]]) -> Vec<String> {
        let (configuration, patience) = (self.root.path().join("etc/master"), seconds.to_string());
        let calls_told = serde_json::to_string(calls).unwrap();
        let (status, said, errors) = self.programs.code(CALLS, &[text(&configuration), minion, &patience, &calls_told]);
        let answers: Vec<String> = said.lines().map(str::to_owned).collect();
        assert_eq!(answers.len(), calls.len(), "exit {status}: {said}\n{errors}");
        answers
    }

    /// Waits until these minions answer. A minion that does not listen yet misses a job, and `salt` waits a minute for what never comes.
    pub fn hears(&self, minions: &[&str]) {
        let (configuration, patience) = (self.root.path().join("etc/master"), crowded(START_SECONDS).to_string());
        let words = [&[text(&configuration), &patience][..], minions].concat();
        let (status, _, errors) = self.programs.code(HEARS, &words);
        assert_eq!(status, 0, "{errors}\n{}", self.log());
    }

    /// Publishes a job and waits for nothing; gives its id.
    pub fn publish(&self, target: &str, arguments: &[&str]) -> String {
        let (status, said) = self.salt(&[&["--async", target], arguments].concat());
        let jid = said.trim().rsplit(' ').next().filter(|word| word.len() == 20 && status == 0);
        jid.unwrap_or_else(|| panic!("{status}: {said}")).to_owned()
    }

    fn salt(&self, arguments: &[&str]) -> (i32, String) {
        let configuration = self.root.path().join("etc");
        self.programs.salt(&[&["-c", configuration.to_str().unwrap()], arguments].concat())
    }

    /// Accepts a minion's key, which must have come already.
    pub fn accept(&self, minion: &str) {
        let keys = self.keys();
        let waiting = keys.join("minions_pre").join(minion);
        eventually(START_SECONDS, "the key waits at the master", || {
            fs::rename(&waiting, keys.join("minions").join(minion)).map_err(|error| error.to_string())
        });
    }

    /// Sends a signal to each of its processes.
    pub fn signal(&self, signal: SignalNumber) {
        signal_all(self.process.as_ref().and_then(Begun::pid).expect("it lives"), signal);
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        if let Some(leader) = self.process.take().as_ref().and_then(Begun::pid) {
            kill_all(leader);
        }
        leftovers::kill(self.root.path());
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A minion.
pub struct Minion {
    root: TempDir,
    tree: PathBuf,
    process: Option<Tree>,
    /// By how much its clock is off, as faketime reads it.
    clock: Option<&'static str>,
}

impl Minion {
    /// Starts a minion of the tree; `options` are lines of its configuration.
    pub fn start(tree: &Path, id: &str, options: &str) -> Self {
        Self::with_keys(tree, id, options, None)
    }

    /// Starts another minion with the same keys, as nobody should.
    pub fn start_twin(&self, id: &str, options: &str) -> Self {
        Self::with_keys(&self.tree, id, options, Some(&self.path("keys")))
    }

    fn with_keys(tree: &Path, id: &str, options: &str, keys: Option<&Path>) -> Self {
        let root = tempfile::Builder::new().prefix("s").tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        if let Some(keys) = keys {
            let copied = Command::new("cp").arg("-a").arg(keys).arg(root.path().join("keys")).status().unwrap();
            assert!(copied.success());
        } else {
            keys::put(&root.path().join("keys"), "minion");
        }
        // Salt refuses a key that is there twice.
        let mine = if options.contains("mine_enabled:") { "" } else { "mine_enabled: False\n" };
        let short = if options.contains("keysize:") { "" } else { SHORT_KEY };
        let text = format!(
            "root_dir: {}\npki_dir: /keys\nid: {id}\nuser: root\nlog_level: info\n{short}{mine}{options}",
            root.path().display()
        );
        fs::write(root.path().join("etc/minion"), text).unwrap();
        let mut minion = Self { root, tree: tree.to_owned(), process: None, clock: None };
        minion.start_again();
        minion
    }

    /// Starts it (again) on its configuration and cache.
    pub fn start_again(&mut self) {
        self.process = None;
        let program = self.tree.join("bin/salt-minion");
        let mut command = Command::new(if self.clock.is_some() { Path::new("faketime") } else { &program });
        if let Some(clock) = self.clock {
            command.args(["-m", "-f", clock]).arg(&program).env("DONT_FAKE_MONOTONIC", "1");
        }
        command.arg("-c").arg(self.root.path().join("etc"));
        self.process = Some(Tree::start(&mut command, &self.root.path().join("out")));
    }

    /// The same with a clock that is off by so much.
    pub fn start_with_clock(&mut self, clock: Option<&'static str>) {
        self.clock = clock;
        self.start_again();
    }

    /// The same on another tree, as after a package's upgrade.
    pub fn upgrade(&mut self, tree: &Path) {
        tree.clone_into(&mut self.tree);
        self.start_again();
    }

    /// Ends it as a service manager does that speaks to the first process only: SIGTERM, and after `seconds` SIGKILL.
    pub fn terminate(&mut self, seconds: u64) {
        let child = &mut self.process.as_mut().expect("it was started").child;
        let leader = Identity::of(child.id()).unwrap().expect("the minion lives");
        leader.signal(SignalNumber::TERM).unwrap();
        let end = Instant::now() + Duration::from_secs(seconds);
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it as a crash would, and takes its exit status.
    pub fn end(&mut self) {
        self.process = None;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn leader(&self) -> Identity {
        let pid = self.process.as_ref().expect("it was started").child.id();
        Identity::of(pid).unwrap().expect("the minion lives")
    }

    /// Sends a signal to each of its processes.
    pub fn signal(&self, signal: SignalNumber) {
        signal_all(self.process.as_ref().expect("it was started").child.id(), signal);
    }

    pub fn observer(&self) -> SaltMinion {
        let part = Part { tree: self.tree.clone(), environment: Vec::new() };
        let state = self.path("state");
        fs::create_dir_all(&state).unwrap();
        SaltMinion::new(&AgentSettings::new(&self.path("etc")).asking(part, Answers::Kept(state)))
    }

    /// Waits until every master is proven.
    pub fn healthy(&self) {
        eventually(START_SECONDS, "the minion is healthy", || match self.health().lacks(&[]) {
            None => Ok(()),
            Some(missing) => Err(missing),
        });
    }

    pub fn health(&self) -> Health {
        self.observer().health(Subject::unguarded(&self.leader()))
    }

    pub fn activity(&self) -> Activity {
        self.observer().activity(Subject::unguarded(&self.leader()))
    }

    /// Waits until it is idle.
    pub fn idle(&self, seconds: u64) {
        eventually(seconds, "the minion is idle", || match self.activity() {
            Activity::Idle => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Waits until a job blocks that does `what`; gives all that block then.
    pub fn busy_with(&self, what: &str) -> Vec<sidle::agent::Job> {
        eventually(30, &format!("the minion is busy with {what}"), || match self.activity() {
            Activity::Busy(jobs) if jobs.iter().any(|job| job.what.contains(what)) => Ok(jobs),
            other => Err(format!("{other:?}")),
        })
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("out")).unwrap_or_default()
            + &fs::read_to_string(self.path("var/log/salt/minion")).unwrap_or_default()
    }
}

impl Drop for Minion {
    fn drop(&mut self) {
        self.process = None;
        // Jobs outlive a minion that was killed or told to end, by half a minute where 3007 is done with them.
        leftovers::kill(self.root.path());
    }
}
