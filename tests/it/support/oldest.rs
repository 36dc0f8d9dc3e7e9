//! A root whose only C library is glibc 2.17, that of RHEL 7, without an init: the supervisor is its first process.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make files and start programs")]

use super::eventually;
use super::mounts::Mounted;
use super::release::static_program;
use super::stage::{Author, SALT, sidle, text};
use sidle::os::proc_fs;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Becomes the supervisor, in namespaces of its own.
const SUPERVISE: &str =
    r#"mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$1" /usr/bin/sidle supervise "$2""#;

/// The root, and its supervisor if it was started.
pub struct Oldest {
    running: Option<(Child, u32)>,
    point: PathBuf,
    _root: Mounted,
    _directory: TempDir,
}

impl Oldest {
    /// What `scripts/old-root` makes, without sidle.
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("oldest").tempdir().unwrap();
        let point = directory.path().join("root");
        fs::create_dir(&point).unwrap();
        let root = Mounted::tmpfs_at(&point, "size=3g,mode=755");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/old-root");
        assert!(Command::new(script).arg(&point).status().unwrap().success(), "scripts/old-root failed");
        Self { running: None, point, _root: root, _directory: directory }
    }

    /// As this machine sees it.
    pub fn root(&self) -> &Path {
        &self.point
    }

    /// The program that is given away, without its package.
    pub fn has_the_program(&self) {
        fs::copy(static_program(), self.root().join("usr/bin/sidle")).unwrap();
    }

    /// Trusts the author, and installs these releases.
    pub fn install(&self, author: &Author, bundles: &[PathBuf]) {
        let metadata = author.repository().join("metadata/1.root.json");
        let outside = |words: &[&str]| sidle(&[&["--root", text(self.root())], words].concat(), &[]).ok();
        outside(&["trust", "pin", text(&metadata), "--fingerprint", &author.fingerprint()]);
        for bundle in bundles {
            outside(&["install", text(bundle)]);
        }
    }

    /// Starts the supervisor of a minion.
    pub fn supervise(&mut self) {
        let log = fs::File::create(self.root().join("supervisor.log")).unwrap();
        let mut container = Command::new("unshare");
        container.args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private"]);
        container.args(["sh", "-c", SUPERVISE, "sh", text(self.root()), SALT]);
        container.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        container.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
        let outer = container.spawn().unwrap();
        let first = eventually(20, "the supervisor listens", || {
            let children = proc_fs::children(outer.id()).unwrap();
            let is_there = self.root().join(format!("run/sidle/{SALT}/control")).exists();
            children.first().filter(|_| is_there).map(|child| child.pid).ok_or_else(|| self.log())
        });
        self.running = Some((outer, first));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.root().join("supervisor.log")).unwrap_or_default()
    }

    /// Runs a command beside the supervisor; gives whether it succeeded, and what it prints.
    pub fn try_inside(&self, words: &[&str]) -> (bool, [String; 2]) {
        let (_, first) = self.running.as_ref().expect("its supervisor was started");
        let mut enter = Command::new("nsenter");
        enter.args(["--target", &first.to_string(), "--mount", "--pid", "--ipc", "--root", "--"]);
        // nsenter's own `--wd=/` is the directory outside, which Salt 3008 refuses to work in.
        enter.args(["sh", "-c", "cd / && exec \"$@\"", "sh"]);
        let output = enter.args(words).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
        (output.status.success(), said)
    }

    /// Runs a command beside the supervisor, which must succeed; gives what it prints.
    pub fn inside(&self, words: &[&str]) -> String {
        let (is_done, said) = self.try_inside(words);
        assert!(is_done, "{words:?}: {said:?}\n{}", self.log());
        said[0].clone()
    }
}

impl Drop for Oldest {
    fn drop(&mut self) {
        // With the first process all others of its namespace end.
        if let Some((outer, _)) = &mut self.running {
            let _ = outer.kill();
            let _ = outer.wait();
        }
    }
}
