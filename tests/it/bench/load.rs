//! `scripts/bench load`: the load on a master while a fleet changes its release, once as a package's upgrade does, and once by a rollout.

use super::say;
use crate::support::eventually;
use crate::support::fleet::{self, Member, extension};
use crate::support::minions;
use crate::support::salt::{Master, Minion, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Host, text};
use crate::support::stream::{Marks, Plan, Report, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const OLD: &str = "3006.30";

/// As many real minions as two cores carry.
const MINIONS: usize = 16;
/// Real minions that a rollout switches at the same time.
const AT_ONCE: usize = 4;
/// So many real minions start at the same time before a measurement.
const START_AT_ONCE: usize = 4;
/// Programs that play simulated minions.
const PARTS: usize = 2;
/// Jobs a second, each to all minions.
const RATE: f64 = 0.2;
/// How long jobs are published before and after what is measured.
const AROUND_SECONDS: u64 = 15;
/// systemd's `TimeoutStopSec`, as a distribution's unit has it by default.
const STOP_SECONDS: u64 = 90;
/// For sixteen minions on two cores, or keys of hundreds.
const PATIENCE_SECONDS: u64 = 600;

/// What starts beside others takes its time. The probation is short: it costs the master one round trip in half a minute.
const SETTINGS: &str =
    "rehearsal_timeout = \"300s\"\nstart_timeout = \"120s\"\nprobation = \"300ms\"\njob_splay = \"0s\"\n";

/// A pillar of some size: each part takes a file, and a template.
const PILLAR_PARTS: usize = 10;
const PILLAR_PART: &str = "{% for number in range(30) %}\nNAME-{{ number }}: {minion: '{{ grains.id }}', list: [1, 2, 3], text: 'a value of some length'}\n{% endfor %}\n";

/// What the master did, as `load.py` counts it.
#[derive(Deserialize)]
struct Load {
    seconds: f64,
    commands: BTreeMap<String, f64>,
    requests: f64,
    own: f64,
    sign_ins: f64,
    peak: f64,
    own_peak: f64,
    sign_ins_peak: f64,
    worker_seconds: f64,
    handled_p99: Option<f64>,
    waited_p50: Option<f64>,
    waited_p99: Option<f64>,
    waited_most: Option<f64>,
    sign_in_p50: Option<f64>,
    sign_in_p99: Option<f64>,
    failed: f64,
    errors: Vec<String>,
}

impl Load {
    fn command(&self, name: &str) -> f64 {
        self.commands.get(name).copied().unwrap_or_default()
    }
}

/// A row of the table, and its value; `None`: it was not measured.
type Row = (&'static str, fn(&Load) -> Option<f64>);

const ROWS: [Row; 15] = [
    ("duration, s", |load| Some(load.seconds)),
    ("sign-ins", |load| Some(load.sign_ins)),
    ("pillars", |load| Some(load.command("_pillar"))),
    ("round trips (_file_envs)", |load| Some(load.command("_file_envs"))),
    ("returns of jobs", |load| Some(load.command("_return"))),
    ("requests", |load| Some(load.requests)),
    ("requests without jobs", |load| Some(load.own)),
    ("requests in a second, at most", |load| Some(load.peak)),
    ("the same without jobs", |load| Some(load.own_peak)),
    ("sign-ins in a second, at most", |load| Some(load.sign_ins_peak)),
    ("time of the master's workers, s", |load| Some(load.worker_seconds)),
    ("a worker's time for a request, p99, s", |load| load.handled_p99),
    ("another minion's request, p50, s", |load| load.waited_p50),
    ("the same, p99, s", |load| load.waited_p99),
    ("the same, at most, s", |load| load.waited_most),
];

const SIMULATED_ROWS: [Row; 3] = [
    ("sign-in, p50, s", |load| load.sign_in_p50),
    ("sign-in, p99, s", |load| load.sign_in_p99),
    ("requests that failed", |load| Some(load.failed)),
];

fn print(rows: &[Row], restart: &Load, rollout: &Load) {
    for (title, value) in rows {
        let (before, after) = (value(restart), value(rollout));
        let ratio = before.zip(after).filter(|(before, _)| *before > 0.0).map(|(before, after)| after / before);
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        say(&format!("{title:<40} {:>12} {:>12} {:>8}", shown(before), shown(after), shown(ratio)));
    }
    for error in restart.errors.iter().chain(&rollout.errors) {
        say(&format!("    failed: {error}"));
    }
}

fn titles(what: &str) -> String {
    format!("{what:<40} {:>12} {:>12} {:>8}", "restart", "rollout", "ratio")
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The JSON lines of a file; the last one may be half written.
fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().flat_map(serde_json::from_str).collect()
}

/// A master that tells of each of its requests, and who counts them.
struct Counted {
    helpers: Vec<Child>,
    directory: TempDir,
    master: Master,
}

impl Counted {
    fn new(options: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("load").tempdir().unwrap();
        let pillar = directory.path().join("pillar");
        fs::create_dir(&pillar).unwrap();
        let names: Vec<String> = (0..PILLAR_PARTS).map(|number| format!("part{number}")).collect();
        for name in &names {
            fs::write(pillar.join(format!("{name}.sls")), PILLAR_PART.replace("NAME", name)).unwrap();
        }
        fs::write(pillar.join("top.sls"), json!({"base": {"*": names}}).to_string()).unwrap();
        let told = "master_stats: True\nmaster_stats_event_iter: 0\n";
        let options = format!("{told}pillar_roots: {{base: [{}]}}\n{options}", text(&pillar));
        let master = Master::start_with(&tree(MASTER), true, &options);
        let mut counted = Self { helpers: Vec::new(), directory, master };
        for verb in ["count", "stand-by"] {
            let options = json!({
                "config": counted.master.place().configuration, "log": counted.log(verb),
                "master": counted.address(), "directory": counted.directory.path().join("minions"),
            });
            let helper = counted.spawn(verb, &options);
            counted.helpers.push(helper);
            counted.ready(&counted.log(verb));
        }
        counted
    }

    fn address(&self) -> String {
        format!("{}:{}", self.master.address, self.master.request_port())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program(&self, verb: &str, options: &Value) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/bench/load.py");
        let mut command = Command::new(self.master.place().python);
        command.args(["-E", "-s", "-B"]).arg(script).arg(verb).arg(options.to_string());
        command
    }

    /// Starts it with a standard input that is open. What it complains of goes into a file: a master under load is complained of much.
    fn spawn(&self, verb: &str, options: &Value) -> Child {
        let errors = fs::File::options().create(true).append(true).open(self.log("errors")).unwrap();
        self.program(verb, options).stdin(Stdio::piped()).stderr(errors).spawn().unwrap()
    }

    fn ready(&self, log: &Path) {
        eventually(PATIENCE_SECONDS, &format!("{} is ready", log.display()), || {
            let text = fs::read_to_string(log).unwrap_or_default();
            let errors = fs::read_to_string(self.log("errors")).unwrap_or_default();
            if text.contains("\"ready\"") { Ok(()) } else { Err(errors + &self.master.log()) }
        });
    }

    /// Waits until so many minions have started since then: their start events cost the master nothing more.
    fn have_started(&self, minions: usize, since: f64) {
        eventually(PATIENCE_SECONDS, "all minions have started", || {
            let events = lines(&self.log("count"));
            let late = events.iter().filter(|event| event["at"].as_f64() >= Some(since));
            let started: BTreeSet<&str> = late.filter_map(|event| event["started"].as_str()).collect();
            if started.len() >= minions { Ok(()) } else { Err(format!("{started:?}\n{}", self.master.log())) }
        });
    }

    fn load(&self, since: f64, until: f64, made: &[PathBuf]) -> Load {
        let options = json!({"count": self.log("count"), "stand_by": self.log("stand-by"), "made": made, "since": since, "until": until});
        let output = self.program("report", &options).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Waits for what the minion that stands by has asked by now.
    fn load_until_now(&self, since: f64, made: &[PathBuf]) -> Load {
        let until = now();
        eventually(PATIENCE_SECONDS, "the minion that stands by is answered", || {
            let last = lines(&self.log("stand-by")).iter().filter_map(|line| line["due"].as_f64()).fold(0.0, f64::max);
            if last > until { Ok(()) } else { Err(format!("{last} of {until}")) }
        });
        self.load(since, until, made)
    }

    /// Plays simulated minions; `how`: `restart`, or `rollout`.
    fn play(&self, how: &str, minions: usize) -> Load {
        let logs: Vec<PathBuf> = (0..PARTS).map(|part| self.log(&format!("{how}-{part}"))).collect();
        let mut generators: Vec<Child> = logs
            .iter()
            .enumerate()
            .map(|(part, log)| {
                let options = json!({
                    "how": how, "minions": minions, "part": part, "parts": PARTS, "log": log, "master": self.address(),
                    "directory": self.directory.path().join("minions"), "source": extension().join("src"),
                    "splay": 60, "settings": {},
                });
                self.spawn("generate", &options)
            })
            .collect();
        for log in &logs {
            self.ready(log);
        }
        let since = now() + 1.0;
        for generator in &mut generators {
            generator.stdin.as_mut().unwrap().write_all(format!("{since}\n").as_bytes()).unwrap();
        }
        for mut generator in generators {
            assert!(generator.wait().unwrap().success());
        }
        self.load_until_now(since, &logs)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for helper in &mut self.helpers {
            drop(helper.stdin.take());
            let _ = helper.wait();
        }
    }
}

/// A stream of jobs to all minions around what is done, and the master's load meanwhile.
fn measured(counted: &Counted, minions: &[(&str, &Marks)], what: impl FnOnce()) -> (Load, Vec<Report>) {
    let stream = Stream::begin("*", minions[0].1, &[&counted.master], &Plan { compound_every: 0, ..Plan::short(RATE) });
    stream.run(AROUND_SECONDS);
    let since = now();
    what();
    let load = counted.load_until_now(since, &[]);
    stream.run(AROUND_SECONDS);
    (load, stream.end_each(minions))
}

fn restart_real() -> (Load, Vec<Report>) {
    let counted = Counted::new("");
    let marks: Vec<Marks> = (0..MINIONS).map(|_| Marks::new()).collect();
    let ids: Vec<String> = (0..MINIONS).map(|number| format!("host{number}")).collect();
    let begun = now();
    let mut all = Vec::new();
    for (id, marks) in ids.iter().zip(&marks) {
        all.push(Minion::start(&tree(OLD), id, &marks.quiet_configuration(&[&counted.master])));
        counted.have_started((all.len() + 1).saturating_sub(START_AT_ONCE), begun);
    }
    counted.have_started(MINIONS, begun);
    let minions: Vec<(&str, &Marks)> = ids.iter().map(String::as_str).zip(&marks).collect();
    let new = tree(MASTER);
    measured(&counted, &minions, || {
        let begun = now();
        std::thread::scope(|scope| {
            for minion in &mut all {
                scope.spawn(|| {
                    minion.terminate(STOP_SECONDS);
                    minion.upgrade(&new);
                });
            }
        });
        counted.have_started(MINIONS, begun);
    })
}

fn rollout_real() -> (Load, Vec<Report>) {
    let runners = extension().join("src/saltext/sidle/runners");
    let counted =
        Counted::new(&format!("runner_dirs: [{}]\nsidle: {{answer_seconds: {PATIENCE_SECONDS}}}\n", text(&runners)));
    let author = minions::author_of(&minions::LONG_TERM);
    let template = Host::new(&author);
    fs::write(template.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
    for release in minions::LONG_TERM {
        template.install(&author.salt(release)).ok();
    }
    let begun = now();
    let member = |number| Member::new(&template, &[&counted.master], (format!("host{number}"), "Debian", OLD));
    let mut members: Vec<Member> = (0..MINIONS).map(member).collect();
    fleet::start(&mut members);
    counted.have_started(MINIONS, begun);
    let minions: Vec<(&str, &Marks)> = members.iter().map(|member| (member.id.as_str(), &member.marks)).collect();
    measured(&counted, &minions, || {
        let (target, at_once) = (format!("{MASTER}-1"), format!("at_once={AT_ONCE}"));
        let words = [
            "sidle.rollout",
            "host*",
            &target,
            "name=load",
            "canary=0",
            "percents=[100]",
            "splay=10s",
            "soak_seconds=1",
            &at_once,
        ];
        let done = counted.master.runner(&words);
        assert_eq!(done["counts"], json!({"done": MINIONS}), "{done}");
    })
}

fn lost(reports: &[Report]) -> String {
    let lost: usize = reports.iter().map(|report| report.lost.len()).sum();
    let published: u32 = reports.iter().map(|report| report.published).sum();
    format!("{lost}/{published}")
}

#[test]
#[ignore = "a measurement: `scripts/bench load` runs it"]
fn bench_load_simulated() {
    let minions: usize = std::env::var("SIDLE_BENCH_MINIONS").map_or(200, |text| text.parse().unwrap());
    let counted = Counted::new("");
    let restart = counted.play("restart", minions);
    let rollout = counted.play("rollout", minions);
    say(&titles(&format!("{minions} simulated minions")));
    print(&ROWS, &restart, &rollout);
    print(&SIMULATED_ROWS, &restart, &rollout);
}

#[test]
#[ignore = "a measurement: `scripts/bench load` runs it"]
fn bench_load_real() {
    let (restart, restart_reports) = restart_real();
    let (rollout, rollout_reports) = rollout_real();
    say(&titles(&format!("{MINIONS} minions")));
    print(&ROWS, &restart, &rollout);
    say(&format!("{:<40} {:>12} {:>12}", "jobs lost, of all", lost(&restart_reports), lost(&rollout_reports)));
}
