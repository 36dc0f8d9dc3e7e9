//! One job to all, and thirteen minions of four releases whose returns are missing, for twelve reasons.

use super::why::Fleet;
use crate::support::eventually;
use crate::support::salt::{Minion, START_SECONDS};
use crate::support::stage::text;
use serde_json::{Value, json};
use sidle::os::proc_fs;
use sidle::os::process::SignalNumber;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Why each of them is missing.
const CAUSES: [(&str, &[&str]); 12] = [
    ("died", &["dying"]),
    ("gone", &["gone"]),
    ("key-changed", &["swapped"]),
    ("key-pending", &["pending"]),
    ("key-rejected", &["rejected"]),
    ("never-seen", &["never"]),
    // A master of 3008 ends the connection of a process that stands still.
    ("offline", &["away", "hung"]),
    ("restarted", &["restarted"]),
    ("return-lost", &["good"]),
    ("running", &["slow"]),
    ("sign-in-refused", &["old"]),
    ("was-stopped", &["stopped"]),
];

/// Those that live when the others are made ready, and their Salt.
const LIVING: [(&str, &str); 8] = [
    ("good", "3008.5"),
    ("slow", "3007.17"),
    ("dying", "3006.30"),
    ("hung", "3007.17"),
    ("away", "3008.5"),
    ("stopped", "3008.5"),
    ("restarted", "3006.30"),
    ("swapped", "3006.30"),
];

/// Signs in with version 2, which this master does not take.
const OLD: &str = "3006.9";

/// Each call leaves a line; what else it does is in the name of the minion.
const MODULE: &str = "import os
import signal
import time


def act():
    name = __opts__['id']
    with open(__opts__['acted'], 'a') as file:
        file.write(name + '\\n')
    if name == 'slow':
        time.sleep(180)
    if name == 'dying':
        os.kill(os.getpid(), signal.SIGKILL)
    return True
";

struct World {
    minions: BTreeMap<&'static str, Minion>,
    acted: TempDir,
    fleet: Fleet,
}

impl World {
    /// All that live, with what they need.
    fn new() -> Self {
        let fleet = Fleet::new("3008.5", "minimum_auth_version: 3\n");
        fleet.master.file("_modules/trial.py", MODULE);
        let mut world = Self { minions: BTreeMap::new(), acted: tempfile::tempdir().unwrap(), fleet };
        for (id, version) in LIVING {
            world.start(id, version);
            world.fleet.master.accept(id);
        }
        for (id, _) in LIVING {
            world.fleet.answers(id);
            let synced = world.fleet.master.call(id, &["saltutil.sync_modules"]);
            assert!(synced.contains("modules.sidle") && synced.contains("modules.trial"), "{synced}");
        }
        world
    }

    fn start(&mut self, id: &'static str, version: &str) {
        // Only the log of one does not tell of jobs.
        let level = if id == "restarted" { "warning" } else { "info" };
        let address = format!("127.0.0.{}", 21 + self.minions.len());
        let options = format!("log_level_logfile: {level}\nacted: {}\n", text(&self.acted()));
        self.minions.insert(id, self.fleet.minion(version, (id, &address), &options));
    }

    fn acted(&self) -> std::path::PathBuf {
        self.acted.path().join("acted")
    }

    fn minion(&mut self, id: &str) -> &mut Minion {
        self.minions.get_mut(id).unwrap()
    }

    /// Brings each into its trouble, as far as that is before the job.
    fn break_all(&mut self) {
        let keys = self.fleet.master.keys();
        for (id, version) in [("pending", "3006.30"), ("rejected", "3007.17"), ("old", OLD)] {
            self.start(id, version);
        }
        let first = self.minion("swapped").leader();
        let before: Vec<u32> = proc_fs::descendants(first.pid).unwrap().iter().map(|process| process.pid).collect();
        for id in ["away", "stopped", "restarted", "swapped"] {
            self.minion(id).end();
        }
        // Salt takes a process that nobody has taken note of for a running minion.
        eventually(30, "its processes are gone", || {
            let left = before.iter().filter(|pid| proc_fs::process(**pid).unwrap().is_some()).count();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        });
        let swapped = self.minion("swapped");
        fs::remove_dir_all(swapped.path("keys")).unwrap();
        swapped.start_again();
        eventually(START_SECONDS, "the master refuses the other key", || {
            let log = self.fleet.master.log();
            let is_refused = log.lines().any(|line| line.contains("swapped") && line.contains("did not match"));
            if is_refused { Ok(()) } else { Err(self.minions["swapped"].log()) }
        });
        there(&keys.join("minions_pre/pending"));
        there(&keys.join("minions_pre/rejected"));
        fs::rename(keys.join("minions_pre/rejected"), keys.join("minions_rejected/rejected")).unwrap();
        let public = self.minion("old").path("keys/minion.pub");
        there(&public);
        // Any key: of one that does not sign in again.
        let any = keys.join("minions/away");
        for (id, key) in [("old", &public), ("never", &any), ("gone", &any)] {
            fs::copy(key, keys.join("minions").join(id)).unwrap();
        }
        // As its sign-in left it, a hundred days ago.
        let session = self.fleet.master.place().cache.join("sessions/gone");
        fs::create_dir_all(session.parent().unwrap()).unwrap();
        let touched = Command::new("touch").args(["-d", "100 days ago"]).arg(&session).status().unwrap();
        assert!(touched.success());
        self.minion("hung").signal(SignalNumber::STOP);
        self.fleet.forgets_what_was_published();
    }

    /// Publishes the job to all, and starts those again that were to miss it.
    fn publish(&mut self) -> String {
        let jid = self.fleet.master.publish("*", &["trial.act"]);
        eventually(60, "those that hear it have begun", || {
            let acted = self.calls();
            let begun = ["good", "slow", "dying"].iter().all(|id| acted.contains_key(*id));
            if begun && self.fleet.has_returned("good", &jid) { Ok(()) } else { Err(format!("{acted:?}")) }
        });
        for id in ["stopped", "restarted"] {
            self.minion(id).start_again();
        }
        for id in ["stopped", "restarted"] {
            self.fleet.answers(id);
        }
        jid
    }

    /// How often each has run the job.
    fn calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        for id in fs::read_to_string(self.acted()).unwrap_or_default().lines() {
            *calls.entry(id.to_owned()).or_default() += 1;
        }
        calls
    }

    fn missing(&self, words: &[&str]) -> Value {
        self.fleet.master.runner(&[&["sidle.missing"], words].concat())
    }
}

fn there(path: &Path) {
    eventually(START_SECONDS, "the file is there", || if path.exists() { Ok(()) } else { Err(text(path).to_owned()) });
}

#[test]
#[ignore = "`scripts/test --long`: eleven real minions; `--all` shows most causes on two"]
fn thirteen_minions_are_missing_for_twelve_causes_and_what_may_run_again_runs_once() {
    let mut world = World::new();
    world.break_all();
    let jid = world.publish();

    fs::remove_dir_all(world.fleet.job(&jid).join("good")).unwrap();
    assert_eq!(world.fleet.why(&["hung", &jid])["cause"], "offline", "Salt's words for its silence are no answer");
    let told = world.missing(&[&jid, "format=data"]);
    let groups = told["groups"].as_array().unwrap_or_else(|| panic!("{told:#}"));
    let mut found: Vec<(Value, Value)> =
        groups.iter().map(|group| (group["cause"].clone(), group["minions"].clone())).collect();
    found.sort_by_key(|(cause, _)| cause.to_string());
    assert_eq!(found, CAUSES.map(|(cause, ids)| (json!(cause), json!(ids))), "{told:#}");
    assert_eq!((&told["expected"], &told["missing"]), (&json!(13), &json!(13)), "{told:#}");
    assert_eq!(told["can_run_again"], json!(["stopped"]), "{told:#}");
    assert!(groups.iter().all(|group| !group["remedy"].as_array().unwrap().is_empty()), "{told:#}");
    let shown = world.missing(&[&jid]);
    println!("{}", shown.as_str().unwrap());

    let unseen = world.missing(&[&jid, "run_again=True"]);
    assert!(unseen["error"].as_str().unwrap().contains("unseen"), "{unseen:#}");
    assert_eq!(told["job"].as_str().unwrap().split(' ').next(), told["function"].as_str(), "{told:#}");
    let choice = format!("run_again={}", told["digest"].as_str().unwrap());
    let again = world.missing(&[&jid, "format=data", &choice]);
    let note = again["notes"].to_string();
    let new = note.split("as job ").nth(1).unwrap_or_else(|| panic!("{again:#}"))[..20].to_owned();
    eventually(30, "it has returned", || {
        if world.fleet.has_returned("stopped", &new) { Ok(()) } else { Err(note.clone()) }
    });
    let twice = world.missing(&[&jid, "format=data", &choice]);
    assert!(twice["notes"].to_string().contains("nobody runs it again"), "{twice:#}");
    let once = ["dying", "good", "slow", "stopped"].map(|id| (id.to_owned(), 1));
    assert_eq!(world.calls(), BTreeMap::from(once));
}
