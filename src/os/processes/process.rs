//! Processes: their identity over time, signals that can't hit a stranger, starting them, and becoming them.

use crate::os::{OsError, Result, clock, proc_fs};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tracing::debug;

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
        let Some(process) = proc_fs::process(pid)?.filter(proc_fs::Process::is_alive) else { return Ok(None) };
        Ok(Some(Self { boot_id: clock::boot_id()?, pid, start_time: process.start_time }))
    }

    /// This process.
    pub fn own() -> Result<Self> {
        let pid = std::process::id();
        Self::of(pid)?.ok_or_else(|| OsError::new("find", Path::new("/proc/self"), io::ErrorKind::NotFound))
    }

    /// Whether this very process lives; a zombie does not.
    pub fn is_alive(&self) -> Result<bool> {
        Ok(Self::of(self.pid)?.as_ref() == Some(self))
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
                .filter(|_| self.is_alive().unwrap_or(false)));
        };
        // The pid may have been reused before the descriptor was opened: check after, not before.
        Ok(if self.is_alive()? { Some(fd) } else { None })
    }

    /// Sends a signal to this very process; false when it is gone.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let sent = match self.descriptor()? {
            Some(fd) => rustix::process::pidfd_send_signal(&fd, signal),
            None if !self.is_alive()? => return Ok(false),
            None => match self.raw() {
                Some(pid) => rustix::process::kill_process(pid, signal),
                None => return Ok(false),
            },
        };
        match sent {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(errno) => Err(OsError::new("signal", Path::new(&format!("process {}", self.pid)), errno)),
        }
    }
}

/// The nice value of a low-priority program: a busy agent keeps its speed, and on a busy host the program still ends.
const NICE_ASIDE: i32 = 10;

/// A program to start or to become. It gets this process's environment, less `without`, and `environment` on top.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The file to execute.
    pub path: PathBuf,
    /// Arguments after the program's own name.
    pub arguments: Vec<OsString>,
    /// Variables set on top of the inherited environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables taken out of the inherited environment.
    pub without: Vec<OsString>,
}

/// How often a wait checks whether the program has ended.
const ANSWER_INTERVAL: Duration = Duration::from_millis(5);

/// The output of an ended program.
#[derive(Debug)]
pub struct Said {
    /// It exited with 0.
    pub success: bool,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

/// The standard input of a started process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Empty.
    Null,
    /// A pipe from this process.
    Pipe,
    /// This process's own.
    Inherited,
}

impl Program {
    /// The program at `path`, without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub(super) fn command(&self, input: Input) -> Command {
        // Not the arguments and the environment: they may hold secrets.
        debug!(program = %self.path.display(), "a program is started");
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        for name in &self.without {
            command.env_remove(name);
        }
        command.stdin(match input {
            Input::Null => Stdio::null(),
            Input::Pipe => Stdio::piped(),
            Input::Inherited => Stdio::inherit(),
        });
        command
    }

    /// Starts it in its own process group, which a terminal's Ctrl-C does not reach. Output is inherited.
    pub fn start(&self, input: Input) -> Result<Child> {
        self.command(input).process_group(0).spawn().map_err(|source| OsError::new("start", &self.path, source))
    }

    /// Starts it in its own process group without input and output: it may outlive this process.
    pub fn start_detached(&self) -> Result<Child> {
        let mut command = self.command(Input::Null);
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.spawn().map_err(|source| OsError::new("start", &self.path, source))
    }

    /// Starts it with low priority in its own process group, without input, with these outputs. No file that it or its children write grows
    /// beyond `file_bytes_max`: further writes fail.
    #[expect(unsafe_code, reason = "bounds that are set after the start come too late for what it has started by then")]
    pub fn start_aside(&self, output: File, errors: File, file_bytes_max: u64) -> Result<Child> {
        let bound = Rlimit { current: Some(file_bytes_max), maximum: Some(file_bytes_max) };
        let nice = rustix::process::getpriority_process(None).unwrap_or(0).max(NICE_ASIDE);
        let give_way = move || {
            crate::os::signals::admit().map_err(io::Error::other)?;
            rustix::process::setpriority_process(None, nice)?;
            rustix::process::setrlimit(Resource::Fsize, bound).map_err(io::Error::from)
        };
        let mut command = self.command(Input::Null);
        command.stdout(output).stderr(errors).process_group(0);
        // SAFETY: between fork and exec it makes two system calls and nothing else: it takes no lock and no memory.
        unsafe { command.pre_exec(give_way) };
        command.spawn().map_err(|source| OsError::new("start", &self.path, source))
    }

    /// Runs it to its end; returns success and standard output. Standard error is inherited.
    pub fn output(&self) -> Result<(bool, Vec<u8>)> {
        let output = self.command(Input::Null).stderr(Stdio::inherit()).output();
        let output = output.map_err(|source| OsError::new("start", &self.path, source))?;
        Ok((output.status.success(), output.stdout))
    }

    /// Runs it for at most `patience`; None: it was killed. Its output must fit a pipe.
    pub fn answer_within(&self, patience: Duration) -> Result<Option<Said>> {
        let failed = |source| OsError::new("start", &self.path, source);
        let mut command = self.command(Input::Null);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().map_err(failed)?;
        let give_up_at = clock::since_boot().saturating_add(patience);
        while child.try_wait().map_err(failed)?.is_none() {
            if clock::since_boot() >= give_up_at {
                end_group(&mut child)?;
                return Ok(None);
            }
            clock::sleep(ANSWER_INTERVAL);
        }
        let output = child.wait_with_output().map_err(failed)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Some(Said { success: output.status.success(), output: text(output.stdout), errors: text(output.stderr) }))
    }

    /// Runs it to its end in `directory`, output inherited; true when it exits with 0.
    pub fn run_in(&self, directory: &Path) -> Result<bool> {
        let status = self.command(Input::Null).current_dir(directory).status();
        Ok(status.map_err(|source| OsError::new("start", &self.path, source))?.success())
    }

    /// Becomes the program. Returns only when that failed.
    pub fn execute(&self, input: Input) -> OsError {
        OsError::new("start", &self.path, self.command(input).exec())
    }
}

/// Kills a child with its process group and waits for it. Until then its number is not reused.
pub fn end_group(child: &mut Child) -> Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let failed =
        |source: io::Error, child: &Child| OsError::new("end", Path::new(&format!("process {}", child.id())), source);
    if let Some(group) = group {
        match rustix::process::kill_process_group(group, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => return Err(failed(errno.into(), child)),
        }
    }
    child.wait().map(drop).map_err(|source| failed(source, child))
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
        let done = if self.is_alive()? { rustix::process::setpriority_pgrp(group, nice) } else { Ok(()) };
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

/// The user that this process acts as.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group that this process acts as.
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// A user's name, or else the number.
pub fn user_name(user: u32) -> String {
    let passwd = crate::os::file::read_if_exists(Path::new("/etc/passwd"), 1 << 20).ok().flatten().unwrap_or_default();
    let passwd = String::from_utf8_lossy(&passwd);
    let name = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse() == Ok(user)).then(|| fields[0].to_owned())
    });
    name.unwrap_or_else(|| user.to_string())
}

/// The number of a named user.
pub fn user_number(name: &str) -> Option<u32> {
    let passwd = crate::os::file::read_if_exists(Path::new("/etc/passwd"), 1 << 20).ok().flatten().unwrap_or_default();
    let passwd = String::from_utf8_lossy(&passwd);
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        if fields.first() == Some(&name) { fields.get(2)?.parse().ok() } else { None }
    })
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
