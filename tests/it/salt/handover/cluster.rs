//! Two masters of 3008 as a cluster: a minion has signed in to one of them, and jobs of both reach it. Each is run once and answered across switches in overlap.

use super::{NEW, OLD};
use crate::support::fleet::Member;
use crate::support::minions::{self, LONG_TERM};
use crate::support::ports::Ports;
use crate::support::salt::{Master, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Host, SALT, text};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SETTINGS: &str =
    "start_timeout = \"180s\"\nstop_timeout = \"10s\"\nprobation = \"3s\"\njob_splay = \"0s\"\nrehearsal = \"off\"\n";
const ID: &str = "clustered";
const ADDRESSES: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
/// Jobs that one program publishes, one after the other, each with this patience.
const BATCH: usize = 10;
const PATIENCE_SECONDS: u32 = 60;

/// What makes a master one of the cluster. Its id has to be the name that the other one has for it.
fn options(own: usize, shared: &Path, pool: u16) -> String {
    format!(
        "id: {}\ncluster_id: one\ncluster_peers: [{}]\ncluster_pki_dir: {shared}/keys\ncluster_secret: of-a-test\ncluster_pool_port: {pool}\ncachedir: {shared}/cache\n",
        ADDRESSES[own],
        ADDRESSES[1 - own],
        shared = text(shared),
    )
}

/// Publishes until it is told to stop: what each job was called, and what the master has of it.
fn published(master: &Master, stop: &AtomicBool) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let names: Vec<String> = (0..BATCH).map(|at| format!("job-{}-{}", master.address, all.len() + at)).collect();
        let words: Vec<[&str; 2]> = names.iter().map(|name| ["mark.run", name.as_str()]).collect();
        let calls: Vec<&[&str]> = words.iter().map(|words| &words[..]).collect();
        let answers = master.calls(PATIENCE_SECONDS, ID, &calls);
        all.extend(names.into_iter().zip(answers));
    }
    all
}

#[test]
#[ignore = "`scripts/test --long`: two masters that elect a leader; `masters` shows two that know nothing of each other"]
fn jobs_of_both_masters_of_a_cluster_are_run_once_and_answered_across_switches() {
    let author = minions::author_of(&LONG_TERM);
    let template = Host::new(&author);
    fs::write(template.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
    for version in LONG_TERM {
        template.install(&author.salt(version)).ok();
    }
    let (shared, ports) = (tempfile::tempdir().unwrap(), Ports::take());
    let first = Master::start_with(&tree(MASTER), true, &options(0, shared.path(), ports.first()));
    let second = first.start_twin_with(ADDRESSES[1], &options(1, shared.path(), ports.first()));
    let masters = [first, second];
    let mut member = Member::new(&template, &[&masters[0]], (ID.to_owned(), "Debian", OLD));
    member.start();
    for master in &masters {
        master.hears(&[ID]);
    }

    let stop = AtomicBool::new(false);
    let all: Vec<(String, String)> = thread::scope(|scope| {
        let streams =
            [0, 1].map(|at| (&masters[at], &stop)).map(|(master, stop)| scope.spawn(|| published(master, stop)));
        for release in [NEW, OLD] {
            let ran = member.host.sidle(&["switch", SALT, &format!("{release}-1"), "--mode", "overlap"]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
        stop.store(true, Ordering::Relaxed);
        streams.into_iter().flat_map(|stream| stream.join().unwrap()).collect()
    });
    assert!(all.len() >= 2 * BATCH, "{}", all.len());
    println!("{} jobs across two switches", all.len());
    let marks = member.marks.all();
    for (name, answer) in &all {
        assert!(answer.contains(name.as_str()), "{name} was not answered: {answer}");
        assert_eq!(marks.iter().filter(|mark| mark.what == "run" && mark.name == *name).count(), 1, "{name}");
    }
    member.stop();
}
