//! Processes: their identity over time, signals that can't hit a stranger, starting them, and becoming them.

use super::program::NICE_ASIDE;
use crate::os::{OsError, Result, clock, proc_fs};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use super::account::{user_name, user_number};
pub use super::program::{Directory, Input, Program, Said, end_group};
pub use rustix::process::Signal as SignalNumber;

/// The identity of one process for ever: pids are reused, and start times repeat after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The boot in which it ran.
    pub boot_id: String,
    /// Process number.
    pub pid: u32,
    /// Start time, clock ticks since boot.
    pub start_time: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {}", self.pid)
    }
}

impl Identity {
    /// The living process `pid`, if there is one.
    pub fn of(pid: u32) -> Result<Option<Self>> {
        Self::living(proc_fs::process(pid)?)
    }

    /// A process that was looked at in this boot.
    pub fn of_process(process: &proc_fs::Process) -> Result<Self> {
        Ok(Self { boot_id: clock::boot_id()?, pid: process.pid, start_time: process.start_time })
    }

    /// This process.
    pub fn own() -> Result<Self> {
        let pid = std::process::id();
        Self::of(pid)?.ok_or_else(|| OsError::new("find", Path::new("/proc/self"), io::ErrorKind::NotFound))
    }

    /// Whether this very process lives; a zombie does not.
    pub fn is_alive(&self) -> Result<bool> {
        Ok(Self::living(proc_fs::process(self.pid)?)?.as_ref() == Some(self))
    }

    /// The same without what a look has seen before: the number is about to be used.
    fn is_alive_now(&self) -> Result<bool> {
        Ok(Self::living(proc_fs::process_now(self.pid)?)?.as_ref() == Some(self))
    }

    fn living(found: Option<proc_fs::Process>) -> Result<Option<Self>> {
        found.filter(proc_fs::Process::is_alive).as_ref().map(Self::of_process).transpose()
    }

    /// Whether this very process is gone, its exit status taken, too.
    pub fn is_gone(&self) -> Result<bool> {
        Ok(self.boot_id != clock::boot_id()?
            || proc_fs::process(self.pid)?.is_none_or(|process| process.start_time != self.start_time))
    }

    fn raw(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }

    /// A descriptor that becomes readable when the process ends. None: it is gone, or the kernel is older than 5.3: use a timer.
    pub fn descriptor(&self) -> Result<Option<OwnedFd>> {
        let Some(pid) = self.raw() else { return Ok(None) };
        let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) else {
            return Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())
                .ok()
                .filter(|_| self.is_alive_now().unwrap_or(false)));
        };
        // The pid may have been reused before the descriptor was opened: check after, not before.
        Ok(if self.is_alive_now()? { Some(fd) } else { None })
    }

    /// Sends a signal to this very process; false when it is gone.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let sent = match self.descriptor()? {
            Some(fd) => rustix::process::pidfd_send_signal(&fd, signal),
            None if !self.is_alive_now()? => return Ok(false),
            None => match self.raw() {
                Some(pid) => rustix::process::kill_process(pid, signal),
                None => return Ok(false),
            },
        };
        proc_fs::look_again_at(self.pid);
        match sent {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(errno) => Err(OsError::new("signal", Path::new(&format!("process {}", self.pid)), errno)),
        }
    }
}

/// Whether this process may raise the priority of other processes again: `CAP_SYS_NICE` in the initial user namespace (capabilities(7)). A
/// container without root on its host has the right in its own namespace only.
pub fn may_raise_priority() -> bool {
    const CAP_SYS_NICE: u64 = 1 << 23;
    const EVERY_USER: [&str; 3] = ["0", "0", "4294967295"];
    let read = |path: &str| {
        let bytes = crate::os::file::read_if_exists(Path::new(path), 1 << 16).ok().flatten().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let users = read("/proc/self/uid_map");
    // Kernels without user namespaces have no such file.
    if !users.is_empty() && !users.split_whitespace().eq(EVERY_USER) {
        return false;
    }
    let status = read("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).is_some_and(|set| set & CAP_SYS_NICE != 0)
}

/// The priority of a process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Low.
    Aside,
    /// That of this process.
    Own,
}

impl Identity {
    /// Sets the priority of the process group that this process leads.
    pub fn prioritise(&self, priority: Priority) -> Result<()> {
        let own = rustix::process::getpriority_process(None).unwrap_or(0);
        let nice = match priority {
            Priority::Aside => own.max(NICE_ASIDE),
            Priority::Own => own,
        };
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let done = if self.is_alive_now()? { rustix::process::setpriority_pgrp(group, nice) } else { Ok(()) };
        done.map_err(|errno| OsError::new("set the priority of", Path::new(&self.to_string()), errno))
    }
}

/// Gives this process the lowest CPU and disk priority, as far as the kernel has them.
pub fn give_way() {
    const NICE_LAST: i32 = 19;
    let _ = rustix::process::setpriority_process(None, NICE_LAST);
    give_way_on_disk();
}

/// The same for the disk only.
pub fn give_way_on_disk() {
    /// `IOPRIO_WHO_PROCESS`, and the class `IOPRIO_CLASS_IDLE` above its 13 bits of data (`linux/ioprio.h`).
    const THIS_PROCESS: libc::c_int = 1;
    const IDLE: libc::c_int = 3 << 13;
    #[expect(unsafe_code, reason = "no library has a safe call for it")]
    // SAFETY: it takes three numbers and sets a property of this process.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, THIS_PROCESS, 0, IDLE);
    }
}

/// The link to the running program, also after its file was replaced or removed.
const OWN_LINK: &str = "/proc/self/exe";

/// A path that starts this very program again: its own path may have a newer program by now.
pub fn own_program() -> Result<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|stat| (stat.dev(), stat.ino()));
    let path = std::env::current_exe()
        .map_err(|source| OsError::new("find the program behind", Path::new(OWN_LINK), source))?;
    let replaced = identity(&path).is_none_or(|found| Some(found) != identity(Path::new(OWN_LINK)));
    Ok(if replaced { PathBuf::from(OWN_LINK) } else { path })
}

/// The path by which this program was started; a newer program may be there now.
pub fn own_path() -> Result<PathBuf> {
    let called = std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(path) = called {
        return Ok(path);
    }
    let path = std::fs::read_link(OWN_LINK)
        .map_err(|source| OsError::new("find the program behind", Path::new(OWN_LINK), source))?;
    Ok(proc_fs::without_deleted(&path))
}

/// The number of this process.
pub fn own_number() -> u32 {
    std::process::id()
}

/// The arguments of this program, without its name.
pub fn own_arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).collect()
}

/// The directory in which this process works, if this process is root's and another user could have put files there.
pub fn foreign_directory() -> Option<PathBuf> {
    // A directory that was removed has no files.
    let here = std::env::current_dir().ok().filter(|_| user() == super::account::ROOT)?;
    let is_trusted = crate::os::ground::is_owners(&here);
    (!is_trusted).then_some(here)
}

/// The user that this process acts as.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group that this process acts as.
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Lets this process have so many open files, as far as the system allows it, and says how many it may have. What it starts may have as many: no more than
/// are needed, since programs close all that they may have, one by one.
pub fn allow_descriptors(wanted: u64) -> u64 {
    let bound = rustix::process::getrlimit(Resource::Nofile);
    let allowed = bound.maximum.map_or(wanted, |most| most.min(wanted));
    if bound.current.is_some_and(|current| current < allowed) {
        // Who may not raise it works within what there is.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), ..bound });
    }
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_gone_is_neither_alive_nor_signalled() {
        let mut child = Program::new("/bin/sleep").argument("60").start(Input::Null).unwrap();
        let identity = Identity::of(child.id()).unwrap().unwrap();
        let stranger = Identity { start_time: identity.start_time + 1, ..identity.clone() };
        assert!(identity.is_alive().unwrap());
        assert!(!stranger.signal(Signal::KILL).unwrap(), "another start time is another process");
        assert!(identity.signal(Signal::KILL).unwrap());
        while identity.is_alive().unwrap() {
            std::thread::yield_now();
        }
        assert!(!identity.is_gone().unwrap(), "a zombie is still there");
        child.wait().unwrap();
        assert!(identity.is_gone().unwrap());
        assert!(!identity.is_alive().unwrap());
        assert!(!identity.signal(Signal::KILL).unwrap());
    }
}
