//! Hosts behind a real sshd on loopback: each has a root of its own with busybox in it, a host key and a port, and nothing of sidle.

use super::ports::Ports;
use super::ssh::done;
use super::stage::text;
use super::{eventually, install_busybox};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

/// What is special about a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Good,
    /// It has another key than the one that is known of it.
    OtherKey,
    /// Its root is mounted read-only.
    ReadOnly,
    /// Its shell greets whoever comes.
    Greets,
    /// The first connection breaks after so many bytes have come.
    Breaks(u64),
    /// It has this machine's libraries: for programs that need a C library.
    WithLibraries,
}

/// A host.
pub struct Root {
    pub name: String,
    directory: PathBuf,
    child: Child,
    ports: Ports,
    line: Option<Line>,
}

/// Hosts, and what ssh needs to know of them.
pub struct Roots {
    directory: TempDir,
    pub hosts: Vec<Root>,
}

impl Roots {
    pub fn new(kinds: &[Kind]) -> Self {
        Self::of(|here| {
            let start = |(number, kind): (usize, &Kind)| Root::start(here, &format!("r{number}"), *kind);
            kinds.iter().enumerate().map(start).collect()
        })
    }

    /// One host, `r0`, which sessions enter by these words of a command.
    pub fn entered_by(words: &str) -> Self {
        Self::of(|here| {
            fs::create_dir(here.join("r0")).unwrap();
            vec![Root::serve(here, "r0", words, "")]
        })
    }

    fn of(hosts: impl FnOnce(&Path) -> Vec<Root>) -> Self {
        // Where sshd, unless a service manager made it, drops its rights.
        fs::create_dir_all("/run/sshd").unwrap();
        let directory = tempfile::Builder::new().prefix("roots").tempdir().unwrap();
        let here = directory.path();
        key(&here.join("user"));
        let hosts = hosts(here);
        let (mut config, mut known) = (String::new(), String::new());
        for host in &hosts {
            let port = host.line.as_ref().map_or(host.ports.first(), |line| line.port);
            writeln!(
                config,
                "Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  HostKeyAlias {name}\n  User root\n  IdentityFile {here}/user\n  \
                 IdentitiesOnly yes\n  UserKnownHostsFile {here}/known\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking no",
                name = host.name,
                here = text(here),
            )
            .unwrap();
            let of = fs::read_to_string(host.directory.join("known.pub")).unwrap();
            write!(known, "{} {of}", host.name).unwrap();
        }
        fs::write(here.join("config"), config).unwrap();
        fs::write(here.join("known"), known).unwrap();
        Self { directory, hosts }
    }

    /// ssh's configuration with all hosts.
    pub fn config(&self) -> PathBuf {
        self.directory.path().join("config")
    }
}

impl Root {
    fn start(around: &Path, name: &str, kind: Kind) -> Self {
        let directory = around.join(name);
        let root = directory.join("root");
        for below in ["bin", "usr/bin", "usr/sbin", "dev", "proc", "tmp", "var/tmp", "etc", "root", "over"] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        install_busybox(&root);
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
        let mut before = String::from("mount --rbind /proc $0/proc\nmount --rbind /dev $0/dev\n");
        match kind {
            Kind::ReadOnly => before += "mount --bind $0 $0\nmount -o remount,bind,ro $0\n",
            Kind::WithLibraries => {
                before += "mount -t tmpfs none $0/over\nmkdir $0/over/upper $0/over/work\n\
                           mount -t overlay -o lowerdir=/usr,upperdir=$0/over/upper,workdir=$0/over/work none $0/usr\n\
                           for name in lib lib64 bin/bash; do ln -s /usr/$name $0/$name; done\n";
            }
            Kind::Good | Kind::OtherKey | Kind::Greets | Kind::Breaks(_) => {}
        }
        let mut enter = format!("chroot {}", text(&root));
        if kind == Kind::Greets {
            enter = format!("sh -c 'echo Welcome; exec \"$@\"' sh {enter}");
        }
        let mut host = Self::serve(around, name, &enter, &before);
        if kind == Kind::OtherKey {
            key(&directory.join("other"));
            fs::copy(directory.join("other.pub"), directory.join("known.pub")).unwrap();
        }
        if let Kind::Breaks(bytes) = kind {
            host.line = Some(Line::new(host.ports.first(), bytes));
        }
        host
    }

    /// A server whose sessions enter the host by these words; it runs in a mount namespace of its own, after these lines of shell.
    fn serve(around: &Path, name: &str, enter: &str, before: &str) -> Self {
        let directory = around.join(name);
        key(&directory.join("host"));
        fs::copy(directory.join("host.pub"), directory.join("known.pub")).unwrap();
        let ports = Ports::take();
        let (port, here) = (ports.first(), text(&directory));
        let settings = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {here}/host\nPidFile none\nAuthorizedKeysFile {user}\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nForceCommand exec {enter} /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
            user = text(&around.join("user.pub")),
        );
        fs::write(directory.join("sshd_config"), settings).unwrap();
        let script = format!("set -e\n{before}exec /usr/sbin/sshd -D -f {here}/sshd_config -E {here}/sshd.log");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]).arg(directory.join("root"));
        let child = command.stdin(Stdio::null()).spawn().expect("unshare starts");
        eventually(20, "sshd listens: apt-get install openssh-server", || {
            TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
        Self { name: name.to_owned(), directory, child, ports, line: None }
    }

    /// A path of the host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.join("root").join(path)
    }

    /// Whether somebody has signed in.
    pub fn was_entered(&self) -> bool {
        fs::read_to_string(self.directory.join("sshd.log")).unwrap().contains("Accepted publickey")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(path: &Path) {
    done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path), "openssh-client");
}

/// A line to a server that breaks once: after so many bytes to the server.
struct Line {
    port: u16,
    ended: Arc<AtomicBool>,
}

impl Line {
    fn new(server: u16, bytes: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ended = Arc::new(AtomicBool::new(false));
        let (end, left) = (Arc::clone(&ended), Arc::new(AtomicU64::new(bytes)));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else { return };
                let budget = left.swap(u64::MAX, Ordering::SeqCst);
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || copy(&near, &far, budget));
                std::thread::spawn(move || copy(&far_too, &near_too, u64::MAX));
            }
        });
        Self { port, ended }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, mut left: u64) {
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match from.read(&mut buffer[..most]) {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).is_ok() => left -= count as u64,
            _ => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
