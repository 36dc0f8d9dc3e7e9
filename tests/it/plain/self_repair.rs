//! Trees that are looked after: mended while they run, scrubbed slowly, left for the release before where nothing mends them.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::support::eventually;
use crate::support::stage::{Author, DEMO, Host, SIDLE};
use crate::support::trees;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const MENDED_SECONDS: u64 = 20;

/// A host with two releases that share nearly all files, of which the second one is current.
pub struct Site {
    pub host: Host,
    pub _author: Author,
}

impl Site {
    pub fn new(settings: &str) -> Self {
        let author = Author::new();
        let many = |tree: &Path| {
            for number in 0..40 {
                trees::put(tree, &format!("lib/many/file{number}"), &trees::noise(number, 5000), 0o644);
            }
        };
        let (old, new) = (author.release_with("1.0", many), author.release_with("1.1", many));
        let host = Host::new(&author);
        fs::write(host.path("etc/sidle/conf.d/test.toml"), settings).unwrap();
        host.install(&old).ok();
        host.install(&new).ok();
        Self { host, _author: author }
    }

    pub fn tree(&self, release: &str) -> PathBuf {
        self.host.path(&format!("opt/sidle/{DEMO}/versions/{release}"))
    }

    pub fn switch(&self, release: &str) {
        self.host.sidle(&["switch", DEMO, release, "--mode", "now"]).ok();
    }

    pub fn incidents(&self) -> Vec<Value> {
        self.host.sidle(&["--json", "history", DEMO]).json()["incidents"].as_array().unwrap().clone()
    }

    pub fn agent(&self) -> u32 {
        let agents = self.host.agents();
        assert_eq!(agents.len(), 1, "{agents:?}");
        agents[0]
    }

    /// Waits until the tree is as it was.
    pub fn is_whole_again(&self, release: &str, whole: &crate::support::inside::Contents) {
        eventually(MENDED_SECONDS, "the tree is whole again", || {
            let now = trees::contents(&self.tree(release));
            let differ = whole.iter().filter(|(path, entry)| now.get(*path) != Some(entry)).count();
            if now == *whole { Ok(()) } else { Err(format!("{differ} entries differ")) }
        });
    }
}

#[test]
fn what_breaks_in_the_running_tree_is_mended_at_once_and_the_agent_goes_on() {
    let site = Site::new("scrub_every = \"0s\"\n");
    let _supervisor = site.host.supervise();
    site.switch("1.1-1");
    let (agent, tree, whole) = (site.agent(), site.tree("1.1-1"), trees::contents(&site.tree("1.1-1")));
    for round in 0..3 {
        match round {
            0 => fs::remove_dir_all(tree.join("lib/many")).unwrap(),
            1 => {
                // The directory was made anew: it is watched all the same.
                fs::remove_file(tree.join("lib/many/file3")).unwrap();
                fs::write(tree.join("lib/many/file4"), "other").unwrap();
            }
            _ => {
                fs::set_permissions(tree.join("lib/many/file5"), fs::Permissions::from_mode(0o666)).unwrap();
                fs::write(tree.join("lib/sitecustomize.py"), "raise SystemExit").unwrap();
            }
        }
        site.is_whole_again("1.1-1", &whole);
        eventually(MENDED_SECONDS, "it is remembered", || match site.incidents().len() {
            count if count > round => Ok(()),
            count => Err(count.to_string()),
        });
    }
    assert_eq!(site.agent(), agent, "the agent was disturbed");
    let incidents = site.incidents();
    assert!(incidents.iter().all(|incident| incident["occasion"] == "watch" && incident["left"] == 0), "{incidents:?}");
    assert!(incidents[0]["mended"].as_u64().unwrap() >= 41 && incidents[0]["problems"].as_array().unwrap().len() == 10);
    assert!(incidents.iter().any(|incident| incident["aside"] == 1), "{incidents:?}");
    let told = site.host.sidle(&["status", DEMO]).stdout;
    assert!(told.contains("tree       1.1-1 is whole; never scrubbed") && told.contains("damage     "), "{told}");
    let metrics = site.host.sidle(&["metrics"]).ok();
    let problems = format!("sidle_tree_problems{{package=\"{DEMO}\",release=\"1.1-1\"}} 0");
    for line in ["# TYPE sidle_tree_problems gauge", &problems] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[test]
fn strays_stand_against_nothing() {
    let site = Site::new("");
    fs::write(site.tree("1.1-1").join("lib/many/core.123"), "dump").unwrap();
    site.host.sidle(&["run", DEMO, "--release", "1.1-1", "demo-agent", "--", "--help"]);
    let verified = site.host.sidle(&["verify", DEMO, "1.1-1"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert!(verified.stdout.contains("core.123 does not belong there, but harms nothing"), "{verified:?}");
    fs::write(site.tree("1.1-1").join("lib/many/core.py"), "import os").unwrap();
    let verified = site.host.sidle(&["verify", DEMO, "1.1-1"]);
    assert_eq!(verified.code, Some(6), "{verified:?}");
}

/// Runs a command in a user namespace whose root may have no more than so many watches.
pub fn with_watches(count: u32, program: &str) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("echo {count} > /proc/sys/user/max_inotify_watches && exec \"$@\"");
    command.args(["--user", "--map-root-user", "sh", "-c", &script, "sh", program]);
    command
}

#[test]
fn a_current_release_that_nothing_mends_is_left_for_the_one_before_and_that_is_said() {
    let site = Site::new("");
    let supervisor = site.host.supervise();
    for release in ["1.0-1", "1.1-1"] {
        site.switch(release);
    }
    supervisor.end();
    // Only this release has this content.
    fs::remove_file(site.tree("1.1-1").join("share/demo-agent/release")).unwrap();
    let ran = site.host.sidle(&["run", DEMO, "demo-agent", "--", "--no-such-option"]);
    assert!(ran.stderr.contains("1.1-1 is damaged and cannot be repaired here: 1.0-1 runs instead"), "{ran:?}");
    let _supervisor = site.host.supervise();
    let current = site.host.path(&format!("opt/sidle/{DEMO}/current"));
    eventually(20, "the release before is the current one", || match fs::read_link(&current).unwrap() {
        target if target.ends_with("1.0-1") => Ok(()),
        target => Err(format!("{}: {:?}", target.display(), site.host.sidle(&["status", DEMO]))),
    });
    assert_eq!(site.host.answering("still"), "1.0");
    let last = site.host.last();
    assert!(last["reason"].as_str().unwrap().contains("share/demo-agent/release is missing"), "{last}");
    assert_eq!((&last["by"], &last["result"]), (&"supervisor".into(), &"committed".into()), "{last}");
}

/// The scrub ended at the first release that it could not read, and hashed those before it again each ten minutes.
#[test]
fn a_scrub_goes_on_behind_a_release_that_it_cannot_read() {
    let site = Site::new("");
    let manifest = site.host.path(&format!("var/lib/sidle/{DEMO}/1.0-1/manifest.json.zst"));
    fs::write(&manifest, "{}").unwrap();
    let ran = site.host.sidle(&["--json", "scrub", DEMO]);
    assert!(ran.code.is_some_and(|code| code != 0), "{ran:?}");
    let told = ran.json();
    let sound =
        |at: usize| (told["releases"][at]["release"].as_str().unwrap(), told["releases"][at]["sound"].as_bool());
    assert_eq!((sound(0), sound(1)), (("1.0-1", Some(false)), ("1.1-1", Some(true))), "{told}");
    assert!(told["releases"][0]["problems"][0].as_str().unwrap().contains("manifest.json.zst"), "{told}");
}

#[test]
fn a_scrub_finds_what_the_index_hides_gives_way_and_goes_on_where_it_was_interrupted() {
    let author = Author::new();
    let bundle = author.release_with("2.0", |tree| {
        for number in 0..1000 {
            trees::put(tree, &format!("lib/more/file{number:04}"), &trees::noise(number, 100), 0o644);
        }
    });
    let host = Host::new(&author);
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "scrub_rate = \"5KiB\"\n").unwrap();
    host.install(&bundle).ok();
    let record = host.path(&format!("var/lib/sidle/{DEMO}/2.0-1/scrub"));
    let done = || -> Result<(u64, u64, bool), String> {
        let text = fs::read_to_string(&record).map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok((value["done"].as_u64().unwrap(), value["all"].as_u64().unwrap(), value["ended_at"].is_null()))
    };
    let mut scrub = Command::new(SIDLE).arg("--root").arg(host.path("")).arg("scrub").spawn().unwrap();
    let (before, all, _) = eventually(20, "a piece is done", &done);
    let stat = fs::read_to_string(format!("/proc/{}/stat", scrub.id())).unwrap();
    assert_eq!(stat.rsplit_once(") ").unwrap().1.split(' ').nth(16), Some("19"), "its nice value: {stat}");
    let class = Command::new("ionice").args(["-p", &scrub.id().to_string()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&class.stdout).trim(), "idle");
    scrub.kill().unwrap();
    scrub.wait().unwrap();
    assert!(before < all, "it was over before it could be interrupted: {before} of {all}");
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "scrub_rate = \"1GiB\"\n").unwrap();
    // Behind the place of the interruption, and as the index knows it: its own times say that nothing has changed.
    let manifest_last = host.path(&format!("opt/sidle/{DEMO}/versions/2.0-1/lib/more/file0999"));
    fs::File::options().write(true).open(&manifest_last).unwrap().write_all_at(b"??", 7).unwrap();
    let ran = host.sidle(&["--json", "scrub", DEMO]);
    assert_eq!(ran.code, Some(6), "no other release has the file: {ran:?}");
    let told = ran.json();
    assert!(told["releases"][0]["problems"][0].as_str().unwrap().contains("file0999 has other content"), "{told}");
    let repaired = host.sidle(&["repair", DEMO, "--from", bundle.to_str().unwrap()]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    let ran = host.sidle(&["--json", "scrub", DEMO]).json();
    assert_eq!(ran["releases"][0]["sound"], true, "{ran}");
    assert_eq!(done().unwrap(), (all, all, false));
    let occasions: Vec<Value> =
        host.sidle(&["--json", "history", DEMO]).json()["incidents"].as_array().unwrap().clone();
    assert_eq!(occasions.iter().map(|one| one["occasion"].as_str().unwrap()).collect::<Vec<_>>(), ["scrub", "request"]);
}

#[test]
fn a_supervisor_has_its_package_scrubbed_when_nobody_else_does() {
    let site = Site::new("scrub_every = \"1s\"\n");
    let _supervisor = site.host.supervise();
    site.switch("1.1-1");
    eventually(60, "a scrub is recorded", || match site.host.sidle(&["status", DEMO]).stdout {
        told if told.contains("1.1-1 is whole; scrubbed 20") => Ok(()),
        told => Err(told),
    });
    let metrics = site.host.sidle(&["metrics"]).ok();
    assert!(metrics.contains("sidle_scrub_ended_seconds{"), "{metrics}");
}

#[test]
fn a_repair_does_not_wait_for_a_scrub() {
    let author = Author::new();
    let many = |tree: &Path| {
        for number in 0..600 {
            trees::put(tree, &format!("lib/many/file{number}"), &trees::noise(number, 400), 0o644);
        }
    };
    let bundles = [author.release_with("1.0", many), author.release_with("1.1", many)];
    let host = Host::new(&author);
    fs::write(host.path("etc/sidle/conf.d/test.toml"), "scrub_every = \"1s\"\nscrub_rate = \"1KiB\"\n").unwrap();
    for bundle in &bundles {
        host.install(bundle).ok();
    }
    let site = Site { host, _author: author };
    let _supervisor = site.host.supervise();
    site.switch("1.1-1");
    let record = site.host.path(&format!("var/lib/sidle/{DEMO}/1.0-1/scrub"));
    eventually(60, "a scrub is under way", || fs::metadata(&record).map_err(|error| error.to_string()));
    let whole = trees::contents(&site.tree("1.1-1"));
    fs::remove_file(site.tree("1.1-1").join("lib/many/file7")).unwrap();
    site.is_whole_again("1.1-1", &whole);
    let scrubbed: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    assert!(scrubbed["ended_at"].is_null(), "it was over before it could stand in the way: {scrubbed}");
}
