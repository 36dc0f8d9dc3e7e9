//! Follows a switch in its journal, which needs no socket, and shows its result.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::cli::output::Output;
use crate::cli::{Ended, missed};
use crate::failure::{Class, Report};
use crate::os::{clock, environment, proc_fs};
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::{INSTANCE_VARIABLE, LEADER_VARIABLE, ROOT_VARIABLE};
use crate::switch::{Entry, Journal, Mode, Phase, Purpose, Switch};
use crate::version::Release;
use serde_json::json;
use std::ffi::OsStr;
use std::time::Duration;

/// True if this command runs in a job of the instance's agent. The switch waits for that job, so the job must not wait for the switch.
fn is_within(files: &InstanceFiles) -> Result<bool, Report> {
    let status = SupervisorStatus::read(files.layout(), files.instance())?;
    let running = status.and_then(|status| status.agent).map(|agent| agent.leader.pid);
    // A job inherits its agent's variables. So does a daemon that a job has left behind, but it does not descend from the agent.
    let own = |name: &str, expected: &OsStr| environment::variable(name).is_some_and(|value| value == expected);
    let ours = own(INSTANCE_VARIABLE, files.instance().as_str().as_ref())
        && own(ROOT_VARIABLE, files.layout().root().as_os_str());
    let inherited = environment::variable(LEADER_VARIABLE).filter(|_| ours);
    let inherited = inherited.and_then(|pid| pid.to_str()?.parse().ok());
    let leaders: Vec<u32> = running.into_iter().chain(inherited).collect();
    Ok(proc_fs::is_below(&leaders)?)
}

/// Why a job of the agent has to stop following a live switch; None: it may follow.
fn waits_for_us(live: &Switch) -> Option<&'static str> {
    let busy =
        matches!(live.phase, Phase::Scheduled | Phase::Checking | Phase::Rehearsing | Phase::Waiting | Phase::Freezing);
    match live.mode {
        Mode::Idle if live.from.is_some() && busy => Some("it begins when no job runs, so this job has to end first"),
        Mode::Overlap if live.phase == Phase::FinishingOld => {
            Some("the new release is current, and the old process ends after its jobs, including this job")
        }
        Mode::Idle | Mode::Overlap | Mode::Now => None,
    }
}

/// How long a job of the old process still waits after the commit, when the new process sends its start event. A master's reactor to that event
/// (an action chain's `resume`) has to find the state from before the switch, not what this job writes next.
const START_EVENT_SETTLES: Duration = Duration::from_secs(5);
/// How often a command reads the journal while it follows a switch.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// How long a command waits for a supervisor that has ended to start again.
const SUPERVISOR_GONE: Duration = Duration::from_secs(10);
/// How long the status of a supervisor may lag behind its journal.
const STATUS_WAIT: Duration = Duration::from_secs(2);
const STATUS_INTERVAL: Duration = Duration::from_millis(10);

/// Follows a switch to its end and prints each step.
pub(in crate::cli) fn follow(files: &InstanceFiles, id: u64, output: &Output) -> Result<Ended, Report> {
    let mut printed = String::new();
    let mut seen = clock::since_boot();
    let mut committed = None;
    let within = is_within(files)?;
    loop {
        let journal = files.journal()?;
        match journal.live.as_ref().filter(|live| live.id == id) {
            Some(live) => {
                let words = words(live);
                if words != printed {
                    output.step(&words);
                    printed = words;
                }
                let now = clock::since_boot();
                let since = live.phase.is_committed().then(|| *committed.get_or_insert(now));
                let is_settled = since.is_none_or(|since| now.saturating_sub(since) >= START_EVENT_SETTLES);
                if let Some(why) = waits_for_us(live).filter(|_| within && is_settled) {
                    let instance = files.instance();
                    output.result(
                        format!("switch {id} continues without this command, which runs in a job of {instance}: {why}"),
                        json!({"switch": id, "pending": true, "within_own_job": true}),
                    );
                    return Ok(if live.phase.is_committed() { Ended::Well } else { Ended::As(Class::Pending) });
                }
            }
            None => {
                if let Some(entry) = files.history()?.find(id) {
                    shown(files, &journal)?;
                    return Ok(concluded(files, entry, &journal, output));
                }
            }
        }
        // The supervisor holds the lock while it lives.
        match files.try_drive()? {
            None => seen = clock::since_boot(),
            Some(_) if clock::since_boot().saturating_sub(seen) > SUPERVISOR_GONE => {
                output.result(
                    format!("switch {id} is not finished: its supervisor has ended; it continues when `sidle supervise {}` starts", files.instance()),
                    json!({"switch": id, "pending": true}),
                );
                return Ok(Ended::As(Class::Pending));
            }
            Some(_) => {}
        }
        clock::sleep(FOLLOW_INTERVAL);
    }
}

/// Waits until the status file shows the result of a switch, so that the next `sidle status` does not show the state before it.
fn shown(files: &InstanceFiles, journal: &Journal) -> Result<(), Report> {
    let give_up_at = clock::since_boot() + STATUS_WAIT;
    while let Some(proven) = journal.proven.as_ref().filter(|_| clock::since_boot() < give_up_at) {
        let Some(status) = SupervisorStatus::read(files.layout(), files.instance())? else { break };
        if status.agent.is_some_and(|agent| agent.release.as_ref() == Some(proven)) {
            break;
        }
        clock::sleep(STATUS_INTERVAL);
    }
    Ok(())
}

/// Describes a live switch in one line.
pub(in crate::cli) fn words(live: &Switch) -> String {
    let scheduled = live.schedule.as_ref().filter(|_| live.phase == Phase::Scheduled).map(ToString::to_string);
    let waiting = scheduled.as_ref().or(live.waiting_for.as_ref());
    let waits = waiting.map_or_else(String::new, |waiting| format!(" ({waiting})"));
    format!("{} to {}: {}{waits}", live.request.purpose, live.request.to, live.phase.doing())
}

/// What was not done in time, before anything was stopped.
fn late(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(Phase::Scheduled) => "the maintenance window closed before the switch began",
        Some(Phase::Checking) => "the files were not checked in time",
        Some(Phase::Rehearsing) => "the rehearsal did not end in time",
        Some(Phase::Freezing) => "the old process did not freeze in time",
        Some(Phase::Waiting) => "still busy at the deadline",
        Some(
            Phase::Stopping
            | Phase::Starting
            | Phase::Proving
            | Phase::Handing
            | Phase::Probation
            | Phase::Flipping
            | Phase::FinishingOld
            | Phase::Committed
            | Phase::DrainingNew
            | Phase::StoppingNew
            | Phase::StartingOld
            | Phase::ProvingOld
            | Phase::Stranded
            | Phase::RolledBack
            | Phase::Refused
            | Phase::Cancelled
            | Phase::Expired
            | Phase::Abandoned,
        )
        | None => "the time was over",
    }
}

fn concluded(files: &InstanceFiles, entry: &Entry, journal: &Journal, output: &Output) -> Ended {
    let downtime = Duration::from_millis(entry.downtime_milliseconds);
    let why = entry.failure.as_ref().map_or_else(String::new, |failure| format!(": {}", failure.text));
    let now = journal.proven.as_ref().map_or_else(|| "none".to_owned(), Release::to_string);
    let (text, class) = match entry.result {
        Phase::Committed => {
            let done = match entry.request.purpose {
                Purpose::Switch => "switched to",
                Purpose::Restart => "restarted",
                Purpose::Rollback => "rolled back to",
            };
            (format!("{done} {}; downtime {:.1} s", entry.request.to, downtime.as_secs_f64()), None)
        }
        Phase::RolledBack => (
            format!(
                "rolled back from {}{why}; current is {now}; downtime {:.1} s",
                entry.request.to,
                downtime.as_secs_f64()
            ),
            Some(Class::RolledBack),
        ),
        Phase::Expired => {
            let late = late(entry.failure.as_ref().map(|failure| failure.phase));
            (format!("expired: {late}, nothing was changed{why}; current is {now}"), Some(Class::Busy))
        }
        Phase::Cancelled => (format!("cancelled, nothing was changed; current is {now}"), Some(Class::Failed)),
        Phase::Abandoned => (format!("abandoned{why}; current is {now}"), Some(Class::Failed)),
        Phase::Refused => (format!("refused, nothing was changed{why}; current is {now}"), Some(Class::Failed)),
        // The history has ended switches alone.
        Phase::Scheduled
        | Phase::Checking
        | Phase::Rehearsing
        | Phase::Waiting
        | Phase::Freezing
        | Phase::Stopping
        | Phase::Starting
        | Phase::Proving
        | Phase::Handing
        | Phase::Probation
        | Phase::Flipping
        | Phase::FinishingOld
        | Phase::DrainingNew
        | Phase::StoppingNew
        | Phase::StartingOld
        | Phase::ProvingOld
        | Phase::Stranded => {
            (format!("ended while {}{why}; current is {now}", entry.result.doing()), Some(Class::Failed))
        }
    };
    let notes = entry.notes.iter().map(|note| format!("note: {note}"));
    let mut value = json!(entry);
    if let Some(command) = missed::command_of(files, entry) {
        value["missed"] = json!(command);
    }
    let hint = missed::hint(files, entry);
    output.result(std::iter::once(text).chain(hint).chain(notes).collect::<Vec<_>>(), value);
    class.map_or(Ended::Well, Ended::As)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a switch that waited for jobs was busy; each phase that may expire says what was late.
    #[test]
    fn what_was_not_done_in_time_is_named() {
        let expiring = Phase::ALL.iter().filter(|phase| phase.is_before_stop());
        let mut words: Vec<&str> = expiring.map(|phase| late(Some(*phase))).collect();
        assert!(!words.contains(&late(None)), "{words:?}");
        assert_eq!(
            (late(Some(Phase::Waiting)), late(Some(Phase::Rehearsing))),
            ("still busy at the deadline", "the rehearsal did not end in time")
        );
        let all = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), all, "{words:?}");
    }
}
