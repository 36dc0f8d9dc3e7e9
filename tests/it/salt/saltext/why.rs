//! Why a minion did not return: the runner's answers below a real master, with minions in each kind of trouble.

use crate::support::eventually;
use crate::support::extension::{copy_into, source};
use crate::support::salt::{Master, Minion, START_SECONDS, tree};
use crate::support::stage::{SIDLE, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Commands wait for four seconds here: two, and two more for a minion that does not say that it works on the job.
const OPTIONS: &str = "timeout: 2\ngather_job_timeout: 2\nsidle: {answer_seconds: 8}\n";

pub(super) struct Fleet {
    pub master: Master,
}

impl Fleet {
    /// Below a master of this Salt; `options`: lines of its configuration.
    pub fn new(version: &str, options: &str) -> Self {
        let runners = source().join("src/saltext/sidle/runners");
        let options = format!("runner_dirs: [{}]\n{OPTIONS}{options}", text(&runners));
        let master = Master::start_with(&tree(version), false, &options);
        copy_into(&master.files());
        Self { master }
    }

    /// A minion with an address of its own: the master tells connections apart by it. `options`: lines of its configuration.
    pub fn minion(&self, version: &str, named: (&str, &str), options: &str) -> Minion {
        self.minion_of(&tree(version), named, options)
    }

    pub fn minion_of(&self, tree: &Path, named: (&str, &str), options: &str) -> Minion {
        self.minion_by(tree, named, (self.master.request_port(), self.master.publish_port()), options)
    }

    /// The same by other ports than the master's own.
    pub fn minion_by(
        &self,
        tree: &Path,
        (id, address): (&str, &str),
        (request, publish): (u16, u16),
        options: &str,
    ) -> Minion {
        let master = self.master.address;
        let own = format!(
            "master: {master}\nmaster_port: {request}\npublish_port: {publish}\nsource_address: {address}\n\
             grains: {{ipv4: [{address}], ipv6: []}}\n\
             rejected_retry: True\nsidle: {{program: {SIDLE}}}\n{options}",
        );
        Minion::start(tree, id, &own)
    }

    /// Now, or soon: a cache or a log is behind.
    pub fn comes_to(&self, words: &[&str], cause: &str) -> Value {
        eventually(60, cause, || match self.why(words) {
            told if told["cause"] == cause => Ok(told),
            told => Err(format!("{told:#}")),
        })
    }

    pub fn returns(&self, id: &str, jid: &str) {
        eventually(90, "it has returned", || if self.has_returned(id, jid) { Ok(()) } else { Err(jid.to_owned()) });
    }

    /// It has the modules of the extension.
    pub fn syncs(&self, id: &str) {
        self.answers(id);
        let synced = self.master.call(id, &["saltutil.sync_modules"]);
        assert!(synced.contains("modules.sidle"), "{synced}");
    }

    /// The key of a minion waits at the master.
    pub fn waits(&self, id: &str) {
        let pending = self.master.keys().join("minions_pre").join(id);
        eventually(START_SECONDS, "the key waits", || if pending.exists() { Ok(()) } else { Err(String::new()) });
    }

    /// Empties the job cache: a job that was published while a minion was about to connect may be missed.
    pub fn forgets_what_was_published(&self) {
        fs::remove_dir_all(self.master.place().cache.join("jobs")).unwrap();
    }

    pub fn answers(&self, id: &str) {
        self.master.hears(&[id]);
    }

    /// The directory of a job in the job cache.
    pub fn job(&self, jid: &str) -> PathBuf {
        let jobs = self.master.place().cache.join("jobs");
        let below = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        let is_it = |path: &PathBuf| fs::read_to_string(path.join("jid")).is_ok_and(|text| text == jid);
        below(jobs).filter(|path| path.is_dir()).flat_map(below).find(is_it).unwrap()
    }

    pub fn has_returned(&self, id: &str, jid: &str) -> bool {
        let said = self.master.runner(&["jobs.lookup_jid", jid]);
        said.get(id).is_some()
    }

    /// What the runner answers, as data.
    pub fn why(&self, words: &[&str]) -> Value {
        self.master.runner(&[&["sidle.why"], words, &["format=data"]].concat())
    }

    /// Of the job that both minions missed: of one it is sure that the job did not begin there, of the other it is not. A third minion was accepted and
    /// never came, a fourth one waits for a person.
    fn names_all_that_are_missing(&self, killed: &str, missed: &str) {
        for place in ["minions/web8", "minions_pre/web9"] {
            fs::copy(self.master.keys().join("minions/web1"), self.master.keys().join(place)).unwrap();
        }
        let later = self.master.publish("web*", &["test.ping"]);
        for id in ["web1", "web2"] {
            eventually(
                30,
                "it has returned",
                || if self.has_returned(id, &later) { Ok(()) } else { Err(later.clone()) },
            );
        }
        let of_all = |words: &[&str]| self.master.runner(&[&["sidle.missing"], words, &["format=data"]].concat());
        let causes = |report: &Value| -> Vec<(String, Value)> {
            let groups = report["groups"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
            groups.map(|group| (group["cause"].as_str().unwrap().to_owned(), group["minions"].clone())).collect()
        };
        // It counts once a command has stopped waiting for it.
        let newest = eventually(30, "the newest job counts", || match of_all(&[]) {
            told if told["jid"] == later.as_str() => Ok(told),
            told => Err(format!("{told:#}")),
        });
        assert_eq!(
            causes(&newest),
            [("key-pending".to_owned(), json!(["web9"])), ("never-seen".to_owned(), json!(["web8"]))],
            "{newest:#}"
        );

        let told = of_all(&[missed]);
        assert_eq!((&told["expected"], &told["missing"]), (&json!(3), &json!(3)), "{told:#}");
        let mut found = causes(&told);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [("key-pending", "web9"), ("restarted", "web2"), ("was-stopped", "web1")];
        assert_eq!(found, expected.map(|(cause, id)| (cause.to_owned(), json!([id]))), "{told:#}");
        assert_eq!(told["can_run_again"], json!(["web1"]), "{told:#}");

        let jobs = |report: &Value| -> Vec<(Value, Value, Value)> {
            let jobs = report["jobs"].as_array().unwrap_or_else(|| panic!("{report:#}")).iter();
            jobs.map(|job| (job["jid"].clone(), job["cause"].clone(), job["can_run_again"].clone())).collect()
        };
        let listed = self.master.runner(&["sidle.missed", "web1", "format=data"]);
        let job =
            listed["jobs"].as_array().unwrap_or_else(|| panic!("{listed:#}")).iter().find(|job| job["jid"] == missed);
        let digest = job.unwrap_or_else(|| panic!("{listed:#}"))["digest"].as_str().unwrap().to_owned();
        let choice = format!("run=[{missed}/{digest}]");
        let of_one = self.master.runner(&["sidle.missed", "web1", "format=data", &choice]);
        // After these come jobs that asked whether it is there again.
        assert_eq!(
            jobs(&of_one)[..2],
            [(json!(killed), json!("died"), json!(false)), (json!(missed), json!("was-stopped"), json!(true))],
            "{of_one:#}"
        );
        let note = of_one["notes"][0].as_str().unwrap();
        let jid = note.split("as job ").nth(1).expect(note).to_owned();
        eventually(30, "it has returned", || if self.has_returned("web1", &jid) { Ok(()) } else { Err(jid.clone()) });
        let load = self.master.runner(&["jobs.list_job", &jid]);
        assert_eq!((&load["Minions"], &load["Function"]), (&json!(["web1"]), &json!("test.ping")), "{load:#}");
        assert_eq!(told["digest"], digest, "{told:#}");
        let twice = of_all(&[missed, &format!("run_again={digest}")]);
        assert!(twice["notes"].to_string().contains("nobody runs it again"), "{twice:#}");
    }

    fn assert_cause(&self, words: &[&str], cause: &str, said: &str) {
        let told = self.why(words);
        assert_eq!(told["cause"], cause, "{told:#}");
        assert!(told["text"].as_str().unwrap().contains(said), "{told:#}");
    }
}

#[test]
fn each_minion_that_did_not_return_has_its_cause_and_a_remedy() {
    let fleet = Fleet::new("3007.17", "");
    let mut web1 = fleet.minion("3007.17", ("web1", "127.0.0.11"), "log_level_logfile: info\n");
    let mut web2 = fleet.minion("3007.17", ("web2", "127.0.0.12"), "log_level_logfile: warning\n");
    fleet.master.accept("web1");
    eventually(START_SECONDS, "the second key waits", || match fleet.why(&["web2"]) {
        told if told["cause"] == "key-pending" => Ok(()),
        told => Err(told.to_string()),
    });
    let (waiting, rejected) =
        (fleet.master.keys().join("minions_pre/web2"), fleet.master.keys().join("minions_rejected/web2"));
    fs::rename(&waiting, &rejected).unwrap();
    fleet.assert_cause(&["web2"], "key-rejected", "rejects the key of web2");
    fs::rename(&rejected, fleet.master.keys().join("minions/web2")).unwrap();
    fleet.assert_cause(&["web3"], "no-key", "has no key of web3");
    for (id, minion) in [("web1", &web1), ("web2", &web2)] {
        minion.healthy();
        fleet.answers(id);
        let synced = fleet.master.call(id, &["saltutil.sync_modules"]);
        assert!(synced.contains("modules.sidle"), "{synced}");
    }
    fleet.forgets_what_was_published();
    fleet.assert_cause(&["web1"], "nothing-missing", "has returned each job");
    fleet.assert_cause(&["web1", "20200101000000000000"], "job-expired", "keeps jobs for 24 hours");
    fleet.assert_cause(&["web1", "deploy-42"], "job-unknown", "knows no job deploy-42");

    let slow = fleet.master.publish("web1", &["test.sleep", "60"]);
    web1.busy_with("test.sleep");
    fleet.assert_cause(&["web1"], "running", "still runs the job, in process");
    fleet.assert_cause(&["web2", &slow], "not-targeted", "its target web1 (glob) does not match it");
    let wrong = fleet.master.publish("web1", &["no.such_function"]);
    eventually(30, "it has returned", || if fleet.has_returned("web1", &wrong) { Ok(()) } else { Err(wrong.clone()) });
    fleet.assert_cause(&["web1", &wrong], "function-missing", "has no function no.such_function");
    let other = fleet.master.publish("web2", &["test.ping"]);
    eventually(30, "it has returned", || if fleet.has_returned("web2", &other) { Ok(()) } else { Err(other.clone()) });
    fleet.assert_cause(&["web2", &other], "returned", "web2 did return.");
    eventually(90, "it has returned", || if fleet.has_returned("web1", &slow) { Ok(()) } else { Err(slow.clone()) });
    fleet.assert_cause(&["web1", &slow], "returned-late", "after the job was published");

    let killed = fleet.master.publish("web1", &["test.sleep", "600"]);
    web1.busy_with("test.sleep");
    web1.end();
    web2.end();
    let missed = fleet.master.publish("*", &["test.ping"]);
    fleet.assert_cause(&["web1"], "offline", "web1 is offline; it was last seen");
    web1.start_again();
    web2.start_again();
    fleet.answers("web1");
    fleet.answers("web2");
    fleet.assert_cause(&["web1", &killed], "died", "its process ended before the job was done");
    fleet.assert_cause(&["web1", &missed], "was-stopped", "was not connected when the job was published");
    // The log of the other one does not name jobs: what would decide is named.
    let unsure = fleet.why(&["web2", &missed]);
    assert_eq!(unsure["cause"], "restarted", "{unsure:#}");
    assert!(unsure["missing"].to_string().contains("log_level_logfile: info"), "{unsure:#}");
    let shown = fleet.master.runner(&["sidle.why", "web1", &missed]);
    let lines: Vec<&str> = shown.as_str().unwrap().lines().collect();
    assert!(lines[0].starts_with("web1 was not connected") && lines.contains(&"Remedy:"), "{shown}");
    fleet.names_all_that_are_missing(&killed, &missed);
}
