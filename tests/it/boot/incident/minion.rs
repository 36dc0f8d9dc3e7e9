//! The incident beside the real minion: its master publishes jobs all the while, and each is answered.

use super::{FORCED, SALT, Site, Value, salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched};
use crate::support::eventually;
use crate::support::minions;
use crate::support::salt::{Master, START_SECONDS, tree};
use crate::support::scene::{ID, MASTER};
use crate::support::ssh::Preflight;
use crate::support::stream::{Marks, Plan, Report, Stream};
use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Instant;

/// Jobs a second: what the slowest release carries on a busy machine of two cores.
const RATE: f64 = 1.0;
/// Of so many files that another release has, too, some are deleted: nearly a third.
const OF: usize = 10;
const DELETED: usize = 3;

/// The host and its master. The fields go in this order: the minion before its master.
struct Scene {
    marks: Marks,
    site: Site,
    master: Master,
    releases: Vec<String>,
}

impl Scene {
    /// A booted host with these releases, none of which runs.
    fn new(suite: &'static str, versions: &[&str]) -> Self {
        let author = minions::author();
        let (master, bundles) = thread::scope(|scope| {
            let master = scope.spawn(|| Master::start(&tree(MASTER), true));
            let bundles: Vec<_> = versions.iter().map(|version| author.salt(version)).collect();
            (master.join().unwrap(), bundles)
        });
        let mut host = Site::new(suite, SALT, &author, &bundles);
        let marks = Marks::below(&host.machine.path(""), &host.machine.path("srv"));
        fs::create_dir_all(host.machine.path("etc/salt")).unwrap();
        let own = format!("id: {ID}\nuser: root\nlog_level_logfile: info\n{}", marks.configuration(&[&master]));
        fs::write(host.machine.path("etc/salt/minion"), own).unwrap();
        host.machine.boot();
        Self { marks, site: host, master, releases: versions.iter().map(|version| format!("{version}-1")).collect() }
    }

    /// The first release runs, and answers its master.
    fn begins(&self) {
        self.switch(0);
        self.answers(0);
    }

    fn switch(&self, release: usize) {
        let release = &self.releases[release];
        let (well, said) = self.site.machine.try_inside(&["sidle", "switch", SALT, release]);
        assert!(well, "{said}\n{}", self.logs());
    }

    /// Waits until this release, and no other, answers its master.
    fn answers(&self, release: usize) {
        // A job for a minion that isn't connected is waited for in vain.
        self.site.machine.serves(&self.releases[release]);
        let version = self.releases[release].trim_end_matches("-1");
        eventually(START_SECONDS, &format!("{version} answers"), || {
            match self.master.call_within("10", ID, &["test.version"]) {
                answer if answer.contains(version) => Ok(()),
                answer => Err(format!("{answer}\n{}", self.logs())),
            }
        });
    }

    fn stream(&self) -> Stream {
        Stream::begin(ID, &self.marks, &[&self.master], &Plan::short(RATE))
    }

    /// The files of both releases in the bad place whose content both have, in their order.
    fn shared(&self) -> [Vec<String>; 2] {
        let listed = [0, 1].map(|release| {
            let tree = self.site.forced(&self.releases[release]);
            self.site.sh(&format!("cd {tree}; find . -type f -exec sha256sum {{}} + | sort -k 2"))
        });
        let files = listed.each_ref().map(|text| text.lines().map(|line| line.split_at(64)).collect::<Vec<_>>());
        let contents = files.each_ref().map(|files| files.iter().map(|(digest, _)| *digest).collect::<HashSet<_>>());
        [(0, 1), (1, 0)].map(|(of, other)| {
            let both = files[of].iter().filter(|(digest, _)| contents[other].contains(digest));
            both.map(|(_, path)| path.trim_start().to_owned()).collect()
        })
    }

    /// What there is to tell of a failure.
    fn logs(&self) -> String {
        let minion = fs::read_to_string(self.site.machine.path("var/log/salt/minion")).unwrap_or_default();
        let journal = self.site.machine.try_inside(&["journalctl", "--no-pager", "-n", "60"]).1;
        let last: Vec<&str> = minion.lines().rev().take(60).collect();
        format!("{}\n{journal}\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"), self.master.log())
    }

    /// The release that doesn't run loses what the other one has, too; its stamp stays. That is noticed, and mended before its next start.
    fn what_was_cleaned_is_mended_before_its_next_start(&self, [running, other]: &[Vec<String>; 2]) {
        let (site, old, new) = (&self.site, &self.releases[0], &self.releases[1]);
        let (alive, files) = (site.alive(), site.files(&site.forced(old)));
        let tree = site.forced(new);
        site.sh(&format!("echo {new} >{tree}/stamp"));
        let lost: HashSet<&str> = other.iter().map(String::as_str).collect();
        let all = site.sh(&format!("cd {tree}; find . -type f"));
        let used: Vec<String> =
            all.lines().filter(|file| !lost.contains(file)).map(|file| format!("{tree}/{file}")).collect();
        site.month_passes(&used);

        assert_eq!(site.files(&site.forced(old)), files, "the running release was touched");
        assert_eq!(site.incidents(old), Vec::<Value>::new());
        assert_eq!(site.alive(), alive);
        // The control: its stamp says that all is well.
        assert!(lost.len() > 1000 && running.len() > 1000, "{} files", lost.len());
        let left = site.sh(&format!("cat {tree}/stamp; find {tree} -type f | wc -l"));
        assert_eq!(left, format!("{new}\n{}\n", used.len()));

        // Noticed by whoever looks, and mended before it starts, out of the release that runs.
        site.exits(6, &format!("sidle verify {SALT} {new}"));
        assert_eq!(site.alive(), alive);
        self.switch(1);
        site.is_whole(new).unwrap();
        let incidents = site.incidents(new);
        let is_before = |one: &Value| one["occasion"] == "start" && one["left"] == 0;
        assert!(matches!(&incidents[..], [one] if is_before(one)), "{incidents:?}");
        assert!(incidents[0]["mended"].as_u64().unwrap() >= lost.len() as u64, "{incidents:?}");
        self.answers(1);
    }

    /// Nearly a third of what the other release has, too, is deleted under the running one. Gives when.
    fn what_runs_is_mended_at_once(&self, files: &[String], stream: &Stream) -> Range<f64> {
        let (site, running) = (&self.site, &self.releases[1]);
        let alive = site.alive();
        let lost: Vec<&String> =
            files.iter().enumerate().filter(|(n, _)| n % OF < DELETED).map(|(_, file)| file).collect();
        let from = stream.age();
        site.lose(running, &lost);
        site.was_mended_at_once(running, &lost, &alive);
        let damaged = from..stream.age();
        // What no job needs meanwhile: nobody makes them wait.
        let some: Vec<&String> = files.iter().filter(|file| file.contains("/encodings/cp")).collect();
        assert!(some.len() > 10, "{some:?}");
        site.what_nobody_saw_is_mended_by_the_next_supervisor(running, &some, &alive);
        damaged
    }
}

/// Every job was answered, and in those of this time alone an error may stand.
fn all_were_answered(report: &Report, damaged: &Range<f64>) {
    println!("{} jobs, {} of them answered with an error", report.published, report.lost.len());
    assert!(report.published > 0, "nothing was published");
    assert_eq!(report.returned, report.published, "every job is answered: {:#?}", report.lost);
    for job in report.lost.iter().chain(&report.unfinished) {
        let within = damaged.start - 1.0..damaged.end + 1.0;
        assert!(job.returned && within.contains(&job.at), "an error outside of {within:?}: {job:#?}");
    }
    assert_eq!(report.doubled(), 0, "{report:#?}");
}

/// The whole story with the first release running at first, and salt-ssh of version `salt`.
pub(super) fn replayed(suite: &'static str, versions: [&str; 2], salt: &str) {
    let mut scene = Scene::new(suite, &versions);
    let ssh = scene.site.reached_by_salt_ssh(salt);
    thread::scope(|scope| {
        scope.spawn(|| ssh.answers(Preflight::None));
        scene.begins();
    });
    let stream = scene.stream();
    let releases = [0, 1].map(|release| scene.releases[release].as_str());
    salt_ssh_is_fooled_and_a_store_at_its_place_is_not_touched(&scene.site, &ssh, releases);
    stream.end().assert_lossless("beside salt-ssh");

    scene.site.store_is_forced_below_var_tmp(releases[0]);
    scene.answers(0);
    let shared = scene.shared();
    let stream = scene.stream();
    scene.what_was_cleaned_is_mended_before_its_next_start(&shared);
    let damaged = scene.what_runs_is_mended_at_once(&shared[1], &stream);
    all_were_answered(&stream.end(), &damaged);

    // Without the link that boot goes by the journal knows.
    scene.site.sh(&format!("rm {FORCED}/{SALT}/current"));
    scene.site.machine.cut_power();
    scene.site.machine.boot();
    scene.answers(1);
}

/// Its master is gone, and the configuration names another one: nobody is reached until the service is restarted, as anybody would.
pub fn moved(suite: &'static str, version: &str) {
    let mut scene = Scene::new(suite, &[version]);
    scene.begins();
    let other = scene.master.start_twin();
    let place = scene.site.machine.path("etc/salt/minion");
    let port = |master: &Master| format!("master_port: {}\n", master.request_port());
    let text = fs::read_to_string(&place).unwrap();
    assert!(text.contains(&port(&scene.master)), "{text}");
    fs::write(&place, text.replace(&port(&scene.master), &port(&other))).unwrap();
    scene.master.kill();
    let deaf = scene.site.alive();
    let asked = Instant::now();
    scene.site.sh(&format!("systemctl restart {}", scene.site.unit()));
    other.hears(&[ID]);
    println!("a deaf minion answers {:.1} s after systemctl restart", asked.elapsed().as_secs_f32());
    assert_ne!(scene.site.alive().agent, deaf.agent);
}
