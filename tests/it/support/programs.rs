//! Salt's `salt-master`, `salt` and `salt-run`, and code that speaks to a master, without loading Salt for each: `programs.py` loads it once and forks. A call of
//! `salt` costs a tenth then.

use super::stage::text;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

/// Servers that nobody asks just now: as many as calls were made at a time. They end with it.
pub struct Programs {
    python: PathBuf,
    idle: Mutex<Vec<Server>>,
}

impl Programs {
    /// With the Python of a tree.
    pub fn of(tree: &Path) -> Self {
        Self { python: tree.join("bin/python3"), idle: Mutex::new(Vec::new()) }
    }

    /// The Python that runs them.
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// Starts a master with the configuration in a directory, in a process group of its own; what it says goes to `log`.
    pub fn master(&self, configuration: &Path, log: &Path) -> Begun {
        fs::write(log, "").unwrap();
        let arguments = ["-c", text(configuration)];
        let request =
            json!({"program": "salt-master", "arguments": arguments, "said": log, "errors": log, "input": "/dev/null"});
        self.goes_on(request, None)
    }

    /// What `salt` says to these arguments, and its exit status.
    pub fn salt(&self, arguments: &[&str]) -> (i32, String) {
        self.run(|server| {
            let said = server.said.to_path_buf();
            let status = server.run("salt", arguments, &said);
            (status, read(&said))
        })
    }

    /// What code in Python says with these arguments, and its exit status; `errors` is what it says on standard error.
    pub fn code(&self, code: &str, arguments: &[&str]) -> (i32, String, String) {
        let errors = tempfile::NamedTempFile::new().unwrap();
        self.run(|server| {
            let request = json!({"program": "code", "code": code, "arguments": arguments, "errors": errors.path()});
            let status = server.ask(request);
            (status, read(&server.said), read(errors.path()))
        })
    }

    /// Starts a file of Python's, which goes on; what it says goes to `log`, and `input` is a name for its standard input.
    pub fn begin(&self, file: &Path, arguments: &[&str], log: &Path, input: &Path) -> Begun {
        mknodat(CWD, input, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Opened for both, it waits for nobody.
        let writer = fs::OpenOptions::new().read(true).write(true).open(input).unwrap();
        fs::write(log, "").unwrap();
        let request = json!({"program": "code", "path": file, "arguments": arguments, "said": log, "errors": log, "input": input});
        self.goes_on(request, Some(writer))
    }

    fn goes_on(&self, request: Value, input: Option<fs::File>) -> Begun {
        let pid = self.run(|server| server.ask(request)).try_into().unwrap();
        Begun { identity: Identity::of(pid).unwrap(), input }
    }

    /// The same of `salt-run`, and beside it what it says on standard error.
    pub fn salt_run(&self, arguments: &[&str]) -> (i32, String, String) {
        let errors = tempfile::NamedTempFile::new().unwrap();
        self.run(|server| {
            let status = server.run("salt-run", arguments, errors.path());
            (status, read(&server.said), read(errors.path()))
        })
    }

    fn run<T>(&self, ask: impl FnOnce(&mut Server) -> T) -> T {
        let idle = self.idle.lock().unwrap().pop();
        let mut server = idle.unwrap_or_else(|| Server::start(&self.python));
        let answer = ask(&mut server);
        self.idle.lock().unwrap().push(server);
        answer
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

struct Server {
    child: Child,
    asked: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    said: tempfile::TempPath,
}

impl Server {
    fn start(python: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/programs.py");
        let mut command = Command::new(python);
        command.args(["-E", "-s", "-B"]).arg(script).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (asked, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, asked, answers, said: tempfile::NamedTempFile::new().unwrap().into_temp_path() }
    }

    /// What it says on standard output is in `said` then; gives its exit status.
    fn run(&mut self, program: &str, arguments: &[&str], errors: &Path) -> i32 {
        self.ask(json!({"program": program, "arguments": arguments, "errors": errors}))
    }

    /// The answer to a request.
    fn ask(&mut self, mut request: Value) -> i32 {
        if request.get("said").is_none() {
            request["said"] = json!(&*self.said);
        }
        writeln!(self.asked.as_mut().expect("it is open until the end"), "{request}").unwrap();
        let mut status = String::new();
        self.answers.read_line(&mut status).unwrap();
        status.trim().parse().unwrap_or_else(|_| panic!("programs.py broke off: {status:?}, {}", read(&self.said)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.asked.take());
        let _ = self.child.wait();
    }
}

/// What goes on: code until its standard input ends, a master until it is ended.
pub struct Begun {
    /// None: it was gone before anybody looked.
    identity: Option<Identity>,
    input: Option<fs::File>,
}

impl Begun {
    /// Its process number; None: it is gone, and the number may be another's.
    pub fn pid(&self) -> Option<u32> {
        self.identity.as_ref().filter(|_| self.is_alive()).map(|identity| identity.pid)
    }

    pub fn is_alive(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.is_alive().unwrap())
    }

    /// Ends its standard input.
    pub fn close(&mut self) {
        self.input = None;
    }

    pub fn kill(&self) {
        if let Some(identity) = &self.identity {
            let _ = identity.signal(SignalNumber::KILL);
        }
    }
}
