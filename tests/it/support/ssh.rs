//! The real salt-ssh over a real sshd of the test's own on loopback, to this machine or to a booted one.

use super::boot::Machine;
use super::eventually;
use super::ports::Ports;
use super::salt;
use super::stage::text;
use serde_json::Value;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const ENTER: &str = "import sys\nsys.argv[0] = 'salt-ssh'\nimport salt.scripts\nsalt.scripts.salt_ssh()\n";
/// salt-ssh deploys a tree that does not work for ever.
const CALL_SECONDS: &str = "120";

/// The script of ours that runs before salt-ssh uses a tree.
pub fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/salt/ssh-preflight")
}

/// Runs a program, which must succeed; gives what it prints.
pub fn done(command: &mut Command, package: &str) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {command:?} ({error}): apt-get install {package}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where salt-ssh leads to.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// This machine; the tree is to lie here, below the test's own directory.
    Here(&'a str),
    /// A booted one, and its own `/var/tmp`: nothing is said about a place.
    Inside(&'a Machine),
}

/// Whether our script runs before salt-ssh uses the tree.
#[derive(Clone, Copy, PartialEq)]
pub enum Preflight {
    None,
    Ours,
}

/// A server of its own on loopback, into which root's own key of this test leads.
struct Sshd {
    child: Child,
    ports: Ports,
}

impl Sshd {
    fn start(directory: &Path, target: Target<'_>) -> Self {
        for key in ["host", "user"] {
            let path = directory.join(key);
            done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path), "openssh-client");
        }
        let ports = Ports::take();
        let port = ports.first();
        let here = text(directory);
        let settings = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {here}/host\nPidFile none\nAuthorizedKeysFile {here}/user.pub\n\
             StrictModes no\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
        );
        // Where sshd, unless a service manager made it, drops its rights.
        fs::create_dir_all("/run/sshd").unwrap();
        let program = "/usr/sbin/sshd";
        let (mut command, root) = match target {
            Target::Here(_) => (Command::new(program), "none".to_owned()),
            Target::Inside(machine) => {
                // The server's program and files are this machine's; its sessions are the other one's, with that one's root and processes.
                let init = machine.init().to_string();
                let mut enter = Command::new("nsenter");
                enter.args(["--target", &init, "--uts", "--ipc", "--pid", "--cgroup", "--no-fork", program]);
                (enter, format!("/proc/{init}/root"))
            }
        };
        fs::write(directory.join("sshd_config"), format!("{settings}ChrootDirectory {root}\n")).unwrap();
        command.args(["-D", "-f"]).arg(directory.join("sshd_config")).arg("-E").arg(directory.join("sshd.log"));
        let child = command.stdin(Stdio::null()).spawn().expect("cannot start sshd: apt-get install openssh-server");
        let sshd = Self { child, ports };
        eventually(20, "sshd listens", || {
            TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
        sshd
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A master that works over ssh, and the way to its one host.
pub struct SaltSsh {
    directory: TempDir,
    python: PathBuf,
    _sshd: Sshd,
}

impl SaltSsh {
    /// salt-ssh of this version.
    pub fn new(version: &str, target: Target<'_>) -> Self {
        let directory = tempfile::Builder::new().prefix("ssh").tempdir().unwrap();
        let sshd = Sshd::start(directory.path(), target);
        let port = sshd.ports.first();
        let python = salt::packaged_tree(version).join("bin/python3");
        let ssh = Self { directory, python, _sshd: sshd };
        let here = text(ssh.directory.path());
        // In the configuration, and not on the command line: a wrapper's own calls know nothing of that.
        let master = format!(
            "root_dir: {here}/master\npki_dir: {here}/master/pki\ncachedir: {here}/master/cache\nuser: root\n\
             file_roots: {{base: [{here}/files]}}\nknown_hosts_file: {here}/known\n\
             log_file: {here}/log\nssh_log_file: {here}/ssh.log\nssh_run_pre_flight: True\n"
        );
        let key = fs::read_to_string(ssh.path("host.pub")).unwrap();
        fs::write(ssh.path("known"), format!("[127.0.0.1]:{port} {key}")).unwrap();
        fs::create_dir(ssh.path("files")).unwrap();
        fs::create_dir(ssh.path("config")).unwrap();
        fs::write(ssh.path("config/master"), master).unwrap();
        let (thin, arguments) = match target {
            Target::Here(thin) => {
                (format!("  thin_dir: {here}/{thin}\n"), format!("  ssh_pre_flight_args: {here}/{thin}\n"))
            }
            Target::Inside(_) => (String::new(), String::new()),
        };
        // Not through a shell script that stands for a Python on this machine: salt-ssh fails on those.
        let roster = format!(
            "target:\n  host: 127.0.0.1\n  port: {port}\n  user: root\n  priv: {here}/user\n  \
             set_path: /usr/sbin:/usr/bin:/sbin:/bin\n{thin}"
        );
        fs::write(ssh.path("roster"), &roster).unwrap();
        let ours = format!("{roster}  ssh_pre_flight: {}\n{arguments}", text(&script()));
        fs::write(ssh.path("roster-ours"), ours).unwrap();
        ssh
    }

    /// A path below the test's own directory.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    /// The tree's Python.
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// Adds lines to the host's entry in the roster.
    pub fn about_host(&self, lines: &str) {
        let path = self.path("roster");
        let roster = fs::read_to_string(&path).unwrap();
        fs::write(path, roster + lines).unwrap();
    }

    /// What salt-ssh answers to `test.ping`.
    fn ping(&self, preflight: Preflight) -> Value {
        self.call(preflight, &["target", "test.ping"])
    }

    /// What salt-ssh answers to these words.
    pub fn call(&self, preflight: Preflight, words: &[&str]) -> Value {
        let roster = if preflight == Preflight::Ours { "roster-ours" } else { "roster" };
        let mut command = Command::new("timeout");
        command.arg(CALL_SECONDS).arg(&self.python);
        command.env("SALT_EXTRAS_DIR", self.path("extras"));
        command.args(["-E", "-s", "-B", "-c", ENTER, "--out=json", "-c"]);
        command.arg(self.path("config")).arg("--roster-file").arg(self.path(roster)).args(words);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(&said).unwrap_or_else(|error| {
            panic!("{error}: {output:?}\n{}", fs::read_to_string(self.path("sshd.log")).unwrap())
        });
        answer["target"].clone()
    }

    /// A call must be answered.
    pub fn answers(&self, preflight: Preflight) {
        assert_eq!(self.ping(preflight), Value::Bool(true));
    }

    /// What a call fails with.
    pub fn fails(&self) -> String {
        let answer = self.ping(Preflight::None);
        assert_eq!(answer["retcode"], 1, "{answer}");
        answer["stderr"].as_str().unwrap().to_owned()
    }
}
