//! Sends a request to the supervisor, or takes its lock if there is no supervisor.

use super::Context;
use crate::failure::{Class, Report};
use crate::os::{clock, lock};
use crate::supervise::control::{Answer, Command, ask};
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::time::Duration;

/// How long a supervisor that holds its lock may take to listen.
const STARTING_WAIT: Duration = Duration::from_secs(10);
const STARTING_INTERVAL: Duration = Duration::from_millis(50);
/// How long a new request waits for a committed switch to make room.
const COMMITTED_WAIT: Duration = Duration::from_secs(10);

/// Who carries out a request.
pub(super) enum Reached {
    /// The supervisor, with its answer.
    Supervisor(Answer),
    /// No supervisor runs, and no supervisor starts while this lock is held.
    Nobody(DriverLock),
}

/// Asks the supervisor. One that starts just now has its lock a moment before it listens: it is waited for.
pub(super) fn reach(context: &Context, files: &InstanceFiles, request: &Command) -> Result<Reached, Report> {
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

/// The same, and waits while a committed switch ends: it makes room for the next switch within seconds.
pub(super) fn reach_after_a_commit(
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
