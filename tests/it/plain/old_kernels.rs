//! Kernels from 3.10 on, and container runtimes that know fewer system calls than the kernel: everything works there, without root.

use crate::support::eventually;
use crate::support::kernels::{
    Answer, Clone3, KERNEL_3_10, KERNEL_4_4, KERNEL_4_12, KERNEL_4_18, Kernel, NOBODY, command_on,
};
use crate::support::leftovers;
use crate::support::stage::{Ran, SIDLE, text};
use sidle::os::process::{Identity, SignalNumber};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The agent's `mv`. That of newer coreutils takes EPERM in place of renameat2 for the answer, and gives up.
const OLD_MV: &str = "#!/usr/bin/env perl\nrename $ARGV[-2], $ARGV[-1] or exit 1;\n";

/// An author's and a host's files, and a program that runs on an old kernel.
pub struct Stage {
    directory: TempDir,
    program: PathBuf,
    kernel: Kernel,
    answer: Answer,
    clone3: Clone3,
}

impl Stage {
    fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    fn command(&self) -> Command {
        let mut command = command_on(self.kernel, self.answer, self.clone3, &self.program);
        if self.answer == Answer::NotPermitted {
            let inherited = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{inherited}", self.path("bin").display()));
        }
        command
    }

    fn sidle(&self, arguments: &[&str]) -> Ran {
        let output = self.command().args(arguments).stdin(Stdio::null()).output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The command on the host.
    fn host(&self, arguments: &[&str]) -> Ran {
        let root = self.path("host");
        self.sidle(&[&["--root", text(&root)], arguments].concat())
    }

    fn supervise(&self) -> Child {
        let log = fs::File::create(self.path("supervisor.log")).unwrap();
        let mut command = self.command();
        command.arg("--root").arg(self.path("host")).args(["supervise", "demo-agent"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        eventually(20, "the supervisor listens", || {
            if self.path("host/run/sidle/demo-agent/control").exists() { Ok(()) } else { Err(self.log()) }
        });
        child
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("supervisor.log")).unwrap_or_default()
    }

    fn status(&self) -> serde_json::Value {
        self.host(&["--json", "status", "demo-agent"]).json()["instances"][0].clone()
    }

    /// A key and a repository with releases, each exported; all made on the old kernel.
    fn author(&self) {
        let (key, repository) = (self.path("key.pem"), self.path("repository"));
        self.sidle(&["key", "new", text(&key)]).ok();
        self.sidle(&["repo", "init", text(&repository), "--key", text(&key)]).ok();
        for version in ["1.0", "1.1", "1.2"] {
            let tree = self.path(&format!("tree-{version}"));
            fs::write(tree.join("share/demo-agent/release"), format!("{version}\n")).unwrap();
            let (recipe, output) = (self.path("demo-agent.toml"), self.path(&format!("{version}.sidle")));
            let pack = ["pack", text(&recipe), "--version", version, "--tree", text(&tree)];
            let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&output)];
            self.sidle(&[&pack[..], &to[..]].concat()).ok();
        }
        let again = self.path("again.sidle");
        self.sidle(&["export", text(&repository), "demo-agent@1.0-1", "-o", text(&again)]).ok();
    }

    fn pin(&self) {
        let root = self.path("repository/metadata/1.root.json");
        let fingerprint = sidle::digest::Digest::of(&fs::read(&root).unwrap()).to_string();
        self.host(&["trust", "pin", text(&root), "--fingerprint", &fingerprint]).ok();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        leftovers::kill(&self.path("host"));
    }
}

fn stage(program: &Path, kernel: Kernel, answer: Answer, clone3: Clone3) -> Stage {
    let directory = tempfile::Builder::new().prefix("kernel").tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent");
    let copy = |from: &Path, to: &str| {
        let done = Command::new("cp").arg("-r").arg(from).arg(directory.path().join(to)).status().unwrap();
        assert!(done.success());
    };
    copy(&demo.join("demo-agent.toml"), "demo-agent.toml");
    for tree in ["tree-1.0", "tree-1.1", "tree-1.2"] {
        copy(&demo.join("tree"), tree);
        fs::write(directory.path().join(tree).join("share/demo-agent/behaviour"), "good\n").unwrap();
    }
    fs::create_dir(directory.path().join("bin")).unwrap();
    fs::write(directory.path().join("bin/mv"), OLD_MV).unwrap();
    fs::set_permissions(directory.path().join("bin/mv"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(directory.path().join("host/etc/sidle")).unwrap();
    fs::create_dir_all(directory.path().join("host/etc/demo-agent")).unwrap();
    let settings = "probation = \"300ms\"\nstart_timeout = \"8s\"\nstop_timeout = \"4s\"\nrestart_pause = \"100ms\"\n";
    fs::write(directory.path().join("host/etc/sidle/sidle.toml"), settings).unwrap();
    if rustix::process::geteuid().is_root() {
        let owner = format!("{NOBODY}:{NOBODY}");
        assert!(Command::new("chown").args(["-R", &owner]).arg(directory.path()).status().unwrap().success());
    }
    Stage { directory, program: program.to_owned(), kernel, answer, clone3 }
}

/// Everything that an author and a host do, on such a kernel.
pub fn works(program: &Path, kernel: Kernel, answer: Answer, clone3: Clone3) {
    eprintln!("Linux {}: {answer:?}", kernel.version);
    let stage = stage(program, kernel, answer, clone3);
    stage.author();
    stage.pin();
    for bundle in ["1.0.sidle", "1.1.sidle", "1.2.sidle"] {
        stage.host(&["install", text(&stage.path(bundle))]).ok();
    }
    let versions = stage.path("host/opt/sidle/demo-agent/versions");
    stage.host(&["verify", "demo-agent", "1.0-1", "--full"]).ok();
    fs::write(versions.join("1.0-1/share/demo-agent/release"), "damaged\n").unwrap();
    assert_eq!(stage.host(&["verify", "demo-agent", "1.0-1", "--full"]).code, Some(6));
    stage.host(&["repair", "demo-agent", "1.0-1", "--from", text(&stage.path("1.0.sidle"))]).ok();
    stage.host(&["verify", "demo-agent", "1.0-1", "--full"]).ok();

    let mut supervisor = stage.supervise();
    for arguments in [&["1.0-1", "--mode", "idle"][..], &["1.1-1", "--mode", "idle"], &["1.0-1"], &["1.1-1"]] {
        let switched = stage.host(&[&["switch", "demo-agent"], arguments].concat());
        assert_eq!(switched.code, Some(0), "{switched:?}\n{}", stage.log());
        assert_eq!(stage.status()["current"], arguments[0], "{}", stage.status());
    }
    let back = stage.host(&["rollback", "demo-agent"]);
    assert_eq!(back.code, Some(0), "{back:?}\n{}", stage.log());
    let doctor = stage.host(&["doctor"]);
    assert!(matches!(doctor.code, Some(0 | 1)), "{doctor:?}");
    let identity = Identity::of(supervisor.id()).unwrap().expect("the supervisor lives");
    identity.signal(SignalNumber::TERM).unwrap();
    assert_eq!(supervisor.wait().unwrap().code(), Some(0), "{}", stage.log());
    stage.host(&["collect", "demo-agent", "--keep", "0"]).ok();
    assert!(!versions.join("1.2-1").exists());
    assert!(versions.join("1.0-1").exists(), "it is current");
}

fn shown(kernel: Kernel, answer: Answer) {
    works(Path::new(SIDLE), kernel, answer, Clone3::Missing);
}

#[test]
fn works_on_kernel_3_10() {
    shown(KERNEL_3_10, Answer::NoSuchCall);
}

#[test]
fn works_on_kernel_4_4() {
    shown(KERNEL_4_4, Answer::NoSuchCall);
}

#[test]
fn works_on_kernel_4_12() {
    shown(KERNEL_4_12, Answer::NoSuchCall);
}

#[test]
fn works_on_kernel_4_18() {
    shown(KERNEL_4_18, Answer::NoSuchCall);
}

#[test]
fn works_in_a_container_that_forbids_what_kernel_3_10_lacks() {
    shown(KERNEL_3_10, Answer::NotPermitted);
}

#[test]
fn works_in_a_container_that_forbids_what_kernel_4_4_lacks() {
    shown(KERNEL_4_4, Answer::NotPermitted);
}

#[test]
fn works_in_a_container_that_forbids_what_kernel_4_12_lacks() {
    shown(KERNEL_4_12, Answer::NotPermitted);
}

#[test]
fn works_in_a_container_that_forbids_what_kernel_4_18_lacks() {
    shown(KERNEL_4_18, Answer::NotPermitted);
}
