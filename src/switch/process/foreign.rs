//! The process that an adoption takes over from: sidle did not start it, and forgets it at the end of the switch.

use crate::agent::AgentSettings;
use crate::agent::gate::{GateRole, Origin, Roles, Slot};
use crate::os::process::{Identity, Input, SignalNumber};
use crate::os::{OsError, again, proc_fs, units};
use crate::switch::journal::kind::ProcessKind;
use crate::switch::journal::request::Adopted;
use crate::switch::process::Processes;
use crate::switch::process::running::Record;
use std::path::Path;
use std::process::Child;

impl Processes {
    /// Records the adopted process of the journal, if it is alive. `settings`: those of the release that takes over.
    pub fn recognise(&mut self, adopted: &Adopted, settings: AgentSettings) -> Result<(), OsError> {
        if self.records().any(|record| record.foreign.is_some()) || !adopted.leader.is_alive()? {
            return Ok(());
        }
        let record = Record::foreign(adopted.leader.clone(), Some(adopted.agent.clone()));
        // It has taken one while it ran, or was not asked to.
        let guarded = self.gate.report(adopted.leader.pid).is_some_and(|report| report.forbids_overlap().is_none());
        let running = self.observing(record, None, &adopted.agent, guarded, settings);
        self.running.push(running);
        self.save()
    }

    /// Ends an adopted agent whose working process was replaced: the new one has no guard and would run every job a second time.
    pub fn end_unguarded(&mut self) -> Result<(), OsError> {
        let Some(report) = self.report(ProcessKind::Foreign) else { return Ok(()) };
        let Some(leader) = self.of(ProcessKind::Foreign).map(|record| record.leader.pid) else { return Ok(()) };
        let main = Identity::of(report.pid)?;
        if main.is_some_and(|main| main.start_time == report.start_time) {
            return Ok(());
        }
        let below: Vec<u32> = proc_fs::children(leader)?.iter().map(|child| child.pid).collect();
        for pid in std::iter::once(leader).chain(below) {
            if let Some(identity) = Identity::of(pid)? {
                identity.signal(SignalNumber::KILL)?;
            }
        }
        Ok(())
    }

    /// Starts the adopted agent again, if it does not run: by its systemd unit, or by its command line as the user that it ran as.
    pub fn start_foreign(&mut self, adopted: &Adopted, settings: AgentSettings) -> Result<(), OsError> {
        if self.of(ProcessKind::Foreign).is_some() {
            return self.thaw(ProcessKind::Foreign);
        }
        if let Some(unit) = &adopted.unit {
            units::unmask_until_boot(unit)?;
            units::start(unit)?;
            if let Some(leader) = units::main_process(unit)?.map_or(Ok(None), Identity::of)? {
                self.take_unguarded(leader, None, adopted, settings)?;
            }
            return Ok(());
        }
        let start = again::program(&adopted.command, adopted.rights.as_ref()).map_err(|why| {
            let command = adopted.command.join(" ");
            OsError::new("start", Path::new(&command), std::io::Error::other(why))
        })?;
        let child = start.start(Input::Null)?;
        match Identity::of(child.id())? {
            Some(leader) => self.take_unguarded(leader, Some(child), adopted, settings),
            None => Ok(()),
        }
    }

    /// Records an adopted agent that was started again: it has no guard, and runs alone.
    fn take_unguarded(
        &mut self,
        leader: Identity,
        child: Option<Child>,
        adopted: &Adopted,
        settings: AgentSettings,
    ) -> Result<(), OsError> {
        let record = Record::foreign(leader, Some(adopted.agent.clone()));
        let running = self.observing(record, child, &adopted.agent, false, settings);
        self.running.push(running);
        self.save()
    }

    /// Forgets the adopted process at the end of the switch: from now on it belongs to the host.
    pub fn forget_foreign(&mut self) -> Result<(), OsError> {
        if let Some(leader) = self.of(ProcessKind::Foreign).map(|record| record.leader.pid) {
            // It runs alone from now on, so it takes all jobs.
            let slot = Slot { leader, role: GateRole::Active, origin: Origin::Boot };
            self.assign(&Roles { slots: vec![slot], announce: Some(leader), prove: 0, prover: None })?;
        }
        self.running.retain(|running| running.record.foreign.is_none());
        self.save()
    }
}
