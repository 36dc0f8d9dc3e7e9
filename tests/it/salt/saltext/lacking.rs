//! A rollout from one long-term release to the next over minions of which two use what the newer one has dropped: the plan refuses these by name, and the others go;
//! to the revision that brings it along all go.

use crate::salt::layer::Desk;
use crate::support::eventually;
use crate::support::fleet::{self, Member, extension};
use crate::support::minions::{self, LONG_TERM};
use crate::support::salt::{Master, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Author, Host, SALT, text};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

const MINIONS: usize = 8;
/// These two use it.
const USERS: [&str; 2] = ["web1", "web2"];
const USED: &str = "zabbix.compare_params";
const EXTRA: &str = "saltext-zabbix==1.0.0";

/// What starts beside others takes its time.
const SETTINGS: &str = "rehearsal_timeout = \"300s\"\nstart_timeout = \"120s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\nrestart_pause = \"1s\"\njob_splay = \"0s\"\nrehearsal = \"refuse\"\n";
const PATIENCE_SECONDS: u64 = 300;

/// Fast enough for a test; each switch rehearses first.
const QUICK: [&str; 7] =
    ["splay=0s", "soak_seconds=1", "ask_seconds=3", "order_seconds=300", "at_once=4", "budget=0", "percents=[100]"];

/// The next revision of 3008, which brings along what two of them use.
fn packed(author: &Author) -> PathBuf {
    let (desk, bundle) = (Desk::new(), author.directory().join("with-zabbix.sidle"));
    desk.pack(&[EXTRA], &["--lock"]).ok();
    let (key, repository, base) = (author.key(), author.repository(), author.salt(LONG_TERM[1]));
    let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
    desk.pack(&[EXTRA], &[&["--base", text(&base), "--revision", "2"][..], &to[..]].concat()).ok();
    bundle
}

struct Fleet {
    members: Vec<Member>,
    master: Master,
    _template: Host,
}

impl Fleet {
    fn new() -> Self {
        let author = minions::author_of(&LONG_TERM);
        let template = Host::new(&author);
        fs::write(template.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
        for bundle in [author.salt(LONG_TERM[0]), author.salt(LONG_TERM[1]), packed(&author)] {
            template.install(&bundle).ok();
        }
        let runners = extension().join("src/saltext/sidle/runners");
        let options = format!("runner_dirs: [{}]\nsidle: {{answer_seconds: {PATIENCE_SECONDS}}}\n", text(&runners));
        let master = Master::start_with(&tree(MASTER), true, &options);
        let wanted = (1..=MINIONS).map(|number| (format!("web{number}"), "Debian", LONG_TERM[0]));
        let mut members: Vec<Member> = wanted.map(|wanted| Member::new(&template, &[&master], wanted)).collect();
        fleet::start(&mut members);
        let fleet = Self { members, master, _template: template };
        fleet.master.hears(&fleet.members.iter().map(|member| member.id.as_str()).collect::<Vec<_>>());
        fleet
    }

    /// Two of them use it, and have counted that.
    fn is_used(&self) {
        for member in self.members.iter().filter(|member| USERS.contains(&member.id.as_str())) {
            self.master.call(&member.id, &[USED, "one", "two"]);
            eventually(PATIENCE_SECONDS, "it is counted", || {
                let told = member.host.sidle(&["--json", "uses", SALT]).stdout;
                if told.contains(USED) { Ok(()) } else { Err(told) }
            });
        }
    }

    fn at(&self, release: &str) -> Vec<&str> {
        self.members.iter().filter(|member| member.current() == release).map(|member| member.id.as_str()).collect()
    }
}

/// The two that use it are refused by name, with what brings it back; the sum says how many use it, and when last.
fn two_are_refused(fleet: &Fleet, release: &str) {
    let plan = fleet.master.runner(&["sidle.plan", "*", release, "format=data"]);
    for (id, host) in plan["hosts"].as_object().unwrap_or_else(|| panic!("{plan}")) {
        let verdict = if USERS.contains(&id.as_str()) { "refused" } else { "go" };
        assert_eq!(host["verdict"], verdict, "{id}: {host}");
    }
    let why = plan["hosts"][USERS[0]]["why"].to_string();
    for part in [USED, "would vanish, and is used here", "saltext-zabbix=="] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let sum = format!("used, and not in the release (module): {USED}: 2 hosts, last on ");
    assert!(plan["notes"].to_string().contains(&sum), "{}", plan["notes"]);
}

fn rolled_out(fleet: &Fleet, release: &str, name: &str) -> Value {
    let name = format!("name={name}");
    fleet.master.runner(&[&["sidle.rollout", "*", release, &name, "canary=1"], &QUICK[..]].concat())
}

#[test]
#[ignore = "`scripts/test --long`: eight minions, two rollouts; `salt::uses` and the unit tests of the extension show each step"]
fn of_eight_minions_the_two_that_use_what_vanishes_are_refused_and_with_it_packed_all_go() {
    let fleet = Fleet::new();
    fleet.is_used();
    let [lacking, whole] = [1, 2].map(|revision| format!("{}-{revision}", LONG_TERM[1]));
    two_are_refused(&fleet, &lacking);
    let done = rolled_out(&fleet, &lacking, "r1");
    assert_eq!((&done["status"], &done["counts"]["done"]), (&json!("ended"), &json!(MINIONS - USERS.len())), "{done}");
    assert_eq!(fleet.at(&format!("{}-1", LONG_TERM[0])), USERS);
    let done = rolled_out(&fleet, &whole, "r2");
    assert_eq!((&done["status"], &done["counts"]["done"]), (&json!("ended"), &json!(MINIONS)), "{done}");
    assert_eq!(fleet.at(&whole).len(), MINIONS);
    let said = fleet.master.call(USERS[0], &[USED, "one", "two"]);
    assert!(!said.contains("is not available"), "{said}");
}
