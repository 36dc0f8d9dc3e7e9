//! The minion's part of an examination: its masters' ports, what they make of its key, and a second minion of the same id.

mod explanations;
mod key;
mod ports;
pub mod second;

use super::options::asking::Asker;
use super::options::{Masters, MinionConfig};
use super::queues;
use crate::agent::examination::{Case, Examiner, Explanation, Group, Severity};
use crate::agent::{AgentSettings, Answers};

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
        let settings = settings(case);
        let asker = Asker::new(&settings);
        match asker.answer().map(|answer| answer.failure.is_none()) {
            Err(error) => {
                minion.unknown(
                    "the minion's configuration",
                    error,
                    "repair the current release: `sidle repair PACKAGE`",
                );
                masters.unknown("masters", "the minion's configuration is not known", "see the finding about it");
            }
            Ok(_) => match asker.present() {
                Err(error) => {
                    let remedy = "correct what it names: the minion could not be started again with this configuration";
                    minion.find(Severity::Error, "minion-configuration", error.to_string(), remedy);
                    masters.unknown("masters", "the minion's configuration can't be loaded", "correct it first");
                }
                Ok(config) => known(&mut minion, &mut masters, case, &settings, &config),
            },
        }
        vec![minion, masters]
    }
}

/// The settings by which the current release is asked.
fn settings(case: Case<'_>) -> AgentSettings {
    let answers = Answers::Read(case.state.to_owned());
    let (release, passed) = (case.release.cloned(), case.passed.clone());
    AgentSettings { passed, release, answers, ..AgentSettings::new(case.configuration) }
}

fn known(minion: &mut Group, masters: &mut Group, case: Case<'_>, settings: &AgentSettings, config: &MinionConfig) {
    second::check(minion, case, settings, config);
    queues_left(minion, config);
    match &config.masters {
        Masters::Named(named, need) => {
            let listening = ports::check(masters, named, *need, case);
            key::check(masters, case, &listening);
        }
        Masters::None => masters.good("works without a master (master_type: disable)"),
        Masters::Unknown(reason) => {
            let remedy = "correct it, or name the masters in `master`";
            minion.find(Severity::Error, "minion-configuration", reason.clone(), remedy);
            masters.unknown("masters", "which they are is not known", remedy);
        }
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
