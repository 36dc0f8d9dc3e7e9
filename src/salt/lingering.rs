//! A job's process that has returned, and only waits: 3007.17 keeps it for 30 s.
//!
//! A job's process removes its entry (`_prepare_return_pub`), fires its return at main over the event bus, and waits for main's answer
//! for `return_retry_timer_max × return_retry_tries` seconds (`_send_req_sync`). Main sends the return to the master, then answers on the
//! bus. In 3006.30 and 3008.5 the answer comes within 20 ms and the process ends; in 3007.17 it never comes (measured: 30.0 s; watch
//! `ps -o pid,stat,wchan:30,args --ppid MAIN` after `salt ID test.sleep 3`). "The entry is gone" alone proves nothing: the return may still
//! be on its way. So all of these must hold:
//! - the process has begun its job (its title says so: the title is set just before it writes its own entry) and has no entry;
//! - no entry has come or gone for [`QUIET`]: the bus and main take milliseconds, and so does a master that keeps up;
//! - main has a connection to a master's request server, and not one byte on it that the master's host has not acknowledged;
//! - the process waits for another thread (the one that reads the bus), and has no children: a job whose entry a person's
//!   `salt-call saltutil.running` removed sleeps, computes, or waits for a command instead.
//!
//! What is left: a main so busy, or a master so slow to answer the request before, that a return waits in main's memory for longer than
//! [`QUIET`]. That return is lost; the job is not. External returners run after the wait, in this process, which nobody ends.

use super::config::{Masters, MinionConfig};
use crate::agent::Need;
use crate::os::dir::Dir;
use crate::os::proc_fs::{self, Process, TcpConnection};
use crate::os::{OsError, clock};
use std::time::Duration;

/// How long the entries must have been at rest. From the removal of the entry to the master's acknowledgement takes about 20 ms.
pub const QUIET: Duration = Duration::from_secs(5);

/// What holds for all of a minion's jobs at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lingering {
    /// No entry has come or gone for [`QUIET`].
    pub quiet: bool,
    /// Every return that main was given has reached a master.
    pub delivered: bool,
}

impl Lingering {
    /// Looks at the directory of entries and at main's connections.
    pub fn read(config: &MinionConfig, entries: &Dir, connections: &[TcpConnection]) -> Result<Self, OsError> {
        let (seconds, nanoseconds) = entries.stat_self()?.mtime;
        let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        // A change in the future (the clock was set back) is not at rest: the process's own end is waited for.
        let rest = clock::now().as_nanosecond() - changed;
        let quiet = u128::try_from(rest).is_ok_and(|rest| rest >= QUIET.as_nanos());
        Ok(Self { quiet, delivered: delivered(config, connections) })
    }

    /// True when a job's process, begun and without an entry, has returned.
    pub fn has_returned(self, child: &Process) -> Result<bool, OsError> {
        if !self.quiet || !self.delivered || child.state != 'S' || proc_fs::age(child) < QUIET {
            return Ok(false);
        }
        // A kernel that doesn't tell what a process waits for tells "0".
        let waits = proc_fs::wait_channel(child.pid)?.is_none_or(|function| function.contains("futex"));
        Ok(waits && proc_fs::children(child.pid)?.is_empty())
    }
}

fn delivered(config: &MinionConfig, connections: &[TcpConnection]) -> bool {
    let Masters::Named(masters, need) = &config.masters else { return false };
    let reached = |port: u16| {
        let mut to_port =
            connections.iter().filter(|connection| connection.remote.port() == port && connection.established);
        to_port.clone().next().is_some() && to_port.all(|connection| connection.unacknowledged_bytes == 0)
    };
    match need {
        Need::All => masters.iter().all(|master| reached(master.request_port)),
        Need::Any => masters.iter().any(|master| reached(master.request_port)),
    }
}
