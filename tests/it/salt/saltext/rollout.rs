//! A rollout over real minions: Salt's own bus, jobs and runner; each minion's host has a demonstration agent under sidle.

use super::GivenAway;
use crate::support::eventually;
use crate::support::salt::{Master, Minion, START_SECONDS, tree};
use crate::support::stage::{Author, DEMO, Host, SIDLE, Supervisor, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The minions, with the family that each one says it is of.
const MINIONS: [(&str, &str); 5] =
    [("red1", "RedHat"), ("red2", "RedHat"), ("red3", "RedHat"), ("suse1", "Suse"), ("suse2", "Suse")];

/// A minion without sidle, whose module answers what `odd_says` names: as a good host does, or nonsense in each field. In the end it answers its order
/// well, fires returns of all others in its job, and then tells of a failure that no record can have.
const ODD: &str = r#"
import datetime

__virtualname__ = "sidle"
__func_alias__ = {"list_": "list"}
NONSENSE = {
    "code": float("nan"), "error": [b"\xff"], "releases": 5, "notes": b"\xff", b"\xff": [[[]]],
    "instances": [{"instance": "demo-agent", "current": datetime.datetime(2026, 1, 1), "installed": 10**12, "last": {"id": b"\xff"}}],
}


def __virtual__():
    return __virtualname__


def _says(good):
    with open(__opts__["odd_says"], encoding="utf-8") as file:
        return good if file.read() == "good" else NONSENSE


def _instance(last):
    return {
        "instance": "demo-agent", "current": "1.0-1", "installed": ["1.0-1", "1.1-1"], "supervisor": {"agent": None}, "hold": None, "switch": None,
        "last": last, "rollout": None,
    }


def status(*_, **__):
    failure = {"phase": "probation", "cause": b"\xff", "text": datetime.datetime(2026, 1, 1)}
    failed = {"code": 0, "instances": [_instance({"id": 1, "to": "1.1-1", "result": "rolled-back", "failure": failure})]}
    with open(__opts__["odd_says"], encoding="utf-8") as file:
        return failed if file.read() == "failed" else _says({"code": 0, "instances": [_instance(None)]})


def list_(*_, **__):
    return _says({"code": 0, "releases": []})


def rehearse(*_, **__):
    return _says({"code": 0, "notes": [], "mode": "overlap"})


def claim(*_, **__):
    return _says({"code": 0})


def unclaim(*_, **__):
    return _says({"code": 0})


def job(*_, **__):
    return _says({"now": 0})


def switch(*_, **given):
    refused = {"code": 10, "error": {"class": "held", "message": "forged"}}
    for each in ("red1", "red2", "red3", "suse1", "suse2"):
        data = {"id": each, "jid": given["__pub_jid"], "fun": "sidle.switch", "return": refused, "retcode": 10}
        __salt__["event.fire_master"](data, "salt/job/" + given["__pub_jid"] + "/ret/" + each)
    return {"code": 4, "switch": 1, "pending": True}
"#;

/// The minion of `ODD`.
struct Odd {
    place: TempDir,
    _minion: Minion,
}

impl Odd {
    fn start(tree: &Path, master: &Master) -> Self {
        let place = tempfile::tempdir().unwrap();
        // Before what is synced: Salt looks first where `module_dirs` has a directory of this name.
        fs::create_dir(place.path().join("modules")).unwrap();
        fs::write(place.path().join("modules/sidle.py"), ODD).unwrap();
        let own = format!(
            "master: {}\nmaster_port: {}\npublish_port: {}\ngrains: {{os_family: Odd}}\nmodule_dirs: [{}]\nodd_says: {}\n",
            master.address,
            master.request_port(),
            master.publish_port(),
            text(place.path()),
            text(&place.path().join("says"))
        );
        let minion = Minion::start(tree, "odd1", &own);
        let odd = Self { place, _minion: minion };
        odd.says("nonsense");
        odd
    }

    fn says(&self, what: &str) {
        fs::write(self.place.path().join("says"), what).unwrap();
    }
}

struct Member {
    _supervisor: Supervisor,
    _minion: Minion,
    host: Host,
}

struct Fleet {
    members: Vec<Member>,
    odd: Odd,
    master: Master,
    _author: Author,
}

impl Fleet {
    /// All run 1.0; 1.1 is installed, and fails where `bad` is true of the family.
    fn new(bad: impl Fn(&str) -> bool) -> Self {
        let author = Author::new();
        let (old, good) = (author.release("1.0", "good"), author.release("1.1", "good"));
        let other = Author::new();
        let (other_old, failing) = (other.release("1.0", "good"), other.release("1.1", "crash"));
        let options =
            format!("nodegroups: {{reds: 'G@os_family:RedHat'}}\nsidle:\n  package: {DEMO}\n  answer_seconds: 40\n");
        let tree = tree("3007.17");
        let master = Master::start_with(&tree, true, &options);
        // As a site without pip brings it to its master and minions.
        GivenAway::new().unpack(&master.files());
        let members = MINIONS.map(|(id, family)| {
            let host = Host::new(if bad(family) { &other } else { &author });
            let releases = if bad(family) { [&other_old, &failing] } else { [&old, &good] };
            for bundle in releases {
                host.install(bundle).ok();
            }
            let supervisor = host.supervise();
            host.sidle(&["switch", DEMO, "1.0-1"]).ok();
            let own = format!(
                "master: {}\nmaster_port: {}\npublish_port: {}\ngrains: {{os_family: {family}}}\n\
                 sidle:\n  program: {SIDLE}\n  root: {}\n  package: {DEMO}\n",
                master.address,
                master.request_port(),
                master.publish_port(),
                text(&host.root())
            );
            Member { _supervisor: supervisor, _minion: Minion::start(&tree, id, &own), host }
        });
        let odd = Odd::start(&tree, &master);
        let fleet = Self { members: members.into(), odd, master, _author: author };
        let synced = fleet.runner(&["saltutil.sync_all"]);
        assert_eq!(
            synced["runners"],
            json!(["runners.sidle", "runners.sidle_fleet", "runners.sidle_uses"]),
            "{synced}"
        );
        fleet.master.hears(&MINIONS.iter().map(|(id, _)| *id).chain(["odd1"]).collect::<Vec<_>>());
        eventually(START_SECONDS, "all minions answer", || {
            let said = fleet.master.call_within("10", "*", &["saltutil.sync_all"]);
            let mut ids = MINIONS.iter().map(|(id, _)| *id).chain(["odd1"]);
            let all = ids.all(|id| said.contains(&format!("{id}:"))) && !said.contains("did not return");
            if all { Ok(()) } else { Err(said) }
        });
        fleet
    }

    /// What a function of the runner gives.
    fn runner(&self, words: &[&str]) -> Value {
        self.master.runner(words)
    }

    /// Where a file of the runner is.
    fn file(&self, name: &str) -> PathBuf {
        self.master.place().cache.join("sidle/files").join(name)
    }

    fn current(&self) -> Vec<(&str, String)> {
        let of = |member: &Member| member.host.current().unwrap_or_default();
        MINIONS.iter().zip(&self.members).map(|((id, _), member)| (*id, of(member))).collect()
    }
}

/// The master that minions listen to; a target that misses one of them; a page and a file, from which the same waves are read.
fn plan_says_what_it_knows(fleet: &Fleet) {
    // The master's cache says of a minion what the minion does not say of itself.
    let cached = "{grains: {os_family: RedHat, os: Other}}";
    fleet.runner(&["cache.store", "minions/suse2", "data", cached]);
    let place = tempfile::tempdir().unwrap();
    let (page, saved) = (fleet.file("plan.html"), fleet.file("plan.json"));
    let words = ["sidle.plan", "nodegroup", "1.1-1", "name=r1", "canary=1", "percents=[50, 100]"];
    let words = [&words[..], &["tgt_type=glob", "format=data"]].concat();
    let nobody = fleet.runner(&words);
    assert!(nobody["error"].as_str().unwrap().contains("no accepted key matches nodegroup (glob)"), "{nobody}");
    let words =
        ["sidle.plan", "*", "1.1-1", "name=r1", "canary=1", "percents=[50, 100]", "groups=[reds]", "format=data"];
    let elsewhere = format!("file={}", text(&place.path().join("authorized_keys")));
    let refused = fleet.runner(&[&words[..], &[&elsewhere]].concat());
    assert!(refused["error"].as_str().unwrap().contains("cannot use the file"), "{refused}");
    let plan = fleet.runner(&[&words[..], &["file=plan.json"]].concat());
    let written = format!("demo-agent 1.1-1: 5 go, 1 refused; written to {}", text(&saved));
    let said = plan;
    let plan: Value = serde_json::from_str(&fs::read_to_string(&saved).unwrap()).unwrap();
    assert_eq!(said.as_str().unwrap(), written, "{plan}");
    let odd = &plan["hosts"]["odd1"];
    assert_eq!((&odd["verdict"], &odd["kinds"]), (&json!("refused"), &json!(["answer"])), "{plan}");
    assert!(odd["why"][0].as_str().unwrap().starts_with("cannot read its answer: "), "{plan}");
    let master = &plan["masters"].as_array().unwrap()[..];
    assert_eq!(master.len(), 1, "{plan}");
    assert_eq!((&master[0]["version"], &master[0]["minimum_auth"]), (&json!("3007.17"), &json!(3)), "{plan}");
    assert_eq!((&master[0]["name"], &master[0]["hosts"]), (&json!(fleet.master.address), &json!(6)), "{plan}");
    let group = &plan["groups"][0];
    assert_eq!((&group["name"], &group["expected"]), (&json!("reds"), &json!(4)), "{plan}");
    assert_eq!((&group["lost"], &group["deaf"]), (&json!({"3007.17": ["suse2"]}), &json!([])), "{plan}");

    let said = fleet.runner(&["sidle.plan", "*", "1.1-1", "format=html"]);
    assert!(said["error"].as_str().unwrap().contains("html needs a file"), "{said}");
    fleet.runner(&["sidle.plan", "*", "1.1-1", "name=r1", "format=html", "file=plan.html"]);
    let written = fs::read_to_string(&page).unwrap();
    assert!(MINIONS.iter().all(|(id, _)| written.contains(&format!("<th scope=\"row\">{id}</th>"))), "{written}");
    assert_eq!(fs::read_dir(page.parent().unwrap()).unwrap().count(), 2, "nothing else is left there");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is written elsewhere");
}

/// Fast enough for a test.
const QUICK: [&str; 4] = ["splay=0s", "soak_seconds=1", "ask_seconds=2", "order_seconds=15"];

/// What r1 found bad is known to the next rollout, and its hosts belong to it.
fn others_are_refused(fleet: &Fleet) {
    let other = ["sidle.rollout", "*", "1.1-1", "name=r2"];
    let second = fleet.runner(&other);
    assert!(second["error"].as_str().unwrap().contains("rollout r1 found it bad:"), "{second}");
    // While this one is not over, another rollout finds nobody; and its orders are refused by the minions themselves.
    let second = fleet.runner(&[&other[..], &["despite_failures=True"], &QUICK].concat());
    let words = second["error"].as_str().unwrap();
    assert!(words.contains("nobody goes") && words.contains("it belongs to rollout r1"), "{second}");
    let behind = fleet.current().into_iter().find(|(id, release)| release == "1.0-1" && id.starts_with("red")).unwrap();
    let order = ["sidle.switch", "release=1.1-1", "rollout=r2", "epoch=1"];
    let said = fleet.master.call(behind.0, &order);
    assert!(said.contains("'conflict'") && said.contains("it belongs to rollout r1"), "{said}");

    assert!(fleet.runner(&["sidle.rollouts"]).get("r2").is_none(), "what did not begin left no record");
}

/// Of each host, whether it would go back, and to what.
fn the_way_back_is_shown(fleet: &Fleet) {
    let back = fleet.runner(&["sidle.rollback", "r1", "test=True"]);
    let way = "1.1-1 -> 1.0-1";
    let stays = "stays as it is: refused";
    assert_eq!(back, json!({"odd1": stays, "red1": way, "red2": way, "red3": way}), "shown only");
}

#[test]
fn a_release_that_fails_on_one_family_halts_the_rollout_and_the_others_stay() {
    let fleet = Fleet::new(|family| family == "Suse");
    plan_says_what_it_knows(&fleet);
    assert!(fleet.current().iter().all(|(_, release)| release == "1.0-1"), "a plan changes nothing");

    // What a person has read is what is rolled out.
    fleet.odd.says("good");
    let plan = |form: &str| {
        fleet.runner(&["sidle.plan", "*", "1.1-1", "canary=2", &format!("format={form}"), "file=plan.json"]);
    };
    let words = ["sidle.rollout", "plan=plan.json", "name=r1", "budget=0"];
    plan("html");
    let unread = fleet.runner(&words);
    assert!(unread["error"].as_str().unwrap().contains("format=data"), "{unread}");
    plan("data");
    let waves: Value = serde_json::from_str(&fs::read_to_string(fleet.file("plan.json")).unwrap()).unwrap();
    assert_eq!(waves["hosts"]["odd1"]["verdict"], "go", "{waves}");
    let canaries: Vec<&str> = waves["waves"][0].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let of = |family: &str| canaries.iter().filter(|id| id.starts_with(family)).count();
    assert_eq!((of("red"), of("suse")), (1, 1), "one of each family: {waves}");
    let halted = fleet.runner(&[&words[..], &QUICK].concat());
    assert_eq!(halted["status"], "halted", "{halted}");
    // From now on it tells of a failure that no record can have.
    fleet.odd.says("failed");
    let failed = fleet.master.salt_run(&["sidle.rollout", "plan=nowhere.json"]).output().unwrap();
    assert_eq!((failed.status.code(), &halted["retcode"]), (Some(1), &json!(1)), "for scripts: {failed:?}");
    assert_eq!(halted["counts"], json!({"done": 1, "failed": 1, "waiting": 4}), "{halted}");
    assert!(
        halted["why"].as_str().unwrap().starts_with("wave 1: 1 of 2 hosts went wrong, 0 may (0); the last:"),
        "{halted}"
    );
    let moved: Vec<_> = fleet.current().into_iter().filter(|(_, release)| release == "1.1-1").collect();
    assert!(moved.len() == 1 && canaries.contains(&moved[0].0) && moved[0].0.starts_with("red"), "{moved:?}");

    others_are_refused(&fleet);

    // What is bad for a host stays so: it is refused, and the others go on once a person has accepted that.
    let done = fleet.runner(&["sidle.resume", "r1"]);
    assert_eq!(done["status"], "halted", "the other one of that family, and one that answers nonsense: {done}");
    let done = fleet.runner(&["sidle.resume", "r1"]);
    let counts = json!({"done": 3, "failed": 2, "refused": 1});
    assert_eq!((&done["status"], &done["counts"]), (&json!("ended"), &counts), "{done}");
    let shown = fleet.runner(&["sidle.show", "r1"]);
    let odd = &shown["hosts"]["odd1"];
    assert!(
        odd["text"].as_str().unwrap().starts_with("cannot read its answer: last: failure: cause is bytes"),
        "{shown}"
    );
    assert!(!shown.to_string().contains("forged"), "what it fired for others is not believed: {shown}");
    assert!(fleet.current().iter().all(|(id, release)| (release == "1.1-1") == id.starts_with("red")));
    the_way_back_is_shown(&fleet);
    let why = fleet.runner(&["sidle.why", "odd1", "format=data"]);
    assert!(why["cause"].is_string(), "{why}");
    assert!(fleet.current().iter().all(|(id, release)| (release == "1.1-1") == id.starts_with("red")));
    let plan = fleet.runner(&["sidle.plan", "suse*", "1.1-1"]);
    assert!(plan.as_str().unwrap().contains("1.1-1 is marked as bad here"), "{plan}");
    assert!(fleet.members.iter().all(|member| member.host.status()["rollout"].is_null()), "the claims are over");
    let listed = fleet.runner(&["sidle.rollouts"]);
    assert_eq!(listed["r1"]["status"], "ended", "{listed}");
}
