//! In which mode a switch is done: overlap where nothing stands against it, and what is said where something does.

use crate::agent::gate::PROTOCOL;
use crate::bundle::manifest::Manifest;
use crate::failure::{Class, Report};
use crate::os::host;
use crate::switch::process::{ProcessKind, Processes};
use crate::switch::{Mode, Purpose};

/// The mode, and what whoever asked should know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// How it is done.
    pub mode: Mode,
    /// Why not as it was asked for, or as it is usual.
    pub note: Option<String>,
}

/// What stands against an overlap.
enum Obstacle {
    /// It can't be done at all.
    Impossible(String),
    /// The host hasn't the means just now.
    Means(String),
}

/// Chooses. `asked`: the mode that was asked for; None: whatever costs least. `running`: the process that serves now; `to`: the manifest of the
/// release that is to serve.
///
/// A restart of a process that never said anything, and below which nothing runs, waits for nothing: it will not become idle in a way that
/// could be seen, and there is nothing to lose.
pub fn choose(
    asked: Option<Mode>,
    purpose: Purpose,
    running: Option<ProcessKind<'_>>,
    processes: &Processes,
    to: &Manifest,
) -> Result<Choice, Report> {
    let mode = match asked {
        Some(mode @ (Mode::Idle | Mode::Now)) => return Ok(Choice { mode, note: None }),
        Some(Mode::Overlap) | None => Mode::Overlap,
    };
    // Nobody is there to lose anything.
    if running.is_none_or(|running| processes.of(running).is_none()) {
        return Ok(Choice { mode: Mode::Idle, note: None });
    }
    let restarts = asked.is_none() && purpose == Purpose::Restart;
    if let Some(hung) = running.filter(|running| restarts && says_nothing(*running, processes)) {
        let note =
            format!("the running {hung} does not wait: its guard has said nothing yet, and no job runs below it");
        return Ok(Choice { mode: Mode::Now, note: Some(note) });
    }
    match obstacle(running, processes, to) {
        None => Ok(Choice { mode, note: None }),
        Some(Obstacle::Means(why)) => {
            Ok(Choice { mode: Mode::Idle, note: Some(format!("done when idle instead of in overlap: {why}")) })
        }
        Some(Obstacle::Impossible(why)) if asked.is_none() => {
            Ok(Choice { mode: Mode::Idle, note: Some(format!("done when idle, since it can't overlap: {why}")) })
        }
        Some(Obstacle::Impossible(why)) => Err(Report::of(Class::Failed, format!("cannot overlap: {why}"))
            .hint("add `--mode idle`: it waits until no job runs; what is published during the change is missed")),
    }
}

/// A process with a guard that has not reported, and with nothing below it but itself.
fn says_nothing(running: ProcessKind<'_>, processes: &Processes) -> bool {
    let silent = processes.guarded(running).is_some() && processes.report(running).is_none();
    silent && processes.below(running).is_ok_and(|count| count == 0)
}

fn obstacle(running: Option<ProcessKind<'_>>, processes: &Processes, to: &Manifest) -> Option<Obstacle> {
    let impossible = |why: String| Some(Obstacle::Impossible(why));
    let release = to.release();
    match &to.guard {
        None => return impossible(format!("{release} has no guard")),
        Some(guard) if guard.protocol != PROTOCOL => {
            return impossible(format!("the guard of {release} speaks protocol {}, not {PROTOCOL}", guard.protocol));
        }
        Some(guard) if !guard.is_tried_with(&to.version.to_string()) => {
            return impossible(format!(
                "the guard of {release} was tried with {} only, so nobody knows whether it keeps jobs from running twice",
                guard.tried.join(", ")
            ));
        }
        Some(_) => {}
    }
    let running = running?;
    if processes.guarded(running).is_none() {
        return impossible(format!("the running {running} has no guard"));
    }
    match processes.report(running) {
        None => return impossible(format!("the guard of the running {running} has not reported yet")),
        Some(report) => {
            if let Some(why) = report.forbids_overlap() {
                return impossible(why);
            }
        }
    }
    let needed = to.space.overlap_memory_bytes;
    let free = host::memory_available()?;
    let mebibytes = |bytes: u64| bytes / (1024 * 1024);
    (free < needed).then(|| {
        Obstacle::Means(format!("two processes need {} MiB more, {} MiB are free", mebibytes(needed), mebibytes(free)))
    })
}
