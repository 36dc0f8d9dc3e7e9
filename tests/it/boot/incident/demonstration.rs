//! The incident beside the demonstration agent, with what no release on the host can mend.

use super::{Alive, Author, DEMO, FORCED, Site, Value, salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched};
use crate::support::ssh::Preflight;
use crate::support::trees;
use std::fs;

/// What works with the Python of bullseye, 3.9: 3008.5 doesn't.
const SALT_SSH: &str = "3007.17";
/// The files that the releases have in common, but for the agent's own few.
const FILES: u64 = 40;

impl Site {
    /// A booted host on which 1.0 runs and 1.1 is installed; a bundle file of 1.2 lies in its root.
    fn of_demonstration(debian: &'static str) -> Self {
        let author = Author::new();
        let release = |version: &str| {
            author.release_with(version, |tree| {
                for number in 0..FILES {
                    trees::put(tree, &format!("lib/many/file{number:02}"), &trees::noise(number, 5000), 0o644);
                }
            })
        };
        let mut site = Self::new(debian, DEMO, &author, &[release("1.0"), release("1.1")]);
        fs::copy(release("1.2"), site.machine.path("1.2.sidle")).unwrap();
        site.machine.boot();
        site.sh("sidle switch demo-agent 1.0-1");
        site.machine.serves("1.0-1");
        site
    }

    /// This agent does a job.
    fn answers(&self, job: &str, script: &str, alive: &Alive) {
        self.machine.job(job, script);
        self.answered(job, alive);
    }

    fn answered(&self, job: &str, alive: &Alive) {
        let done = self.machine.done(job);
        let expected = format!("exit=0\nrelease=1.0\npid={}\n", alive.agent.expect("it runs"));
        assert_eq!(done, expected, "job {job} was done by another one");
    }
}

/// What runs keeps all its files; what doesn't loses them, and that is noticed before it is started.
fn what_was_cleaned_is_noticed_before_its_next_start(site: &Site, alive: &Alive) {
    let versions = format!("{FORCED}/{DEMO}/versions");
    let running = site.files(&site.forced("1.0-1"));
    // As whoever unpacks a bundle leaves it: a word that all is there.
    site.sh(&format!("for release in 1.1-1 1.2-1; do echo $release >{versions}/$release/stamp; done"));
    // Of 1.1 what no other release has is used, of 1.2 nothing.
    let used = ["1.1-1/stamp", "1.1-1/share/demo-agent/release", "1.2-1/stamp"];
    site.month_passes(&used.map(|file| format!("{versions}/{file}")));

    assert_eq!(site.files(&site.forced("1.0-1")), running, "the running release was touched");
    assert_eq!(site.incidents("1.0-1"), Vec::<Value>::new());
    assert_eq!(site.alive(), *alive);
    site.answers("cleaned", "true", alive);
    // The control: hardly anything is left of the others, and their stamps say that all is well.
    assert_eq!(site.sh(&format!("cd {versions}; find 1.1-1 -type f | wc -l; cat 1.1-1/stamp")), "2\n1.1-1\n");
    assert_eq!(site.sh(&format!("cd {versions}; find 1.2-1 -type f | wc -l; cat 1.2-1/stamp")), "1\n1.2-1\n");

    // Out of the release that runs, before its program, which was lost, starts.
    site.exits(6, "sidle verify demo-agent 1.1-1");
    let said = site.exits(64, "sidle run demo-agent --release 1.1-1 demo-agent");
    assert!(said.contains("usage: demo-agent -c CONFIG_DIR"), "{said}");
    site.is_whole("1.1-1").unwrap();
    let incidents = site.incidents("1.1-1");
    assert!(matches!(&incidents[..], [one] if one["occasion"] == "start" && one["left"] == 0), "{incidents:?}");

    // What no release here has: it is not started, the host stays where it is, and the bundle file mends it.
    for command in ["sidle switch demo-agent 1.2-1", "sidle run demo-agent --release 1.2-1 demo-agent"] {
        let said = site.exits(6, command);
        assert!(said.contains("cannot use demo-agent 1.2-1: its files are not what was signed"), "{said}");
    }
    site.sh("sidle repair demo-agent 1.2-1 --from /1.2.sidle");
    site.is_whole("1.2-1").unwrap();
    assert_eq!(site.alive(), *alive);
}

/// Files of the running release are deleted by hand: its siblings have them.
fn what_runs_is_mended_at_once(site: &Site, alive: &Alive) {
    let tree = site.forced("1.0-1");
    let files = site.sh(&format!("cd {tree}; find . -type f ! -path ./share/demo-agent/release | sort"));
    // The program is among them, and a file that is read only when a job wants it.
    let lost: Vec<&str> = files.lines().enumerate().filter(|(n, _)| n % 6 < 2).map(|(_, file)| file).collect();
    assert!(lost.contains(&"./bin/demo-agent") && lost.contains(&"./lib/demo-agent/lazy/greeting"), "{lost:?}");
    site.lose("1.0-1", &lost);
    site.answers("while", "true", alive);
    site.was_mended_at_once("1.0-1", &lost, alive);
    site.answers("mended", "cat \"$DEMO_HOME/lib/demo-agent/lazy/greeting\"", alive);
}

/// Without the link that boot goes by the journal knows. Then what was mended works.
fn the_host_boots_and_goes_on(mut site: Site) {
    site.sh(&format!("rm {FORCED}/{DEMO}/current"));
    for release in ["1.0-1", "1.1-1"] {
        site.machine.cut_power();
        site.machine.boot();
        site.machine.serves(release);
        site.sh("sidle switch demo-agent 1.1-1 || test $? = 3");
        site.machine.serves("1.1-1");
    }
}

/// The store goes to the bad place, and a third release with it.
fn is_in_the_bad_place(site: &Site) -> Alive {
    site.store_is_forced_below_var_tmp("1.0-1");
    let said = site.exits(1, "sidle install /1.2.sidle");
    assert!(said.contains(&format!("removes what is old in {FORCED}/{DEMO}")), "{said}");
    site.sh("sidle install --force-place /1.2.sidle");
    let alive = site.alive();
    site.answers("before", "true", &alive);
    alive
}

/// What the cleaner of this systemd does.
pub(super) fn cleaned(debian: &'static str) {
    let site = Site::of_demonstration(debian);
    let alive = is_in_the_bad_place(&site);
    what_was_cleaned_is_noticed_before_its_next_start(&site, &alive);
}

/// The whole story.
pub(super) fn replayed(debian: &'static str) {
    let site = Site::of_demonstration(debian);
    let ssh = site.reached_by_salt_ssh(SALT_SSH);
    ssh.answers(Preflight::None);
    salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched(&site, &ssh, ["1.0-1", "1.1-1"]);
    site.answers("beside", "true", &site.alive());

    let alive = is_in_the_bad_place(&site);
    // One job lasts as long as all this.
    site.machine.job("through", "for n in $(seq 1200); do test ! -e /run/over || exit 0; sleep 0.1; done; exit 1");
    what_was_cleaned_is_noticed_before_its_next_start(&site, &alive);
    what_runs_is_mended_at_once(&site, &alive);
    let some: Vec<String> = (0..10).map(|number| format!("lib/many/file{number:02}")).collect();
    site.what_nobody_saw_is_mended_by_the_next_supervisor("1.0-1", &some, &alive);
    site.answers("unseen", "true", &alive);
    site.sh("touch /run/over");
    site.answered("through", &alive);
    the_host_boots_and_goes_on(site);
}
