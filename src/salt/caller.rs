//! The Salt job out of which a command runs, by the processes above it: a job's process names its jid in its title, and its entry below
//! `<cachedir>/proc` names who gave it. Salt puts nothing of that into the environment of what `cmd.run` starts.

use super::adoption::configuration_of;
use super::entry;
use super::options::{Masters, asking};
use super::title::Title;
use crate::agent::caller::Caller;
use crate::os::proc_fs::{self, Process};
use std::path::Path;

/// The job that `pid` runs in; `instances`: the directory of all instances' states. None: no job, or its process has ended.
pub fn caller(pid: u32, instances: &Path) -> Option<Caller> {
    let above = proc_fs::ancestors(pid).ok()?;
    above.iter().find_map(|process| {
        let words = proc_fs::command_line(process.pid).ok()??;
        let jid = Title::parse(&words.join(" ")).jid()?.to_owned();
        Some(described(process, &words, jid, instances).bounded())
    })
}

/// What is known of the job `jid` of `process`. The jid alone leads to the rest in the master's job cache.
fn described(process: &Process, command: &[String], jid: String, instances: &Path) -> Caller {
    let mut caller = Caller { agent: "Salt".to_owned(), job: jid, function: None, user: None, peers: Vec::new() };
    let Some(config) = asking::last_of(instances, &configuration_of(command)) else { return caller };
    if let Masters::Named(masters, _) = &config.masters {
        caller.peers = masters.iter().map(|master| master.name.clone()).collect();
    }
    // In threads mode the entry names main; the title then names no jid.
    if let Some(entry) = entry::of(&config.jobs_directory(), &caller.job).filter(|entry| entry.pid == process.pid) {
        caller.function = Some(entry.function);
        caller.user = entry.user;
    }
    caller
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_outside_of_any_job_has_no_caller() {
        let instances = Path::new("/nowhere");
        assert_eq!(caller(std::process::id(), instances), None);
        assert_eq!(caller(u32::MAX, instances), None);
    }
}
