//! Whether a minion is idle: its job processes, the entries of running jobs, the queues on disk, and returns that have not left.
//!
//! The children of main append their names to its title (3006.30, 3007.17, 3008.5; `ps -o pid,args --ppid MAIN`):
//! - `ProcessPayload(jid=J)`: a published job, then ` Minion._thread_return` once its modules are loaded;
//! - `Schedule(name=N, jid=J)`: a scheduled one, the mine's update included;
//! - `Engine(…)`, or `Engine` at the end once Salt has started it again: lives as long as the minion: no job; up to 3004 the same of `MultiprocessingLoggingQueue`;
//! - anything else (a command that main runs itself, a fork that has no title yet): not known to be idle.
//!
//! Beacons run in main, process managers are no processes of their own.

use super::entry::{self, Entry};
use super::lingering;
use super::queues::{self, Layout};
use super::title::Title;
use crate::agent::{AgentError, Job};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::proc_fs::{self, Process};
use crate::os::tcp::{self, TcpConnection};
use crate::salt::options::{Masters, MinionConfig};

/// The jobs of the minion whose main process is `main`; `layout`: of its queues, where that is known. Asks the agent nothing, so main may be
/// frozen.
pub fn read(config: &MinionConfig, main: u32, layout: Option<Layout>) -> Result<Vec<Job>, AgentError> {
    // Children before entries: a job that ends in between leaves a zombie or nothing, and a job that begins is a child first.
    let children = proc_fs::children(main)?;
    let directory = Dir::open_if_exists(&config.jobs_directory())?.ok_or_else(|| {
        AgentError::new(format!(
            "cannot find {}: the minion does not run jobs yet, or its cachedir is another directory",
            config.jobs_directory().display()
        ))
    })?;
    let entries = entry::read(&directory)?;
    let connections =
        tcp::connections(main)?.ok_or_else(|| AgentError::new(format!("the minion's main process {main} is gone")))?;
    let mut jobs = queues::jobs(config, layout)?;
    for entry in &entries {
        if entry.is_live()? {
            jobs.push(entry.job());
        }
    }
    let settled = lingering::Lingering::read(config, &directory, &connections)?;
    for child in children.iter().filter(|child| child.is_alive()) {
        if !jobs.iter().any(|job| job.pid == Some(child.pid)) {
            jobs.extend(job_of_child(child, &entries, settled)?);
        }
    }
    if !config.multiprocessing && !settled.quiet && jobs.is_empty() {
        // A job's thread can't be seen; it removes its entry before its return is on its way.
        jobs.push(Job {
            id: "the last job".to_owned(),
            what: "a return that may not have left yet".to_owned(),
            pid: None,
        });
    }
    jobs.extend(unsent(config, &connections));
    Ok(jobs)
}

fn job_of_child(child: &Process, entries: &[Entry], settled: lingering::Lingering) -> Result<Option<Job>, OsError> {
    let Some(title) = Title::of(child.pid)? else { return Ok(None) };
    let (id, what) = match title {
        Title::Engine | Title::Logging => return Ok(None),
        Title::Payload { jid, begun } => {
            let has_entry = entries.iter().any(|entry| entry.jid == jid);
            if begun && !has_entry && settled.has_returned(child)? {
                return Ok(None);
            }
            (jid, "a job that begins, or whose return may not have left yet".to_owned())
        }
        Title::Schedule { name, jid } => (jid, format!("scheduled job {name}")),
        Title::Other(title) if title.is_empty() => return Ok(None),
        Title::Other(title) => ("of an unknown kind".to_owned(), format!("child process \"{}\"", shortened(&title))),
    };
    Ok(Some(Job { id, what, pid: Some(child.pid) }))
}

/// The end of a title tells more than its path at the beginning.
fn shortened(title: &str) -> String {
    const CHARACTERS_MAX: usize = 120;
    let count = title.chars().count();
    if count <= CHARACTERS_MAX {
        return title.to_owned();
    }
    format!("…{}", title.chars().skip(count - CHARACTERS_MAX).collect::<String>())
}

/// Bytes that a master has not acknowledged: since 3005 every return goes through main, and would be lost with it.
fn unsent(config: &MinionConfig, connections: &[TcpConnection]) -> Vec<Job> {
    let Masters::Named(masters, _) = &config.masters else { return Vec::new() };
    let to_master = |connection: &&TcpConnection| {
        masters.iter().any(|master| master.request_port == connection.remote.port())
            && connection.established
            && connection.unacknowledged_bytes > 0
    };
    let job = |connection: &TcpConnection| Job {
        id: format!("to {}", connection.remote),
        what: format!("{} bytes not yet acknowledged", connection.unacknowledged_bytes),
        pid: None,
    };
    connections.iter().filter(to_master).map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_told_apart_by_their_titles() {
        let base = "/t/bin/python3 -E /t/bin/salt-minion -c /etc/salt MultiMinionProcessManager MinionProcessManager";
        let title = |rest: &str| Title::parse(&format!("{base} {rest}"));
        assert_eq!(title("ProcessPayload(jid=1)"), Title::Payload { jid: "1".to_owned(), begun: false });
        let begun = title("ProcessPayload(jid=20261121044316985755) Minion._thread_return");
        assert_eq!(begun, Title::Payload { jid: "20261121044316985755".to_owned(), begun: true });
        let scheduled = title("Schedule(name=a (b), jid=7)");
        assert_eq!(scheduled, Title::Schedule { name: "a (b)".to_owned(), jid: "7".to_owned() });
        assert_eq!(title("Engine(salt.loaded.int.engines.test)"), Title::Engine);
        assert_eq!(title("Engine"), Title::Engine, "Salt has started it again");
        assert!(matches!(title("Engin"), Title::Other(_)));
        assert!(matches!(Title::parse("dnf install Engine"), Title::Other(_)), "a command that main runs");
        assert!(matches!(title("ProcessPayload(jid=1) Engine"), Title::Payload { .. }), "a job's own name comes first");
        // Salt 3000.9 and 3004.2.
        assert_eq!(title("MultiprocessingLoggingQueue"), Title::Logging);
        assert_eq!(
            title("Schedule(name=MultiprocessingLoggingQueue, jid=7)"),
            Title::Schedule { name: "MultiprocessingLoggingQueue".to_owned(), jid: "7".to_owned() }
        );
        assert!(matches!(title("ProcessPayload(jid=2026"), Title::Other(_)), "a title cut short names no jid");
        assert!(matches!(title(""), Title::Other(_)));
    }
}
