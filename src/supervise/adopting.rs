//! Taking an agent over that sidle did not start, and giving it back.

use super::control::Wish;
use super::{HEALTH_INTERVAL, Supervisor};
use crate::failure::{Class, Report};
use crate::store::Store;
use crate::switch::Adopted;
use crate::switch::driver::Moment;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::{Frozen, Look, Processes, described};
use std::time::Duration;

/// How often an agent that is to be given back is looked at.
const UNADOPT_INTERVAL: Duration = Duration::from_millis(250);

/// Finds the process again that a live adoption takes over from.
pub(super) fn recognise(files: &InstanceFiles, store: &Store, processes: &mut Processes) -> Result<(), Report> {
    // One that can't be read is the driver's to tell of.
    let Some(live) = files.journal().ok().and_then(|journal| journal.live) else { return Ok(()) };
    let Some(adopted) = &live.adopted else { return Ok(()) };
    let configuration = processes.configuration(&store.manifest(&live.to)?);
    Ok(processes.recognise(adopted, &configuration)?)
}

impl Supervisor {
    pub(super) fn adopt(&mut self, wish: Wish, adopted: Adopted, now: Moment) -> Result<u64, Report> {
        let configuration = self.processes.configuration(&self.driver.store().manifest(&wish.to)?);
        self.processes.recognise(&adopted, &configuration)?;
        let begun = self.begin(wish, Some(adopted), now);
        if begun.is_err() && self.driver.journal().live.is_none() {
            self.processes.forget_foreign()?;
        }
        begun
    }

    /// Remembers that the agent is to be given back; gives the number of the last switch.
    pub(super) fn unadopt(&mut self, patience: Duration, now: Moment) -> Result<u64, Report> {
        if let Some(live) = &self.driver.journal().live {
            return Err(Report {
                class: Class::Conflict,
                message: format!("cannot release {}: switch {} is {}", live.instance, live.id, live.phase),
                causes: Vec::new(),
                hint: Some("wait for it, see `sidle status`, or cancel it".to_owned()),
            });
        }
        self.unadopting = Some(now.since_boot.saturating_add(patience));
        Ok(self.driver.journal().last_id)
    }

    /// Ends the agent if it is idle. What is not meant to run is ended at the next turn: first the journal, then the act.
    pub(super) fn give_back(&mut self, now: Moment) -> Duration {
        let Some(until) = self.unadopting else { return HEALTH_INTERVAL };
        let journal = self.driver.journal().clone();
        if journal.live.is_some() || now.since_boot >= until {
            self.unadopting = None;
            return HEALTH_INTERVAL;
        }
        let idle = match journal.meant_which() {
            None => true,
            Some(which) => match self.processes.activity(which).map(|activity| described(&activity)) {
                Some(Some(_)) => false,
                Some(None) => matches!(self.processes.freeze(which, Look::Alone), Ok(Frozen::Idle)),
                None => true,
            },
        };
        if !idle {
            return UNADOPT_INTERVAL;
        }
        match self.driver.release(now) {
            Ok(()) => self.unadopting = None,
            Err(error) => self.troubled(error.to_string()),
        }
        Duration::ZERO
    }
}
