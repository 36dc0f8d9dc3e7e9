//! A rollout over real minions of two hot masters, with a stream of jobs to all of them: each is switched by sidle to another release of Salt.

use crate::support::fleet::{self, Member, extension};
use crate::support::minions;
use crate::support::salt::{Master, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Host, SALT, text};
use crate::support::stream::{Marks, Plan, Report, Stream};
use crate::support::{come_first, eventually};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// How many minions are of each family, and from which release they come.
const FAMILIES: [(&str, &str, usize); 3] = [("RedHat", "3006.30", 2), ("Debian", "3007.17", 1), ("Suse", "3006.30", 2)];

/// So many of each for one: `SIDLE_FLEET_TIMES=3` has fifteen minions. For `scripts/test --long`.
const TIMES_VARIABLE: &str = "SIDLE_FLEET_TIMES";

/// Jobs a second of each master: each goes to all minions, so that each has one in every switch.
const RATE: f64 = 0.05;

/// Where all of them go.
const TARGET: &str = "3008.5-1";

/// What starts beside others takes its time.
const SETTINGS: &str = "rehearsal_timeout = \"300s\"\nstart_timeout = \"120s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\nrestart_pause = \"1s\"\njob_splay = \"0s\"\nrehearsal = \"off\"\n";

/// For so many minions on two cores.
const PATIENCE_SECONDS: u64 = 300;

/// A beacon that ends the new release's process, as a library does that is missing on one family only: nothing sees it before it runs.
const MORTAL: &str = "import os
import signal

import salt.version


def validate(config):
    return True, ''


def beacon(config):
    if salt.version.__version__.startswith('3008'):
        os.kill(os.getpid(), signal.SIGKILL)
    return []
";

fn add_mortal(host: &Host) {
    let beacons = host.path("var/cache/salt/minion/extmods/beacons");
    fs::create_dir_all(&beacons).unwrap();
    fs::write(beacons.join("mortal.py"), MORTAL).unwrap();
    fs::write(host.path("etc/salt/minion.d/mortal.conf"), "beacons: {mortal: [{interval: 1}]}\n").unwrap();
}

struct Fleet {
    members: Vec<Member>,
    masters: [Master; 2],
    _template: Host,
}

impl Fleet {
    fn new() -> Self {
        let author = minions::author();
        let template = Host::new(&author);
        fs::write(template.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
        for release in ["3006.30", "3007.17", "3008.5"] {
            template.install(&author.salt(release)).ok();
        }
        let runners = extension().join("src/saltext/sidle/runners");
        let options = format!("runner_dirs: [{}]\nsidle: {{answer_seconds: {PATIENCE_SECONDS}}}\n", text(&runners));
        let first = Master::start_with(&tree(MASTER), true, &options);
        let second = first.start_twin_with("127.0.0.2", &options);
        let masters = [first, second];
        let times = std::env::var(TIMES_VARIABLE).map_or(1, |text| text.parse().expect("it is a number"));
        let wanted = FAMILIES.iter().flat_map(|(family, version, count)| {
            (1..=*count * times).map(move |number| (format!("{}{number}", family.to_lowercase()), *family, *version))
        });
        let mut members: Vec<Member> =
            wanted.map(|wanted| Member::new(&template, &[&masters[0], &masters[1]], wanted)).collect();
        for member in members.iter().filter(|member| member.family == "Suse") {
            add_mortal(&member.host);
        }
        fleet::start(&mut members);
        let fleet = Self { members, masters, _template: template };
        for master in &fleet.masters {
            fleet.all_answer(master);
        }
        fleet
    }

    fn all_answer(&self, master: &Master) {
        master.hears(&self.ids(|_| true));
    }

    fn ids(&self, is_one: impl Fn(&Member) -> bool) -> Vec<&str> {
        // As a record has them.
        let mut ids: Vec<&str> =
            self.members.iter().filter(|member| is_one(member)).map(|member| member.id.as_str()).collect();
        ids.sort_unstable();
        ids
    }

    fn member(&mut self, id: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.id == id).unwrap()
    }

    fn streamed(&self, without: &[&str]) -> Vec<(&str, &Marks)> {
        let streamed = self.members.iter().filter(|member| !without.contains(&member.id.as_str()));
        streamed.map(|member| (member.id.as_str(), &member.marks)).collect()
    }
}

/// Fast enough for a test.
const QUICK: [&str; 6] = ["splay=0s", "soak_seconds=1", "ask_seconds=3", "order_seconds=60", "at_once=4", "budget=0"];

/// Who is in this state, of a rollout's record.
fn in_state(record: &Value, state: &str) -> Vec<String> {
    let hosts = record["hosts"].as_object().into_iter().flatten();
    let mut ids: Vec<String> = hosts.filter(|(_, host)| host["state"] == state).map(|(id, _)| id.clone()).collect();
    ids.sort_unstable();
    ids
}

fn record_of(master: &Master, name: &str) -> Value {
    let path = master.place().cache.join("sidle/rollouts").join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

/// The directory of the records, as a copy that deletes makes it.
fn copy_records(from: &Master, to: &Master) {
    let place = |master: &Master| master.place().cache.join("sidle");
    let _ = fs::remove_dir_all(place(to));
    let copied = Command::new("cp").arg("-a").arg(place(from)).arg(place(to)).status().unwrap();
    assert!(copied.success());
}

fn assert_lossless(reports: &[Report], minions: &[(&str, &Marks)], what: &str) {
    println!("{}", Report::titles());
    let mut wrong = Vec::new();
    for (report, (id, _)) in reports.iter().zip(minions) {
        println!("{}", report.row(&format!("{what}: {id}")));
        // The other stream asks for other jobs.
        let report = Report { unasked: Vec::new(), ..report.clone() };
        wrong.extend(report.verdict().err().map(|why| format!("{id}: {why}")));
        wrong.extend((report.doubled() > 0).then(|| format!("{id}: doubled {report:#?}")));
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// A plan, and a dry run of the rollout, change nothing. Of one family: each host that goes is rehearsed, as long as a switch takes.
fn is_only_shown(fleet: &Fleet) {
    let words = ["sidle.rollout", "redhat*", TARGET, "name=r1", "test=True"];
    let shown = fleet.masters[0].runner(&words);
    let going = fleet.ids(|member| member.family == "RedHat").len() - 1;
    assert!(shown.as_str().unwrap_or_default().contains(&format!("{going} go, 1 offline")), "{shown}");
    assert!(fleet.members.iter().all(|member| member.current() == member.from && member.status()["rollout"].is_null()));
}

/// Only the host that failed may be tried again.
fn nobody_was_ordered_twice(fleet: &Fleet, failed: &[String]) {
    for member in &fleet.members {
        let history = member.host.sidle(&["--json", "history", SALT]).json();
        let tried = history["switches"].as_array().unwrap().iter().filter(|each| each["to"] == TARGET).count();
        assert!(tried <= if failed.contains(&member.id) { 2 } else { 1 }, "{}: ordered twice: {history}", member.id);
    }
}

/// Also the one whose new process was killed.
fn ran_nothing_twice(fleet: &Fleet, stream: &Stream, id: &str) {
    let killed = fleet.streamed(&[]).into_iter().filter(|(member, _)| *member == id).collect::<Vec<_>>();
    let doubled: Vec<usize> = stream.look_at_each(&killed).iter().map(Report::doubled).collect();
    assert_eq!(doubled, [0], "{id}");
}

/// The hosts belong to r1, also for the other master.
fn another_rollout_finds_nobody(fleet: &Fleet) {
    let other = ["sidle.rollout", "suse*", TARGET, "name=r2", "despite_failures=True"];
    let refused = fleet.masters[1].runner(&[&other[..], &QUICK].concat());
    let why = refused["error"].as_str().unwrap_or_default();
    assert!(why.contains("nobody goes") && why.contains("it belongs to rollout r1"), "{refused}");
}

/// The rollout goes on, and its first master dies with it in the middle of a wave.
fn the_master_dies_in_a_wave(fleet: &mut Fleet) {
    let mut driver = fleet.masters[0].salt_run(&["sidle.resume", "r1", "again=True"]).process_group(0).spawn().unwrap();
    eventually(PATIENCE_SECONDS, "a later wave is in progress", || {
        let record = record_of(&fleet.masters[0], "r1");
        let is_so = record["wave"].as_u64() > Some(0) && !in_state(&record, "ordered").is_empty();
        if is_so { Ok(()) } else { Err(record.to_string()) }
    });
    let other_runner = fleet.masters[0].runner(&["sidle.resume", "r1"]);
    assert!(other_runner["error"].as_str().unwrap_or_default().contains("is driven by process"), "{other_runner}");
    let group = rustix::process::Pid::from_raw(i32::try_from(driver.id()).unwrap()).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    driver.wait().unwrap();
    copy_records(&fleet.masters[0], &fleet.masters[1]);
    fleet.masters[0].kill();
}

/// A minion that was away goes, too.
fn goes_when_it_is_back(fleet: &mut Fleet, absent: &str) {
    let all = fleet.members.len();
    fleet.member(absent).start();
    fleet.masters[1].hears(&[absent]);
    let done = &fleet.masters[1].runner(&["sidle.take_up", absent])["r1"];
    assert_eq!((&done["status"], &done["counts"]), (&json!("ended"), &json!({"done": all})), "{done}");
}

/// To what each of its hosts ran before.
fn the_first_wave_goes_back(fleet: &Fleet) {
    let back = fleet.masters[1].runner(&["sidle.rollback", "r1", "wave=1"]);
    assert_eq!((&back["status"], &back["counts"]), (&json!("ended"), &json!({"done": 3})), "{back}");
    let returned = fleet.ids(|member| member.current() == member.from);
    assert_eq!(returned, in_state(&record_of(&fleet.masters[1], "r1-back"), "done"));
}

#[test]
fn real_minions_of_two_masters_go_by_waves_and_lose_no_job() {
    // Each of them takes a processor for seconds.
    come_first();
    let mut fleet = Fleet::new();
    let (absent, all) = ("redhat2", fleet.members.len());
    fleet.member(absent).stop();

    is_only_shown(&fleet);
    let words = ["sidle.rollout", "*", TARGET, "name=r1", "canary=3", "percents=[40, 70, 100]"];

    let first = Stream::begin("*", &fleet.members[0].marks, &[&fleet.masters[0]], &Plan::short(RATE));
    let second = Stream::begin("*", &fleet.members[0].marks, &[&fleet.masters[1]], &Plan::short(RATE));

    // One family fails: the rollout halts with the canaries, and what went well stays.
    let halted = fleet.masters[0].runner(&[&words[..], &QUICK].concat());
    assert_eq!(
        (&halted["status"], &halted["counts"]),
        (&json!("halted"), &json!({"done": 2, "failed": 1, "offline": 1, "waiting": all - 4})),
        "{halted}"
    );
    let record = record_of(&fleet.masters[0], "r1");
    let failed = in_state(&record, "failed");
    assert!(failed[0].starts_with("suse"), "{record}");
    let moved = fleet.ids(|member| member.current() == TARGET);
    assert_eq!(moved, in_state(&record, "done"));
    assert!(moved.iter().all(|id| !id.starts_with("suse")));

    // The one whose new process was killed may have lost a job that it had claimed.
    let minions = fleet.streamed(&[absent, &failed[0]]);
    assert_lossless(&first.end_each(&minions), &minions, "first master");
    drop(minions);

    another_rollout_finds_nobody(&fleet);

    // What was wrong is mended, and the rollout goes on; its master dies with it in the middle of a wave.
    for member in fleet.members.iter().filter(|member| member.family == "Suse") {
        fs::remove_file(member.host.path("etc/salt/minion.d/mortal.conf")).unwrap();
    }
    the_master_dies_in_a_wave(&mut fleet);

    let done = fleet.masters[1].runner(&["sidle.resume", "r1"]);
    assert_eq!(
        (&done["status"], &done["counts"]),
        (&json!("late"), &json!({"done": all - 1, "offline": 1})),
        "{done}\n{}",
        record_of(&fleet.masters[1], "r1")
    );
    let behind = fleet.ids(|member| member.current() != TARGET);
    assert_eq!(behind, [absent]);
    nobody_was_ordered_twice(&fleet, &failed);

    goes_when_it_is_back(&mut fleet, absent);
    the_first_wave_goes_back(&fleet);

    let minions = fleet.streamed(&[absent, &failed[0]]);
    ran_nothing_twice(&fleet, &second, &failed[0]);
    assert_lossless(&second.end_each(&minions), &minions, "second master");
    // All of them hear both masters.
    fleet.masters[0].start_again();
    fleet.all_answer(&fleet.masters[0]);
}
