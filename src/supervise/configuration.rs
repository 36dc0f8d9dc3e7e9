//! A restart only for a changed configuration, or of what is not healthy: what service managers and configuration management ask for, whether
//! something changed or not.

use super::Supervisor;
use super::control::SwitchCommand;
use super::intent::{Intent, OwnSwitch};
use crate::agent::{AgentError, AgentSettings};
use crate::failure::{Class, Report};
use crate::loaded::{self, Loaded};
use crate::os::clock::Moment;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::os::{OsError, proc_fs};
use crate::switch::gate::proofs::PROOF_WAIT;
use crate::switch::journal::kind::ProcessKind;
use jiff::SignedDuration;
use std::time::Duration;
use tracing::info;

/// The mark of a command that waits: for the live switch's end, since its process may have loaded what was there before.
const CHECK_MARK_NAME: &str = "take-up";

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

/// How long a process may take to reach its peers before a restart of what is not healthy makes sense.
const SETTLE_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// How often it is looked whether the peers have answered.
const ANSWER_INTERVAL: Duration = Duration::from_millis(250);

/// Whether the running process is to be compared with its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationCheck {
    /// It is not.
    NotWanted,
    /// It is to be, once it has begun to load, or after the live switch.
    Later,
    /// It runs with the configuration that is there; whether it reaches its peers was asked at `since`, since boot.
    Asked {
        /// The number of the question.
        number: u64,
        /// Since when.
        since: Duration,
        /// The restart that was asked for.
        switch: Box<SwitchCommand>,
    },
}

impl ConfigurationCheck {
    /// What was left to do.
    pub fn read(directory: &Dir) -> Result<Self, OsError> {
        let marked = directory.stat(CHECK_MARK_NAME)?.is_some();
        Ok(if marked { Self::Later } else { Self::NotWanted })
    }

    /// What is due. `answer`: what the process lacks that was asked for its peers; None: it has not answered yet.
    pub fn poll(&mut self, is_switching: bool, answer: Option<Result<(), String>>) -> Vec<Intent> {
        if is_switching || *self == Self::NotWanted {
            return Vec::new();
        }
        let due = match (&*self, answer) {
            (Self::Asked { .. }, None) => return Vec::new(),
            (Self::Asked { switch, .. }, Some(Err(lacks))) => Some(Intent::RestartUnhealthy(switch.clone(), lacks)),
            (Self::Asked { .. }, Some(Ok(()))) => None,
            (Self::Later | Self::NotWanted, _) => Some(Intent::CompareConfiguration),
        };
        *self = Self::NotWanted;
        due.into_iter().chain([Intent::ForgetConfiguration]).collect()
    }
}

impl Supervisor {
    /// Begins the restart if the running process was not started with the configuration that is there now, as far as is known. While a switch
    /// is live, that is looked at again after it; gives the number of the switch that comes of it, or of the live one.
    pub(super) fn restart_if_changed(&mut self, command: SwitchCommand, now: Moment) -> Result<u64, Report> {
        if let Some(live) = &self.driver.journal().live {
            let switch = live.id;
            self.directory.write_atomic(CHECK_MARK_NAME, b"", 0o644)?;
            self.configuration_check = ConfigurationCheck::Later;
            return Ok(switch);
        }
        let nothing = |message| Err(Report::of(Class::NothingToDo, message));
        match self.compare()? {
            Compared::Same(why) => {
                let why = if self.ask(&command, now)? {
                    format!("{why}; it is restarted if it does not reach its peers")
                } else {
                    why
                };
                nothing(why)
            }
            Compared::TooEarly => {
                self.directory.write_atomic(CHECK_MARK_NAME, b"", 0o644)?;
                self.configuration_check = ConfigurationCheck::Later;
                nothing(format!(
                    "{} is just loading its configuration; that is looked at again",
                    self.settings.instance
                ))
            }
            Compared::Different => {
                info!(instance = %self.settings.instance, "the agent's configuration is not what it runs with: it is taken up");
                self.begin(command, None, now)
            }
        }
    }

    /// Asks the running process whether it reaches its peers: who restarts a minion whose configuration is the same may have a reason. False: it
    /// is just starting, or can't be asked.
    fn ask(&mut self, command: &SwitchCommand, now: Moment) -> Result<bool, OsError> {
        let Some(which) = self.driver.journal().serving_process() else { return Ok(false) };
        let age = self.processes.of(which).map(|record| now.wall.duration_since(record.started_at));
        if age.is_none_or(|age| age.abs() < SETTLE_WAIT) {
            return Ok(false);
        }
        self.directory.write_atomic(CHECK_MARK_NAME, b"", 0o644)?;
        let number = self.driver.ask(now);
        self.configuration_check =
            ConfigurationCheck::Asked { number, since: now.since_boot, switch: Box::new(command.clone()) };
        Ok(true)
    }

    /// What the process lacks that was asked; None: nothing. It is waited for.
    fn lacks_since(&mut self, number: u64, since: Duration, now: Moment) -> Option<Result<(), String>> {
        let journal = self.driver.journal().clone();
        let which = journal.serving_process()?;
        let guarded = self.processes.guarded(which).is_some();
        let answered = self.processes.report(which).is_some_and(|report| report.prove >= number);
        if guarded && !answered && now.since_boot.saturating_sub(since) < PROOF_WAIT {
            return None;
        }
        let health = self.processes.health(which, guarded.then_some(number));
        // One that is gone is started again anyhow.
        Some(health.and_then(|health| health.lacks(&[])).map_or(Ok(()), Err))
    }

    /// How soon it is to be looked again.
    pub(super) fn until_answer(&self) -> Duration {
        if matches!(self.configuration_check, ConfigurationCheck::Asked { .. }) {
            ANSWER_INTERVAL
        } else {
            Duration::MAX
        }
    }

    /// Does what is due of the comparison.
    pub(super) fn compare_configuration(&mut self, now: Moment) {
        let answer = match &self.configuration_check {
            ConfigurationCheck::Asked { number, since, .. } => self.lacks_since(*number, *since, now),
            ConfigurationCheck::NotWanted | ConfigurationCheck::Later => None,
        };
        let intents = self.configuration_check.poll(self.driver.journal().live.is_some(), answer);
        self.carry_out(intents, now);
    }

    /// Restarts the process if its configuration has changed since it was left for later.
    pub(super) fn compare_now(&mut self, now: Moment) {
        let release = self.driver.journal().serving_process().and_then(ProcessKind::release).cloned();
        let Some(release) = release else { return };
        let own = OwnSwitch::restart(release, "the configuration has changed");
        if let Err(report) = self.restart_if_changed(self.own_command(own), now) {
            if report.class == Class::NothingToDo {
                self.trouble = None;
            } else {
                self.troubled(report.to_string());
            }
        }
    }

    /// Restarts the process that was asked, since it lacks something.
    pub(super) fn restart_unhealthy(&mut self, command: SwitchCommand, lacks: &str, now: Moment) {
        info!(instance = %self.settings.instance, "a restart was asked for, and the agent is not healthy ({lacks}): it is restarted");
        let note = format!("restarted with the same configuration, since it was not healthy: {lacks}");
        let begun = self.begin(command, None, now);
        if let Err(report) = begun.and_then(|_| self.driver.note(&note, now).map_err(Report::from)) {
            self.troubled(report.to_string());
        }
    }

    pub(super) fn forget_configuration_check(&mut self) {
        if self.configuration_check == ConfigurationCheck::NotWanted
            && self.directory.remove_file(CHECK_MARK_NAME).is_err()
        {
            self.configuration_check = ConfigurationCheck::Later;
        }
    }

    /// Keeps what a healthy process has proven itself with, for the next comparison. That it can't be kept makes a restart, at worst.
    pub(super) fn note_credentials(&mut self, which: ProcessKind<'_>) {
        let Some(leader) = self.processes.of(which).map(|record| record.leader.clone()) else { return };
        if self.noted.as_ref() == Some(&leader) {
            return;
        }
        if let Some(credentials) = self.processes.credentials(which) {
            let (layout, instance) = (self.driver.files().layout(), &self.settings.instance);
            if loaded::note_credentials(layout, instance, &leader, credentials).is_ok() {
                self.noted = Some(leader);
            }
        }
    }

    /// Compares what the running process was started with to what is there. Not known to be the same is different.
    fn compare(&self) -> Result<Compared, Report> {
        let instance = &self.settings.instance;
        let journal = self.driver.journal();
        let Some(which) = journal.serving_process() else {
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
        let present = agent.as_ref().map_err(|error| AgentError { message: error.message.clone() });
        let present = present.and_then(|agent| agent.configuration()).map_err(|error| {
            Report::of(Class::Failed, format!("cannot restart {instance}: its configuration can't be loaded"))
                .because(error.message)
                .hint("correct it; what runs is not touched")
        })?;
        // In this order: one that has not begun to look by then will find what is there now.
        let still_to_load = has_not_loaded_yet(&record.leader)?;
        let same = match loaded::of(self.driver.files().layout(), instance, &record.leader) {
            Loaded::Known(digest) => present == Some(digest),
            Loaded::Unnoted => still_to_load,
            Loaded::Unknown if still_to_load => return Ok(Compared::TooEarly),
            Loaded::Unknown => false,
        };
        let layout = self.driver.files().layout();
        let known = loaded::credentials(layout, instance, &record.leader);
        let renewed = known.is_some_and(|known| agent.ok().and_then(|agent| agent.credentials()) != Some(known));
        let same = same && !renewed;
        let text = || format!("{instance} runs with the configuration that is there");
        Ok(if same { Compared::Same(text()) } else { Compared::Different })
    }
}

/// Whether a process is still the program that becomes the agent.
fn has_not_loaded_yet(leader: &Identity) -> Result<bool, OsError> {
    let command = proc_fs::command_line(leader.pid)?.unwrap_or_default();
    // Who started it goes on before the kernel has set its arguments.
    Ok(command.is_empty() || command.iter().any(|word| word == AWAIT_ARGUMENT))
}
