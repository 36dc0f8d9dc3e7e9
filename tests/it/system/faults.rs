//! Every system call of a command fails once, in a run of its own: the error names its cause, nothing is lost, and the next command converges.
//! A sample of them; `SIDLE_FAULTS=all` tries each one, `SIDLE_FAULTS=CALL:error=ERROR:when=N` only that one of a switch.

mod supervisor;

use crate::plain::crash::{in_parallel, store_is_sound};
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a command does to files. What the loader and the allocator ask for is left out: no program outlives that.
const CALLS: &str = "openat,openat2,read,pread64,write,pwrite64,fsync,fdatasync,syncfs,rename,renameat,renameat2,unlinkat,mkdirat,fchmod,\
                     fchmodat,fchown,fchownat,symlinkat,readlinkat,flock,getdents64,statx,newfstatat,fstat,fstatfs,statfs,ftruncate,\
                     copy_file_range,utimensat,faccessat2";

/// What becomes of them, with the kernel's words.
const ERRORS: [(&str, &str); 6] = [
    ("EIO", "Input/output error"),
    ("ENOSPC", "No space left on device"),
    ("EACCES", "Permission denied"),
    ("EMFILE", "Too many open files"),
    ("ENOMEM", "Cannot allocate memory"),
    ("EINTR", "Interrupted system call"),
];

/// How many faults of one command are tried.
const SAMPLE: usize = 60;

/// Runs a command below strace, which stops it at these calls alone; where one is to fail, at no other.
fn traced(host: &Host, arguments: &[&str], trace: &Path, inject: Option<&str>) -> Ran {
    let mut command = Command::new("strace");
    let calls = inject.map_or(CALLS, call_of);
    command.args(["-f", "--seccomp-bpf", "-qq", "-o", text(trace), "-e", &format!("trace={calls}")]);
    if let Some(inject) = inject {
        command.args(["-e", &format!("inject={inject}")]);
    }
    let output =
        command.args([SIDLE, "--root", text(&host.root())]).args(arguments).stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code().filter(|_| output.status.signal().is_none()),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The call of a fault.
fn call_of(fault: &str) -> &str {
    fault.split_once(':').map_or(fault, |(call, _)| call)
}

/// How often the thread that makes most of a call makes it: strace counts for each thread.
fn counts(trace: &Path) -> BTreeMap<String, usize> {
    let mut of_thread: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in fs::read_to_string(trace).unwrap().lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        if let Some((call, _)) = rest.trim_start().split_once('(') {
            *of_thread.entry((pid.to_owned(), call.to_owned())).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in of_thread {
        let entry = most.entry(call).or_default();
        *entry = count.max(*entry);
    }
    most
}

/// Each call of the command that a program which does nothing does not make, with an error for it.
fn faults(host: &Host, arguments: &[&str]) -> Vec<String> {
    let trace = host.path("trace");
    assert_eq!(traced(host, &["--version"], &trace, None).code, Some(0));
    let before = counts(&trace);
    let ran = traced(host, arguments, &trace, None);
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
    let mut all = Vec::new();
    for (call, count) in counts(&trace) {
        let first = before.get(&call).copied().unwrap_or_default() + 1;
        for when in first..=count {
            let (error, _) = ERRORS[all.len() % ERRORS.len()];
            all.push(format!("{call}:error={error}:when={when}"));
        }
    }
    if is_thorough() {
        return all;
    }
    // A step that has no divisor in common with the number of errors, so that each error is met.
    let step = (all.len() / SAMPLE).max(1);
    let step = (step..step + ERRORS.len()).find(|step| step % 2 != 0 && step % 3 != 0).unwrap();
    all.into_iter().step_by(step).collect()
}

/// Whether each fault is to be tried.
fn is_thorough() -> bool {
    std::env::var_os("SIDLE_FAULTS").is_some_and(|which| which == "all")
}

/// What is wrong with how a command took a fault.
fn verdict(fault: &str, ran: &Ran) -> Option<String> {
    let words = ERRORS.iter().find(|(error, _)| fault.contains(&format!("error={error}:"))).unwrap().1;
    // What a check could not look at is a line of its result.
    let told = ran.stderr.contains("sidle: ") || ran.stdout.contains(words);
    let named = ran.stderr.contains(words)
        || ran.stdout.contains(words)
        || (words.starts_with("No space") && ran.code == Some(8));
    match ran.code {
        Some(0 | 3) => None,
        Some(1..=12) if told && named => None,
        // What it says can't be printed where printing is what fails.
        Some(_) if fault.starts_with("write:") && ran.stderr.is_empty() => None,
        _ => Some(format!("{fault}: {ran:?}")),
    }
}

fn each_fails_once(
    prepare: &(dyn Fn() -> Host + Sync),
    arguments: &(dyn Fn(&Host) -> Vec<String> + Sync),
    check: &(dyn Fn(&Host) + Sync),
) {
    let run = |host: &Host, inject: Option<&str>| {
        let words = arguments(host);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        traced(host, &words, &host.path("trace"), inject)
    };
    let first = prepare();
    let words = arguments(&first);
    let faults = faults(&first, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(faults.len() > SAMPLE / 3, "{faults:?}");
    check(&first);
    let wrong = std::sync::Mutex::new(Vec::new());
    in_parallel(&faults, &|_, fault| {
        let host = prepare();
        wrong.lock().unwrap().extend(verdict(fault, &run(&host, Some(fault))));
        let again = run(&host, None);
        assert!(matches!(again.code, Some(0 | 3)), "after {fault}: {again:?}");
        store_is_sound(&host);
        check(&host);
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), faults.len(), wrong.join("\n"));
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn is_whole(host: &Host, release: &str) {
    host.sidle(&["verify", DEMO, release, "--full"]).ok();
}

#[test]
fn an_install_takes_every_failed_call() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let bare = Host::new(&author);
    each_fails_once(&|| bare.copy(), &|_| words(&["install", text(&bundle)]), &|host| is_whole(host, "1.0-1"));
}

#[test]
fn an_install_from_a_repository_takes_every_failed_call() {
    let author = Author::new();
    author.release("1.0", "good");
    let url = format!("file://{}", author.repository().display());
    let bare = Host::new(&author);
    each_fails_once(&|| bare.copy(), &|_| words(&["install", DEMO, "--repository", &url]), &|host| {
        is_whole(host, "1.0-1");
    });
}

#[test]
fn a_repair_takes_every_failed_call() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let damaged = Host::new(&author);
    damaged.install(&bundle).ok();
    fs::write(damaged.path("opt/sidle/demo-agent/versions/1.0-1/bin/demo-agent"), "exit 1\n").unwrap();
    let command = words(&["repair", DEMO, "1.0-1", "--from", text(&bundle)]);
    // The sound store is what the repair ends with.
    each_fails_once(&|| damaged.copy(), &|_| command.clone(), &|host| is_whole(host, "1.0-1"));
}

/// A receipt that could not be looked at counted as none: the lock's holder removed the release as a leftover of a crash.
#[test]
fn no_failed_look_removes_a_release() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let installed = Host::new(&author);
    installed.install(&bundle).ok();
    let command = ["repair", DEMO, "1.0-1", "--from", text(&bundle)];
    let first = installed.copy();
    traced(&first, &command, &first.path("trace"), None);
    let looks = counts(&first.path("trace")).get("newfstatat").copied().unwrap_or_default();
    assert!(looks > 10, "{looks}");
    let faults: Vec<String> = (1..=looks).map(|when| format!("newfstatat:error=EACCES:when={when}")).collect();
    in_parallel(&faults, &|_, fault| {
        let host = installed.copy();
        let ran = traced(&host, &command, &host.path("trace"), Some(fault));
        assert!(host.path("opt/sidle/demo-agent/versions/1.0-1/bin/demo-agent").exists(), "{fault}: {ran:?}");
    });
}

#[test]
fn a_collection_takes_every_failed_call() {
    let author = Author::new();
    let full = Host::new(&author);
    for version in ["1.0", "1.1", "1.2"] {
        full.install(&author.release(version, "good")).ok();
    }
    let command = words(&["collect", DEMO, "--keep", "1"]);
    each_fails_once(&|| full.copy(), &|_| command.clone(), &|host| {
        is_whole(host, "1.2-1");
        assert!(!host.path("opt/sidle/demo-agent/versions/1.0-1").exists());
    });
}

#[test]
fn a_mirror_takes_every_failed_call() {
    let author = Author::new();
    author.release("1.0", "good");
    let url = format!("file://{}", author.repository().display());
    let keeper = Host::new(&author);
    let command = |host: &Host| words(&["mirror", text(&host.path("copy")), "--repository", &url]);
    each_fails_once(&|| keeper.copy(), &command, &|host| {
        let from = format!("file://{}", host.path("copy").display());
        let reader = keeper.copy();
        reader.sidle(&["install", DEMO, "--repository", &from]).ok();
    });
}

#[test]
fn a_publication_takes_every_failed_call() {
    let author = Author::new();
    author.release("1.0", "good");
    let tree = author.directory().join("tree-1.0");
    let recipe = author.directory().join("1.0.toml");
    let bare = Host::new(&author);
    let prepare = || {
        let host = bare.copy();
        let copied =
            Command::new("cp").arg("-a").arg(author.repository()).arg(host.path("repository")).status().unwrap();
        assert!(copied.success());
        host
    };
    let command = |host: &Host| {
        let pack = ["pack", text(&recipe), "--version", "1.1", "--tree", text(&tree), "--repo"];
        let pack =
            [&words(&pack)[..], &words(&[text(&host.path("repository")), "--key", text(&author.key())])].concat();
        [&pack[..], &words(&["--output", text(&host.path("bundle.sidle"))])].concat()
    };
    each_fails_once(&prepare, &command, &|host| {
        host.sidle(&["install", text(&host.path("bundle.sidle"))]).ok();
        let url = format!("file://{}", host.path("repository").display());
        let reader = bare.copy();
        reader.sidle(&["install", DEMO, "--repository", &url]).ok();
        is_whole(&reader, "1.1-1");
    });
}
