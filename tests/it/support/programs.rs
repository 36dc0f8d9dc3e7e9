//! Salt's `salt` and `salt-run` beside a master, without loading Salt for each call: `programs.py` loads it once and forks. A call of `salt` costs a tenth then.

use serde_json::json;
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

    /// What `salt` says to these arguments, and its exit status.
    pub fn salt(&self, arguments: &[&str]) -> (i32, String) {
        self.run(|server| {
            let said = server.said.to_path_buf();
            let status = server.run("salt", arguments, &said);
            (status, read(&said))
        })
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
        command.args(["-E", "-s", "-B"]).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (asked, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, asked, answers, said: tempfile::NamedTempFile::new().unwrap().into_temp_path() }
    }

    /// What it says on standard output is in `said` then; gives its exit status.
    fn run(&mut self, program: &str, arguments: &[&str], errors: &Path) -> i32 {
        let request = json!({"program": program, "arguments": arguments, "said": &*self.said, "errors": errors});
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
