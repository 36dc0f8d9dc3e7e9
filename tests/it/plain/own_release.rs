//! `sidle upgrade sidle`: the program becomes another release of itself under running supervisors, and goes back if that fails.

use crate::support::eventually;
use crate::support::schema;
use crate::support::stage::{Author, DEMO, Host, Ran, SIDLE, sidle, text};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Answers every question, and dies as a supervisor.
const MORTAL: &str = "case \"$*\" in *--check) ;; *\" supervise \"*) exit 1;; esac";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A host whose program lies below its root, where `install.sh` would have put it, and an init that starts its supervisor again.
struct Stage {
    author: Author,
    host: Host,
    init: Child,
}

impl Stage {
    fn new() -> Self {
        let author = Author::new();
        let host = Host::new(&author);
        fs::create_dir_all(host.path("usr/bin")).unwrap();
        fs::copy(SIDLE, host.path("usr/bin/sidle")).unwrap();
        host.install(&author.release("1.0", "good")).ok();
        let again = "while :; do \"$0\" --root \"$1\" supervise demo-agent; sleep 0.2; done";
        let log = fs::File::create(host.path("supervisor.log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", again]).arg(host.path("usr/bin/sidle")).arg(host.root());
        let init = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let stage = Self { author, host, init };
        eventually(20, "the supervisor listens", || {
            if stage.host.path("run/sidle/demo-agent/control").exists() { Ok(()) } else { Err("not yet".to_owned()) }
        });
        stage.run(&["switch", DEMO, "1.0-1"]).ok();
        stage
    }

    /// Runs the program of the host.
    fn run(&self, arguments: &[&str]) -> Ran {
        self.run_by(&self.host.path("usr/bin/sidle"), arguments, &[])
    }

    fn run_by(&self, program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = Command::new(program);
        let output =
            command.arg("--root").arg(self.host.root()).args(arguments).envs(variables.iter().copied()).output();
        let output = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Packs a release of sidle whose program is this script, or the real one.
    fn release(&self, revision: &str, script: Option<&str>) -> PathBuf {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/sidle/sidle.toml");
        let (key, repository) = (self.author.key(), self.author.repository());
        let program = match script {
            None => PathBuf::from(SIDLE),
            Some(script) => {
                let program = self.author.directory().join(format!("program-{revision}"));
                fs::write(&program, format!("#!/bin/sh\n{script}\nexec {SIDLE} \"$@\"\n")).unwrap();
                fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
                program
            }
        };
        let bundle = self.author.directory().join(format!("sidle-{revision}.sidle"));
        let what = ["pack", text(&recipe), "--version", VERSION, "--revision", revision, "--level", "1"];
        let from =
            ["--source", text(&program), "--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
        sidle(&[&what[..], &from[..]].concat(), &[]).ok();
        bundle
    }

    /// The supervisor's process, and the program that it executes.
    fn supervisor(&self) -> Option<(u64, PathBuf)> {
        let status: serde_json::Value =
            serde_json::from_slice(&fs::read(self.host.path("run/sidle/demo-agent/status")).ok()?).ok()?;
        let pid = status["supervisor"]["pid"].as_u64()?;
        Some((pid, fs::read_link(format!("/proc/{pid}/exe")).ok()?))
    }

    fn supervisor_runs(&self, revision: u32) {
        eventually(20, "the supervisor runs the release that worked", || match self.supervisor() {
            Some((_, running)) if running == self.program_of(revision) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    fn program_of(&self, revision: u32) -> PathBuf {
        fs::canonicalize(self.host.path(&format!("opt/sidle/sidle/versions/{VERSION}-{revision}/bin/sidle"))).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.init.kill().unwrap();
        self.init.wait().unwrap();
    }
}

#[test]
fn supervisors_execute_the_new_release_one_after_another_and_the_agent_and_its_job_run_on() {
    let stage = Stage::new();
    let agents = stage.host.agents();
    stage.host.job("long", "sleep 8");
    stage.host.running("long");
    let (pid, _) = stage.supervisor().unwrap();
    let bundle = stage.release("1", None);

    let shown = stage.run(&["upgrade", text(&bundle), "--dry-run"]).ok();
    assert!(shown.contains("would be installed, tried"), "{shown}");
    assert!(!stage.host.path("opt/sidle/sidle").exists());

    let told = stage.run(&["upgrade", text(&bundle)]).ok();
    assert!(told.contains("the supervisor of demo-agent runs sidle"), "{told}");
    assert_eq!(stage.supervisor(), Some((pid, stage.program_of(1))), "the same process, the new program");
    assert_eq!(stage.host.agents(), agents);
    let called_by = fs::symlink_metadata(stage.host.path("usr/bin/sidle")).unwrap();
    assert!(called_by.file_type().is_symlink());
    assert!(!stage.host.path("usr/bin/sidle.before-upgrade").exists());

    let again = stage.run(&["upgrade", text(&bundle)]);
    assert!(again.code == Some(3) && again.stdout.contains("already"), "{again:?}");
    let told = stage.run(&["--json", "upgrade", text(&stage.release("2", None))]).ok();
    assert_eq!(schema::complaints("upgrade", &serde_json::from_str(&told).unwrap()), Vec::<String>::new(), "{told}");
    assert_eq!(stage.supervisor(), Some((pid, stage.program_of(2))));
    stage.run(&["rollback", "sidle"]).ok();
    assert_eq!(stage.supervisor(), Some((pid, stage.program_of(1))));
    assert_eq!(stage.host.done("long")["release"], "1.0");
    assert_eq!(stage.host.agents(), agents);
    // A package like every other.
    stage.run(&["verify", "sidle", "--full"]).ok();
    let status = stage.run(&["status"]).ok();
    assert!(status.contains("sidle (this program)"), "{status}");
    let doctor = stage.run(&["doctor"]);
    assert!(!doctor.stdout.contains("not-supervised"), "{doctor:?}");
    for words in [&["switch", "sidle"][..], &["restart", "sidle"], &["supervise", "sidle"]] {
        let refused = stage.run(words);
        assert!(refused.code == Some(12) && refused.stderr.contains("sidle upgrade sidle"), "{refused:?}");
    }
}

#[test]
fn a_release_that_fails_on_trial_changes_nothing_and_one_that_fails_as_a_supervisor_is_gone_back_from() {
    let stage = Stage::new();
    let agents = stage.host.agents();
    let deaf = stage.release("1", Some("case \"$*\" in *--check) echo not for me >&2; exit 1;; esac"));
    let before = stage.supervisor();
    let refused = stage.run(&["upgrade", text(&deaf)]);
    assert!(refused.code == Some(1) && refused.stderr.contains("not for me"), "{refused:?}");
    assert!(refused.stderr.contains("nothing has changed"), "{refused:?}");
    assert_eq!(stage.supervisor(), before);
    assert!(!stage.host.path("usr/bin/sidle").is_symlink());

    for (revision, proven) in [("2", None), ("4", Some(3))] {
        if let Some(proven) = proven {
            stage.run(&["upgrade", text(&stage.release(&proven.to_string(), None))]).ok();
        }
        let back = stage.run(&["upgrade", text(&stage.release(revision, Some(MORTAL)))]);
        assert!(back.code == Some(5) && back.stderr.contains("the supervisor of demo-agent has ended"), "{back:?}");
        let program = proven
            .map_or_else(|| fs::canonicalize(stage.host.path("usr/bin/sidle")).unwrap(), |it| stage.program_of(it));
        eventually(20, "the supervisor runs the program before", || match stage.supervisor() {
            Some((_, running)) if running == program => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(stage.host.agents(), agents);
        assert!(!stage.host.path("usr/bin/sidle.before-upgrade").exists());
    }
    assert_eq!(stage.host.answering("after"), "1.0");
}

#[test]
fn an_upgrade_that_is_killed_can_be_gone_back_from_and_a_release_that_failed_is_marked() {
    let stage = Stage::new();
    let agents = stage.host.agents();
    stage.run(&["upgrade", text(&stage.release("1", None))]).ok();
    let mortal = stage.release("2", Some(MORTAL));
    let killed = stage.run_by(
        &stage.host.path("usr/bin/sidle"),
        &["upgrade", text(&mortal)],
        &[("SIDLE_CRASH_AT", "flip.after")],
    );
    assert_eq!(killed.code, None, "{killed:?}");
    // As at a boot: the init starts what `current` names.
    let (pid, _) = stage.supervisor().unwrap();
    let supervisor = sidle::os::process::Identity::of(u32::try_from(pid).unwrap()).unwrap().unwrap();
    supervisor.signal(sidle::os::process::SignalNumber::KILL).unwrap();
    // Who is asked to renew itself while it dies has ended in the meantime.
    eventually(20, "the killed supervisor is gone", || {
        if supervisor.is_alive().unwrap() { Err("it lives".to_owned()) } else { Ok(()) }
    });
    // The test's release is a script around a program elsewhere: not the one to go back with.
    stage.run_by(&stage.program_of(1), &["rollback", "sidle"], &[]).ok();
    stage.supervisor_runs(1);
    assert_eq!(stage.host.agents(), agents);

    // What is known of earlier releases cannot be read any more: that keeps no host on a program that has failed.
    let verdicts = stage.host.path("var/lib/sidle/instances/sidle/verdicts");
    let kept = fs::read(&verdicts).unwrap();
    let spoils = MORTAL.replace("exit 1", &format!("echo '{{' >{}; exit 1", text(&verdicts)));
    let unread = stage.run(&["upgrade", text(&stage.release("4", Some(&spoils)))]);
    assert!(unread.code == Some(5) && unread.stderr.contains("is current again"), "{unread:?}");
    assert!(unread.stderr.contains("not done: record that "), "{unread:?}");
    fs::write(&verdicts, kept).unwrap();
    stage.supervisor_runs(1);

    let failed = stage.run(&["upgrade", text(&mortal)]);
    assert!(failed.code == Some(5) && failed.stderr.contains("is current again"), "{failed:?}");
    let listed = stage.run(&["list", "sidle"]).ok();
    assert!(listed.lines().any(|line| line.contains("-2 ") && line.contains("bad")), "{listed}");
    stage.run(&["hold", "sidle"]).ok();
    let held = stage.run(&["upgrade", text(&stage.release("3", None))]);
    assert_eq!(held.code, Some(10), "{held:?}");
}

#[test]
fn a_program_that_is_not_of_this_root_or_not_the_supervisors_is_not_replaced() {
    let stage = Stage::new();
    let bundle = stage.release("1", None);
    fs::create_dir_all(stage.host.path("root/bin")).unwrap();
    for (place, why) in
        [("root/bin/sidle", "is not the installed program"), ("bin/sidle", "is not what the supervisor")]
    {
        fs::create_dir_all(stage.host.path(place).parent().unwrap()).unwrap();
        fs::copy(SIDLE, stage.host.path(place)).unwrap();
        let refused = stage.run_by(&stage.host.path(place), &["upgrade", text(&bundle)], &[]);
        assert!(refused.code == Some(12) && refused.stderr.contains(why), "{place}: {refused:?}");
    }
    let refused = stage.host.sidle(&["upgrade", text(&bundle)]);
    assert!(refused.code == Some(12) && refused.stderr.contains("is not below"), "{refused:?}");
}
