//! A restart only for a changed configuration: what service managers and configuration management ask for, whether something changed or not.

use super::Supervisor;
use super::control::Wish;
use crate::agent::AgentSettings;
use crate::failure::{Class, Report};
use crate::loaded;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::switch::Purpose;
use crate::switch::drive::Moment;
use crate::switch::which::Which;

/// The mark of a wish that waits for the live switch's end: its process may have loaded what was there before.
const TAKE_UP_NAME: &str = "take-up";

/// Whether the running process is to be compared with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeUp {
    NotWanted,
    AfterTheSwitch,
}

impl TakeUp {
    /// What was left to do.
    pub(super) fn read(directory: &Dir) -> Result<Self, OsError> {
        let marked = directory.stat(TAKE_UP_NAME)?.is_some();
        Ok(if marked { Self::AfterTheSwitch } else { Self::NotWanted })
    }
}

impl Supervisor {
    /// Begins the restart if the running process was not started with the configuration that is there now, as far as is known. While a switch
    /// is live, that is looked at again after it; gives the number of the switch that comes of it, or of the live one.
    pub(super) fn take_up(&mut self, wish: Wish, now: Moment) -> Result<u64, Report> {
        if let Some(live) = &self.driver.journal().live {
            let switch = live.id;
            self.directory.write_atomic(TAKE_UP_NAME, b"", 0o644)?;
            self.take_up = TakeUp::AfterTheSwitch;
            return Ok(switch);
        }
        if let Some(why) = self.is_up_to_date()? {
            return Err(Report { class: Class::NothingToDo, message: why, causes: Vec::new(), hint: None });
        }
        self.begin(wish, None, now)
    }

    /// Does what was left for the time after the live switch.
    pub(super) fn take_up_as_told(&mut self, now: Moment) {
        if self.take_up == TakeUp::NotWanted || self.driver.journal().live.is_some() {
            return;
        }
        let release = self.driver.journal().meant_which().and_then(Which::release).cloned();
        if let Some(release) = release {
            let wish = self.own_wish(Purpose::Restart, None, release, "the configuration has changed");
            if let Err(report) = self.take_up(wish, now) {
                self.trouble = Some(report.to_string()).filter(|_| report.class != Class::NothingToDo);
            }
        }
        if self.directory.remove_file(TAKE_UP_NAME).is_ok() {
            self.take_up = TakeUp::NotWanted;
        }
    }

    /// Why a restart would change nothing; None: it would, or that can't be known.
    fn is_up_to_date(&self) -> Result<Option<String>, Report> {
        let instance = &self.settings.instance;
        let journal = self.driver.journal();
        let Some(which) = journal.meant_which() else { return Ok(Some(format!("{instance} is not meant to run"))) };
        let Some(record) = self.processes.of(which) else {
            return Ok(Some(format!("{instance} does not run yet: its next process loads what is there")));
        };
        let Some(release) = which.release() else { return Ok(None) };
        let manifest = self.driver.store().manifest(release)?;
        let settings = AgentSettings::new(&self.processes.configuration(&manifest));
        let agent = (self.registry)(manifest.agent, &settings);
        // A process that can't be started again is not ended for it.
        let present = agent.and_then(|agent| agent.configuration()).map_err(|error| Report {
            class: Class::Failed,
            message: format!("cannot restart {instance}: its configuration can't be loaded"),
            causes: vec![error.message],
            hint: Some("correct it; what runs is not touched".to_owned()),
        })?;
        let loaded = loaded::of(self.driver.files().layout(), instance, &record.leader);
        let same = present.is_some() && present == loaded;
        Ok(same.then(|| format!("{instance} was started with the configuration that is there: it runs on")))
    }
}
