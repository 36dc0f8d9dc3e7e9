//! Sends a request to the supervisor, or takes its lock if there is no supervisor.

use super::Context;
use crate::failure::{Class, Report};
use crate::os::clock;
use crate::supervise::control::{Answer, Request, ask};
use crate::switch::files::{DriverLock, InstanceFiles};
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

/// Asks the supervisor. A starting supervisor takes its lock a moment before it listens, so this waits for it.
pub(super) fn reach(context: &Context, files: &InstanceFiles, request: &Request) -> Result<Reached, Report> {
    let began = clock::since_boot();
    loop {
        if let Some(answer) = ask(&context.layout, files.instance(), request)? {
            return Ok(Reached::Supervisor(answer));
        }
        if let Some(lock) = files.try_drive()? {
            return Ok(Reached::Nobody(lock));
        }
        if clock::since_boot().saturating_sub(began) >= STARTING_WAIT {
            return Err(Report::of(
                Class::Locked,
                format!("cannot ask the supervisor of {}: it does not answer", files.instance()),
            )
            .hint("the supervisor may be starting or ending: try again"));
        }
        clock::sleep(STARTING_INTERVAL);
    }
}

/// The same, and waits while a committed switch ends: it makes room for the next switch within seconds.
pub(super) fn reach_after_a_commit(
    context: &Context,
    files: &InstanceFiles,
    request: &Request,
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
