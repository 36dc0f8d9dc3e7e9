//! The same of a supervisor in the middle of a switch, under a stream of jobs: each is done once, a release that can't help it is not held bad, and
//! the next switch gets there. Agents are not traced: theirs are the release's faults.

use super::{CALLS, ERRORS, call_of, counts, is_thorough};
use crate::plain::crash::{host_is_sound, in_parallel};
use crate::support::eventually;
use crate::support::stage::{DEMO, Host, Ran, Supervisor, text, two_releases};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What a supervisor asks the kernel for beside files, each with what it may get.
const OF_PROCESSES: [(&str, &str); 7] = [
    ("clone", "EAGAIN"),
    ("clone3", "EAGAIN"),
    ("pidfd_open", "EMFILE"),
    ("pipe2", "EMFILE"),
    ("socketpair", "EMFILE"),
    ("accept4", "EMFILE"),
    ("inotify_add_watch", "ENOSPC"),
];

/// How tokio wakes itself. No kernel refuses that, and where one does, only the next supervisor goes on.
const WAKES: &str = r#", "\1\0\0\0\0\0\0\0", 8)"#;

/// How many of each call are let fail: a supervisor that waits makes a few of them over and over.
const OF_EACH: usize = 2;

/// strace at a running supervisor, its threads, and its children until they are another program.
struct Tracer(Child);

impl Tracer {
    fn attach(supervisor: &Supervisor, trace: &Path, inject: Option<&str>) -> Self {
        let all: Vec<&str> = std::iter::once(CALLS).chain(OF_PROCESSES.map(|(call, _)| call)).collect();
        // Where one call is to fail, no other has to be written down.
        let calls = inject.map_or(all, |fault| vec![call_of(fault)]);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-b", "execve", "-o", text(trace), "-e", &format!("trace={}", calls.join(","))]);
        if let Some(inject) = inject {
            command.args(["-e", &format!("inject={inject}")]);
        }
        let pid = supervisor.pid();
        let strace = command.args(["-p", &pid.to_string()]).stdin(Stdio::null()).spawn().unwrap();
        eventually(20, "strace has attached", || {
            let traced = |task: fs::DirEntry| {
                let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
                status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
            };
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| error.to_string())?;
            if tasks.flatten().all(traced) { Ok(()) } else { Err("not yet".to_owned()) }
        });
        Self(strace)
    }

    /// Lets go of whatever is traced still, as the kernel does for a tracer that is gone: one that is asked to waits for a vfork(2) that waits for it.
    fn detach(mut self) {
        if self.0.try_wait().unwrap().is_none() {
            self.0.kill().unwrap();
        }
        self.0.wait().unwrap();
    }
}

/// A host with both releases, on which 1.0 ran last.
fn settled() -> Host {
    let (host, author) = two_releases();
    drop(author);
    // Slow is not what is looked for.
    fs::write(host.path("etc/sidle/conf.d/slow.toml"), "start_timeout = \"60s\"\nstop_timeout = \"20s\"\n").unwrap();
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    host
}

/// What came of one switch with one fault.
struct Came {
    ran: Ran,
    history: String,
    verdicts: String,
    /// The call that failed.
    failed: String,
    /// No wake of its own failed.
    is_awake: bool,
}

/// Switches under a stream of jobs and a tracer; then what must be so in any case is asserted.
fn switch(host: &Host, mode: &str, inject: Option<&str>) -> Came {
    let what = inject.unwrap_or("no fault");
    let mut supervisor = host.supervise();
    assert_eq!(host.answering("before"), "1.0");
    let marks = host.path("marks");
    fs::create_dir(&marks).unwrap();
    let over = AtomicBool::new(false);
    let (ran, count) = thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let mut count = 0;
            while !over.load(Ordering::SeqCst) {
                count += 1;
                // Where the agent must be idle for a moment, it is.
                let seconds = if mode == "idle" { "0.05" } else { "0.3" };
                let script = format!("mkdir {0}/{count} || : >{0}/twice-{count}; sleep {seconds}", marks.display());
                host.job(&format!("j{count}"), &script);
                thread::sleep(Duration::from_millis(300));
            }
            count
        });
        let tracer = Tracer::attach(&supervisor, &host.path("trace"), inject);
        let ran = host.sidle(&["switch", DEMO, "1.1-1", "--mode", mode]);
        tracer.detach();
        over.store(true, Ordering::SeqCst);
        (ran, stream.join().unwrap())
    });
    let failed = injected(&host.path("trace"));
    let is_awake = failed.iter().all(|line| !line.contains(WAKES));
    if !is_awake {
        // One of its threads has panicked: it is about to end, or lives on without that thread.
        supervisor.kill();
    }
    // systemd starts it again.
    let again = supervisor.is_gone().then(|| host.supervise());
    let read = |relative: &str| fs::read_to_string(host.path(relative)).unwrap_or_default();
    let came = Came {
        history: read("var/lib/sidle/instances/demo-agent/history") + &supervisor.log(),
        verdicts: read("var/lib/sidle/instances/demo-agent/verdicts"),
        failed: failed.join(" | "),
        is_awake,
        ran,
    };
    eventually(30, &format!("the switch ends after {what}"), || match host.status() {
        status if status["switch"].is_null() => Ok(()),
        status => Err(status.to_string()),
    });
    for number in 1..=count {
        assert_eq!(host.done(&format!("j{number}"))["exit"], "0", "job {number} after {what}");
    }
    let names = fs::read_dir(&marks).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let twice: Vec<String> = names.filter(|name| name.starts_with("twice")).collect();
    assert_eq!(twice, Vec::<String>::new(), "after {what}");
    let next = host.sidle(&["switch", DEMO, "1.1-1", "--mode", mode]);
    assert!(matches!(next.code, Some(0 | 3)), "after {what}, {}: {next:?}, {:?}", came.failed, came.ran);
    host_is_sound(host, what, 0);
    drop(again);
    came
}

/// The calls that were made to fail, each with its arguments: they stand in an earlier line where another thread was faster.
fn injected(trace: &Path) -> Vec<String> {
    let trace = fs::read_to_string(trace).unwrap_or_default();
    let lines: Vec<&str> = trace.lines().collect();
    let thread = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let failed = (0..lines.len()).filter(|number| lines[*number].contains("(INJECTED)"));
    let whole = failed.map(|number| {
        let line = lines[number];
        let is_begin = |earlier: &&&str| earlier.contains("<unfinished ...>") && thread(earlier) == thread(line);
        let begin = lines[..number].iter().rev().find(is_begin).filter(|_| line.contains(" resumed>"));
        begin.map_or_else(|| line.to_owned(), |begin| format!("{begin} | {line}"))
    });
    whole.collect()
}

/// Calls of a switch from all over it, with an error for each.
fn faults(trace: &Path) -> Vec<String> {
    if let Some(fault) = std::env::var("SIDLE_FAULTS").ok().filter(|which| which.contains(":error=")) {
        return vec![fault];
    }
    let own: BTreeMap<&str, &str> = OF_PROCESSES.into();
    let mut faults = Vec::new();
    for (call, count) in counts(trace) {
        let step = if is_thorough() { 1 } else { count.div_ceil(OF_EACH) };
        // From the end: what is done once is done there.
        for when in (1..=count).rev().step_by(step) {
            let error = own.get(call.as_str()).copied().unwrap_or(ERRORS[faults.len() % ERRORS.len()].0);
            faults.push(format!("{call}:error={error}:when={when}"));
        }
    }
    faults
}

/// What is wrong with how a switch took a fault.
fn verdict(fault: &str, came: &Came) -> Option<String> {
    let told = format!("{}{}", came.ran.stderr, came.history);
    let words = ERRORS.iter().find(|(error, _)| fault.contains(&format!("error={error}:"))).map(|(_, words)| *words);
    let named = words.unwrap_or("Resource temporarily unavailable");
    if !came.verdicts.is_empty() && came.verdicts.contains("1.1-1") {
        return Some(format!("{fault}: held against the release: {} {told} {}", came.verdicts, came.failed));
    }
    if !came.is_awake {
        return None;
    }
    if told.contains("panicked") {
        return Some(format!("{fault}: {told}"));
    }
    match came.ran.code {
        Some(0) => None,
        Some(1..=12) if told.contains(named) => None,
        _ => Some(format!("{fault}, {}: {:?}; {}", came.failed, came.ran, came.history)),
    }
}

fn a_switch_takes_every_failed_call(mode: &str) {
    let settled = settled();
    let first = settled.copy();
    let came = switch(&first, mode, None);
    assert_eq!(came.ran.code, Some(0), "{:?}", came.ran);
    let faults = faults(&first.path("trace"));
    assert!(faults.len() == 1 || faults.len() > 10 * OF_EACH, "{faults:?}");
    drop(first);
    let wrong = Mutex::new(Vec::new());
    in_parallel(&faults, &|_, fault| {
        let host = settled.copy();
        let came = switch(&host, mode, Some(fault));
        if came.ran.code != Some(0) {
            println!("{fault}, {}: {:?}", came.failed, came.ran);
        }
        wrong.lock().unwrap().extend(verdict(fault, &came));
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), faults.len(), wrong.join("\n"));
}

#[test]
fn a_switch_with_both_running_takes_every_failed_call_of_the_supervisor() {
    a_switch_takes_every_failed_call("overlap");
}

#[test]
fn a_switch_when_idle_takes_every_failed_call_of_the_supervisor() {
    a_switch_takes_every_failed_call("idle");
}
