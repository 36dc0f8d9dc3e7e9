//! `scripts/bench handover`: one stream of jobs across each way to restart or replace a minion, as a table. `scripts/bench losses`: what is lost
//! while nothing is done. No tests: they assert nothing.

mod deaf;
mod load;
mod soak;
mod uses;

use crate::support::salt::{Master, Minion, tree};
use crate::support::scene::{MASTER, RATES, Scene, Wanted};
use crate::support::stream::{Marks, Plan, Report, Stream, TICKS};
use std::io::Write as _;

const OLD: &str = "3006.30";
const NEW: &str = "3007.17";

/// systemd's `TimeoutStopSec`, as a distribution's unit has it by default.
const STOP_SECONDS: u64 = 90;

/// How long jobs are published before and after what is measured.
const AROUND_SECONDS: u64 = 5;

/// How long nothing is done, for comparison, and how long before that: 3007.17 keeps the process of each job for half a minute.
const CONTROL_SECONDS: u64 = 30;
const SETTLING_SECONDS: u64 = 35;

/// Jobs a second that every release carries for minutes.
const LOSSES_RATE: f64 = 2.0;

/// Prints while it goes: the whole takes minutes, and the test's output is shown at its end only.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn row(what: &str, report: &Report) {
    say(&report.row(what));
    for job in report.lost.iter().take(3) {
        say(&format!("    lost: {} ({}, {:.1} s after the beginning)", job.name, job.kind, job.at));
    }
}

/// What a package's scriptlet does: SIGTERM to the first process, and a start when it is gone.
fn as_a_package(version: &str, rate: f64) {
    let master = Master::start(&tree(MASTER), true);
    let marks = Marks::new();
    let mut minion = Minion::start(&tree(version), "package", &(marks.configuration(&[&master]) + TICKS));
    master.hears(&["package"]);
    marks.started(1);
    let stream = Stream::begin("package", &marks, &[&master], &Plan::of(rate));
    stream.run(AROUND_SECONDS);
    let told = stream.age();
    minion.terminate(STOP_SECONDS);
    let gone = stream.age() - told;
    minion.start_again();
    minion.healthy();
    stream.run(AROUND_SECONDS);
    row(&format!("{version}: SIGTERM, gone after {gone:.0} s, start"), &stream.end());
}

/// A stream across one command of sidle; the row says so when the command failed.
fn across(scene: &Scene, what: &str, plan: &Plan, verb: &str, arguments: &[&str]) {
    let stream = scene.stream(plan);
    stream.run(AROUND_SECONDS);
    let ran = scene.verb(verb, arguments);
    stream.run(AROUND_SECONDS);
    row(what, &stream.end());
    if ran.code != Some(0) {
        say(&format!("    exit code {:?}: {}", ran.code, ran.stderr.trim()));
    }
}

/// The same stream while nothing is done.
fn control(scene: &Scene, version: &str, rate: f64) {
    let before = scene.stream(&Plan::of(rate));
    before.run(SETTLING_SECONDS);
    before.end();
    let stream = scene.stream(&Plan::of(rate));
    stream.run(CONTROL_SECONDS);
    row(&format!("{version}: no switch"), &stream.end());
}

#[test]
#[ignore = "a measurement: `scripts/bench handover` runs it"]
fn bench_handover() {
    let switches: usize = std::env::var("SIDLE_BENCH_SWITCHES").map_or(10, |text| text.parse().unwrap());
    let scene = Scene::with(&Wanted { schedule: TICKS, ..Wanted::of(&[OLD, NEW, MASTER]) });
    let (rate, _) = scene.calibrate(&RATES);
    say(&format!("{rate} jobs a second, every 7th compound, every 20th of 12 s (but for idle)\n{}", Report::titles()));
    control(&scene, OLD, rate);
    let release = |version: &str| format!("{version}-1");
    // Jobs of 12 s that overlap would keep it busy for ever.
    let short = Plan::short(rate);
    across(
        &scene,
        &format!("{OLD} to {NEW}: switch --mode idle"),
        &short,
        "switch",
        &[&release(NEW), "--mode", "idle", "--deadline", "60s"],
    );
    across(&scene, &format!("{NEW}: restart --mode idle"), &short, "restart", &["--mode", "idle", "--deadline", "60s"]);
    control(&scene, NEW, rate);
    let plan = Plan::of(rate);
    for number in 0..switches {
        let (what, verb, to) = match number % 4 {
            0 => (format!("{NEW} to {MASTER}: switch --mode overlap"), "switch", Some(release(MASTER))),
            1 => (format!("{MASTER}: restart --mode overlap"), "restart", None),
            2 => (format!("{MASTER} to {OLD}: switch --mode overlap"), "switch", Some(release(OLD))),
            _ => (format!("{OLD} to {NEW}: switch --mode overlap"), "switch", Some(release(NEW))),
        };
        let arguments: Vec<&str> = to.as_deref().into_iter().chain(["--mode", "overlap"]).collect();
        across(&scene, &what, &plan, verb, &arguments);
        if number == 0 {
            control(&scene, MASTER, rate);
        }
    }
    drop(scene);
    for version in [OLD, NEW, MASTER] {
        as_a_package(version, rate);
    }
}

#[test]
#[ignore = "a measurement: `scripts/bench losses` runs it"]
fn bench_losses() {
    let minutes: u64 = std::env::var("SIDLE_BENCH_MINUTES").map_or(10, |text| text.parse().unwrap());
    let releases = [OLD, NEW, MASTER];
    let scene = Scene::with(&Wanted { schedule: TICKS, ..Wanted::of(&releases) });
    let mut jobs = 0.0;
    say(&Report::titles());
    for version in releases {
        if version != OLD {
            scene.switch(&[&format!("{version}-1"), "--mode", "idle", "--deadline", "60s"]).ok();
            scene.answers();
        }
        let stream = scene.stream(&Plan::short(LOSSES_RATE));
        stream.run(minutes * 60 / 3);
        let report = stream.end();
        row(&format!("{version}: nothing is done"), &report);
        for finding in report.findings() {
            say(&format!("    {finding}"));
        }
        jobs += f64::from(report.published);
    }
    // Of what was not seen in n tries, the rate is below 3/n with 95 % confidence.
    say(&format!("where none is lost: Salt loses fewer than one job in {:.0} (95 %)", jobs / 3.0));
}
