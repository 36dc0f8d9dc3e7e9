//! A job's process that has returned and only waits: 3007.17 keeps it for 30 s.
//!
//! The process removes its entry (`_prepare_return_pub`), fires its return at main over the event bus, and waits for main's answer
//! (`_send_req_sync`). In 3006.30 and 3008.5 the answer comes within 20 ms; in 3007.17 it never comes (measured: 30.0 s; `ps -o
//! pid,stat,wchan:30,args --ppid MAIN` after `salt ID test.sleep 3`). A return may be under way though the entry is gone, so all must hold:
//! - the process has begun its job (the title is set just before it writes its entry) and has no entry;
//! - no entry has come or gone for [`QUIET`]: the bus, main and a master that keeps up take milliseconds;
//! - main has a connection to a master's request server, and no unacknowledged byte on it;
//! - the process waits for the thread that reads the bus, and has no children: a job whose entry `salt-call saltutil.running` removed sleeps,
//!   computes, or waits for a command instead.
//!
//! A main or a master so busy that a return waits in main's memory for longer than [`QUIET`] loses that return; the job is not lost.

use super::options::{Masters, MinionConfig};
use crate::agent::Need;
use crate::os::dir::Dir;
use crate::os::proc_fs::{self, Process};
use crate::os::tcp::TcpConnection;
use crate::os::{OsError, clock};
use std::time::Duration;

/// How long the entries must have been at rest. From the removal of the entry to the master's acknowledgement takes about 20 ms.
pub const QUIET: Duration = Duration::from_secs(5);

/// What holds for all jobs of a minion at one look.
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
