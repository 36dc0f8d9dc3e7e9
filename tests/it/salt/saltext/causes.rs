//! Causes for which a minion does not return a job, on each Salt: what they write to their logs and caches differs.

use super::why::Fleet;
use crate::support::eventually;
use crate::support::salt::{Minion, START_SECONDS};
use crate::support::stage::text;
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const NEWEST: &str = "3008.5";

/// Signs in with version 2.
const OLD: &str = "3006.9";

/// Its main process gives up a return within seconds.
const OPTIONS: &str =
    "log_level_logfile: info\nreturn_retry_timer: 2\nreturn_retry_timer_max: 3\nreturn_retry_tries: 1\n";

/// A minion that meets one trouble after the other.
struct World {
    version: &'static str,
    minion: Minion,
    pillar: TempDir,
    fleet: Fleet,
}

impl World {
    fn new(version: &'static str) -> Self {
        let pillar = tempfile::tempdir().unwrap();
        fs::write(pillar.path().join("top.sls"), "base: {'*': [site]}\n").unwrap();
        fs::write(pillar.path().join("site.sls"), "role: app\n").unwrap();
        let options = format!("minimum_auth_version: 3\npillar_roots: {{base: [{}]}}\n", text(pillar.path()));
        let fleet = Fleet::new(version, &options);
        let minion = fleet.minion(version, ("web1", "127.0.0.41"), OPTIONS);
        // A minion that is expected, so that jobs are published.
        let world = Self { version, minion, pillar, fleet };
        fs::copy(world.keys("master.pub"), world.keys("minions/ghost")).unwrap();
        world.fleet.waits("web1");
        world
    }

    fn keys(&self, path: &str) -> PathBuf {
        self.fleet.master.keys().join(path)
    }

    fn publish(&self, target: &str, words: &[&str]) -> String {
        self.fleet.master.publish(target, words)
    }

    fn call(&self, words: &[&str]) -> String {
        self.fleet.master.call("web1", words)
    }

    fn comes_to(&self, jid: &str, cause: &str) -> serde_json::Value {
        let words: Vec<&str> = ["web1", jid].into_iter().filter(|word| !word.is_empty()).collect();
        self.fleet.comes_to(&words, cause)
    }

    /// Its key, and what was published before and just after it was accepted.
    fn is_accepted(&self) {
        self.fleet.comes_to(&["web9"], "no-key");
        self.comes_to("", "key-pending");
        fs::rename(self.keys("minions_pre/web1"), self.keys("minions_rejected/web1")).unwrap();
        self.comes_to("", "key-rejected");
        fs::rename(self.keys("minions_rejected/web1"), self.keys("minions_pre/web1")).unwrap();
        let early = self.publish("*", &["test.ping"]);
        // Else it may be connected when the job is published.
        self.minion.signal(SignalNumber::STOP);
        self.fleet.master.accept("web1");
        let too_early = self.publish("web1", &["test.ping"]);
        self.minion.signal(SignalNumber::CONT);
        self.fleet.syncs("web1");
        self.comes_to(&early, "accepted-later");
        self.comes_to(&too_early, "not-yet-connected");
        self.fleet.forgets_what_was_published();
        self.comes_to("", "nothing-missing");
        self.comes_to("20200101000000000000", "job-expired");
        self.comes_to("deploy-42", "job-unknown");
    }

    fn returns(&self) {
        let slow = self.publish("web1", &["test.sleep", "12"]);
        self.comes_to(&slow, "running");
        let [wrong, bad, good] = [&["no.such_function"][..], &["cmd.run", "exit 3"], &["test.ping"]]
            .map(|words| self.publish("web1", words));
        let other = self.publish("ghost", &["test.ping"]);
        for jid in [&wrong, &bad, &good] {
            self.fleet.returns("web1", jid);
        }
        self.comes_to(&wrong, "function-missing");
        self.comes_to(&bad, "failed");
        self.comes_to(&good, "returned");
        self.comes_to(&other, "not-targeted");
        self.fleet.returns("web1", &slow);
        self.comes_to(&slow, "returned-late");
    }

    /// Before its grain was there, and after its pillar had changed.
    fn was_not_meant_or_did_not_know_it(&self) {
        let without = self.publish("-C", &["ghost or G@role:db", "test.ping"]);
        self.call(&["grains.set", "role", "db"]);
        self.call(&["saltutil.refresh_grains"]);
        self.comes_to(&without, "matched-later");

        // The master's copy is renewed, and the minion's process has what it had.
        fs::write(self.pillar.path().join("site.sls"), "role: db\n").unwrap();
        self.call(&["pillar.items"]);
        let stale = self.publish("-I", &["role:db", "test.ping"]);
        self.comes_to(&stale, "target-does-not-match");
    }

    fn waits_or_lost_its_return(&self) {
        let first = self.publish("web1", &["state.single", "cmd.run", "name=sleep 25"]);
        self.minion.busy_with("state.single");
        let second = self.publish("web1", &["state.single", "test.nop", "name=later", "queue=True"]);
        self.comes_to(&second, "queued");
        for jid in [&first, &second] {
            self.fleet.returns("web1", jid);
        }
        fs::remove_dir_all(self.fleet.job(&second).join("web1")).unwrap();
        self.comes_to(&second, "return-lost");
    }

    /// A question does not change the next answer; another command deletes what told of the end.
    fn the_process_of_a_job_is_killed(&self) {
        let killed = self.publish("web1", &["test.sleep", "600"]);
        let told = self.comes_to(&killed, "running")["text"].as_str().unwrap().to_owned();
        let pid = told.split("in process ").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        Identity::of(pid.parse().unwrap()).unwrap().expect(&told).signal(SignalNumber::KILL).unwrap();
        self.comes_to(&killed, "died");
        assert_eq!(self.fleet.why(&["web1", &killed])["cause"], "died", "asked twice");
        self.call(&["saltutil.running"]);
        self.comes_to(&killed, "ended-silently");
    }

    fn the_master_is_away_when_it_returns(&mut self) {
        let lost = self.publish("web1", &["test.sleep", "8"]);
        self.minion.busy_with("test.sleep");
        // It takes the return, and ends before it has read it: what cannot be sent, Salt sends later.
        self.fleet.master.signal(SignalNumber::STOP);
        eventually(60, "the minion gives up", || {
            let log = self.minion.log();
            if log.contains(&format!("failed to return the job information for job {lost}")) {
                Ok(())
            } else {
                Err(log)
            }
        });
        self.fleet.master.kill();
        self.fleet.master.start_again();
        self.fleet.answers("web1");
        self.comes_to(&lost, "master-restarted");
    }

    /// On 3008 the master ends the connection of a process that stands still.
    fn is_stopped_and_started(&mut self) {
        self.minion.signal(SignalNumber::STOP);
        let still = self.publish("web1", &["test.ping"]);
        self.comes_to(&still, if self.version == NEWEST { "offline" } else { "hung" });
        self.minion.signal(SignalNumber::CONT);
        self.fleet.answers("web1");
        self.minion.end();
        let missed = self.publish("web1", &["test.ping"]);
        self.comes_to(&missed, "offline");
        self.minion.start_again();
        self.fleet.answers("web1");
        self.comes_to(&missed, "was-stopped");
        // Without a log that names jobs.
        let etc = self.minion.path("etc/minion");
        let quiet = fs::read_to_string(&etc).unwrap().replace("logfile: info", "logfile: warning");
        self.minion.end();
        fs::write(&etc, quiet).unwrap();
        self.minion.start_again();
        self.fleet.answers("web1");
        self.comes_to(&missed, "restarted");
    }

    fn is_not_let_in(&mut self) {
        let old = self.fleet.minion(OLD, ("old", "127.0.0.42"), "");
        let public = old.path("keys/minion.pub");
        eventually(START_SECONDS, "it has a key", || if public.exists() { Ok(()) } else { Err(old.log()) });
        for (id, key) in [("old", &public), ("gone", &self.keys("minions/ghost"))] {
            fs::copy(key, self.keys("minions").join(id)).unwrap();
        }
        // As its sign-in left it, a hundred days ago.
        let session = self.fleet.master.place().cache.join("sessions/gone");
        fs::create_dir_all(session.parent().unwrap()).unwrap();
        assert!(Command::new("touch").args(["-d", "100 days ago"]).arg(&session).status().unwrap().success());
        self.minion.end();
        fs::remove_dir_all(self.minion.path("keys")).unwrap();
        self.minion.start_again();
        let jid = self.publish("*", &["test.ping"]);
        // A master of 3006 logs that it refuses a sign-in, and not whose.
        let too_old = if self.version.starts_with("3006") { "never-seen" } else { "sign-in-refused" };
        for (id, cause) in [("old", too_old), ("web1", "key-changed"), ("gone", "gone"), ("ghost", "never-seen")] {
            self.fleet.comes_to(&[id, &jid], cause);
        }
    }
}

fn each_is_named(version: &'static str) {
    let world = World::new(version);
    world.is_accepted();
    world.returns();
    world.was_not_meant_or_did_not_know_it();
    world.waits_or_lost_its_return();
    world.the_process_of_a_job_is_killed();
}

/// The same of a minion or a master that is away, or was.
fn each_absence_is_named(version: &'static str) {
    let mut world = World::new(version);
    world.fleet.master.accept("web1");
    world.fleet.syncs("web1");
    world.fleet.forgets_what_was_published();
    world.the_master_is_away_when_it_returns();
    world.is_stopped_and_started();
    world.is_not_let_in();
    world.fleet.master.kill();
    world.comes_to("", "master-down");
}

#[test]
#[ignore = "`scripts/test --long`: twenty causes, one after the other; `--all` shows some of them on 3007.17"]
fn causes_are_named_on_3006() {
    each_is_named("3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: twenty causes, one after the other; `--all` shows some of them on 3007.17"]
fn causes_are_named_on_3007() {
    each_is_named("3007.17");
}

#[test]
#[ignore = "`scripts/test --long`: twenty causes, one after the other; `--all` shows some of them on 3007.17"]
fn causes_are_named_on_3008() {
    each_is_named(NEWEST);
}

#[test]
#[ignore = "`scripts/test --long`: processes that are ended and started, and waited for"]
fn absences_are_named_on_3006() {
    each_absence_is_named("3006.30");
}

#[test]
#[ignore = "`scripts/test --long`: processes that are ended and started, and waited for"]
fn absences_are_named_on_3007() {
    each_absence_is_named("3007.17");
}

#[test]
#[ignore = "`scripts/test --long`: processes that are ended and started, and waited for"]
fn absences_are_named_on_3008() {
    each_absence_is_named(NEWEST);
}
