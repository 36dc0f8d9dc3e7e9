//! A second minion of the same id and master on this host: started by a package's unit, by hand, or left over.

use super::super::adoption::{configuration_of, shared_identity};
use super::super::options::MinionConfig;
use super::super::options::asking::Asker;
use super::super::title::Title;
use crate::agent::examination::{Case, Group, Severity};
use crate::agent::{AgentError, AgentSettings};
use crate::os::proc_fs::{self, Process};
use crate::os::{OsError, account, clock, process};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A younger process may still become a minion: a service manager starts a program out of a copy of itself.
const SETTLED_AGE: Duration = Duration::from_secs(60);
/// So many that have ended stay known: a minion that is started again mostly has the configuration that it had.
const ENDED_MAX: usize = 16;
/// How often all processes are looked at anew: a number may belong to another process, a shell may have become a minion.
const LOOK_AT_ALL_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Looks at all processes that can be seen.
pub fn check(group: &mut Group, case: Case<'_>, settings: &AgentSettings, config: &MinionConfig) {
    let found = match first_processes(case.own, &mut Strangers::default()) {
        Ok(found) => found,
        Err(error) => return group.unknown("other minions", error, "run it where /proc is mounted"),
    };
    let mut of_others = 0;
    for process in found {
        let told = told(&process);
        match same(config, process.pid, || asker(settings, process.pid, [])?.present()) {
            Same::Yes(whom) => group.find(
                Severity::Error,
                "second-minion",
                format!("{told} is a second {whom}, not run by sidle: every job runs twice"),
                "end it, and disable the unit that starts it (`systemctl status PID` names it); `sidle adopt PACKAGE` takes it over",
            ),
            Same::No => of_others += 1,
            Same::Gone => {}
            Same::Unknown(reason) => {
                let whether = format!("whether {told} is a second minion of this id");
                let remedy = "run `sidle doctor` as root; if root cannot read the process either, `systemctl status PID` names what started it: end a process that was left over";
                group.unknown(&whether, reason, remedy);
            }
        }
    }
    let id = config.id.as_deref().unwrap_or("of this host's name");
    let others = if of_others > 0 { format!(" ({of_others} of other ids or masters)") } else { String::new() };
    if group.findings.is_empty() {
        group.good(format!("no second minion {id}{others}"));
    }
}

/// The other minions on this host that a supervisor sees, each with what our Salt has made of its configuration: it is asked once, and neither at each
/// look nor after each restart, and only about those that listen to our masters. A host may have hundreds of other minions, in containers; the
/// supervisor waits for answers.
#[derive(Debug, Default)]
pub struct Others {
    strangers: RefCell<Strangers>,
    /// With the pid and start time of each first process.
    askers: RefCell<Vec<((u32, u64), Asker)>>,
}

impl Others {
    /// Those that are the minion of `config` once more; `listens`: whether the minion with this first process is connected to a master of ours. What
    /// cannot be told is left to `sidle doctor`, and so are minions of other users: our Salt may need a minute for what a stranger wrote.
    pub fn doubles(
        &self,
        settings: &AgentSettings,
        config: &MinionConfig,
        own: &[u32],
        mut listens: impl FnMut(u32) -> bool,
    ) -> Vec<String> {
        let mut found = first_processes(own, &mut self.strangers.borrow_mut()).unwrap_or_default();
        if found.is_empty() {
            // As mostly.
            return Vec::new();
        }
        let agents_own = config.user.as_deref().and_then(process::user_number);
        let users = [Some(account::ROOT), Some(process::user()), agents_own];
        found.retain(|process| proc_fs::user(process.pid).is_some_and(|user| users.contains(&Some(user))));
        let mut askers = self.askers.borrow_mut();
        // The oldest stand first.
        let lives = |known: (u32, u64)| found.iter().any(|process| key(process) == known);
        let mut surplus = askers.iter().filter(|(known, _)| !lives(*known)).count().saturating_sub(ENDED_MAX);
        askers.retain(|(known, _)| {
            let goes = surplus > 0 && !lives(*known);
            surplus -= usize::from(goes);
            !goes
        });
        // Who was asked about stays known: a connection comes and goes.
        found.retain(|process| askers.iter().any(|(known, _)| *known == key(process)) || listens(process.pid));
        let named = found.into_iter().filter_map(|process| {
            let theirs = || {
                if !askers.iter().any(|(known, _)| *known == key(&process)) {
                    let asker = asker(settings, process.pid, askers.iter().rev().map(|(_, known)| known))?;
                    askers.push((key(&process), asker));
                }
                let known = askers.iter().find(|(known, _)| *known == key(&process));
                known.expect("it was there, or has just been added").1.lately()
            };
            match same(config, process.pid, theirs) {
                Same::Yes(whom) => Some(format!("{} is a second {whom}", told(&process))),
                Same::No | Same::Gone | Same::Unknown(_) => None,
            }
        });
        named.collect()
    }
}

fn key(process: &Process) -> (u32, u64) {
    (process.pid, process.start_time)
}

/// A process, for people.
fn told(process: &Process) -> String {
    format!("process {} ({})", process.pid, proc_fs::title(process.pid))
}

/// The processes of which it is known whether they are minions: a look at a host with a thousand processes reads a directory, and what is new in it.
#[derive(Debug, Default)]
struct Strangers {
    /// Those that are none.
    known: HashSet<u32>,
    /// Those that are one, with their start times.
    minions: HashMap<u32, u64>,
    since: Duration,
}

impl Strangers {
    /// All minions that live.
    fn minions(&mut self) -> Result<Vec<Process>, OsError> {
        let now = clock::since_boot();
        if now.saturating_sub(self.since) >= LOOK_AT_ALL_INTERVAL {
            self.known.clear();
            self.minions.clear();
            self.since = now;
        }
        let numbers = proc_fs::numbers()?;
        self.known.retain(|pid| numbers.contains(pid));
        self.minions.retain(|pid, _| numbers.contains(pid));
        let mut minions = Vec::new();
        for pid in numbers {
            if self.known.contains(&pid) {
                continue;
            }
            let Some(process) = proc_fs::process(pid)? else { continue };
            let is_known = self.minions.get(&pid) == Some(&process.start_time);
            let is_settled = proc_fs::age(&process) >= SETTLED_AGE;
            if process.is_alive() && (is_known || is_minion(pid)) {
                if is_settled {
                    self.minions.insert(pid, process.start_time);
                }
                minions.push(process);
            } else if is_settled {
                self.known.insert(pid);
            }
        }
        Ok(minions)
    }
}

/// The first processes of all minions that are not among `own` and their descendants.
fn first_processes(own: &[u32], strangers: &mut Strangers) -> Result<Vec<Process>, OsError> {
    let mut minions = strangers.minions()?;
    let all: Vec<u32> = minions.iter().map(|process| process.pid).collect();
    // Only the first process of each: Salt's jobs and its main have the same words in their titles.
    minions.retain(|process| !all.contains(&process.parent) && !is_own(process.pid, own));
    Ok(minions)
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
    let above = || proc_fs::ancestors(pid).unwrap_or_default();
    own.contains(&pid) || above().iter().any(|process| own.contains(&process.pid))
}

enum Same {
    Yes(String),
    No,
    Gone,
    Unknown(String),
}

/// Asks about the configuration that a minion was started with, as the minion's own file system has it. Our Salt reads it: theirs may be a stranger's
/// program. Who is known already, as the same minion before a restart, knows the answer.
fn asker<'a>(
    settings: &AgentSettings,
    pid: u32,
    known: impl IntoIterator<Item = &'a Asker>,
) -> Result<Asker, AgentError> {
    let command = proc_fs::command_line(pid)?;
    let command = command.ok_or_else(|| AgentError::new(format!("process {pid} has ended")))?;
    let theirs = configuration_of(&command);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let theirs = root.join(theirs.strip_prefix("/").unwrap_or(&theirs));
    let again = known.into_iter().find_map(|other| other.again(&theirs, &root));
    Ok(again.unwrap_or_else(|| Asker::new(&settings.about(theirs, Some(root)))))
}

/// Whether a minion's first process is one of our minion: of the same id and a common master.
fn same(ours: &MinionConfig, pid: u32, theirs: impl FnOnce() -> Result<MinionConfig, AgentError>) -> Same {
    match theirs().map(|theirs| shared_identity(ours, &theirs)) {
        Ok(Some(whom)) => Same::Yes(whom),
        Ok(None) => Same::No,
        Err(_) if proc_fs::process(pid).ok().flatten().is_none_or(|process| !process.is_alive()) => Same::Gone,
        Err(error) => Same::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the test makes real files, and a process that looks like a minion")]

    use super::super::super::options::answer::recorded;
    use super::*;
    use crate::agent::Answers;
    use crate::rehearsal::Part;
    use serde_json::json;
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    /// A process that looks like a minion with this configuration.
    fn minion(etc: &Path) -> Child {
        let mut shell = Command::new("/bin/sh");
        shell.arg0("/usr/bin/salt-minion").args(["-s", "--"]).arg(format!("--config-dir={}", etc.display()));
        let minion = shell.stdin(Stdio::piped()).spawn().unwrap();
        // The kernel lets the parent go on a moment before the new program's words are to be seen.
        while proc_fs::command_line(minion.id()).unwrap().is_some_and(|words| words.is_empty()) {}
        minion
    }

    fn end(mut minion: Child) {
        minion.kill().unwrap();
        minion.wait().unwrap();
    }

    /// Writes the configuration, and the answer that rests on it.
    fn put(etc: &Path, text: &str) {
        fs::write(etc.join("minion"), text).unwrap();
        let stat = fs::metadata(etc.join("minion")).unwrap();
        let time = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let (mtime, ctime) = (time(stat.mtime(), stat.mtime_nsec()), time(stat.ctime(), stat.ctime_nsec()));
        let files = json!([["DIRECTORY/minion", [stat.dev(), stat.ino(), stat.size(), mtime, ctime]]]);
        let answer = json!({"schema": 1, "failure": null, "options": recorded(), "files": files});
        fs::write(etc.join("answer"), answer.to_string()).unwrap();
    }

    /// A process that was a minion is one still, without another look at its words; another process of that number is looked at.
    #[test]
    fn a_known_minion_is_known_by_its_number_and_its_start() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = proc_fs::process(child.id()).unwrap().unwrap();
        let mut strangers = Strangers { since: clock::since_boot(), ..Strangers::default() };
        let mut is_one = |start_time| {
            strangers.minions.insert(process.pid, start_time);
            strangers.minions().unwrap().iter().any(|minion| minion.pid == process.pid)
        };
        let found = [is_one(process.start_time), is_one(process.start_time + 1)];
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(found, [true, false]);
    }

    #[test]
    fn a_second_minion_is_named_at_each_look_and_asked_about_once() {
        let root = tempfile::tempdir().unwrap();
        let (bin, etc) = (root.path().join("tree/bin"), root.path().join("etc"));
        for directory in [&bin, &etc] {
            fs::create_dir_all(directory).unwrap();
        }
        let script = "#!/bin/sh\necho asked >>\"$5/asked\"\nsed \"s|DIRECTORY|$5|\" \"$5/answer\"\n";
        fs::write(bin.join("python3"), script).unwrap();
        fs::set_permissions(bin.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
        put(&etc, "id: a\n");
        let part = Part { tree: root.path().join("tree"), environment: Vec::new() };
        let settings = AgentSettings::new(&etc).asking(part, Answers::Forgotten);

        let (others, config) = (Others::default(), recorded().config().unwrap());
        let listens = Cell::new(false);
        let seen = |minion: &Child, own: &[u32]| {
            let mut all = others.doubles(&settings, &config, own, |pid| listens.get() && pid == minion.id());
            all.retain(|told| told.starts_with(&format!("process {} ", minion.id())));
            all
        };
        let asked = || fs::read_to_string(etc.join("asked")).unwrap_or_default().lines().count();
        let named = |minion: &Child| {
            let told = seen(minion, &[]);
            assert!(told.len() == 1 && told[0].ends_with("is a second minion a of master salt"), "{told:?}");
        };
        let second = minion(&etc);
        assert!(seen(&second, &[]).is_empty() && asked() == 0, "it listens to none of our masters");
        for connected in [true, true, false] {
            listens.set(connected);
            named(&second);
        }
        assert_eq!(asked(), 1);
        assert!(seen(&second, &[second.id()]).is_empty(), "it belongs to the instance");
        end(second);

        listens.set(true);
        let again = minion(&etc);
        named(&again);
        assert_eq!(asked(), 1, "the same minion, started again, has the configuration that it had");
        end(again);
        put(&etc, "id: a # changed\n");
        let changed = minion(&etc);
        named(&changed);
        assert_eq!(asked(), 2);
        end(changed);
        for _ in 0..2 * ENDED_MAX {
            let more = minion(&etc);
            named(&more);
            end(more);
        }
        assert!(others.askers.borrow().len() <= ENDED_MAX + 1, "who ended long ago is forgotten");
        assert_eq!(asked(), 2);
    }
}
