//! `scripts/bench soak N`: so many switches in a row on real Salt, under a mixed stream from two hot masters, with something going wrong in every
//! other one of them; what was lost or doubled, and what grows. No test: it asserts nothing.

use super::say;
use crate::support::evidence::{Fate, Finding};
use crate::support::scene::{ID, MASTER, Scene, Wanted};
use crate::support::stream::{Plan, Report, TICKS};
use serde_json::Value;
use sidle::os::process::{Identity, SignalNumber};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const RELEASES: [&str; 3] = ["3006.30", "3007.17", MASTER];

/// From each to each other one, forth and back, between two restarts; a rollback goes to the one before.
const COURSE: [(&str, Option<&str>); 10] = [
    ("switch", Some(RELEASES[1])),
    ("restart", None),
    ("switch", Some(RELEASES[2])),
    ("rollback", None),
    ("switch", Some(RELEASES[0])),
    ("switch", Some(RELEASES[2])),
    ("restart", None),
    ("switch", Some(RELEASES[0])),
    ("switch", Some(RELEASES[1])),
    ("rollback", None),
];

/// Jobs a second of each master.
const RATE: f64 = 0.4;

/// A switch that takes longer than this is stuck.
const STUCK: Duration = Duration::from_secs(400);

/// How long a process stands still, a master is away, /run is full.
const STOPPED: Duration = Duration::from_secs(5);

/// Around the time at which a master was killed: what it published then may never have left it, and what came to it may be forgotten.
const MASTER_BEFORE_SECONDS: f64 = 5.0;
const MASTER_AFTER_SECONDS: f64 = 20.0;

/// The stream and what goes wrong take from a start what it needs, too; and a trial whose time was up is a bad release.
const SETTINGS: &str = "start_timeout = \"150s\"\n";

/// How often the beacon fires.
const BEACON_SECONDS: f64 = 5.0;

/// Between two switches.
const PAUSE: Duration = Duration::from_secs(1);

/// What goes wrong in a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    KillNew,
    KillOld,
    KillSupervisor,
    StopOld,
    StopNew,
    RestartMaster,
    FullRun,
}

const FAULTS: [Fault; 14] = [
    Fault::None,
    Fault::KillNew,
    Fault::None,
    Fault::KillOld,
    Fault::None,
    Fault::KillSupervisor,
    Fault::None,
    Fault::StopOld,
    Fault::None,
    Fault::StopNew,
    Fault::None,
    Fault::RestartMaster,
    Fault::None,
    Fault::FullRun,
];

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::KillNew => "the new process is killed",
            Self::KillOld => "the old process is killed",
            Self::KillSupervisor => "the supervisor is killed",
            Self::StopOld => "the old process stands still",
            Self::StopNew => "the new process stands still",
            Self::RestartMaster => "a master is restarted",
            Self::FullRun => "/run is full",
        }
    }

    /// The phases in which it may happen. An old process is killed only while the new one serves: a downtime is another measurement.
    fn phases(self) -> &'static [&'static str] {
        match self {
            Self::KillOld | Self::StopOld => &["probation", "finishing-old"],
            Self::StopNew => &["proving", "probation"],
            Self::KillNew => &["proving", "handing"],
            Self::None | Self::KillSupervisor | Self::RestartMaster | Self::FullRun => {
                &["starting", "proving", "probation"]
            }
        }
    }
}

/// The processes of a side, from the record of the supervisor.
fn side(scene: &Scene, switch: u64, new: bool) -> Vec<Identity> {
    let record = fs::read(scene.host.path("run/sidle").join(scene.package).join("processes")).unwrap_or_default();
    let record: Value = serde_json::from_slice(&record).unwrap_or_default();
    let all = record["processes"].as_array().cloned().unwrap_or_default();
    let of_side = all.iter().filter(|process| (process["trial_of"].as_u64() == Some(switch)) == new);
    of_side
        .flat_map(|process| process["core"].as_array().cloned().unwrap_or_default())
        .filter_map(|identity| serde_json::from_value(identity).ok())
        .collect()
}

/// What was done on purpose, in the stream's seconds.
#[derive(Default)]
struct Done {
    killed: BTreeSet<u32>,
    /// Of the master with this number.
    restarts: Vec<(usize, f64)>,
    faults: u32,
}

/// Fills the file system of /run with names, for a while.
fn fill(place: &Path) {
    let full = place.join("full");
    fs::create_dir(&full).unwrap();
    let mut made = 0;
    while fs::File::create(full.join(made.to_string())).is_ok() {
        made += 1;
    }
    sleep(STOPPED);
    fs::remove_dir_all(full).unwrap();
}

fn do_wrong(fault: Fault, scene: &mut Scene, switch: u64, age: f64, done: &mut Done) {
    done.faults += u32::from(fault != Fault::None);
    match fault {
        Fault::None => {}
        Fault::KillNew | Fault::KillOld => {
            for identity in side(scene, switch, fault == Fault::KillNew) {
                done.killed.insert(identity.pid);
                let _ = identity.signal(SignalNumber::KILL);
            }
        }
        Fault::StopNew | Fault::StopOld => {
            let stopped = side(scene, switch, fault == Fault::StopNew);
            let all = |signal| {
                for identity in &stopped {
                    let _ = identity.signal(signal);
                }
            };
            all(SignalNumber::STOP);
            sleep(STOPPED);
            all(SignalNumber::CONT);
        }
        Fault::KillSupervisor => scene.crash(),
        Fault::RestartMaster => {
            done.restarts.push((1, age));
            scene.masters[1].kill();
            sleep(STOPPED);
            scene.masters[1].start_again();
        }
        Fault::FullRun => fill(&scene.host.path("run")),
    }
}

/// What could grow.
fn sizes(scene: &Scene) -> [(&'static str, u64); 6] {
    fn files(place: &Path) -> (u64, u64) {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        entries.fold((0, 0), |(count, bytes), entry| match fs::symlink_metadata(entry.path()) {
            Ok(stat) if stat.is_dir() => {
                let below = files(&entry.path());
                (count + below.0, bytes + below.1)
            }
            Ok(stat) => (count + 1, bytes + stat.len()),
            Err(_) => (count, bytes),
        })
    }
    let pid = scene.supervisor().pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let memory = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    let run = scene.host.path("run/sidle").join(scene.package);
    let claims = files(&run.join("gate/claims")).0;
    let state = scene.host.path("var/lib/sidle/instances").join(scene.package);
    [
        ("supervisor KiB", memory.unwrap_or(0)),
        ("descriptors", fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |all| all.count() as u64)),
        ("claims", claims),
        ("other files in /run/sidle", files(&run).0 - claims),
        ("journal bytes", fs::metadata(state.join("journal")).map_or(0, |stat| stat.len())),
        ("state files", files(&state).0),
    ]
}

/// Asks for the switch, does what is to go wrong, and waits for the end; gives how it ended.
fn perform(
    scene: &mut Scene,
    (verb, to): (&str, Option<&str>),
    fault: Fault,
    age: &dyn Fn() -> f64,
    done: &mut Done,
) -> String {
    let release = to.map(|to| format!("{to}-1"));
    let arguments: Vec<&str> =
        release.as_deref().into_iter().chain(["--mode", "overlap", "--no-wait", "--force"]).collect();
    let asked = scene.verb(verb, &arguments);
    if asked.code != Some(4) {
        return format!("not begun: {}", asked.stderr.lines().next().unwrap_or_default());
    }
    let mut switch = None;
    let mut due = fault != Fault::None;
    let begun = Instant::now();
    loop {
        let status = scene.status();
        let live = &status["switch"];
        switch = live["id"].as_u64().or(switch);
        if live.is_null() && status["last"]["id"].as_u64() >= switch {
            let last = &status["last"];
            let why = last["failure"]["text"].as_str().unwrap_or_default();
            let missed = if due { " (over before anything went wrong)" } else { "" };
            return format!("{} {why}{missed}", last["result"].as_str().unwrap_or("?"));
        }
        if let (true, Some(switch), Some(phase)) = (due, switch, live["phase"].as_str()) {
            if fault.phases().contains(&phase) {
                due = false;
                do_wrong(fault, scene, switch, age(), done);
            }
        }
        if begun.elapsed() > STUCK {
            return format!("STUCK: {live}");
        }
        sleep(Duration::from_millis(150));
    }
}

/// Whose doing it is that a job is not whole.
fn on_purpose(finding: &Finding<'_>, done: &Done) -> Option<&'static str> {
    let job = finding.job;
    if finding.fate == Fate::Doubled
        && (job.executed > 1 || job.steps.iter().filter(|step| step.what == "claimed").count() > 1)
    {
        return None;
    }
    if finding.fate != Fate::Doubled
        && job.steps.iter().any(|step| step.what == "claimed" && done.killed.contains(&step.pid))
    {
        return Some("killed on purpose");
    }
    // What was published then, and what was returned.
    let returned = job.steps.iter().filter(|step| step.what.starts_with("sen")).map(|step| step.at);
    let moments: Vec<f64> = returned.chain([job.at]).collect();
    let of = |(master, at): &(usize, f64)| {
        let window = at - MASTER_BEFORE_SECONDS..at + MASTER_AFTER_SECONDS;
        job.name.starts_with(&format!("m{master}-")) && moments.iter().any(|moment| window.contains(moment))
    };
    if done.restarts.iter().any(of) {
        return Some("its master was restarted");
    }
    // Salt sends a return again that was not acknowledged in time; the job itself was run once.
    (finding.fate == Fate::Doubled).then_some("returned twice by Salt")
}

/// How often the beacon fired, and how often sooner than half its period after the time before: from two processes.
fn beacons(events: &[Value]) -> (usize, usize) {
    let tag = format!("salt/beacon/{ID}/status/");
    let mut times: Vec<f64> = events
        .iter()
        .filter(|event| event["tag"].as_str().is_some_and(|found| found.starts_with(&tag)))
        .filter_map(|event| event["at"].as_f64())
        .collect();
    times.sort_by(f64::total_cmp);
    (times.len(), times.windows(2).filter(|pair| pair[1] - pair[0] < BEACON_SECONDS / 2.0).count())
}

fn table(
    report: &Report,
    done: &Done,
    first_master_beacons: (usize, usize),
    before: &[(&str, u64)],
    after: &[(&str, u64)],
) {
    let findings = report.findings();
    let (mut lost, mut doubled, mut excused) = (Vec::new(), Vec::new(), Vec::new());
    for finding in &findings {
        match on_purpose(finding, done) {
            Some(why) => excused.push(why),
            None if finding.fate == Fate::Doubled => doubled.push(finding),
            None => lost.push(finding),
        }
    }
    say(&format!("{}\n{}", Report::titles(), report.row("all of it, before anything is set apart")));
    for why in ["killed on purpose", "its master was restarted", "returned twice by Salt"] {
        say(&format!("  {why:<34} {:>9}", excused.iter().filter(|found| **found == why).count()));
    }
    let counted = f64::from(report.published);
    for (what, found) in [("lost", &lost), ("doubled", &doubled)] {
        // Of what was not seen in n tries the rate is below 3/n with 95 % confidence.
        let bound =
            if found.is_empty() { format!("fewer than one in {:.0} (95 %)", counted / 3.0) } else { String::new() };
        say(&format!("  {what:<34} {:>9}  {bound}", found.len()));
        found.iter().take(10).for_each(|finding| say(&format!("    {finding}")));
    }
    let batches = &report.batches;
    say(&format!(
        "  batches: {} asked, {} answered, {} run, {} twice",
        batches.asked,
        batches.answered,
        batches.executed,
        batches.twice.len()
    ));
    let ticks = &report.ticks;
    say(&format!(
        "  schedule: {} ticks due, {} missing, {} doubled; startup states: {}",
        ticks.cron_expected,
        ticks.cron_missing.len(),
        ticks.cron_doubled.len(),
        report.startup_states
    ));
    say(&format!(
        "  beacon: {} events at the masters, {} too soon after another",
        first_master_beacons.0, first_master_beacons.1
    ));
    say(&format!("  run, and not asked for: {}", report.unasked.len()));
    for ((what, before), (_, after)) in before.iter().zip(after) {
        say(&format!("  {what:<34} {before:>9} -> {after}"));
    }
}

/// A minion of two masters, and root's own /run, which can be filled.
fn soaked(root: bool) -> Scene {
    let beacons_of = format!("beacons:\n  status:\n    - loadavg: [all]\n    - interval: {BEACON_SECONDS}\n");
    let user = crate::support::salt::own_user();
    let run = root.then_some("size=256m,nr_inodes=60000");
    Scene::with(&Wanted {
        masters: 2,
        run,
        user: &user,
        options: &beacons_of,
        settings: SETTINGS,
        schedule: TICKS,
        ..Wanted::of(&RELEASES)
    })
}

#[test]
#[ignore = "a measurement: `scripts/bench soak` runs it"]
fn bench_soak() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<f64>().expect("it is a number"));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of switches that a person gave"
    )]
    let switches = number("SIDLE_BENCH_SWITCHES").unwrap_or(20.0) as usize;
    let rate = number("SIDLE_SOAK_RATE").unwrap_or(RATE);
    let limit = number("SIDLE_SOAK_MINUTES").map_or(Duration::MAX, |minutes| Duration::from_secs_f64(minutes * 60.0));
    let root = rustix::process::geteuid().is_root();
    let mut scene = soaked(root);
    let plan = Plan { mixed: true, ..Plan::of(rate) };
    let stream = scene.stream(&plan);
    stream.run(10);
    let before = sizes(&scene);
    let mut done = Done::default();
    let (mut ended, begun) = (Vec::new(), Instant::now());
    say(&format!("{switches} switches, {rate} jobs a second from each of two masters; root: {root}"));
    for index in 0..switches {
        let (verb, to) = COURSE[index % COURSE.len()];
        let fault = FAULTS[index % FAULTS.len()];
        let fault = if fault == Fault::FullRun && !root { Fault::None } else { fault };
        let since = Instant::now();
        let end = perform(&mut scene, (verb, to), fault, &|| stream.age(), &mut done);
        let wrong = if fault == Fault::None { String::new() } else { format!("; {}", fault.words()) };
        let minutes = begun.elapsed().as_secs() / 60;
        say(&format!(
            "{minutes:>4} min  {:>4}/{switches}  {:>5.1} s  {verb} {}{wrong}: {end}",
            index + 1,
            since.elapsed().as_secs_f64(),
            to.unwrap_or_default()
        ));
        if end.starts_with("STUCK") {
            break;
        }
        ended.push(end);
        if begun.elapsed() > limit {
            break;
        }
        sleep(PAUSE);
        stream.run(0);
        if index % 10 == 9 {
            let sizes: Vec<String> = sizes(&scene).iter().map(|(what, count)| format!("{what} {count}")).collect();
            say(&format!("          {}", sizes.join(", ")));
        }
    }
    stream.run(10);
    let events = stream.events_of(0);
    let report = stream.end();
    let count = |what: &str| ended.iter().filter(|end| end.starts_with(what)).count();
    say(&format!(
        "\n{} switches in {} min: {} committed, {} undone, {} other; {} times something went wrong",
        ended.len(),
        begun.elapsed().as_secs() / 60,
        count("committed"),
        count("rolled-back"),
        ended.len() - count("committed") - count("rolled-back"),
        done.faults
    ));
    table(&report, &done, beacons(&events), &before, &sizes(&scene));
}
