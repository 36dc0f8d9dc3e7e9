//! What a minion missed in a switch with a downtime: the host names the command, the master lists the jobs, and runs them once.

use crate::support::eventually;
use crate::support::extension::{bring_to, source};
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::text;
use crate::support::stream::{Mark, Plan};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// How much longer the new process takes to come up than it would: it loads a grain.
const SLOW_SECONDS: f64 = 25.0;

/// So many of the jobs that are published meanwhile are missed at least.
const LOST_MIN: usize = 30;

/// Jobs a second, and for how many seconds before and after the switch.
const RATE: f64 = 2.0;
const AROUND_SECONDS: u64 = 4;

/// Executions of the stream's jobs, by the name of the job.
fn executions(scene: &Scene) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for Mark { what, name, .. } in scene.marks.all() {
        if what == "run" {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

fn missed(scene: &Scene, words: &[&str]) -> Value {
    scene.master().runner(&[words, &["format=data"]].concat())
}

/// The jobs of a report, without those that others than the stream published.
fn jids(report: &Value) -> BTreeSet<String> {
    let jobs = report["jobs"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
    jobs.map(|job| job["jid"].as_str().unwrap().to_owned()).collect()
}

/// Holds up a minion that finds a file at its start, once: a grain of its own, which sleeps.
pub(super) struct SlowStart {
    grains: TempDir,
}

impl SlowStart {
    /// Held up so long, a new process hears nothing.
    pub(super) fn of(seconds: f64) -> Self {
        let slow = Self { grains: tempfile::tempdir().unwrap() };
        let module = format!(
            "import os, time\n\ndef slow():\n    if os.path.exists({0:?}):\n        os.remove({0:?})\n        time.sleep({seconds})\n    return {{}}\n",
            text(&slow.file())
        );
        fs::write(slow.grains.path().join("slow.py"), module).unwrap();
        slow
    }

    /// The line of the minion's configuration.
    pub(super) fn option(&self) -> String {
        format!("grains_dirs: [{}]\n", text(self.grains.path()))
    }

    fn file(&self) -> PathBuf {
        self.grains.path().join("is_slow")
    }

    /// The next start is held up.
    pub(super) fn arm(&self) {
        fs::write(self.file(), "").unwrap();
    }

    /// Whether a start has been held up since.
    pub(super) fn was_met(&self) -> bool {
        !self.file().exists()
    }
}

/// A minion with the extension whose start can be held up.
fn with_a_slow_start() -> (Scene, SlowStart) {
    let runners = source().join("src/saltext/sidle/runners");
    // The line is one of the master's, too.
    let line = format!("runner_dirs: [{}]\n", text(&runners));
    let slow = SlowStart::of(SLOW_SECONDS);
    let wanted = Wanted { transport: &line, options: &slow.option(), ..Wanted::of(&["3006.30", "3008.5"]) };
    let scene = Scene::idle(&wanted);
    bring_to(&scene);
    scene.run("3006.30");
    (scene, slow)
}

/// Chooses these jobs, twice: each runs once.
fn run_once(scene: &Scene, words: &[&str], lost: &BTreeSet<String>, all: usize) {
    let listed = missed(scene, words);
    let choice = |job: &Value| format!("{}/{}", job["jid"].as_str().unwrap(), job["digest"].as_str().unwrap());
    let choices: Vec<String> = listed["jobs"].as_array().unwrap().iter().map(choice).collect();
    let chosen = format!("run=[{}]", choices.join(","));
    let words = [words, &[chosen.as_str()]].concat();
    let ran = missed(scene, &words);
    assert_eq!(ran["notes"].as_array().unwrap().len(), lost.len(), "{ran:#}");
    eventually(60, "all have run", || match executions(scene) {
        runs if runs.len() == all => Ok(()),
        runs => Err(format!("{} of {all}", runs.len())),
    });
    let twice = missed(scene, &words);
    let notes = twice["notes"].as_array().unwrap();
    assert!(notes.iter().all(|note| note.as_str().unwrap().contains("not run twice")), "{twice:#}");
    assert!(twice["jobs"].as_array().unwrap().iter().all(|job| job["again"] == json!(true)), "{twice:#}");
    let doubled: Vec<_> = executions(scene).into_iter().filter(|(_, count)| *count != 1).collect();
    assert!(doubled.is_empty(), "{doubled:?}");
}

#[test]
#[ignore = "`scripts/test --long`: half a minute of downtime, and a question about each missed job; tests/unit/test_missing.py holds the choice"]
fn what_was_published_in_an_idle_switch_is_listed_exactly_and_runs_once() {
    let (scene, slow) = with_a_slow_start();
    let mut stream = scene.stream(&Plan::short(RATE));
    stream.run(AROUND_SECONDS);
    slow.arm();
    let told = scene.switch(&["3008.5-1", "--mode", "idle"]).ok();
    assert!(slow.was_met(), "the new process was not held up");
    stream.run(AROUND_SECONDS);
    stream.stop();
    let mut report = stream.look();
    // What came is answered within seconds, what was missed never.
    eventually(30, "each job that was heard has returned", || {
        report = stream.look();
        if report.executed == report.returned { Ok(()) } else { Err(format!("{report:?}")) }
    });
    let lost: BTreeSet<String> = report.lost.iter().map(|job| job.jid.clone()).collect();

    let downtimes = scene.host.sidle(&["--json", "missed", scene.package]).json()["instances"][0].clone();
    let downtime = downtimes["downtimes"].as_array().unwrap().last().unwrap().clone();
    let seconds = downtime["seconds"].as_f64().unwrap();
    println!("downtime {seconds:.1} s; {} of {} jobs were missed", lost.len(), report.published);
    assert!(seconds > SLOW_SECONDS && downtime["cause"] == "switch", "{downtimes:#}");
    assert!(lost.len() >= LOST_MIN, "{lost:?}");
    let command = downtimes["command"].as_str().unwrap();
    assert!(told.contains(command), "the end of the switch names it: {command}: {told}");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    assert_eq!(words[..2], ["sidle.missed", ID]);

    let listed = missed(&scene, &words);
    assert_eq!(jids(&listed), lost, "{listed:#}");
    assert!(listed["jobs"].as_array().unwrap().iter().all(|job| job["can_run_again"] == true), "{listed:#}");
    run_once(&scene, &words, &lost, report.jobs.len());
}
