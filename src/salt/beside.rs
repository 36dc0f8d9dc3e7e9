//! A minion that gives way to another one: what of it still works although its guard does not say so, and what of it ends with it.

use super::entry;
use super::options::MinionConfig;
use super::title::Title;
use crate::agent::{AgentError, Job};
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::proc_fs::{self, Process};
use crate::os::process::Identity;

/// Jobs of the minion below `leader` that its processes and entries name. One that has returned has no entry any more, and its title says that
/// it had begun.
pub fn at_work(config: &MinionConfig, leader: &Identity, main: u32) -> Result<Vec<Job>, AgentError> {
    let below = proc_fs::descendants(leader.pid)?;
    let mut jobs = Vec::new();
    if let Some(directory) = Dir::open_if_exists(&config.jobs_directory())? {
        for entry in entry::read(&directory)? {
            let own = entry.pid == main || below.iter().any(|process| process.pid == entry.pid);
            if own && entry.is_live()? {
                jobs.push(entry.job());
            }
        }
    }
    for child in proc_fs::children(main)?.iter().filter(|child| child.is_alive()) {
        if let Some(Title::Payload { jid, begun: false }) = Title::of(child.pid)? {
            if jobs.iter().all(|job| job.pid != Some(child.pid)) {
                jobs.push(Job { id: jid, what: "a job that begins".to_owned(), pid: Some(child.pid) });
            }
        }
    }
    Ok(jobs)
}

/// What ends with the minion: its engines, and processes of jobs that have returned and only wait. What a job has left running on purpose (a
/// command in the background, a package manager) is not the minion's, and neither is the process that it runs below.
pub fn helpers(main: u32) -> Result<Vec<Identity>, OsError> {
    let mut ending = Vec::new();
    for child in proc_fs::children(main)?.iter().filter(|child| child.is_alive()) {
        if ends_with_main(child)? {
            ending.extend(Identity::of(child.pid)?);
        }
    }
    Ok(ending)
}

/// True for an engine of Salt's. A process whose title cannot be read counts as none.
pub fn is_engine(process: &Process) -> bool {
    matches!(Title::of(process.pid), Ok(Some(Title::Engine)))
}

fn ends_with_main(child: &Process) -> Result<bool, OsError> {
    Ok(match Title::of(child.pid)? {
        Some(Title::Engine | Title::Logging) => true,
        Some(Title::Payload { .. } | Title::Schedule { .. }) => proc_fs::children(child.pid)?.is_empty(),
        Some(Title::Other(_)) | None => false,
    })
}
