//! A stream of jobs across whatever a test does to a minion, and what became of each job: `stream.py` publishes, listens and counts.

use super::eventually;
use super::evidence::{self, Fate, Finding, JobSeen, SALTS_OWN_MAXIMUM};
use super::programs::Begun;
use super::salt::{Master, MasterPlace, SHORT_KEY, START_SECONDS};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// The period of the scheduled interval job of `TICKS`.
const INTERVAL_SECONDS: f64 = 5.0;

/// Lines of a minion's schedule: scheduled jobs, by which `Report::assert_steady_schedule` judges. Each of them costs a minion as much as a published one, so
/// only minions have them whose schedule is judged.
pub const TICKS: &str = "  cron: {function: mark.tick, args: [cron], cron: '* * * * * */10', return_job: False}\n  \
    interval: {function: mark.tick, args: [interval], seconds: 5}\n";

/// A Salt program that imports Salt on a busy machine.
const READY_SECONDS: u64 = 60;

/// For how long nothing may come before what has not come by then is lost. Longer than any long job of a plan takes, and a minion that
/// is behind goes on answering meanwhile.
const SETTLE_SECONDS: u64 = 20;

/// How often a stream that runs until something is so is looked at, and for how long.
const STEP_SECONDS: u64 = 2;
const LONGEST_SECONDS: u64 = 60;

/// A process that has not seen that another one took a job takes it within this time: the guard waits for two seconds.
const DOUBLED_BY: Duration = Duration::from_millis(2_500);

/// Answers slower than this are no basis for a measurement: `salt` itself gives up on a minion after 5 s (its `timeout`), and what is
/// measured has to have room below that.
const CALIBRATION_P99_SECONDS: f64 = 2.5;

/// How long a rate is tried, and after what time one that is far too high is given up.
const CALIBRATION_SECONDS: u64 = 20;
const GLANCE_SECONDS: u64 = 8;

/// Where a minion's executions leave their marks: a module that marks, and the file.
pub struct Marks {
    pub(super) directory: TempDir,
    /// Where it is for the minion.
    inside: PathBuf,
    /// The gate of the minion's guard, where there is one.
    gate: Option<PathBuf>,
}

impl Marks {
    pub fn new() -> Self {
        Self::below(Path::new("/"), &std::env::temp_dir())
    }

    /// In a directory of a root that the minion takes for the whole of it.
    pub fn below(root: &Path, place: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("marks").tempdir_in(place).unwrap();
        let inside = Path::new("/").join(directory.path().strip_prefix(root).unwrap());
        for (name, text) in [("modules", include_str!("mark/module.py")), ("states", include_str!("mark/state.py"))] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join("mark.py"), text).unwrap();
        }
        Self { directory, inside, gate: None }
    }

    /// Ends the long jobs that run, and those that come.
    pub fn end_long_jobs(&self) {
        fs::write(self.directory.path().join("marks.end"), "").unwrap();
    }

    /// Lines of a minion's configuration: its masters (it has none without any), the marking modules, a mine, a startup state, and a schedule, to which
    /// lines may be added.
    pub fn configuration(&self, masters: &[&Master]) -> String {
        for master in masters {
            master.file("started.sls", "started:\n  mark.made: []\n");
        }
        let name = |master: &&Master| format!("{}:{}", master.address, master.request_port());
        let names: Vec<String> = masters.iter().map(name).collect();
        let masters = match &names[..] {
            [] => "master_type: disable\nfile_client: local\n".to_owned(),
            [_] => format!("master: {}\nmaster_port: {}\n", masters[0].address, masters[0].request_port()),
            several => format!("master: {several:?}\n"),
        };
        let directory = self.inside.display();
        format!(
            "{masters}{SHORT_KEY}enable_fqdns_grains: False\nmodule_dirs: [{directory}/modules]\nstates_dirs: [{directory}/states]\n\
             mark_file: {directory}/marks\nmine_enabled: True\nmine_interval: 60\nmine_functions: {{mark.mine: []}}\n\
             startup_states: sls\nsls_list: [started]\nschedule:\n  \
             onstart: {{function: mark.tick, args: [onstart], seconds: 86400, run_on_start: True, return_job: False}}\n"
        )
    }

    /// Lines of a minion's configuration: its masters and the marking modules, and nothing that runs by itself.
    pub fn quiet_configuration(&self, masters: &[&Master]) -> String {
        let names: Vec<String> =
            masters.iter().map(|each| format!("{}:{}", each.address, each.request_port())).collect();
        let directory = self.inside.display();
        format!(
            "master: {names:?}\n{SHORT_KEY}enable_fqdns_grains: False\nmodule_dirs: [{directory}/modules]\nmark_file: {directory}/marks\nmine_enabled: False\n"
        )
    }

    /// Has the guards of this gate tell what they do with each job. Their log lies outside of the gate, which may be small, full or away.
    pub fn watch(&mut self, gate: &Path) {
        let log = self.directory.path().join("jobs");
        fs::write(&log, "").unwrap();
        // The minion may be another user's.
        fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
        fs::create_dir_all(gate).unwrap();
        symlink(&log, gate.join("joblog")).unwrap();
        self.gate = Some(gate.to_owned());
    }

    /// The minion's directory of execution modules.
    pub fn modules(&self) -> PathBuf {
        self.directory.path().join("modules")
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("marks")
    }

    /// Waits until a minion that was started `times` times has done what it does at each start: it answers some time before.
    pub fn started(&self, times: usize) {
        self.until("what runs at the minion's start has run", |marks| {
            let on_start = marks.iter().filter(|mark| mark.what == "tick" && mark.name == "onstart").count();
            on_start >= times && marks.iter().filter(|mark| mark.what == "mine").count() >= times
        });
    }

    /// Waits until the startup state has run `times` times: at a boot, not at a switch.
    pub fn booted(&self, times: usize) {
        let startups = |marks: &[Mark]| marks.iter().filter(|mark| mark.what == "startup").count();
        self.until("the startup state has run", |marks| startups(marks) >= times);
    }

    fn until(&self, what: &str, is_so: impl Fn(&[Mark]) -> bool) {
        eventually(START_SECONDS, what, || {
            let marks = self.all();
            if is_so(&marks) { Ok(()) } else { Err(format!("{marks:#?}")) }
        });
    }

    /// The executions so far.
    pub fn all(&self) -> Vec<Mark> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().filter_map(Mark::parse).collect()
    }
}

/// One execution.
#[derive(Debug, Clone)]
pub struct Mark {
    /// run, done, tick, mine or startup.
    pub what: String,
    pub jid: String,
    pub name: String,
    /// Of Salt.
    pub release: String,
}

impl Mark {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, jid, name, _pid, _parent, release, _at] = words[..] else { return None };
        let [what, jid, name, release] = [what, jid, name, release].map(str::to_owned);
        Some(Self { what, jid, name, release })
    }
}

/// What is published.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Jobs a second.
    pub rate: f64,
    /// Every so manieth job is a compound one; 0: none.
    pub compound_every: u32,
    /// Every so manieth job is a long one; 0: none.
    pub long_every: u32,
    pub long_seconds: u32,
    /// After every so manieth job one that has the minion's main process load something anew; 0: none.
    pub refresh_every: u32,
    /// One job of this many seconds, as the job of this number.
    pub once: Option<(u32, u32)>,
    /// Two of twelve refresh something or queue a state, too; and batches beside them.
    pub mixed: bool,
}

impl Plan {
    /// Mostly short jobs, every seventh compound, every twentieth of 12 s.
    pub fn of(rate: f64) -> Self {
        Self { rate, compound_every: 7, long_every: 20, long_seconds: 12, refresh_every: 0, once: None, mixed: false }
    }

    /// Short and compound jobs only.
    pub fn short(rate: f64) -> Self {
        Self { long_every: 0, ..Self::of(rate) }
    }
}

/// A running stream, of one publisher and one listener per master.
pub struct Stream {
    masters: Vec<MasterPlace>,
    directory: TempDir,
    marks: PathBuf,
    gate: Option<PathBuf>,
    minion: String,
    processes: Vec<Begun>,
    since: f64,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

impl Stream {
    /// Begins to publish to a minion that answers.
    pub fn begin(minion: &str, marks: &Marks, masters: &[&Master], plan: &Plan) -> Self {
        let mut stream = Self {
            masters: masters.iter().map(|master| master.place()).collect(),
            directory: tempfile::Builder::new().prefix("stream").tempdir().unwrap(),
            marks: marks.file(),
            gate: marks.gate.clone(),
            minion: minion.to_owned(),
            processes: Vec::new(),
            since: now(),
        };
        // Listeners first: no answer may come unheard.
        let verbs = [("listen", "events"), ("publish", "published"), ("batch", "batches")];
        for (verb, log) in verbs.into_iter().take(if plan.mixed { 3 } else { 2 }) {
            // Batches come last: what was published before them counts.
            if verb != "batch" {
                stream.since = now();
            }
            for (number, place) in stream.masters.clone().iter().enumerate() {
                let options = json!({
                    "config": place.configuration, "log": stream.log(log, number), "minion": minion, "name": format!("m{number}"),
                    "rate": plan.rate, "compound_every": plan.compound_every, "long_every": plan.long_every,
                    "long_seconds": plan.long_seconds, "once_number": plan.once.map(|once| once.0),
                    "once_seconds": plan.once.map(|once| once.1), "refresh_every": plan.refresh_every, "mixed": plan.mixed,
                });
                let (errors, input) = ([verb, "-errors"].concat(), [verb, "-input"].concat());
                let (errors, input) = (stream.log(&errors, number), stream.log(&input, number));
                let begun = masters[number].programs.begin(&script(), &[verb, &options.to_string()], &errors, &input);
                stream.processes.push(begun);
            }
            for number in 0..masters.len() {
                let path = stream.log(log, number);
                eventually(READY_SECONDS, &format!("{verb} is ready"), || {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    let errors = fs::read_to_string(stream.log(&format!("{verb}-errors"), number)).unwrap_or_default();
                    if text.contains("\"ready\"") { Ok(()) } else { Err(text + &errors) }
                });
            }
        }
        stream
    }

    fn log(&self, name: &str, master: usize) -> PathBuf {
        self.directory.path().join(format!("{name}-{master}"))
    }

    /// Lets it run for so long.
    pub fn run(&self, seconds: u64) {
        std::thread::sleep(Duration::from_secs(seconds));
        // A publisher that has died would make any switch look lossless.
        assert!(self.processes.iter().all(Begun::is_alive), "the stream broke off");
    }

    /// Lets it run until `is_so`; gives what became of the jobs until then. Panics if that takes far longer than a minute.
    pub fn run_until(&self, what: &str, is_so: impl Fn(&Report) -> bool) -> Report {
        eventually(LONGEST_SECONDS, what, || {
            self.run(STEP_SECONDS);
            let seen = self.look();
            if is_so(&seen) {
                Ok(seen)
            } else {
                Err(format!("{} published, {} answered", seen.published, seen.returned))
            }
        })
    }

    /// What became of the jobs until now.
    pub fn look(&self) -> Report {
        self.report(now())
    }

    /// The events of the masters' buses so far.
    pub fn events(&self) -> Vec<Value> {
        (0..self.masters.len()).flat_map(|number| self.events_of(number)).collect()
    }

    /// The same of one master.
    pub fn events_of(&self, master: usize) -> Vec<Value> {
        let text = fs::read_to_string(self.log("events", master)).unwrap();
        text.lines().flat_map(serde_json::from_str).collect()
    }

    /// Seconds since the stream began, as reports have them.
    pub fn age(&self) -> f64 {
        now() - self.since
    }

    /// Publishes no more, waits for what is still to come, and says what became of the jobs.
    pub fn end(self) -> Report {
        let (minion, marks, gate) = (self.minion.clone(), self.marks.clone(), self.gate.clone());
        self.end_of(|stream, until| vec![stream.report_of(&minion, &marks, gate.as_deref(), until)]).remove(0)
    }

    /// The same of a stream to many minions: a report of each of these, by its id.
    pub fn end_each(self, minions: &[(&str, &Marks)]) -> Vec<Report> {
        self.end_of(|stream, until| stream.each(minions, until))
    }

    /// What became of the jobs until now at each of these minions.
    pub fn look_at_each(&self, minions: &[(&str, &Marks)]) -> Vec<Report> {
        self.each(minions, now())
    }

    fn each(&self, minions: &[(&str, &Marks)], until: f64) -> Vec<Report> {
        let of = |(minion, marks): &(&str, &Marks)| self.report_of(minion, &marks.file(), marks.gate.as_deref(), until);
        minions.iter().map(of).collect()
    }

    fn end_of(mut self, report: impl Fn(&Self, f64) -> Vec<Report>) -> Vec<Report> {
        self.stop();
        let until = now();
        let mut patience = Instant::now() + Duration::from_secs(SETTLE_SECONDS);
        let mut before = 0;
        loop {
            let reports = report(&self, until);
            if reports.iter().all(Report::is_whole) {
                // The last jobs could still be run a second time.
                std::thread::sleep(DOUBLED_BY);
                return report(&self, until);
            }
            if Instant::now() > patience {
                return reports;
            }
            // As many times as there are jobs at most: each has one answer.
            let returned = reports.iter().map(|report| report.returned).sum();
            if returned > before {
                before = returned;
                patience = Instant::now() + Duration::from_secs(SETTLE_SECONDS);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Ends the publishers: their standard input ends. The listeners end with the stream.
    pub fn stop(&mut self) {
        let publishers = self.processes.split_off(self.masters.len());
        end(publishers);
    }

    fn report(&self, until: f64) -> Report {
        self.report_of(&self.minion, &self.marks, self.gate.as_deref(), until)
    }

    fn report_of(&self, minion: &str, marks: &Path, gate: Option<&Path>, until: f64) -> Report {
        let master = |(number, place): (usize, &MasterPlace)| json!({"cache": place.cache, "published": self.log("published", number), "events": self.log("events", number), "batches": self.log("batches", number)});
        let masters: Vec<Value> = self.masters.iter().enumerate().map(master).collect();
        let options = json!({
            "masters": masters, "marks": marks, "gate": gate, "minion": minion, "since": self.since, "until": until,
        });
        let mut program = Command::new(&self.masters[0].python);
        program.args(["-E", "-s", "-B"]).arg(script()).args(["report", &options.to_string()]);
        let output = program.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        end(std::mem::take(&mut self.processes));
    }
}

/// Closes their standard input, which ends them, and waits; kills what does not listen.
fn end(mut processes: Vec<Begun>) {
    processes.iter_mut().for_each(Begun::close);
    let patience = Instant::now() + Duration::from_secs(15);
    for process in &processes {
        while process.is_alive() {
            if Instant::now() > patience {
                process.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/stream.py")
}

/// What came of one master's jobs.
#[derive(Debug, Clone, Deserialize)]
pub struct PerMaster {
    pub published: u32,
    pub returned: u32,
    /// Returns of scheduled jobs that this master got, by their function.
    pub scheduled: BTreeMap<String, u32>,
}

/// What the schedule did; times in seconds after the stream began.
#[derive(Debug, Clone, Deserialize)]
#[expect(dead_code, reason = "a failing test shows all of it")]
pub struct Ticks {
    pub cron_expected: u32,
    pub cron_missing: Vec<f64>,
    pub cron_doubled: Vec<f64>,
    pub interval_count: u32,
    pub interval_shortest_seconds: Option<f64>,
    pub interval_longest_seconds: Option<f64>,
    /// Runs of the job with `run_on_start`.
    pub on_start: u32,
}

/// What became of the batches of a mixed plan.
#[derive(Debug, Clone, Deserialize)]
pub struct Batches {
    pub asked: u32,
    pub answered: u32,
    pub executed: u32,
    pub twice: Vec<String>,
}

/// Jobs, so many that a failure's story has only their number.
#[derive(Clone, Deserialize)]
pub struct Jobs(Vec<JobSeen>);

impl Jobs {
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} jobs", self.0.len())
    }
}

/// What became of the jobs of a stream. `stream.py` has the rules.
#[derive(Debug, Clone, Deserialize)]
#[expect(dead_code, reason = "a failing test shows all of it")]
pub struct Report {
    /// All of them.
    pub jobs: Jobs,
    /// The guards kept a job log.
    pub watched: bool,
    pub published: u32,
    /// The master refused, or was not there.
    pub publish_failed: Vec<JobSeen>,
    pub executed: u32,
    pub returned: u32,
    /// Published, but not executed or not returned.
    pub lost: Vec<JobSeen>,
    pub executed_twice: Vec<JobSeen>,
    pub returned_twice: Vec<JobSeen>,
    /// The return is with another master than the one that published.
    pub returned_elsewhere: Vec<JobSeen>,
    /// Long jobs that returned before they were done.
    pub unfinished: Vec<JobSeen>,
    /// Executed, though this stream did not publish them.
    pub unasked: Vec<String>,
    pub per_master: Vec<PerMaster>,
    /// Times of the minion's start events.
    pub starts: Vec<f64>,
    pub startup_states: u32,
    pub mine_updates: u32,
    /// How often the publisher fell behind.
    pub behind: u32,
    /// The longest time between two answers, and when it began.
    pub longest_gap_seconds: Option<f64>,
    pub longest_gap_at: Option<f64>,
    /// Latency of short jobs: from publication to the first return.
    pub p50_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
    pub first_third_p50_seconds: Option<f64>,
    pub last_third_p50_seconds: Option<f64>,
    /// Jobs executed by each release.
    pub releases: BTreeMap<String, u32>,
    pub ticks: Ticks,
    pub batches: Batches,
}

impl Report {
    /// True when every job was executed and has returned, the long ones to their end.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.unfinished.is_empty()
    }

    /// Jobs that were executed or returned more than once.
    pub fn doubled(&self) -> usize {
        self.executed_twice.len() + self.returned_twice.len()
    }

    /// One line for a table.
    pub fn row(&self, what: &str) -> String {
        let seconds = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        format!(
            "{what:<44} {:>9} {:>8} {:>8} {:>5} {:>7} {:>9} {:>7} {:>7}",
            self.published,
            self.executed,
            self.returned,
            self.lost.len(),
            self.doubled(),
            seconds(self.longest_gap_seconds),
            seconds(self.p50_seconds),
            seconds(self.p99_seconds),
        )
    }

    /// The titles of `row`'s columns.
    pub fn titles() -> String {
        format!(
            "{:<44} {:>9} {:>8} {:>8} {:>5} {:>7} {:>9} {:>7} {:>7}",
            "", "published", "executed", "returned", "lost", "doubled", "downtime s", "p50 s", "p99 s"
        )
    }

    /// Every job that is not whole, and what became of it.
    pub fn findings(&self) -> Vec<Finding<'_>> {
        evidence::findings(&self.jobs.0, self.watched)
    }

    /// The job log is no empty one: of every job that is whole it has each step.
    pub fn assert_watched(&self) {
        let whole = self.jobs.0.iter().filter(|job| job.fate(self.watched) == Fate::Whole);
        let blank: Vec<&JobSeen> = whole.filter(|job| !job.is_traced()).collect();
        assert!(self.watched && blank.is_empty(), "the guards have not told of {blank:#?}");
    }

    /// Whether every published job was executed once and has returned once to whoever asked; if not, what became of each that was not.
    pub fn verdict(&self) -> Result<(), String> {
        let findings = self.findings();
        if self.published == 0 {
            return Err(format!("nothing was published: {self:#?}"));
        }
        if !evidence::are_tolerable(&findings, SALTS_OWN_MAXIMUM) {
            return Err(findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        if self.unasked.is_empty() { Ok(()) } else { Err(format!("run, and not asked for: {:?}", self.unasked)) }
    }

    /// The verdict is a good one.
    pub fn assert_lossless(&self, what: &str) {
        println!("{}\n{}", Self::titles(), self.row(what));
        if let Err(why) = self.verdict() {
            panic!("{what}:\n{why}");
        }
    }

    /// The schedule went on as if nothing had happened.
    pub fn assert_steady_schedule(&self, what: &str) {
        let ticks = &self.ticks;
        assert!(ticks.cron_missing.is_empty() && ticks.cron_doubled.is_empty(), "{what}: {ticks:#?}");
        let within = INTERVAL_SECONDS * 0.5..=INTERVAL_SECONDS * 1.5;
        for pause in [ticks.interval_shortest_seconds, ticks.interval_longest_seconds] {
            assert!(pause.is_some_and(|pause| within.contains(&pause)), "{what}: {ticks:#?}");
        }
    }
}

/// How long a minion that fell behind has to do with that: 3007.17 keeps the process of each job for half a minute after the job has returned.
const RECOVERY: Duration = Duration::from_secs(35);

/// The first of these rates that the machine carries while nothing else happens, and the report at it: the control. Panics when there is
/// none.
pub fn calibrate(minion: &str, marks: &Marks, masters: &[&Master], rates: &[f64]) -> (f64, Report) {
    let mut seen = Vec::new();
    for &rate in rates {
        let stream = Stream::begin(minion, marks, masters, &Plan::of(rate));
        stream.run(GLANCE_SECONDS);
        let falls_behind = stream.look().last_third_p50_seconds.is_none_or(|late| late > CALIBRATION_P99_SECONDS);
        if !falls_behind {
            stream.run(CALIBRATION_SECONDS - GLANCE_SECONDS);
        }
        let report = stream.end();
        println!("{}\n{}", Report::titles(), report.row(&format!("{rate} jobs a second, no switch")));
        let (p99, first, last) = (report.p99_seconds, report.first_third_p50_seconds, report.last_third_p50_seconds);
        let is_quick = p99.is_some_and(|p99| p99 <= CALIBRATION_P99_SECONDS);
        // A queue that grows shows in the median, long before it shows as a loss.
        let is_steady = matches!((first, last), (Some(first), Some(last)) if last <= 2.0 * first + 0.2);
        if !falls_behind && report.is_whole() && report.doubled() == 0 && report.behind == 0 && is_quick && is_steady {
            return (rate, report);
        }
        seen.push(format!("{rate} a second: {report:#?}"));
        // What was too much for it is not over yet, and the next rate is not to pay for it.
        std::thread::sleep(RECOVERY);
    }
    panic!("this machine carries none of {rates:?} jobs a second without any switch:\n{}", seen.join("\n"));
}
