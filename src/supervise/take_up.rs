//! A restart only for a changed configuration: what service managers and configuration management ask for, whether something changed or not.

use super::Supervisor;
use super::control::Wish;
use crate::agent::AgentSettings;
use crate::failure::{Class, Report};
use crate::loaded::{self, Loaded};
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::os::{OsError, proc_fs};
use crate::switch::Purpose;
use crate::switch::drive::Moment;
use crate::switch::which::Which;
use tracing::info;

/// The mark of a wish that waits: for the live switch's end, since its process may have loaded what was there before.
const TAKE_UP_NAME: &str = "take-up";

/// What `sidle run` has in its command line while it is not the agent yet.
const AWAIT_ARGUMENT: &str = "--await-start";

/// What came of a look at the running process.
enum Compared {
    /// A restart would change nothing, because of this.
    Same(String),
    /// It would, or that can't be known.
    Different,
    /// The process is just loading.
    TooEarly,
}

/// Whether the running process is to be compared with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeUp {
    NotWanted,
    Later,
}

impl TakeUp {
    /// What was left to do.
    pub(super) fn read(directory: &Dir) -> Result<Self, OsError> {
        let marked = directory.stat(TAKE_UP_NAME)?.is_some();
        Ok(if marked { Self::Later } else { Self::NotWanted })
    }
}

impl Supervisor {
    /// Begins the restart if the running process was not started with the configuration that is there now, as far as is known. While a switch
    /// is live, that is looked at again after it; gives the number of the switch that comes of it, or of the live one.
    pub(super) fn take_up(&mut self, wish: Wish, now: Moment) -> Result<u64, Report> {
        if let Some(live) = &self.driver.journal().live {
            let switch = live.id;
            self.directory.write_atomic(TAKE_UP_NAME, b"", 0o644)?;
            self.take_up = TakeUp::Later;
            return Ok(switch);
        }
        let nothing = |message| Err(Report { class: Class::NothingToDo, message, causes: Vec::new(), hint: None });
        match self.compare()? {
            Compared::Same(why) => nothing(why),
            Compared::TooEarly => {
                self.directory.write_atomic(TAKE_UP_NAME, b"", 0o644)?;
                self.take_up = TakeUp::Later;
                nothing(format!(
                    "{} is just loading its configuration; that is looked at again",
                    self.settings.instance
                ))
            }
            Compared::Different => {
                info!(instance = %self.settings.instance, "the agent's configuration is not what it runs with: it is taken up");
                self.begin(wish, None, now)
            }
        }
    }

    /// Does what was left for the time after the live switch.
    pub(super) fn take_up_as_told(&mut self, now: Moment) {
        if self.take_up == TakeUp::NotWanted || self.driver.journal().live.is_some() {
            return;
        }
        self.take_up = TakeUp::NotWanted;
        let release = self.driver.journal().meant_which().and_then(Which::release).cloned();
        if let Some(release) = release {
            let wish = self.own_wish(Purpose::Restart, None, release, "the configuration has changed");
            if let Err(report) = self.take_up(wish, now) {
                if report.class == Class::NothingToDo {
                    self.trouble = None;
                } else {
                    self.troubled(report.to_string());
                }
            }
        }
        if self.take_up == TakeUp::NotWanted && self.directory.remove_file(TAKE_UP_NAME).is_err() {
            self.take_up = TakeUp::Later;
        }
    }

    /// Compares what the running process was started with to what is there. Not known to be the same is different.
    fn compare(&self) -> Result<Compared, Report> {
        let instance = &self.settings.instance;
        let journal = self.driver.journal();
        let Some(which) = journal.meant_which() else {
            return Ok(Compared::Same(format!("{instance} is not meant to run")));
        };
        let Some(record) = self.processes.of(which) else {
            return Ok(Compared::Same(format!("{instance} does not run yet: its next process loads what is there")));
        };
        let Some(release) = which.release() else { return Ok(Compared::Different) };
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
        // In this order: one that has not begun to look by then will find what is there now.
        let still_to_load = is_still_to_load(&record.leader)?;
        let same = match loaded::of(self.driver.files().layout(), instance, &record.leader) {
            Loaded::Known(digest) => present == Some(digest),
            Loaded::Unnoted => still_to_load,
            Loaded::Unknown if still_to_load => return Ok(Compared::TooEarly),
            Loaded::Unknown => false,
        };
        let text = || format!("{instance} runs with the configuration that is there");
        Ok(if same { Compared::Same(text()) } else { Compared::Different })
    }
}

/// Whether a process is still the program that becomes the agent.
fn is_still_to_load(leader: &Identity) -> Result<bool, OsError> {
    let command = proc_fs::command_line(leader.pid)?.unwrap_or_default();
    // Who started it goes on before the kernel has set its arguments.
    Ok(command.is_empty() || command.iter().any(|word| word == AWAIT_ARGUMENT))
}
