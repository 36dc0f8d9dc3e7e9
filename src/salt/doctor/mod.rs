//! The minion's part of an examination: its masters' ports, what they make of its key, and a second minion of the same id.

mod explanations;
mod key;
mod ports;
pub mod second;

use super::config::{Masters, MinionConfig};
use super::queues;
use crate::agent::examination::{Case, Examiner, Explanation, Group, Severity};

/// The minion's examiner.
pub static SALT: SaltExaminer = SaltExaminer;

/// Examines minions.
#[derive(Debug)]
pub struct SaltExaminer;

impl Examiner for SaltExaminer {
    fn explanations(&self) -> &'static [Explanation] {
        explanations::ALL
    }

    fn programs(&self) -> &'static [&'static str] {
        &["salt-minion", "salt-call", "salt-proxy", "salt-pip"]
    }

    fn examine(&self, case: Case<'_>) -> Vec<Group> {
        let (mut minion, mut masters) = (Group::new("minion"), Group::new("masters"));
        match MinionConfig::read(case.configuration) {
            Err(error) => {
                let remedy = "correct what it names: the minion could not be started again with this configuration";
                minion.find(Severity::Error, "minion-configuration", error.to_string(), remedy);
                masters.unknown("masters", "the minion's configuration can't be read", "correct it first");
            }
            Ok(config) => {
                second::check(&mut minion, case, &config);
                queues_left(&mut minion, &config);
                if let Masters::Named(named, need) = &config.masters {
                    let listening = ports::check(&mut masters, named, *need, case);
                    key::check(&mut masters, case, &listening);
                } else {
                    masters.good("works without a master (master_type: disable)");
                }
            }
        }
        vec![minion, masters]
    }
}

/// Looks into all queues that the minion has, or had.
fn queues_left(group: &mut Group, config: &MinionConfig) {
    match queues::left(config) {
        Err(error) => group.unknown("queues of jobs", error, "run `sidle doctor` as root"),
        Ok(left) => {
            for (directory, count) in left {
                let (jobs, them) = if count == 1 { ("job", "it") } else { ("jobs", "them") };
                let what = format!(
                    "{count} {jobs} in {} will not be run: this minion no longer looks for {them}",
                    directory.display()
                );
                let remedy =
                    format!("publish again what is still wanted, and remove the files in {}", directory.display());
                group.find(Severity::Note, "queued-jobs-left", what, remedy);
            }
        }
    }
}
