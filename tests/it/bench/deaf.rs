//! `scripts/bench deaf N`: so many switches for each way in which a publish port may be silent, and each probation, under a stream: how many were
//! committed with a minion that hears nothing, and what was lost or doubled. No test: it asserts nothing.

use super::say;
use crate::support::eventually;
use crate::support::evidence::Fate;
use crate::support::relay::{Relay, Way};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::{Plan, Report};
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::time::{Duration, Instant};

const RELEASES: [&str; 2] = ["3006.30", "3008.5"];
const PROBATIONS: [&str; 3] = ["1s", "5s", "60s"];
/// Later than a trial waits for a job, and sooner than a handshake is given up.
const LATE: Duration = Duration::from_secs(8);
/// A switch that takes longer than this is stuck.
const STUCK_SECONDS: u64 = 900;
/// Longer than a publication that is late takes.
const HEARING: &str = "30";

/// How a publish port is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    Swallows,
    IsLate,
    StandsStill,
}

impl Silence {
    fn begin(self, relay: &Relay, scene: &Scene) -> Option<Identity> {
        match self {
            Self::Swallows => relay.treat(Way::Swallow),
            Self::IsLate => relay.treat(Way::Late(LATE)),
            Self::StandsStill => {
                let publisher = publisher(scene);
                publisher.signal(SignalNumber::STOP).unwrap();
                return Some(publisher);
            }
        }
        None
    }
}

/// The process of the master that listens on the publish port.
fn publisher(scene: &Scene) -> Identity {
    let port = format!(":{:04X} ", scene.master().publish_port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listens = table.lines().find(|line| line.contains(&port) && line.contains(" 0A ")).expect("the master listens");
    let socket = format!("socket:[{}]", listens.split_whitespace().nth(9).unwrap());
    let has = |pid: u32| {
        let all = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        all.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|link| link.to_string_lossy() == socket)
    };
    // Its parent may have the socket as well: the one that was forked last serves it.
    let pid = proc_fs::all().unwrap().iter().map(|process| process.pid).filter(|pid| has(*pid)).max().unwrap();
    Identity::of(pid).unwrap().unwrap()
}

/// One switch; gives how it ended, whether the minion hears nothing then, and what became of the jobs.
fn one(scene: &Scene, relay: &Relay, silence: Silence, to: &str) -> (String, bool, Report) {
    let stream = scene.stream(&Plan::short(1.0));
    stream.run(2);
    let stopped = silence.begin(relay, scene);
    let asked = scene.switch(&[&format!("{to}-1"), "--mode", "overlap", "--no-wait", "--force"]);
    let end = if asked.code == Some(4) {
        eventually(STUCK_SECONDS, "the switch ends", || match scene.phase().as_deref() {
            None => Ok(()),
            Some(phase) => Err(phase.to_owned()),
        });
        scene.history()[0]["result"].as_str().unwrap_or("?").to_owned()
    } else {
        format!("not begun: {}", asked.stderr.lines().next().unwrap_or_default())
    };
    if let Some(publisher) = stopped {
        publisher.signal(SignalNumber::CONT).unwrap();
    }
    let deaf = end == "committed" && !scene.master().call_within(HEARING, ID, &["test.ping"]).contains("True");
    relay.treat(Way::Pass);
    let report = stream.end();
    (end, deaf, report)
}

/// So many switches for each probation, in one world.
fn with(silence: Silence, switches: usize) {
    let relay = Relay::start();
    let options = format!("publish_port: {}\n", relay.port);
    let scene = Scene::idle(&Wanted { options: &options, settings: "rehearsal = \"off\"\n", ..Wanted::of(&RELEASES) });
    relay.lead_to(scene.master().publish_port());
    scene.run(RELEASES[0]);
    for probation in PROBATIONS {
        let settings = format!("rehearsal = \"off\"\nstart_timeout = \"60s\"\nprobation = \"{probation}\"\n");
        fs::write(scene.host.path("etc/sidle/conf.d/test.toml"), settings).unwrap();
        scene.supervisor().signal(SignalNumber::HUP);
        let (mut committed, mut deaf, mut jobs, mut lost, mut doubled) = (0, 0, 0, 0, 0);
        for number in 1..=switches {
            scene.answers();
            let begun = Instant::now();
            let running = scene.status()["supervisor"]["agent"]["release"].as_str().unwrap_or_default().to_owned();
            let to = if running.starts_with(RELEASES[0]) { RELEASES[1] } else { RELEASES[0] };
            let (end, is_deaf, report) = one(&scene, &relay, silence, to);
            committed += usize::from(end == "committed");
            deaf += usize::from(is_deaf);
            jobs += report.published;
            let findings = report.findings();
            doubled += findings.iter().filter(|finding| finding.fate == Fate::Doubled).count();
            lost += findings.iter().filter(|finding| finding.fate != Fate::Doubled).count();
            let took = begun.elapsed().as_secs();
            let why = scene.history()[0]["failure"]["text"].as_str().unwrap_or_default().to_owned();
            let heard = if is_deaf { " DEAF" } else { "" };
            say(&format!("    {silence:?}, {probation}: {number}/{switches} {took:>4} s  to {to}: {end}{heard} {why}"));
            for finding in findings.iter().take(3) {
                say(&format!("      {finding}"));
            }
        }
        say(&format!("{silence:?}, {probation}: {switches}; {committed}, {deaf}; {jobs}, {lost}, {doubled}"));
    }
}

#[test]
#[ignore = "a measurement: `scripts/bench deaf` runs it"]
fn bench_deaf() {
    let switches: usize = std::env::var("SIDLE_BENCH_SWITCHES").map_or(10, |text| text.parse().unwrap());
    say("publish port, probation: switches; committed, of these deaf; jobs, lost, doubled");
    // Nearly all of it is waiting.
    std::thread::scope(|scope| {
        for silence in [Silence::Swallows, Silence::IsLate, Silence::StandsStill] {
            scope.spawn(move || with(silence, switches));
        }
    });
}
