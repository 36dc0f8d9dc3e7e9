//! Children that this process doesn't remember starting: after it became a newer program, or because their own parent is gone. They are
//! waited for all the same: a zombie is taken for a process that still runs, by Salt among others.

use super::process::Identity;
use super::{OsError, Result, proc_fs};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

/// From now on what descends from this process and loses its parent becomes its child rather than the first process's, which may be slow
/// to wait for it, or never do. Lasts across exec. A kernel that can't (before 3.4) changes nothing.
pub fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// How this very process ended, if it was a child and has; it is gone then.
pub fn take(child: &Identity) -> Result<Option<ExitStatus>> {
    let Some(process) = proc_fs::process(child.pid)? else { return Ok(None) };
    let is_it = process.start_time == child.start_time && process.parent == std::process::id();
    if !is_it || process.is_alive() { Ok(None) } else { wait_for(child.pid) }
}

/// Lets every child go that has ended, but those in `remembered`: whoever started them asks for them.
pub fn take_others(remembered: &BTreeSet<u32>) -> Result<()> {
    let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // Mostly there is none: /proc is not searched then.
    if !matches!(rustix::process::waitid(WaitId::All, any), Ok(Some(_))) {
        return Ok(());
    }
    for process in proc_fs::children(std::process::id())? {
        if !process.is_alive() && !remembered.contains(&process.pid) {
            wait_for(process.pid)?;
        }
    }
    Ok(())
}

fn wait_for(pid: u32) -> Result<Option<ExitStatus>> {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match rustix::process::waitpid(Some(number), WaitOptions::NOHANG) {
        Ok(ended) => Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()))),
        // Somebody else has waited for it.
        Err(rustix::io::Errno::CHILD) => Ok(None),
        Err(errno) => Err(OsError::new("wait for", Path::new(&format!("process {pid}")), errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::{Input, Program};

    #[test]
    fn a_child_that_nobody_remembers_is_waited_for_and_its_end_told() {
        let child = Program::new("/bin/sh").argument("-c").argument("read x; exit 7").start(Input::Pipe).unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        assert!(take(&identity).unwrap().is_none(), "it lives");
        drop(child);
        let stranger = Identity { start_time: identity.start_time + 1, ..identity.clone() };
        loop {
            assert!(take(&stranger).unwrap().is_none(), "another process is not touched");
            if let Some(status) = take(&identity).unwrap() {
                assert_eq!(status.code(), Some(7));
                break;
            }
            std::thread::yield_now();
        }
        assert!(identity.is_gone().unwrap());
    }
}
