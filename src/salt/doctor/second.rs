//! A second minion of the same id and master on this host: started by a package's unit, by hand, or left over.

use super::super::adoption::{SaltAdopter, configuration_of};
use super::super::options::MinionConfig;
use super::super::title::Title;
use crate::agent::AgentSettings;
use crate::agent::adoption::Adopter as _;
use crate::agent::examination::{Case, Group, Severity};
use crate::os::proc_fs::{self, Process};
use std::path::{Path, PathBuf};

/// Looks at all processes that can be seen.
pub fn check(group: &mut Group, case: Case<'_>, settings: &AgentSettings, config: &MinionConfig) {
    let all = match proc_fs::all() {
        Ok(all) => all,
        Err(error) => return group.unknown("other minions", error, "run it where /proc is mounted"),
    };
    let minions: Vec<&Process> = all.iter().filter(|process| process.is_alive() && is_minion(process.pid)).collect();
    let is_one = |pid: u32| minions.iter().any(|process| process.pid == pid);
    // Only the first process of each: Salt's jobs and its main have the same words in their titles.
    let first = minions.iter().filter(|process| !is_one(process.parent) && !is_own(process.pid, case.own));
    let mut others = 0;
    for process in first {
        let told = format!("process {} ({})", process.pid, proc_fs::title(process.pid));
        match same(settings, process.pid) {
            Same::Yes(whom) => group.find(
                Severity::Error,
                "second-minion",
                format!("{told} is a second {whom}, not run by sidle: every job runs twice"),
                "end it, and disable the unit that starts it (`systemctl status PID` names it); `sidle adopt PACKAGE` takes it over",
            ),
            Same::No => others += 1,
            Same::Gone => {}
            Same::Unknown(reason) => {
                let whether = format!("whether {told} is a second minion of this id");
                let remedy = "run `sidle doctor` as root; if root cannot read the process either, `systemctl status PID` names what started it: end a process that was left over";
                group.unknown(&whether, reason, remedy);
            }
        }
    }
    let id = config.id.as_deref().unwrap_or("of this host's name");
    let others = if others > 0 { format!(" ({others} of other ids or masters)") } else { String::new() };
    if group.findings.is_empty() {
        group.good(format!("no second minion {id}{others}"));
    }
}

/// Salt's program, or Python that runs it; a job or an engine that outlived its minion takes no jobs.
fn is_minion(pid: u32) -> bool {
    let words = proc_fs::command_line(pid).ok().flatten().unwrap_or_default();
    if !matches!(Title::parse(&words.join(" ")), Title::Other(_)) {
        return false;
    }
    let words: Vec<&str> = words.iter().flat_map(|word| word.split(' ')).collect();
    let is_it = |word: &&str| {
        Path::new(word).file_name().is_some_and(|name| name == "salt-minion" || name == "venv-salt-minion")
    };
    // The program, its script, or the script behind Python's options: `tail -f …/salt-minion` names a log.
    let program = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    let is_python = program.to_string_lossy().starts_with("python");
    words.first().is_some_and(is_it)
        || (is_python && words.iter().skip(1).find(|word| !word.starts_with('-')).is_some_and(is_it))
}

fn is_own(pid: u32, own: &[u32]) -> bool {
    let above = proc_fs::ancestors(pid).unwrap_or_default();
    own.contains(&pid) || above.iter().any(|process| own.contains(&process.pid))
}

enum Same {
    Yes(String),
    No,
    Gone,
    Unknown(String),
}

/// Whether it is the same minion, by the configuration that it was started with, as its own file system has it.
fn same(ours: &AgentSettings, pid: u32) -> Same {
    let Some(command) = proc_fs::command_line(pid).ok().flatten() else { return Same::Gone };
    let theirs = configuration_of(&command);
    // Our Salt reads it: theirs may be a stranger's program.
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let theirs = root.join(theirs.strip_prefix("/").unwrap_or(&theirs));
    match SaltAdopter.is_same(ours, &ours.about(theirs, Some(root))) {
        Ok(Some(whom)) => Same::Yes(whom),
        Ok(None) => Same::No,
        Err(_) if proc_fs::process(pid).ok().flatten().is_none_or(|process| !process.is_alive()) => Same::Gone,
        Err(error) => Same::Unknown(error.to_string()),
    }
}
