//! Adoption: takes over an agent that sidle did not start, and gives it back.

use super::control::SwitchCommand;
use super::intent::Intent;
use super::{HEALTH_INTERVAL, Supervisor};
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::process::Identity;
use crate::store::Store;
use crate::switch::Adopted;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::{Frozen, Look, Processes, described};
use std::time::Duration;

/// How often the supervisor checks whether an agent to be given back is idle.
const UNADOPT_INTERVAL: Duration = Duration::from_millis(250);

/// Finds the process that a live adoption takes over from.
pub(super) fn recognise(files: &InstanceFiles, store: &Store, processes: &mut Processes) -> Result<(), Report> {
    // The driver reports an unreadable journal.
    let Some(live) = files.journal().ok().and_then(|journal| journal.live) else { return Ok(()) };
    let Some(adopted) = &live.adopted else { return Ok(()) };
    let settings = processes.settings(&store.head(&live.request.to)?);
    Ok(processes.recognise(adopted, settings)?)
}

impl Supervisor {
    pub(super) fn adopt(&mut self, command: SwitchCommand, adopted: Adopted, now: Moment) -> Result<u64, Report> {
        let settings = self.processes.settings(&self.driver.store().head(&command.request.to)?);
        self.processes.recognise(&adopted, settings)?;
        let begun = self.begin(command, Some(adopted), now);
        if begun.is_err() && self.driver.journal().live.is_none() {
            self.processes.forget_foreign()?;
        }
        begun
    }

    /// Remembers to give the agent back to the command `asker`, which starts the package's; returns the number of the last switch.
    pub(super) fn unadopt(&mut self, patience: Duration, asker: Option<Identity>, now: Moment) -> Result<u64, Report> {
        if let Some(live) = &self.driver.journal().live {
            return Err(Report::of(
                Class::Conflict,
                format!("cannot unadopt {}: switch {} is {}", live.instance, live.id, live.phase),
            )
            .hint("wait for that switch (`sidle status` shows it), or end it with `sidle cancel`"));
        }
        self.unadoption.begin(now.since_boot.saturating_add(patience), asker);
        Ok(self.driver.journal().last_id)
    }

    /// Gives the agent back once it is idle; returns the time until the next check.
    pub(super) fn give_back(&mut self, now: Moment) -> Duration {
        let journal = self.driver.journal();
        let due = self.unadoption.is_due(journal.live.is_some(), now.since_boot);
        if !due {
            return HEALTH_INTERVAL;
        }
        let is_idle = match journal.clone().serving_process() {
            None => true,
            Some(which) => match self.processes.activity(which).map(|activity| described(&activity)) {
                Some(Some(_)) => false,
                Some(None) => matches!(self.processes.freeze(which, Look::Alone), Ok(Frozen::Idle)),
                None => true,
            },
        };
        if !is_idle {
            return UNADOPT_INTERVAL;
        }
        self.carry_out([Intent::Unadopt], now);
        if !self.unadoption.is_wanted() {
            return Duration::ZERO;
        }
        // Where the journal could not be written, the agent works on until it can.
        let serving = self.driver.journal().serving_process();
        if let Some(Err(error)) = serving.map(|which| self.processes.thaw(which)) {
            self.troubled(error.to_string());
        }
        UNADOPT_INTERVAL
    }

    /// Writes the end of the adoption into the journal; the next turn ends the process.
    pub(super) fn unadopt_now(&mut self, now: Moment) {
        match self.driver.release(now) {
            Ok(()) => self.unadoption = Unadoption::default(),
            Err(error) => self.troubled(error.to_string()),
        }
    }
}

/// A request to give the agent back, its deadline, and the command that waits for it.
#[derive(Debug, Clone, Default)]
pub struct Unadoption {
    until: Option<Duration>,
    asker: Option<Identity>,
}

impl Unadoption {
    /// Gives the agent back if it becomes idle before `until`, and while `asker` lives: nobody else would start the package's agent.
    pub fn begin(&mut self, until: Duration, asker: Option<Identity>) {
        (self.until, self.asker) = (Some(until), asker);
    }

    /// True while the agent has not been given back.
    fn is_wanted(&self) -> bool {
        self.until.is_some()
    }

    /// True if the agent has to be given back as soon as it is idle. A switch, the deadline, or the end of who asked ends the request.
    pub fn is_due(&mut self, is_switching: bool, now: Duration) -> bool {
        let is_asked = self.asker.as_ref().is_none_or(|asker| asker.is_alive().unwrap_or(true));
        self.until = self.until.filter(|until| !is_switching && is_asked && now < *until);
        self.until.is_some()
    }
}
