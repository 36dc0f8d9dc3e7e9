//! A scene for switches of a real minion: a master, a host under sidle with releases of Salt on it, and marks of every execution.

use super::eventually;
use super::keys;
use super::leftovers;
use super::minions;
use super::mounts::Mounted;
use super::salt::{Master, Minion, Tree, own_user, runs_here, tree};
use super::stage::{Author, Host, Ran, SALT, SIDLE, Supervisor, VENV_SALT};
use super::stream::{Marks, Plan, Report, Stream, TICKS, calibrate};
use serde_json::Value;
use sidle::os::process::SignalNumber;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The newest release that is tested: masters run it, since a master may be newer than its minions, but not older.
pub const MASTER: &str = "3008.5";

/// Short times, but such as a real minion on a crowded machine can keep. A rehearsal loads all of Salt twice, which takes longer than the rest of a
/// switch: scenes that are about one ask for it.
const SETTINGS: &str = "start_timeout = \"180s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\nrestart_pause = \"1s\"\njob_splay = \"0s\"\n\
    rehearsal = \"off\"\nrehearsal_timeout = \"240s\"\n";

/// The release that carries least: it keeps the process of each job for half a minute after the job returned, and these processes cost
/// time. Measured on two cores: at 5 jobs a second it falls behind without end, where its neighbours answer within 0.1 s.
const SLOWEST: &str = "3007.17";

/// What is tried, in jobs a second. At 5 a second 3007.17 needs more than two cores, and half a minute to recover.
pub const RATES: [f64; 2] = [2.0, 1.0];

/// The minion's id.
pub const ID: &str = "stream";

/// Where a scene's other masters are.
const ADDRESSES: [&str; 2] = ["127.0.0.2", "127.0.0.3"];

/// What a scene has.
pub struct Wanted<'a> {
    /// The minion's package, and its default instance.
    pub package: &'static str,
    /// Whom the minion gives up root for; without root it stays who it is.
    pub user: &'a str,
    /// Installed; the first one runs.
    pub releases: &'a [&'a str],
    /// They are this host's alone, not other tests', too: it removes some. (The kernel does not rename a shared directory.)
    pub own_releases: bool,
    /// The release of the masters.
    pub master: &'a str,
    /// How many masters, all hot; up to three.
    pub masters: usize,
    /// Options of a file system in memory that is the host's /run.
    pub run: Option<&'a str>,
    /// More settings of sidle.
    pub settings: &'a str,
    /// More lines of the minion's configuration.
    pub options: &'a str,
    /// More lines of its schedule, indented.
    pub schedule: &'a str,
    /// The supervisor runs a program of its own, which `Scene::renew` replaces.
    pub own_program: bool,
    /// A line of the configuration of minion and master: `transport: tcp`.
    pub transport: &'a str,
    /// The minion listens to the first of its masters that answers (`master_type: failover`).
    pub failover: bool,
    /// The first master's name, in a file of host names that is the supervisor's and the minion's own: see `Scene::name_hosts`.
    pub named: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// One master and these releases.
    pub fn of(releases: &'a [&'a str]) -> Self {
        Self {
            package: SALT,
            user: "root",
            releases,
            own_releases: false,
            master: MASTER,
            masters: 1,
            run: None,
            settings: "",
            options: "",
            schedule: "",
            transport: "",
            own_program: false,
            failover: false,
            named: None,
        }
    }
}

/// The name of a package's directories: /etc/NAME and so on.
fn name_of(package: &str) -> &str {
    if package == SALT { "salt" } else { package }
}

/// The gate of its default instance.
fn gate_of(host: &Host, package: &str) -> PathBuf {
    host.path("run/sidle").join(package).join("gate")
}

/// A host with a running minion. The fields go in this order: first the agent, last what it speaks to.
pub struct Scene {
    supervisor: Option<Supervisor>,
    /// The minion's package, and its default instance.
    pub package: &'static str,
    _run: Option<Mounted>,
    pub host: Host,
    pub marks: Marks,
    pub masters: Vec<Master>,
    pub author: Author,
    /// How many of the masters the minion listens to at the start.
    heard: usize,
}

impl Scene {
    /// Installs these releases, and starts the first one; ready when the minion answers.
    pub fn new(releases: &[&str]) -> Self {
        Self::with(&Wanted::of(releases))
    }

    /// The same with more.
    pub fn with(wanted: &Wanted<'_>) -> Self {
        let scene = Self::idle(wanted);
        scene.run(wanted.releases[0]);
        scene
    }

    /// Starts this release as the first one; it answers then.
    pub fn run(&self, release: &str) {
        let begun = self.switch(&[&format!("{release}-1"), "--mode", "idle"]);
        assert_eq!(begun.code, Some(0), "{begun:?}\n{}", self.logs());
        self.answers();
        self.marks.started(1);
    }

    /// The same, but nothing runs yet, though a supervisor does.
    pub fn idle(wanted: &Wanted<'_>) -> Self {
        // Two trees are sooner there than three.
        // Where the oldest of all releases cannot run, it cannot be built either.
        let few = wanted.releases == minions::LONG_TERM
            || (!wanted.releases.contains(&minions::LONG_TERM[0]) && !runs_here(minions::LONG_TERM[0]));
        let author = if few { minions::author_of(wanted.releases) } else { minions::author() };
        let mut all = vec![Master::start_with(&tree(wanted.master), true, wanted.transport)];
        for address in ADDRESSES.iter().take(wanted.masters.saturating_sub(1)) {
            all.push(if wanted.failover { all[0].start_heir_at(address) } else { all[0].start_twin_at(address) });
        }
        let is_venv = wanted.package == VENV_SALT;
        let installs = wanted.own_releases || is_venv;
        let host = if installs { Host::new(&author) } else { minions::host(&author, wanted.releases) };
        let mut marks = Marks::new();
        let place = host.path("etc").join(name_of(wanted.package));
        fs::create_dir_all(place.join("minion.d")).unwrap();
        fs::write(host.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
        fs::write(host.path("etc/sidle/conf.d/test.toml"), wanted.settings).unwrap();
        let mut configuration = format!(
            "id: {ID}\nuser: {}\nroot_dir: {}\nlog_level_logfile: info\n{}{}",
            wanted.user,
            host.path("").display(),
            marks.configuration(&all.iter().collect::<Vec<_>>()),
            // The schedule is the last of what is marked.
            [wanted.schedule, wanted.options, wanted.transport].concat(),
        );
        if wanted.failover {
            let port = all[0].publish_port();
            let lines = ["master_type: failover", "master_alive_interval: 5", &format!("publish_port: {port}"), ""];
            configuration.push_str(&lines.join("\n"));
        }
        if let Some(name) = wanted.named {
            configuration =
                configuration.replace(&format!("master: {}\n", all[0].address), &format!("master: {name}\n"));
        }
        fs::write(place.join("minion"), configuration).unwrap();
        if wanted.user == own_user() {
            keys::put(&place.join("pki/minion"), "minion");
        }
        if installs {
            for release in wanted.releases {
                host.install(&if is_venv { author.venv_salt(release) } else { author.salt(release) }).ok();
            }
        }
        if wanted.user != own_user() {
            // Temporary directories are their owner's alone.
            for (path, mode) in [(host.path(""), 0o755), (marks.directory.path().to_owned(), 0o777)] {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            }
            // The package makes it, and gives it to the user: Salt itself would make it for root alone.
            let logs = host.path("var/log").join(name_of(wanted.package));
            fs::create_dir_all(&logs).unwrap();
            chown(logs, sidle::os::process::user_number(wanted.user), None).unwrap();
        }
        fs::create_dir_all(host.path("run")).unwrap();
        let run = wanted.run.map(|options| Mounted::tmpfs_at(&host.path("run"), options));
        let heard = if wanted.failover { 1 } else { all.len() };
        let package = wanted.package;
        marks.watch(&gate_of(&host, package));
        let mut scene = Self { supervisor: None, package, _run: run, host, marks, masters: all, author, heard };
        let supervisor = match wanted.named {
            Some(name) => {
                scene.name_hosts(&[name]);
                scene.host.supervise_instance_by(&scene.program_with_own_hosts(), package, &[])
            }
            None if wanted.own_program => {
                scene.put_program();
                scene.host.supervise_instance_by(&scene.program(), package, &[])
            }
            None => scene.host.supervise_instance(package),
        };
        scene.supervisor = Some(supervisor);
        scene
    }

    /// Names the first master's address, and nothing else.
    pub fn name_hosts(&self, names: &[&str]) {
        let mut lines =
            names.iter().map(|name| format!("{} {name}", self.masters[0].address)).collect::<Vec<_>>().join("\n");
        lines.push('\n');
        // Into the same file: it is mounted.
        fs::write(self.host.path("hosts"), lines).unwrap();
    }

    /// Starts sidle where `/etc/hosts` is the file of `name_hosts`.
    fn program_with_own_hosts(&self) -> PathBuf {
        let path = self.host.path("with-own-hosts");
        let inner = format!("mount --bind {} /etc/hosts && exec {SIDLE} \"$@\"", self.host.path("hosts").display());
        fs::write(&path, format!("#!/bin/sh\nexec unshare --mount sh -c '{inner}' sh \"$@\"\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Ends the supervisor with its agent.
    pub fn stop(mut self) -> Self {
        assert_eq!(self.supervisor.take().expect("it runs").end(), Some(0), "{}", self.logs());
        self
    }

    /// Ends the supervisor as a crash does.
    pub fn kill(&mut self) {
        self.supervisor.take().expect("it runs").kill();
    }

    /// The same, and starts it again.
    pub fn crash(&mut self) {
        self.crash_into(&[]);
    }

    /// The same; the next one has these variables in its environment.
    pub fn crash_into(&mut self, variables: &[(&str, &str)]) {
        self.kill();
        self.supervisor = Some(self.host.supervise_instance_by(Path::new(SIDLE), self.package, variables));
    }

    /// Gives it other settings of the test's: a supervisor reads them at its start.
    pub fn set(&mut self, settings: &str) {
        fs::write(self.host.path("etc/sidle/conf.d/test.toml"), settings).unwrap();
        self.crash();
    }

    /// The one that runs.
    pub fn supervisor(&self) -> &Supervisor {
        self.supervisor.as_ref().expect("it runs")
    }

    fn program(&self) -> PathBuf {
        self.host.path("sidle-program")
    }

    fn put_program(&self) {
        let new = self.host.path("sidle-program.new");
        fs::copy(SIDLE, &new).unwrap();
        fs::rename(&new, self.program()).unwrap();
    }

    /// Puts another program in place, and has the supervisor become it.
    pub fn renew(&self) {
        let supervisor = self.supervisor();
        let link = format!("/proc/{}/exe", supervisor.pid());
        self.put_program();
        assert_ne!(fs::read_link(&link).unwrap(), self.program(), "the file was replaced");
        supervisor.signal(SignalNumber::HUP);
        eventually(20, "the supervisor is the new program", || match fs::read_link(&link) {
            Ok(program) if program == self.program() => Ok(()),
            other => Err(format!("{other:?} {}", supervisor.log())),
        });
    }

    /// Ends the supervisor with its agent, and starts it again, as a boot does.
    pub fn boot(&mut self) {
        assert_eq!(self.supervisor.take().expect("it runs").end(), Some(0), "{}", self.logs());
        self.supervisor = Some(self.host.supervise_instance(self.package));
        self.answers();
        self.marks.started(2);
        self.marks.booted(1);
    }

    /// The only master, or the first.
    pub fn master(&self) -> &Master {
        &self.masters[0]
    }

    /// Waits until the minion answers every master that it listens to at the start.
    pub fn answers(&self) {
        for master in &self.masters[..self.heard] {
            master.hears(&[ID]);
        }
    }

    /// The minion's configuration directory.
    pub fn configuration(&self) -> PathBuf {
        self.host.path("etc").join(name_of(self.package))
    }

    /// `sidle switch salt-minion …`
    pub fn switch(&self, arguments: &[&str]) -> Ran {
        self.verb("switch", arguments)
    }

    /// `sidle VERB salt-minion …`
    pub fn verb(&self, verb: &str, arguments: &[&str]) -> Ran {
        self.host.sidle(&[&[verb, self.package], arguments].concat())
    }

    /// Begins a stream from every master that the minion listens to at the start.
    pub fn stream(&self, plan: &Plan) -> Stream {
        Stream::begin(ID, &self.marks, &self.masters[..self.heard].iter().collect::<Vec<_>>(), plan)
    }

    /// A stream from one of the masters.
    pub fn stream_from(&self, master: usize, plan: &Plan) -> Stream {
        Stream::begin(ID, &self.marks, &[&self.masters[master]], plan)
    }

    /// The highest of `rates` that a minion of the slowest release carries on this machine, without sidle and beside an idle scene; and its report
    /// at it.
    pub fn calibrate(&self, rates: &[f64]) -> (f64, Report) {
        let marks = Marks::new();
        let _minion = Minion::start(&tree(SLOWEST), "calibration", &(marks.configuration(&[self.master()]) + TICKS));
        marks.started(1);
        calibrate("calibration", &marks, &[self.master()], rates)
    }

    /// Starts a second minion on the same configuration, as a package's unit or a formula does, without sidle; its exit code, or None if it runs on.
    pub fn second_minion(&self, version: &str, patience: Duration) -> Option<i32> {
        let mut command = Command::new(tree(version).join("bin/salt-minion"));
        let mut second = Tree::start(command.arg("-c").arg(self.configuration()), &self.host.path("second"));
        let end = Instant::now() + patience;
        loop {
            match second.child.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() > end => return None,
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// What `sidle status` says about the instance.
    pub fn status(&self) -> Value {
        self.host.sidle(&["--json", "status", "--no-trees", self.package]).json()["instances"][0].clone()
    }

    /// The phase of the switch that is under way; None: there is none. From the journal: a status looks at every file of the release, which a test that
    /// waits has no need of.
    pub fn phase(&self) -> Option<String> {
        let journal = self.host.path("var/lib/sidle/instances").join(self.package).join("journal");
        // Before the first switch there is none.
        let journal: Value = serde_json::from_slice(&fs::read(journal).ok()?).unwrap();
        journal["live"]["phase"].as_str().map(str::to_owned)
    }

    /// What `sidle history` says, the last switch first.
    pub fn history(&self) -> Vec<Value> {
        let history = self.host.sidle(&["--json", "history", self.package]).json();
        history["switches"].as_array().unwrap().iter().rev().cloned().collect()
    }

    /// What the supervisor has written.
    pub fn supervisor_log(&self) -> String {
        self.supervisor.as_ref().map(Supervisor::log).unwrap_or_default()
    }

    /// What the supervisor and the minion have written, and the gate as it is, for a failure's story.
    pub fn logs(&self) -> String {
        let gate = gate_of(&self.host, self.package);
        let slots = fs::read_dir(gate.join("slots")).into_iter().flatten().flatten().map(|entry| entry.path());
        let minion = self.host.path("var/log").join(name_of(self.package)).join("minion");
        let files = slots.chain([gate.join("roles"), minion]);
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let told = files.map(|path| format!("--- {}\n{}\n", path.display(), text(&path)));
        let masters = self.masters.iter().map(|master| format!("--- master {}\n{}\n", master.address, master.log()));
        self.supervisor_log() + &told.chain(masters).collect::<String>()
    }
}

/// A test that fails tells what everybody wrote, or nobody knows why. A minion takes ten seconds to end as it should, which other tests look
/// at: here all are killed, before what they have open is unmounted.
impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        if let Some(supervisor) = self.supervisor.as_mut() {
            supervisor.abandon();
        }
        leftovers::kill(&self.host.root());
    }
}
