//! Sends a command to the supervisor, or takes the driver lock if no supervisor runs.

use crate::cli::Context;
use crate::failure::{Class, Report};
use crate::os::{clock, lock};
use crate::supervise::control::{Answer, Command, ask};
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a command waits for a supervisor that holds the lock and does not listen yet.
const STARTING_WAIT: Duration = Duration::from_secs(10);
const STARTING_INTERVAL: Duration = Duration::from_millis(50);
/// How long a command waits for the end of a committed switch.
const COMMITTED_WAIT: Duration = Duration::from_secs(10);

/// The result of [`reach`].
pub(in crate::cli) enum Reached {
    /// The supervisor's answer.
    Supervisor(Answer),
    /// No supervisor; none can start while this lock is held.
    Nobody(DriverLock),
}

/// Sends a command to the supervisor; waits for a supervisor that is just starting.
pub(in crate::cli) fn reach(context: &Context, files: &InstanceFiles, request: &Command) -> Result<Reached, Report> {
    let reached = lock::wait(STARTING_WAIT, || {
        let answer = ask(&context.layout, files.instance(), request)?;
        Ok::<_, Report>(match answer {
            Some(answer) => Some(Reached::Supervisor(answer)),
            None => files.try_drive()?.map(Reached::Nobody),
        })
    })?;
    let silent = || format!("cannot ask the supervisor of {}: it does not answer", files.instance());
    reached.ok_or_else(|| Report::of(Class::Locked, silent()).hint("it may be starting or ending just now: try again"))
}

/// Like [`reach`], but waits for the end of a committed switch, which only has to end its old process.
pub(in crate::cli) fn reach_after_a_commit(
    context: &Context,
    files: &InstanceFiles,
    request: &Command,
) -> Result<Reached, Report> {
    let began = clock::since_boot();
    loop {
        let reached = reach(context, files, request)?;
        let conflicts =
            matches!(&reached, Reached::Supervisor(Answer::Refused(report)) if report.class == Class::Conflict);
        let committed = || Ok::<_, Report>(files.journal()?.live.is_none_or(|live| live.phase.is_committed()));
        if !conflicts || clock::since_boot().saturating_sub(began) >= COMMITTED_WAIT || !committed()? {
            return Ok(reached);
        }
        clock::sleep(STARTING_INTERVAL);
    }
}
