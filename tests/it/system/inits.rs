//! `sidle supervise` under other inits than systemd: the examples for SysV, OpenRC, runit and s6, each run by its own programs in a root of Debian,
//! and a container without an init.

use crate::support::stage::{Author, DEMO, Host, SIDLE, text, two_releases};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debian with these programs, made once.
fn base() -> PathBuf {
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/inits-root"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "scripts/inits-root failed");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// What every init has to do: `START`, `STOP` and `ALIVE` are the init's own commands.
const STORY: &str = r#"
sidle() { /usr/bin/sidle "$@"; }
START
n=0; until [ -S /run/sidle/demo-agent/control ]; do n=$((n + 1)); [ $n -lt 200 ] || { echo "no supervisor"; cat /var/log/sidle* ; exit 1; }; sleep 0.1; done
sidle switch demo-agent 1.0-1 --mode idle
sidle switch demo-agent 1.1-1
agent=$(AGENT)
kill -0 "$agent"
ALIVE
STOP
! kill -0 "$agent" 2>/dev/null || { echo "the agent outlives the stop"; exit 1; }
for process in /proc/[0-9]*; do case $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) in *"sidle supervise"*) echo "a supervisor outlives the stop"; exit 1 ;; esac; done
echo all well
"#;

/// The pid of the agent that takes the jobs.
const AGENT: &str = "sed -n 's/^pid=//p' /etc/demo-agent/state/ready";

/// Runs a script in the root, in namespaces of its own, where the host's files lie at their places; its first process is `first`.
fn run(start: &str, alive: &str, stop: &str) {
    let author = Author::new();
    let host = Host::new(&author);
    for version in ["1.0", "1.1"] {
        host.install(&author.release(version, "good")).ok();
    }
    let root = tempfile::Builder::new().prefix("init").tempdir().unwrap();
    let script = STORY.replace("START", start).replace("ALIVE", alive).replace("STOP", stop).replace("AGENT", AGENT);
    fs::write(host.path("story"), format!("set -e\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\n{script}")).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/init");
    // An overlay of the base; the host's directories are mounted over it.
    let outer = r#"set -e
        base=$1 work=$2 host=$3 program=$4 examples=$5
        mount -t tmpfs tmpfs "$work"
        mkdir "$work/upper" "$work/work" "$work/root"
        mount -t overlay overlay -o "lowerdir=$base,upperdir=$work/upper,workdir=$work/work" "$work/root"
        cd "$work/root"
        mkdir -p examples opt/sidle var/lib/sidle etc/sidle etc/demo-agent
        for place in opt/sidle var/lib/sidle etc/sidle etc/demo-agent; do mount --bind "$host/$place" "$place"; done
        mount --bind "$examples" examples
        touch usr/bin/sidle && mount --bind "$program" usr/bin/sidle
        cp "$host/story" story
        mount -t proc proc proc && mount -t tmpfs tmpfs run && mount -t tmpfs tmpfs tmp && mount --rbind /dev dev
        exec chroot . /bin/sh /story"#;
    let mut command = Command::new("timeout");
    command.args(["100", "unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private"]);
    command.args([
        "sh",
        "-c",
        outer,
        "sh",
        text(&base()),
        text(root.path()),
        text(&host.root()),
        SIDLE,
        text(&examples),
    ]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && said.contains("all well"), "{said}");
}

#[test]
fn sysv_init_runs_an_agent() {
    let script = "/etc/init.d/sidle-demo-agent";
    run(
        &format!("cp /examples/sysv {script}; {script} start"),
        &format!("{script} status; {script} reload; {script} start; agent=$(AGENT)"),
        &format!("{script} stop; ! {script} status"),
    );
}

/// What OpenRC makes when it boots a host.
const OPENRC: &str = "for state in exclusive started starting stopping stopped inactive wasinactive failed hotplugged daemons options scheduled tmp; do mkdir -p /run/openrc/$state; done; touch /run/openrc/softlevel;";

#[test]
fn openrc_runs_an_agent() {
    let script = "/etc/init.d/sidle-demo-agent";
    run(
        &format!("{OPENRC} cp /examples/openrc {script}; rc-service sidle-demo-agent start"),
        "rc-service sidle-demo-agent status; rc-service sidle-demo-agent reload; agent=$(AGENT)",
        "rc-service sidle-demo-agent stop",
    );
}

#[test]
fn runit_runs_an_agent() {
    run(
        "mkdir -p /etc/sv/sidle-demo-agent; cp /examples/run /etc/sv/sidle-demo-agent/; runsv /etc/sv/sidle-demo-agent >/var/log/sidle.log 2>&1 &",
        "sv status /etc/sv/sidle-demo-agent | grep ^run:",
        "sv -w 60 stop /etc/sv/sidle-demo-agent; sv exit /etc/sv/sidle-demo-agent",
    );
}

#[test]
fn s6_runs_an_agent() {
    run(
        "mkdir -p /scan/sidle-demo-agent; cp /examples/run /scan/sidle-demo-agent/; s6-svscan /scan >/var/log/sidle.log 2>&1 &",
        "s6-svstat /scan/sidle-demo-agent | grep ^up",
        "s6-svc -wD -T 60000 -d /scan/sidle-demo-agent; s6-svscanctl -t /scan; wait",
    );
}

/// The supervisor is the first process: it has to take the exit status of every process that its parent left, and SIGTERM has no default.
#[test]
fn a_container_without_an_init_runs_an_agent() {
    let author = Author::new();
    let host = Host::new(&author);
    for version in ["1.0", "1.1"] {
        host.install(&author.release(version, "good")).ok();
    }
    fs::set_permissions(host.root(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = r#"mount -t proc proc /proc; exec "$1" --root "$2" supervise demo-agent >"$2/supervisor.log" 2>&1"#;
    let mut container = Command::new("unshare");
    container.args(["--mount", "--pid", "--fork", "sh", "-c", script, "sh", SIDLE, text(&host.root())]);
    let mut container = container.stdin(Stdio::null()).spawn().unwrap();
    let log = || fs::read_to_string(host.path("supervisor.log")).unwrap_or_default();
    let first = crate::support::eventually(20, "the supervisor listens", || {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", container.id())).unwrap();
        let there = host.path("run/sidle/demo-agent/control").exists();
        children.trim().parse::<u32>().ok().filter(|_| there).ok_or_else(log)
    });
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["--target", &first.to_string(), "--mount", "--pid", SIDLE, "--root", text(&host.root())]);
        let output = command.args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{}\n{}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            log()
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    inside(&["switch", DEMO, "1.0-1", "--mode", "idle"]);
    inside(&["switch", DEMO, "1.1-1"]);
    // A job leaves a process behind, which ends soon: its parent is the first process then.
    host.job("orphan", "(sh -c 'sleep 0.3; exit 7' &) ; true\n");
    host.done("orphan");
    crate::support::eventually(20, "no process is left unreaped", || {
        let children = Command::new("ps").args(["--ppid", &first.to_string(), "-o", "stat=,args="]).output().unwrap();
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        let left = children.lines().any(|line| line.trim_start().starts_with('Z') || line.contains("sleep 0.3"));
        if left { Err(children) } else { Ok(()) }
    });
    let status = inside(&["--json", "status", DEMO]);
    assert!(status.contains("1.1-1"), "{status}");
    assert!(Command::new("kill").args(["-TERM", &first.to_string()]).status().unwrap().success());
    crate::support::eventually(20, "the container ends", || match container.try_wait().unwrap() {
        Some(status) if status.success() => Ok(()),
        other => Err(format!("{other:?} {}", log())),
    });
    assert_eq!(host.agents(), Vec::<u32>::new());
}

#[test]
fn a_container_whose_root_is_no_root_of_the_host_is_switched_in_overlap() {
    let (host, _author) = two_releases();
    let program = host.path("sidle-in-a-container");
    let script = format!("#!/bin/sh\nexec unshare --user --map-root-user {SIDLE} \"$@\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let _supervisor = host.supervise_by(&program);
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    host.sidle(&["switch", DEMO, "1.1-1", "--mode", "overlap"]).ok();
    assert_eq!(host.last()["mode"], "overlap");
}
