//! Jobs in queues on disk that nobody will run.

use super::super::config::MinionConfig;
use super::super::queues;
use crate::agent::examination::{Group, Severity};

/// Looks into all queues that the minion has, or had.
pub fn check(group: &mut Group, config: &MinionConfig) {
    match queues::left(config) {
        Err(error) => group.unknown("queues of jobs", error, "run it as root"),
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
