//! `scripts/bench uses-jobs`: what counting costs a minion that does real jobs. Two minions of one master get each job at the same time, one with the count; half way
//! they change places.

use super::say;
use crate::support::eventually;
use crate::support::fleet::{self, Member};
use crate::support::minions::{self, LONG_TERM};
use crate::support::salt::{Master, START_SECONDS, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Host, SALT};
use std::{fs, thread};

const SETTINGS: &str = "start_timeout = \"180s\"\nprobation = \"300ms\"\njob_splay = \"0s\"\nrehearsal = \"off\"\n";
/// Both minions get so many jobs in a round, and there are at least so many rounds with each as the one that counts.
const ROUND_JOBS: usize = 50;
const ROUNDS_LEAST: usize = 4;
/// So many at a time: one alone waits for its master most of the time.
const AT_ONCE: usize = 4;
/// Before the first round of each half: Salt loads its modules.
const WARM_JOBS: usize = 10;
const PATIENCE_SECONDS: u32 = 60;
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor seconds of a minion's processes, and of those that they have waited for.
fn processor_seconds(member: &Member) -> f64 {
    let configuration = member.host.path("etc/salt").to_string_lossy().into_owned();
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ticks = |pid: u32| -> Option<f64> {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // setproctitle(3) makes one word of all.
        let is_its = String::from_utf8_lossy(&command).contains(&configuration);
        // After the name in brackets comes the third field; the 14th to the 17th are times.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok().filter(|_| is_its)?;
        let fields: Vec<f64> =
            stat.rsplit_once(')')?.1.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        // The third, a letter, is no number: the 14th is the tenth number here.
        fields.get(10..14).map(|times| times.iter().sum())
    };
    let ticks: Vec<f64> = pids.filter_map(ticks).collect();
    assert!(!ticks.is_empty(), "no process of the minion with {configuration} was found");
    ticks.iter().sum::<f64>() / TICKS_PER_SECOND
}

fn jobs(master: &Master, number: usize) {
    let kinds: [&[&str]; 3] = [&["test.ping"], &["test.echo", "text"], &["grains.get", "os"]];
    let calls: Vec<&[&str]> = (0..number).map(|at| kinds[at % kinds.len()]).collect();
    let silent = |calls: &[&[&str]]| {
        let answers = master.calls(PATIENCE_SECONDS, "*", calls);
        answers.iter().filter(|answer| answer.matches(':').count() < 2).count()
    };
    let silent: usize = thread::scope(|scope| {
        let parts = calls.chunks(number.div_ceil(AT_ONCE)).map(|part| scope.spawn(|| silent(part)));
        parts.collect::<Vec<_>>().into_iter().map(|part| part.join().unwrap()).sum()
    });
    if silent > 0 {
        say(&format!("    {silent} jobs were not answered by both"));
    }
}

/// Starts the first minion with the count, and the second without.
fn begin(members: &[Member], counting: usize, master: &Master) {
    for (at, member) in members.iter().enumerate() {
        let setting = format!("count_uses = {}\n", at == counting);
        fs::write(member.host.path("etc/sidle/conf.d/uses.toml"), setting).unwrap();
        member.host.sidle(&["restart", SALT, "--mode", "idle"]).ok();
    }
    eventually(START_SECONDS, "both answer", || {
        let said = master.call_within("15", "*", &["test.ping"]);
        if said.matches("True").count() == members.len() { Ok(()) } else { Err(said) }
    });
    jobs(master, WARM_JOBS);
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

#[test]
#[ignore = "`scripts/bench uses-jobs`"]
fn bench_uses_jobs() {
    let all: usize = std::env::var("SIDLE_BENCH_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    // Each job is one of a minion that counts, and one of a minion that does not.
    let rounds = (all / 2 / ROUND_JOBS / 2).max(ROUNDS_LEAST);
    for version in LONG_TERM {
        let author = minions::author_of(&LONG_TERM);
        let template = Host::new(&author);
        fs::write(template.path("etc/sidle/conf.d/salt.toml"), SETTINGS).unwrap();
        template.install(&author.salt(version)).ok();
        let master = Master::start_with(&tree(MASTER), true, "");
        let mut members: Vec<Member> =
            ["one", "two"].map(|id| Member::new(&template, &[&master], (id.to_owned(), "Debian", version))).into();
        fleet::start(&mut members);
        let mut pairs = Vec::new();
        for counting in [0, 1] {
            begin(&members, counting, &master);
            for _ in 0..rounds {
                let before: Vec<f64> = members.iter().map(processor_seconds).collect();
                jobs(&master, ROUND_JOBS);
                let took: Vec<f64> =
                    members.iter().zip(before).map(|(member, before)| processor_seconds(member) - before).collect();
                pairs.push((took[1 - counting], took[counting]));
            }
        }
        let mut ratios: Vec<f64> = pairs.iter().map(|(without, with)| with / without).collect();
        ratios.sort_by(f64::total_cmp);
        let (without, with) = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let number = pairs.len() * ROUND_JOBS;
        let (tenth, each) = (ratios.len() / 10, f64::from(u32::try_from(number).unwrap()));
        say(&format!(
            "Salt {version}: {number} jobs with and {number} without the count: {:.1} and {:.1} ms of processor time a job; ratio of the sums {:.4}, of a round {:.4}, middle 80 per cent {:.4} to {:.4}, {} rounds",
            with / each * 1e3,
            without / each * 1e3,
            with / without,
            median(&ratios),
            ratios[tenth],
            ratios[ratios.len() - 1 - tenth],
            ratios.len(),
        ));
        members.iter_mut().for_each(Member::stop);
    }
}
