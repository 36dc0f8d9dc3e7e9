//! The steps on one host. Each looks first, and may be repeated: a host keeps what it has.

mod setup;

use super::complaint::{self, BROKEN, report};
use super::probe::{self, PROGRAM, Probe};
use super::program::StaticProgram;
use super::ssh::line;
use super::{Action, Call, Destination, Event, Outcome, Push, Step, files};
use crate::agent::findings::Findings;
use crate::failure::{Class, Report};
use crate::os::OsError;
use crate::os::dialogue::{Dialogue, End, Patience};
use crate::os::place::Effect;
use crate::os::process::Program;
use crate::store::install::best_of;
use crate::store::preflight::{Host, Obstacle, of_platform};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// Longest line of a host.
const LINE_BYTES_MAXIMUM: usize = 1 << 20;
/// Longest output of a command that is kept.
const OUTPUT_BYTES_MAXIMUM: usize = 16 << 20;
/// Most lines before the probe's last one. Stops a host that greets for ever.
const GREETING_LINES_MAXIMUM: u32 = 10_000;
/// Room that must be left where the program goes, KiB.
const ROOM_KIB: u64 = 1024;

/// Performs the steps on one host.
pub(super) fn visit(push: &Push, number: usize, to: &Destination, tell: &(dyn Fn(Event) + Sync)) -> Outcome {
    let outcome = Outcome {
        step: Step::Wait,
        bytes_sent: 0,
        did: Vec::new(),
        release: None,
        adoption: None,
        output: None,
        failure: None,
    };
    let socket = push.sockets.join(number.to_string());
    let time = Patience::new(push.patience, push.total);
    let mut visit = Visit { push, number, to, tell, socket, time, outcome };
    let performed = visit.perform();
    visit.outcome.failure = performed.err();
    visit.outcome
}

struct Visit<'v> {
    push: &'v Push,
    number: usize,
    to: &'v Destination,
    tell: &'v (dyn Fn(Event) + Sync),
    socket: PathBuf,
    /// The waits for this host, and its time in all.
    time: Patience,
    outcome: Outcome,
}

/// How a command on the host ended.
struct Ended {
    output: Vec<u8>,
    end: End,
}

impl Visit<'_> {
    fn perform(&mut self) -> Result<(), Report> {
        let (connection, probe) = self.connect()?;
        let done = self.run_steps(&probe);
        // The connection is the first session's: it ends after the others.
        if done.is_ok() {
            drop(connection.end());
        } else {
            drop(connection);
        }
        done
    }

    fn run_steps(&mut self, probe: &Probe) -> Result<(), Report> {
        let is_there = self.program(probe)?;
        let path = if is_there { probe.path() } else { PROGRAM };
        if !is_there && self.push.effect == Effect::DryRun {
            let release =
                self.push.release.as_ref().map_or_else(|| "the newest release".to_owned(), ToString::to_string);
            self.outcome.did.push(format!("would install {release} of {}", self.push.package));
            if let Action::Adopt(_) = self.push.action {
                self.outcome.did.push(format!("would take over the running agent of {}", self.push.package));
                self.outcome.adoption = Some(Findings::without_release());
            }
            return Ok(());
        }
        self.setup(path)?;
        if let Some(url) = &self.push.configure {
            self.settings(path, url)?;
        }
        match &self.push.action {
            Action::Call(call) => self.call(path, call),
            Action::Install | Action::Adopt(_) | Action::Start(_) => Ok(()),
        }
    }

    fn step(&mut self, step: Step) {
        self.outcome.step = step;
        (self.tell)(Event { host: self.number, step, bytes_sent: self.outcome.bytes_sent });
    }

    /// Connects, and looks. The session stays: its connection is the one of all the others.
    fn connect(&mut self) -> Result<(Dialogue, Probe), Report> {
        self.step(Step::Connect);
        let attempted = format!("connect to {}", self.to.name);
        let ssh = &self.push.ssh;
        let connect = self.to.connect_seconds.map_or(ssh.connect, Duration::from_secs);
        ssh.require_checked_key(self.to, &self.socket)?;
        // Connecting and signing in are two waits.
        let patience = Patience { silence: connect.saturating_mul(3), ..self.time };
        let mut dialogue = ssh.first(self.to, &self.socket, &line(self.to, &["sh", "-s"]))?.converse(patience)?;
        let part = probe::part(&self.part_digest());
        let mut probe = Probe { user: u32::MAX, ..Probe::default() };
        let mut failed = dialogue.say(probe::script(&part).as_bytes(), LINE_BYTES_MAXIMUM, &mut |_| {}).err();
        for _ in 0..GREETING_LINES_MAXIMUM {
            if failed.is_some() {
                break;
            }
            match dialogue.line(LINE_BYTES_MAXIMUM) {
                Ok(Some(line)) if probe.take(&String::from_utf8_lossy(&line)) => {
                    return self.is_root(&probe).map(|()| (dialogue, probe));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    let end = self.end(&attempted, dialogue)?;
                    return Err(report(&attempted, end.code, &end.errors));
                }
                Err(error) => failed = Some(error),
            }
        }
        let said = dialogue.stderr_tail();
        Err(match failed {
            Some(error) => self.broken(&attempted, &error, patience.silence, &said),
            None => report(&attempted, Some(1), "the host prints without end"),
        })
    }

    fn is_root(&self, probe: &Probe) -> Result<(), Report> {
        if probe.user == 0 {
            return Ok(());
        }
        let message =
            format!("cannot install on {}: the commands run as user {}, not as root", self.to.name, probe.user);
        Err(Report::of(Class::Failed, message).hint("push as root, or with --sudo"))
    }

    /// Refuses a host whose C library is too old for each release, before anything is brought there. Where it is not known, `sidle setup` compares it
    /// on the host.
    fn require_fit(&self, probe: &Probe) -> Result<(), Report> {
        let push = self.push;
        let (system, architecture) = (PathBuf::from("/"), probe.machine.clone());
        let host = Host { system, architecture, libc: probe.libc, kernel: None, x86_64_level: None };
        let best = best_of(push.releases.iter(), push.release.as_ref(), &host);
        let Some(best) = best.filter(|best| probe.libc.is_some() && host.fit(&best.platform).is_none()) else {
            return Ok(());
        };
        let obstacles = of_platform(&best.platform, &host);
        let reasons: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        let hints: Vec<&str> = obstacles.iter().map(Obstacle::hint).collect();
        let message =
            format!("cannot install {} {} on {}: {}", best.package, best.release, self.to.name, reasons.join("; "));
        Err(Report::of(Class::Failed, message).hint(hints.join("; ")))
    }

    /// The digest in the name of the arriving program. Before the machine is known it is that of this machine's; another's is asked for later.
    fn part_digest(&self) -> String {
        let of = |machine: &str| self.push.programs.of(machine).map(|program| program.digest.to_string());
        of(&crate::os::host::architecture()).unwrap_or_else(|_| "0".repeat(64))
    }

    /// Brings the program. True: it was there already.
    fn program(&mut self, probe: &Probe) -> Result<bool, Report> {
        if probe.has(&self.push.own) {
            return Ok(true);
        }
        self.step(Step::Program);
        self.require_fit(probe)?;
        if let (Some(owner), Some((path, _))) = (&probe.owner, &probe.program) {
            let message =
                format!("cannot replace {path} on {}: it is older, and belongs to a package of {owner}", self.to.name);
            return Err(
                Report::of(Class::Conflict, message).hint("upgrade the package `sidle` on the host, then push again")
            );
        }
        if let (true, Some((path, _))) = (probe.is_elsewhere, &probe.program) {
            let name = &self.to.name;
            let message =
                format!("cannot bring the program to {name}: {path} is older, and would be found before {PROGRAM}");
            let hint = format!(
                "on the host, remove {path} with its files, or upgrade it as it was installed; then push again"
            );
            return Err(Report::of(Class::Conflict, message).hint(hint));
        }
        let program = self.push.programs.of(&probe.machine)?;
        let size = program.bytes.len() as u64;
        let needed = size.saturating_sub(probe.part_bytes).div_ceil(1024) + ROOM_KIB;
        if let Some(free) = probe.free_kib.filter(|free| *free < needed) {
            let message = format!(
                "cannot bring the program to {}: /usr/bin needs {needed} KiB, and {free} KiB are free",
                self.to.name
            );
            return Err(
                Report::of(Class::NoSpace, message).hint("free space there, then run the same `sidle push` again")
            );
        }
        if self.push.effect == Effect::DryRun {
            self.outcome.did.push(format!("would bring the program ({size} bytes) to {PROGRAM}"));
            return Ok(false);
        }
        self.bring(probe, program)?;
        self.outcome.did.push(format!("brought the program to {PROGRAM}"));
        Ok(false)
    }

    fn bring(&mut self, probe: &Probe, program: &StaticProgram) -> Result<(), Report> {
        let attempted = format!("bring the program to {}", self.to.name);
        let digest = program.digest.to_string();
        let part = probe::part(&digest);
        let is_of_this = part == probe::part(&self.part_digest());
        let there = usize::try_from(probe.part_bytes).unwrap_or(usize::MAX);
        // More bytes than there are, or bytes that nobody has counted, are not the beginning of these.
        let (rest, into) = match program.bytes.get(there..) {
            Some(rest) if is_of_this && there > 0 => (rest, ">>"),
            Some(_) | None => (&program.bytes[..], ">"),
        };
        let script = format!("umask 077; exec cat {into}{part}");
        let ended = self.run(&attempted, &["sh", "-c", &script], rest)?;
        ended.require_success(&attempted)?;
        let script = files::script(&part, &digest);
        self.run(&attempted, &["sh", "-s"], script.as_bytes())?.require_success(&attempted)
    }

    /// Runs a command of the release.
    fn call(&mut self, path: &str, call: &Call) -> Result<(), Report> {
        self.step(Step::Call);
        let attempted = format!("run {} on {}", call.command, self.to.name);
        if self.push.effect == Effect::DryRun {
            self.outcome.did.push(format!("would run {} {}", call.command, call.arguments.join(" ")));
            return Ok(());
        }
        self.run(&attempted, &["sh", "-s"], call.prepare.as_bytes())?.require_success(&attempted)?;
        let release = self.outcome.release.clone().unwrap_or_default();
        let package = self.push.package.to_string();
        let mut words = vec!["env"];
        words.extend(call.variables.iter().map(String::as_str));
        words.extend([path, "run", &package, "--release", &release, &call.command, "--"]);
        words.extend(call.arguments.iter().map(String::as_str));
        let ended = self.run(&attempted, &words, b"")?;
        self.outcome.output = Some(String::from_utf8_lossy(&ended.output).into_owned());
        let failed = ended.require_success(&attempted);
        if ended.end.code == Some(BROKEN) {
            return failed;
        }
        failed.map_err(|report| {
            report.hint("read what it printed; the release stays installed, and no minion was started")
        })
    }

    fn sent(&mut self, count: u64) {
        self.outcome.bytes_sent = self.outcome.bytes_sent.saturating_add(count);
        (self.tell)(Event { host: self.number, step: self.outcome.step, bytes_sent: self.outcome.bytes_sent });
    }

    fn session(&self, words: &[&str]) -> Result<Program, Report> {
        self.push.ssh.next(self.to, &self.socket, &line(self.to, words))
    }

    /// Runs a command on the host with this input.
    fn run(&mut self, attempted: &str, words: &[&str], input: &[u8]) -> Result<Ended, Report> {
        let mut dialogue = self.session(words)?.converse(self.time)?;
        // A reader that has gone says why by its exit code.
        let said = dialogue.say(input, OUTPUT_BYTES_MAXIMUM, &mut |count| self.sent(count)).and_then(|_| {
            dialogue.close_input();
            dialogue.rest(OUTPUT_BYTES_MAXIMUM)
        });
        let output =
            said.map_err(|error| self.broken(attempted, &error, self.time.silence, &dialogue.stderr_tail()))?;
        Ok(Ended { output, end: self.end(attempted, dialogue)? })
    }

    /// Waits for the end of a command that has answered.
    fn end(&self, attempted: &str, dialogue: Dialogue) -> Result<End, Report> {
        let errors = dialogue.stderr_tail();
        dialogue.end().map_err(|error| match error.kind() {
            ErrorKind::TimedOut if !self.time.is_over() => complaint::of_endless(attempted, self.time.silence, &errors),
            _ => self.broken(attempted, &error, self.time.silence, &errors),
        })
    }

    /// The report of a conversation that failed.
    fn broken(&self, attempted: &str, error: &OsError, silence: Duration, errors: &str) -> Report {
        if error.kind() == ErrorKind::TimedOut && self.time.is_over() {
            return complaint::of_total(attempted, self.push.total, errors);
        }
        complaint::of_broken(attempted, error, silence, errors)
    }
}

impl Ended {
    fn require_success(&self, attempted: &str) -> Result<(), Report> {
        if self.end.code == Some(0) { Ok(()) } else { Err(report(attempted, self.end.code, &self.end.errors)) }
    }
}
