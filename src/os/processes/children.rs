//! Children that this process did not start, or started before it became a newer program. Their exit status is taken: Salt, among others, takes
//! a zombie for a running process.

use crate::os::process::Identity;
use crate::os::{OsError, Result, proc_fs};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

/// From now on orphaned descendants become children of this process, not of the first process, which may never take their exit status.
/// Lasts across exec. Kernels before 3.4 ignore it.
pub fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Takes the exit status of this very process, if it is a child and has ended.
pub fn take(child: &Identity) -> Result<Option<ExitStatus>> {
    let Some(process) = proc_fs::process(child.pid)? else { return Ok(None) };
    let is_it = process.start_time == child.start_time && process.parent == std::process::id();
    if !is_it || process.is_alive() { Ok(None) } else { wait_for(child.pid) }
}

/// Takes the exit status of every ended child except those in `remembered`, whose starters ask for it.
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
    let waited = rustix::process::waitpid(Some(number), WaitOptions::NOHANG);
    proc_fs::look_again_at(pid);
    match waited {
        Ok(ended) => Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()))),
        // Another thread has waited for it.
        Err(rustix::io::Errno::CHILD) => Ok(None),
        Err(errno) => Err(OsError::new("wait for", Path::new(&format!("process {pid}")), errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::clock;
    use crate::os::process::{Input, Program};
    use rustix::process::Signal;
    use std::time::Duration;

    /// In a look a process that others end is what it was; who is sent a signal, or waited for, is looked at anew: no number of another one is used.
    #[test]
    fn in_a_look_each_process_is_read_once_unless_it_is_ended_in_it() {
        let start = || Program::new("/bin/sh").argument("-c").argument("read x").start(Input::Pipe).unwrap();
        let [mut others, mut late, own] = [start(), start(), start()];
        let [of_others, of_late, of_own] =
            [&others, &late, &own].map(|child| Identity::of(child.id()).unwrap().unwrap());
        let look = proc_fs::Look::begin();
        assert!(of_others.is_alive().unwrap() && of_own.is_alive().unwrap());
        others.kill().and_then(|()| others.wait()).unwrap();
        assert!(of_others.is_alive().unwrap() && !of_others.signal(Signal::KILL).unwrap());
        assert!(!of_others.is_alive().unwrap());
        assert!(of_own.signal(Signal::KILL).unwrap());
        while of_own.is_alive().unwrap() {
            proc_fs::look_again_at(of_own.pid);
        }
        assert!(take(&of_own).unwrap().is_some() && of_own.is_gone().unwrap());
        assert!(of_late.is_alive().unwrap());
        late.kill().and_then(|()| late.wait()).unwrap();
        assert!(of_late.is_alive().unwrap());
        clock::sleep(Duration::ZERO);
        assert!(!of_late.is_alive().unwrap(), "who waits would wait for ever");
        drop(look);
    }

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
