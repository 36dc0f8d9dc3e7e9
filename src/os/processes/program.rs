//! Programs: the one place that starts them. A program that is started as root must find nothing that another user could have put in its way: no
//! file in its working directory, no variable that makes it load code, no rights but those that it needs.

use super::account::{self, Rights};
use super::environment::Passed;
use crate::os::{OsError, Result, clock};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tracing::debug;

/// The nice value of a low-priority program: a busy agent keeps its speed, and on a busy host the program still ends.
pub(super) const NICE_ASIDE: i32 = 10;

/// A program to start or to become. Every program starts here: in `/`, with the variables that [`Passed`] lists and `environment` on top.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The file to execute.
    pub path: PathBuf,
    /// Arguments after the program's own name.
    pub arguments: Vec<OsString>,
    /// Variables set on top of the passed environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables that are not passed, whatever [`Passed`] says.
    pub without: Vec<OsString>,
    /// What it gets of this process's environment.
    pub passed: Passed,
    /// Where it works.
    pub directory: Directory,
    /// The rights that it gets; None: those of this process.
    pub rights: Option<Rights>,
}

/// Where a program works.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Directory {
    /// `/`: nobody but root puts anything there for a program to find.
    #[default]
    Root,
    /// That of this process: a person calls the program, and the words name files from there.
    Callers,
    /// This one.
    At(PathBuf),
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

    /// Isolated Python: neither the working directory, nor the user's packages, nor `PYTHON*` are in its search path, and it writes no bytecode.
    pub fn python(interpreter: impl Into<PathBuf>) -> Self {
        Self::new(interpreter).argument("-I").argument("-B")
    }

    /// Sets what it gets of this process's environment.
    #[must_use]
    pub fn passing(self, passed: Passed) -> Self {
        Self { passed, ..self }
    }

    /// Sets where it works.
    #[must_use]
    pub fn working(self, directory: Directory) -> Self {
        Self { directory, ..self }
    }

    /// The one place at which a command is made.
    pub(super) fn command(&self, input: Input) -> Command {
        // Not the arguments and the environment: they may hold secrets.
        debug!(program = %self.path.display(), "a program is started");
        let mut command = Command::new(self.file());
        command.args(&self.arguments).env_clear();
        let passed = self.passed.variables().into_iter().filter(|(name, _)| !self.without.contains(name));
        command.envs(passed);
        if let Some(rights) = &self.rights {
            take(&mut command, rights);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        match &self.directory {
            Directory::Root => {
                command.current_dir("/");
            }
            Directory::At(directory) => {
                command.current_dir(directory);
            }
            Directory::Callers => {}
        }
        command.stdin(match input {
            Input::Null => Stdio::null(),
            Input::Pipe => Stdio::piped(),
            Input::Inherited => Stdio::inherit(),
        });
        command
    }

    /// The file: a bare name is looked for in the search path, and a relative path begins where this process works.
    fn file(&self) -> PathBuf {
        let is_bare = self.path.components().count() == 1 && !self.path.is_absolute();
        let absolute = if is_bare { None } else { std::path::absolute(&self.path).ok() };
        absolute.unwrap_or_else(|| self.path.clone())
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

    /// Runs it to its end, output inherited; true when it exits with 0.
    pub fn run(&self) -> Result<bool> {
        let status = self.command(Input::Null).status();
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

/// Gives a command the rights of a process, and the home of its user.
#[expect(unsafe_code, reason = "the standard library sets no supplementary groups")]
fn take(command: &mut Command, rights: &Rights) {
    if let Some(account) = account::of(rights.user) {
        command.env("HOME", account.home).env("USER", &account.name).env("LOGNAME", account.name);
    }
    let rights = rights.clone();
    let become_user = move || {
        let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: three system calls on numbers and on a list that outlives them; the last one gives up the right to make them.
        unsafe {
            done(libc::setgroups(rights.groups.len(), rights.groups.as_ptr()))?;
            done(libc::setgid(rights.group))?;
            done(libc::setuid(rights.user))
        }
    };
    // SAFETY: between fork and exec it makes system calls and nothing else: it takes no lock and no memory.
    unsafe { command.pre_exec(become_user) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(program: &Program) -> String {
        let (success, output) = program.output().unwrap();
        assert!(success, "{program:?}");
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn a_program_works_in_the_root_directory_and_knows_nothing_that_is_not_on_the_list() {
        let shell = |line: &str| Program::new("/bin/sh").argument("-c").argument(line);
        assert_eq!(said(&shell("pwd")), "/\n");
        let directory = tempfile::tempdir().unwrap();
        let there = shell("pwd -P").working(Directory::At(directory.path().to_owned()));
        assert_eq!(Path::new(said(&there).trim()), directory.path().canonicalize().unwrap());
        // Cargo sets it for each test.
        let line = "echo ${CARGO_MANIFEST_DIR-none}";
        assert_eq!(said(&shell(line)), "none\n");
        assert_ne!(said(&shell(line).passing(Passed::default().with_names(["CARGO_*".to_owned()]))), "none\n");
        let without =
            Program { without: vec!["CARGO_MANIFEST_DIR".into()], ..shell(line).passing(Passed::everything()) };
        assert_eq!(said(&without), "none\n");
    }

    #[test]
    fn a_relative_path_begins_where_this_process_works() {
        let own = std::env::current_exe().unwrap();
        let directory = std::env::current_dir().unwrap();
        let up: PathBuf = directory.components().skip(1).map(|_| "..").collect();
        let relative = up.join(own.strip_prefix("/").unwrap());
        assert!(said(&Program::new(relative).argument("--list")).contains("program"));
    }
}
