//! Chooses the mode of a switch: overlap, unless an obstacle prevents it.

use super::Supervisor;
use super::control::{Answer, SwitchCommand};
use crate::agent::Answers;
use crate::agent::gate::PROTOCOL;
use crate::bundle::manifest::Head;
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::host;
use crate::store::check::Depth;
use crate::switch::process::{ProcessKind, Processes};
use crate::switch::{Mode, Purpose};

/// The mode, with a note for the person who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The mode.
    pub mode: Mode,
    /// Why the mode is not the requested or the usual one.
    pub note: Option<String>,
}

/// An obstacle to an overlap.
enum Obstacle {
    /// An overlap is impossible.
    Impossible(String),
    /// The host lacks memory now.
    Means(String),
}

/// Chooses the mode. `asked`: the requested mode; None: the cheapest possible. `running`: the process that serves now; `to`: the manifest of the
/// release on trial.
///
/// A restart of a process whose guard never reported, and which has no child processes, does not wait: its idleness could never be seen, and
/// there is nothing to lose.
pub fn choose(
    asked: Option<Mode>,
    purpose: Purpose,
    running: Option<ProcessKind<'_>>,
    processes: &Processes,
    to: &Head,
) -> Result<Choice, Report> {
    let mode = match asked {
        Some(mode @ (Mode::Idle | Mode::Now)) => return Ok(Choice { mode, note: None }),
        Some(Mode::Overlap) | None => Mode::Overlap,
    };
    // Without a running process there is no job to lose.
    if running.is_none_or(|running| processes.of(running).is_none()) {
        return Ok(Choice { mode: Mode::Idle, note: None });
    }
    let restarts = asked.is_none() && purpose == Purpose::Restart;
    if let Some(hung) = running.filter(|running| restarts && says_nothing(*running, processes)) {
        let note = format!(
            "the running {hung} is stopped at once: its guard has sent no report yet, and it has no job processes"
        );
        return Ok(Choice { mode: Mode::Now, note: Some(note) });
    }
    match obstacle(running, processes, to) {
        None => Ok(Choice { mode, note: None }),
        Some(Obstacle::Means(why)) => {
            Ok(Choice { mode: Mode::Idle, note: Some(format!("in mode idle instead of overlap: {why}")) })
        }
        Some(Obstacle::Impossible(why)) if asked.is_none() => {
            Ok(Choice { mode: Mode::Idle, note: Some(format!("in mode idle, since an overlap is impossible: {why}")) })
        }
        Some(Obstacle::Impossible(why)) => Err(Report::of(Class::Failed, format!("cannot overlap: {why}"))
            .hint("add `--mode idle`: it waits until no job runs; jobs published during the downtime are missed")),
    }
}

impl Supervisor {
    /// What a switch would come to; changes nothing.
    pub(super) fn dry_run(&self, command: SwitchCommand, if_changed: bool, now: Moment) -> Result<Answer, Report> {
        if if_changed {
            self.refuse_unchanged()?;
        }
        let manifest = self.driver.store().head(&command.request.to)?;
        let running = self.driver.journal().serving_process();
        let choice = choose(command.mode, command.request.purpose, running, &self.processes, &manifest)?;
        let to = &command.request.to;
        // A damaged release is repaired first, and asked then.
        if self.driver.store().check_without_index(to, Depth::Quick)?.1.is_empty() {
            self.processes.loads_configuration(&manifest, Answers::Read).map_err(|error| {
                let verb = if command.request.purpose == Purpose::Restart { "restart" } else { "switch to" };
                Report::of(Class::Failed, format!("cannot {verb} {to}"))
                    .because(error.message)
                    .hint("nothing was changed")
            })?;
        }
        let bad = command.bad_releases();
        let new = command.dry_run(choice.mode, choice.note.into_iter().collect(), now.wall)?;
        let expected = self.driver.dry_run(new, bad, now)?;
        Ok(Answer::Accepted { switch: expected.switch, expected: Some(Box::new(expected)) })
    }
}

/// True if the process has a guard without a report, and no child processes.
fn says_nothing(running: ProcessKind<'_>, processes: &Processes) -> bool {
    let silent = processes.guarded(running).is_some() && processes.report(running).is_none();
    silent && processes.below(running).is_ok_and(|count| count == 0)
}

fn obstacle(running: Option<ProcessKind<'_>>, processes: &Processes, to: &Head) -> Option<Obstacle> {
    let impossible = |why: String| Some(Obstacle::Impossible(why));
    let release = to.release();
    match &to.guard {
        None => return impossible(format!("{release} has no guard")),
        Some(guard) if guard.protocol != PROTOCOL => {
            return impossible(format!("the guard of {release} speaks protocol {}, not {PROTOCOL}", guard.protocol));
        }
        Some(guard) if !guard.is_tried_with(&to.version.to_string()) => {
            return impossible(format!(
                "the guard of {release} was tried with {} only, so jobs might run twice",
                guard.tried.join(", ")
            ));
        }
        Some(_) => {}
    }
    let running = running?;
    if processes.guarded(running).is_none() {
        return impossible(format!("the running {running} has no guard"));
    }
    if let Some(why) = processes.other_user(running) {
        return impossible(why);
    }
    match processes.report(running) {
        None => return impossible(format!("the guard of the running {running} has not reported yet")),
        Some(report) => {
            if let Some(why) = report.forbids_overlap() {
                return impossible(why);
            }
        }
    }
    lack_of_memory(to.space.overlap_memory_bytes, host::memory_available()).map(Obstacle::Means)
}

/// Why there is too little memory for two processes; free memory that nobody can tell is too little.
fn lack_of_memory(needed: u64, free: Option<u64>) -> Option<String> {
    let mebibytes = |bytes: u64| bytes / (1024 * 1024);
    let more = format!("two processes need {} MiB more", mebibytes(needed));
    match free {
        _ if needed == 0 => None,
        None => Some(format!("{more}, and /proc/meminfo or a control group does not tell how much is free")),
        Some(free) => (free < needed).then(|| format!("{more}, {} MiB are free", mebibytes(free))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_nobody_can_tell_is_too_little_for_an_overlap() {
        let mebibyte = 1024 * 1024;
        assert_eq!(lack_of_memory(2 * mebibyte, Some(2 * mebibyte)), None);
        let little = lack_of_memory(2 * mebibyte, Some(mebibyte)).unwrap();
        assert_eq!(little, "two processes need 2 MiB more, 1 MiB are free");
        assert!(lack_of_memory(2 * mebibyte, None).unwrap().contains("does not tell"));
        assert_eq!(lack_of_memory(0, None), None, "the release says nothing of its need");
    }
}
