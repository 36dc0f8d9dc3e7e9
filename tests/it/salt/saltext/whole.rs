//! A rollout that does all that it says: real minions of two masters, which lack the release, take it from their master's file server; its runner is killed twice
//! and its master once; the other master takes over with a stale copy; a page and a signed file say what happened. Each host has a demonstration agent.

use super::{GivenAway, source};
use crate::support::eventually;
use crate::support::salt::{Master, Minion, START_SECONDS, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Author, DEMO, Host, SIDLE, Supervisor, sidle, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

/// Eight that go; the first one runs a release without a guard, so that its switch has a downtime.
const MINIONS: [&str; 8] = ["bare1", "web1", "web2", "web3", "web4", "web5", "web6", "web7"];

/// One that a person holds: the plan leaves it out.
const HELD: &str = "held1";

/// What an install takes, bytes.
const HEAVY: usize = 4 << 20;

/// Some steps of a rollout, on two cores with ten minions.
const PATIENCE_SECONDS: u64 = 240;

/// Fast enough for a test; two at a time share 1 MiB a second.
const QUICK: [&str; 8] = [
    "splay=0s",
    "soak_seconds=1",
    "ask_seconds=1",
    "order_seconds=30",
    "at_once=2",
    "install_at_once=2",
    "install_rate=1M",
    "budget=0",
];

struct Member {
    _supervisor: Supervisor,
    minion: Minion,
    host: Host,
}

struct Fleet {
    members: Vec<(&'static str, Member)>,
    masters: [Master; 2],
    place: TempDir,
    /// The first master's host, as sidle sees it: it trusts the author.
    _own: Host,
    author: Author,
    /// The bundle of the new release.
    new: PathBuf,
}

/// A file that no compressor makes smaller.
fn heavy(tree: &Path) {
    let mut state = 1_u64;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    let bytes: Vec<u8> = (0..HEAVY).map(byte).collect();
    fs::write(tree.join("share/large"), bytes).unwrap();
}

/// A host that runs this bundle's release, and its minion, which has both masters.
fn member(id: &str, (author, bundle, release): (&Author, &Path, &str), masters: &[Master; 2]) -> Member {
    let host = Host::new(author);
    host.install(bundle).ok();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, release]).ok();
    let names = masters.each_ref().map(|each| format!("{}:{}", each.address, each.request_port()));
    let own = format!(
        "master: {names:?}\nenable_fqdns_grains: False\ngrains: {{os_family: RedHat}}\n\
         sidle:\n  program: {SIDLE}\n  root: {}\n  package: {DEMO}\n",
        text(&host.root())
    );
    let minion = Minion::start(&tree(MASTER), id, &own);
    // As packages make it.
    fs::create_dir(minion.path("etc/minion.d")).unwrap();
    Member { _supervisor: supervisor, minion, host }
}

impl Fleet {
    /// These minions, and the one that is held.
    fn new(ids: &[&'static str]) -> Self {
        let author = Author::new();
        let (bare, old) = (author.unguarded("0.9"), author.release("1.0", "good"));
        let new = author.release_with("1.1", heavy);
        author.release("1.2", "good");
        let (place, own) = (tempfile::tempdir().unwrap(), Host::new(&author));
        let pager = place.path().join("call-oncall");
        fs::write(
            &pager,
            format!(
                "#!/bin/sh\necho \"$SIDLE_ROLLOUT $SIDLE_STATUS\" >>{0}/called; cat >>{0}/called\n",
                text(place.path())
            ),
        )
        .unwrap();
        fs::set_permissions(&pager, fs::Permissions::from_mode(0o700)).unwrap();
        let options = |id: &str| {
            format!(
                "id: {id}\nrunner_dirs: [{}]\nsidle: {{package: {DEMO}, answer_seconds: 20, program: {SIDLE}, root: {}, sign: {}, on_halt: [{}]}}\n",
                text(&source().join("src/saltext/sidle/runners")),
                text(&own.root()),
                text(&author.key()),
                text(&pager),
            )
        };
        let first = Master::start_with(&tree(MASTER), true, &options("m1"));
        let second = first.start_twin_with("127.0.0.2", &options("m2"));
        // The first one is set up by `install_fleet`; this one as by hand.
        GivenAway::new().unpack(&second.files());
        let repository = second.files().join("sidle/repo");
        fs::create_dir(second.files().join("sidle")).unwrap();
        let copied = Command::new("cp").arg("-aT").arg(author.repository()).arg(repository).status().unwrap();
        assert!(copied.success());
        let masters = [first, second];
        let ids = ids.iter().copied().chain([HELD]);
        let runs = |id: &str| if id == "bare1" { (&author, &*bare, "0.9-1") } else { (&author, &*old, "1.0-1") };
        let members = ids.map(|id| (id, member(id, runs(id), &masters))).collect();
        let mut fleet = Self { members, masters, place, _own: own, author, new };
        fleet.host(HELD).sidle(&["hold", DEMO, "--reason", "year's end"]).ok();
        fleet.masters[0].hears(&fleet.members.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        fleet.is_installed();
        fleet.all_answer(&fleet.masters[0], "sidle.version");
        fleet.all_answer(&fleet.masters[1], "sidle.version");
        fleet
    }

    /// What a person writes by hand otherwise; shown first, and once.
    fn is_installed(&mut self) {
        let from = format!("repository=file://{}", text(&self.author.repository()));
        let words = ["sidle.install_fleet", &from];
        let first = &mut self.masters[0];
        let etc = first.place().configuration.parent().unwrap().to_owned();
        let shown = first.runner(&[&words[..], &["test=True"]].concat());
        assert_eq!(
            (&shown["failed"], shown["would change"].as_array().map(Vec::len)),
            (&Value::Null, Some(3)),
            "{shown:#}"
        );
        assert!(
            !etc.join("master.d").exists() && fs::read_dir(first.files()).unwrap().count() == 0,
            "nothing was changed"
        );
        let done = first.runner(&words);
        let lines = done["changed"].as_array().unwrap_or_else(|| panic!("{done:#}"));
        assert_eq!((&done["failed"], lines.len()), (&Value::Null, 4), "{done:#}");
        let names = [
            "modules of minions in",
            "schedule and reactor",
            "a copy of file://",
            &format!("the beacon sidle on {} minions", self.members.len()),
        ];
        assert!(names.iter().zip(lines).all(|(name, line)| line.as_str().unwrap().contains(*name)), "{done:#}");
        assert!(done["next"].to_string().contains("restart salt-master"), "{done:#}");
        let again = first.runner(&words);
        assert_eq!(
            (&again["changed"], &again["failed"], again["is so"].as_array().map(Vec::len)),
            (&Value::Null, &Value::Null, Some(4)),
            "{again:#}"
        );
        let saved =
            |member: &Member| fs::read_to_string(member.minion.path("etc/minion.d/beacons.conf")).unwrap_or_default();
        assert!(self.members.iter().all(|(_, member)| saved(member).contains("sidle:")), "it is there after a restart");
        // Faster than any site wants it.
        let own = etc.join("master.d/sidle-fleet.conf");
        let quick = fs::read_to_string(&own).unwrap().replace("minutes: 5", "seconds: 5");
        fs::write(&own, quick).unwrap();
        first.kill();
        first.start_again();
    }

    fn all_answer(&self, master: &Master, function: &str) {
        eventually(START_SECONDS, "all minions answer", || {
            let said = master.call_within("20", "*", &[function]);
            let all =
                self.members.iter().all(|(id, _)| said.contains(&format!("{id}:"))) && !said.contains("did not return");
            if all && !said.contains("not available") { Ok(()) } else { Err(said) }
        });
    }

    fn host(&self, id: &str) -> &Host {
        &self.members.iter().find(|(other, _)| *other == id).unwrap().1.host
    }

    fn called(&self) -> String {
        fs::read_to_string(self.place.path().join("called")).unwrap_or_default()
    }

    /// Kills what drives the rollout on a master; gives its process id.
    fn kill_driver(&self, master: usize, name: &str) -> i32 {
        let lock = self.masters[master]
            .place()
            .configuration
            .ancestors()
            .nth(2)
            .unwrap()
            .join(format!("var/run/salt/master/sidle/{name}.lock"));
        let pid: i32 = fs::read_to_string(lock).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        pid
    }
}

fn record(master: &Master, name: &str) -> Value {
    let path = master.place().cache.join("sidle/rollouts").join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

fn count(record: &Value, state: &str) -> usize {
    record["hosts"].as_object().into_iter().flatten().filter(|(_, host)| host["state"] == state).count()
}

/// Waits until the record of a rollout is so.
fn until(master: &Master, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(PATIENCE_SECONDS, what, || {
        let record = record(master, name);
        if is_so(&record) { Ok(record) } else { Err(format!("{record}\n{}", master.log())) }
    })
}

/// A copy that was made some time ago.
fn copy_records(from: &Master, to: &Path) {
    let copied = Command::new("cp").arg("-aT").arg(from.place().cache.join("sidle")).arg(to).status().unwrap();
    assert!(copied.success());
}

/// The rollout begins, and its runner is killed while a host installs; what the schedule begins then, while a host switches.
fn is_killed_twice(fleet: &Fleet, stale: &Path) {
    let first = &fleet.masters[0];
    let words =
        ["sidle.rollout", "*", "1.1-1", "name=r1", "canary=1", "percents=[50, 100]", "source=salt://sidle/repo"];
    let mut runner = first.salt_run(&[&words[..], &QUICK].concat()).spawn().unwrap();
    until(first, "r1", "the canary is done", |record| record["wave"] == 1 && count(record, "done") == 1);
    copy_records(first, stale);
    until(first, "r1", "hosts of the second wave install", |record| count(record, "installing") == 2);
    let killed = fleet.kill_driver(0, "r1");
    runner.wait().unwrap();
    let gone_on =
        until(first, "r1", "the schedule goes on, and a host switches", |record| count(record, "ordered") > 0);
    assert_eq!(gone_on["epoch"], 2, "{gone_on}");
    assert_ne!(fleet.kill_driver(0, "r1"), killed);
    let again =
        until(first, "r1", "the schedule goes on again", |record| record["epoch"] == 3 && count(record, "done") > 1);
    let acts: Vec<&str> = again["acts"].as_array().unwrap().iter().map(|act| act["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["rollout", "go_on", "go_on"], "{again}");
}

/// What listens to the events of rollouts.
struct Listener {
    child: Child,
    said: PathBuf,
}

impl Listener {
    /// Starts it, and waits until it hears.
    fn start(master: &Master, place: &Path) -> Self {
        let said = place.join("events");
        let file = fs::File::create(&said).unwrap();
        let child = master.salt_run(&["state.event", "salt/sidle/rollout/*"]).stdout(file).spawn().unwrap();
        let listener = Self { child, said };
        eventually(PATIENCE_SECONDS, "a listener hears", || {
            master.runner(&["event.send", "salt/sidle/rollout/none/heard"]);
            let heard = listener.heard();
            if heard.contains("none/heard") { Ok(()) } else { Err(heard) }
        });
        listener
    }

    fn heard(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A person pauses what the schedule drives: an event and the command of the site tell of it, and a file has what is so far.
fn is_paused_and_told_of(fleet: &Fleet, listener: &Listener) {
    let first = &fleet.masters[0];
    let said = first.runner(&["sidle.pause", "r1", "reason=lunch"]);
    assert!(said.as_str().unwrap_or_default().contains("has heard it"), "{said}");
    let halted = until(first, "r1", "it is told of", |record| record["announced"]["status"] == "halted");
    assert_eq!((&halted["status"], &halted["announced"]["problems"]), (&json!("halted"), &json!([])), "{halted}");
    eventually(PATIENCE_SECONDS, "the event is heard", || {
        let heard = listener.heard();
        if heard.contains("salt/sidle/rollout/r1/halted") && heard.contains("lunch") { Ok(()) } else { Err(heard) }
    });
    let called = fleet.called();
    let (line, data) = called.split_once('\n').unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!((line, &data["why"], &data["last_act_by"]), ("r1 halted", &json!("lunch"), &json!("root")), "{called}");
    assert!(
        Path::new(data["page"].as_str().unwrap()).is_file() && Path::new(data["file"].as_str().unwrap()).is_file(),
        "{data}"
    );
}

/// The first master dies; the other one has a copy from the first wave.
fn is_taken_over_with_a_stale_copy(fleet: &mut Fleet, stale: &Path) -> Value {
    // What drives it may listen to the last switch still: then it goes on itself.
    let mut driver = fleet.masters[0].salt_run(&["sidle.resume", "r1"]).spawn().unwrap();
    until(&fleet.masters[0], "r1", "it goes on", |record| {
        record["status"] == "running" && count(record, "installing") > 0
    });
    fleet.kill_driver(0, "r1");
    fleet.masters[0].kill();
    driver.wait().unwrap();
    let second = &fleet.masters[1];
    let copied = Command::new("cp").arg("-aT").arg(stale).arg(second.place().cache.join("sidle")).status().unwrap();
    assert!(copied.success());
    assert_eq!(count(&record(second, "r1"), "done"), 1, "it is stale");
    let refused = second.runner(&["sidle.resume", "r1"]);
    assert!(refused["error"].as_str().unwrap_or_default().contains("minions refuse it"), "{refused}");
    second.runner(&["sidle.resume", "r1", "take_over=True"])
}

/// The page and the file of the end: each of the eight, and the one that stayed.
fn page_and_file_say_what_happened(fleet: &Fleet, done: &Value) {
    let path = |key: &str| PathBuf::from(done[key].as_str().unwrap_or_else(|| panic!("{done}")));
    let (file, page) = (path("file"), fs::read_to_string(path("page")).unwrap());
    let told: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        (&told["status"], &told["master"], &told["ordered_by"]),
        (&json!("ended"), &json!("m2"), &json!("root")),
        "{told}"
    );
    assert_eq!(told["acts"].as_array().unwrap().last().unwrap()["words"], "take_over=True", "{told}");
    assert_eq!(told["hosts"].as_object().unwrap().len(), MINIONS.len(), "{told}");
    for id in MINIONS {
        let (host, from) = (&told["hosts"][id], if id == "bare1" { "0.9-1" } else { "1.0-1" });
        assert_eq!(
            (&host["from"], &host["to"], &host["state"]),
            (&json!(from), &json!("1.1-1"), &json!("done")),
            "{told}"
        );
        let down = host["downtime_seconds"].as_f64().unwrap_or_else(|| panic!("{id}: {told}"));
        assert!(if id == "bare1" { down > 0.0 } else { down == 0.0 }, "{id}: {host}");
        assert!(page.contains(&format!("<th scope=\"row\">{id}</th>")), "{page}");
    }
    let stayed = &told["not_going"][HELD];
    assert!(stayed["verdict"] == "refused" && stayed["why"][0].as_str().unwrap().contains("year's end"), "{told}");
    assert!(page.contains("year&#x27;s end") && page.contains(HELD), "{page}");
    // The same key makes the same signature.
    let copy = fleet.place.path().join("copy.json");
    fs::copy(&file, &copy).unwrap();
    sidle(&["key", "sign", text(&fleet.author.key()), text(&copy)], &[]).ok();
    assert_eq!(fs::read(path("signature")).unwrap(), fs::read(copy.with_extension("json.minisig")).unwrap());
}

#[test]
#[ignore = "`scripts/test --long`: nine minions of two masters take minutes; the driver's tests and `rollout` show the parts"]
fn a_rollout_of_eight_is_killed_twice_and_taken_over_once_and_ends_with_a_page_and_a_file() {
    let mut fleet = Fleet::new(&MINIONS);
    let stale = tempfile::tempdir().unwrap();
    let listener = Listener::start(&fleet.masters[0], fleet.place.path());
    is_killed_twice(&fleet, stale.path());
    is_paused_and_told_of(&fleet, &listener);
    let done = is_taken_over_with_a_stale_copy(&mut fleet, stale.path());
    assert_eq!((&done["status"], &done["counts"]), (&json!("ended"), &json!({"done": MINIONS.len()})), "{done}");
    for id in MINIONS {
        assert_eq!(fleet.host(id).current().as_deref(), Some("1.1-1"), "{id}");
        assert!(fleet.host(id).status()["rollout"].is_null(), "{id}: the claim is over");
    }
    assert_eq!(fleet.host(HELD).current().as_deref(), Some("1.0-1"));
    page_and_file_say_what_happened(&fleet, &done);
}

/// One that was away when all others went: its start is an event, and the reactor takes it up.
fn is_taken_up_by_the_reactor(fleet: &mut Fleet, absent: &str) {
    let first = &fleet.masters[0];
    // A bundle for the first wave, a repository for the other one.
    fs::copy(&fleet.new, first.files().join("sidle/new.sidle")).unwrap();
    let sources = "source=[salt://sidle/new.sidle, salt://sidle/repo]";
    let words = ["sidle.rollout", "*", "1.1-1", "name=r1", "canary=1", "percents=[100]", sources];
    let late = first.runner(&[&words[..], &QUICK].concat());
    assert_eq!((&late["status"], &late["counts"]), (&json!("late"), &json!({"done": 1, "offline": 1})), "{late}");
    fleet.members.iter_mut().find(|(id, _)| *id == absent).unwrap().1.minion.start_again();
    let ended = until(&fleet.masters[0], "r1", "the one that is back goes, too", |record| {
        record["status"] == "ended" && record["announced"]["status"] == "ended"
    });
    let last = ended["acts"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["act"], count(&ended, "done")), (&json!(format!("take_up {absent}")), 2), "{ended}");
    assert_eq!(fleet.host(absent).current().as_deref(), Some("1.1-1"));
    let jobs = fleet.masters[0].runner(&["jobs.list_jobs", "search_function=sidle.install"]);
    let mut given: Vec<(&Value, &Value)> =
        jobs.as_object().unwrap().values().map(|job| (&job["Target"][0], &job["Arguments"][0])).collect();
    given.sort_by_key(|(target, _)| target.as_str());
    let [(_, bundle), (_, repository)] = given[..] else { panic!("{jobs:#}") };
    assert_eq!(bundle["source"], "salt://sidle/new.sidle", "{jobs:#}");
    // A share of 1 MiB a second for each of two.
    assert_eq!(
        (&repository["repository"], &repository["rate"]),
        (&json!("salt://sidle/repo"), &json!(1 << 19)),
        "{jobs:#}"
    );
}

/// Outside of their windows: they wait, and an abort takes that back.
fn waiting_switches_end_with_an_abort(fleet: &mut Fleet, ids: [&str; 2]) {
    let day = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(48)).to_zoned(jiff::tz::TimeZone::UTC);
    let window = format!("windows = [\"{}\"]\ntimezone = \"UTC\"\n", day.strftime("%a 01:00-02:00"));
    for id in ids {
        fs::write(fleet.host(id).path("etc/sidle/conf.d/windows.toml"), &window).unwrap();
    }
    // One of them has just begun.
    fleet.all_answer(&fleet.masters[0], "sidle.version");
    let words = [
        "sidle.rollout",
        "web*",
        "1.2-1",
        "name=r2",
        "canary=[web1, web2]",
        "at_window=True",
        "source=salt://sidle/repo",
    ];
    let mut runner = fleet.masters[0].salt_run(&[&words[..], &QUICK].concat()).spawn().unwrap();
    until(&fleet.masters[0], "r2", "both wait for their windows", |record| {
        record["hosts"].as_object().into_iter().flatten().filter(|(_, host)| host["scheduled"] == true).count() == 2
    });
    // Its master dies with it, and is back: what the schedule begins goes on.
    fleet.kill_driver(0, "r2");
    runner.wait().unwrap();
    fleet.masters[0].kill();
    fleet.masters[0].start_again();
    let first = &fleet.masters[0];
    let back = until(first, "r2", "the schedule goes on", |record| record["epoch"] == 2);
    assert_eq!(back["acts"].as_array().unwrap().last().unwrap()["act"], "go_on", "{back}");
    let listener = Listener::start(first, fleet.place.path());
    let said = first.runner(&["sidle.abort", "r2", "reason=a wrong release"]);
    assert!(said.as_str().unwrap_or_default().contains("has heard it"), "{said}");
    eventually(PATIENCE_SECONDS, "no switch waits, and the claims are over", || {
        let live = ids.map(|id| fleet.host(id).status());
        if live.iter().all(|live| live["switch"].is_null() && live["rollout"].is_null()) {
            Ok(())
        } else {
            Err(format!("{live:?}"))
        }
    });
    for id in ids {
        let last = fleet.host(id).last();
        assert_eq!((&last["to"], &last["result"]), (&json!("1.2-1"), &json!("cancelled")), "{last}");
    }
    eventually(PATIENCE_SECONDS, "the page says so", || match first.runner(&["sidle.show", "r2"])["file"].as_str() {
        Some(file) if fs::read_to_string(file).is_ok_and(|text| text.contains("\"aborted\"")) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let shown = first.runner(&["sidle.show", "r2"]);
    let told: Value = serde_json::from_str(&fs::read_to_string(shown["file"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!((&told["status"], &told["why"]), (&json!("aborted"), &json!("a wrong release")), "{told}");
    assert_eq!(told["acts"].as_array().unwrap().last().unwrap()["act"], "abort", "{told}");
    let heard = listener.heard();
    assert!(heard.contains("salt/sidle/rollout/r2/aborted"), "{heard}");
}

#[test]
#[ignore = "`scripts/test --long`: three minions of two masters; the driver's tests and `rollout` show the parts"]
fn who_comes_back_is_taken_up_by_the_reactor_and_what_waits_for_a_window_ends_with_an_abort() {
    let mut fleet = Fleet::new(&["web1", "web2"]);
    fleet.members[1].1.minion.end();
    let listener = Listener::start(&fleet.masters[0], fleet.place.path());
    is_taken_up_by_the_reactor(&mut fleet, "web2");
    let heard = listener.heard();
    for event in ["r1/late", "r1/ended"] {
        assert!(heard.contains(&format!("salt/sidle/rollout/{event}")), "{event}: {heard}");
    }
    drop(listener);
    waiting_switches_end_with_an_abort(&mut fleet, ["web1", "web2"]);
}
