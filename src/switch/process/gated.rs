//! The gate, for each process: its guard's report, its role, and whether it works as the user who owns the gate's files.

use crate::agent::gate::{GuardReport, Roles};
use crate::os::{OsError, account, process};
use crate::switch::gate::roles::Guarded;
use crate::switch::journal::kind::ProcessKind;
use crate::switch::process::Processes;
use crate::switch::process::running::Running;

impl Processes {
    /// Why a new process cannot run beside this one: it would work as another user, to whom the files of the gate belong from then on.
    pub fn other_user(&self, which: ProcessKind<'_>) -> Option<String> {
        let running = self.usable(which)?;
        let (present, next) = (self.gate.owner()?, running.agent.as_ref().ok()?.user()?);
        let differs = process::user_number(&next).is_some_and(|next| next != present);
        differs.then(|| format!("it works as {}, and the configuration names {next}", account::user_name(present)))
    }

    /// The process for the roles; None: it has no guard.
    pub fn guarded(&self, which: ProcessKind<'_>) -> Option<Guarded> {
        let running = self.usable(which).filter(|running| running.guarded)?;
        Some(Guarded { leader: running.record.leader.pid, origin: running.record.origin })
    }

    /// Says that the file system of the gate is full, so that guards cannot report.
    pub fn no_room(&self) -> Option<String> {
        self.gate.no_room()
    }

    /// The report of a process's guard, if there is any.
    pub fn report(&self, which: ProcessKind<'_>) -> Option<GuardReport> {
        let running = self.usable(which)?;
        self.gate.report(running.record.leader.pid).filter(|_| running.guarded)
    }

    /// Writes the roles; returns the serial number that the guards have to follow.
    pub fn assign(&mut self, roles: &Roles) -> Result<u64, OsError> {
        let mut running = self.running.iter_mut().filter(|running| running.guarded && running.leads());
        // Asked anew: an earlier supervisor may have started them.
        self.gate.publish(roles, || running.find_map(Running::user))
    }
}
