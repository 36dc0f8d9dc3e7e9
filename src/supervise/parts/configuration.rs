//! `restart --if-changed`: restarts the agent only if its configuration has changed or if it is not healthy. Service managers and configuration
//! management ask for it in any case.

use crate::agent::{AgentError, Answers};
use crate::failure::{Class, Report};
use crate::loaded::{self, Loaded};
use crate::os::clock::Moment;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::os::{OsError, proc_fs};
use crate::supervise::Supervisor;
use crate::supervise::control::SwitchCommand;
use crate::supervise::intent::{Intent, OwnSwitch};
use crate::switch::gate::proofs::PROOF_WAIT;
use crate::switch::journal::kind::ProcessKind;
use jiff::SignedDuration;
use std::time::Duration;
use tracing::info;

/// The mark of a check that waits for the end of the live switch, whose new process may have loaded the configuration before its change.
const CHECK_MARK_NAME: &str = "take-up";

/// The result of a comparison of the running process with the present configuration.
enum Compared {
    /// A restart would change nothing, for this reason.
    Same(String),
    /// A restart would change something, or that is unknown.
    Different,
    /// The process is just loading its configuration.
    TooEarly,
}

/// How long a process may take to reach its peers before it counts as not healthy.
const SETTLE_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// How often the supervisor checks for the answer of the peers.
const ANSWER_INTERVAL: Duration = Duration::from_millis(250);

/// A request to compare the running process with the present configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigurationCheck {
    /// No comparison is due.
    NotWanted,
    /// Compare once the process has loaded its configuration, or after the live switch.
    Later,
    /// The configuration is the same; its guard was asked for a round trip at `since`, since boot.
    Asked {
        /// The number of the round trip.
        number: u64,
        /// When it was asked for.
        since: Duration,
        /// The requested restart.
        switch: Box<SwitchCommand>,
    },
}

impl ConfigurationCheck {
    /// Reads the request that an earlier supervisor left.
    pub fn read(directory: &Dir) -> Result<Self, OsError> {
        let marked = directory.stat(CHECK_MARK_NAME)?.is_some();
        Ok(if marked { Self::Later } else { Self::NotWanted })
    }

    /// Returns the intents that are due. `answer`: what the process lacks after its round trip; None: the round trip has not ended.
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
    /// Refuses a restart that is only wanted if the configuration has changed, where it has not; changes nothing.
    pub(in crate::supervise) fn refuse_unchanged(&self) -> Result<(), Report> {
        let nothing = |message| Err(Report::of(Class::NothingToDo, message));
        match self.compare()? {
            Compared::Same(why) => nothing(why),
            Compared::TooEarly => nothing(format!(
                "{} is just loading its configuration; sidle checks it again later",
                self.settings.instance
            )),
            Compared::Different => Ok(()),
        }
    }

    /// Begins the restart unless the running process was started with the present configuration. During a switch the comparison waits for its
    /// end. Returns the number of the new or the live switch.
    pub(in crate::supervise) fn restart_if_changed(
        &mut self,
        command: SwitchCommand,
        now: Moment,
    ) -> Result<u64, Report> {
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
                    "{} is just loading its configuration; sidle checks it again later",
                    self.settings.instance
                ))
            }
            Compared::Different => {
                info!(instance = %self.settings.instance, "the agent's configuration has changed since its start: it is restarted");
                self.begin(command, None, now)
            }
        }
    }

    /// Asks the running process for a round trip: a person who restarts an agent with the same configuration may have a reason. False: it is just
    /// starting, or has no guard to ask.
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

    /// What the process lacks after its round trip; None: the round trip has not ended.
    fn lacks_since(&mut self, number: u64, since: Duration, now: Moment) -> Option<Result<(), String>> {
        let journal = self.driver.journal().clone();
        let which = journal.serving_process()?;
        let guarded = self.processes.guarded(which).is_some();
        let answered = self.processes.report(which).is_some_and(|report| report.prove >= number);
        if guarded && !answered && now.since_boot.saturating_sub(since) < PROOF_WAIT {
            return None;
        }
        let health = self.processes.health(which, guarded.then_some(number));
        // A process that is gone is started again anyhow.
        Some(health.and_then(|health| health.lacks(&[])).map_or(Ok(()), Err))
    }

    /// The time until the next check for an answer.
    pub(in crate::supervise) fn until_answer(&self) -> Duration {
        if matches!(self.configuration_check, ConfigurationCheck::Asked { .. }) {
            ANSWER_INTERVAL
        } else {
            Duration::MAX
        }
    }

    /// Acts on the request for a comparison.
    pub(in crate::supervise) fn compare_configuration(&mut self, now: Moment) {
        let answer = match &self.configuration_check {
            ConfigurationCheck::Asked { number, since, .. } => self.lacks_since(*number, *since, now),
            ConfigurationCheck::NotWanted | ConfigurationCheck::Later => None,
        };
        let intents = self.configuration_check.poll(self.driver.journal().live.is_some(), answer);
        self.carry_out(intents, now);
    }

    /// Compares now, and restarts the process if its configuration has changed.
    pub(in crate::supervise) fn compare_now(&mut self, now: Moment) {
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

    /// Restarts a process that is not healthy.
    pub(in crate::supervise) fn restart_unhealthy(&mut self, command: SwitchCommand, lacks: &str, now: Moment) {
        info!(instance = %self.settings.instance, "a restart was asked for, and the agent is not healthy ({lacks}): it is restarted");
        let note = format!("restarted with the same configuration, since it was not healthy: {lacks}");
        let begun = self.begin(command, None, now);
        if let Err(report) = begun.and_then(|_| self.driver.note(&note, now).map_err(Report::from)) {
            self.troubled(report.to_string());
        }
    }

    pub(in crate::supervise) fn forget_configuration_check(&mut self) {
        if self.configuration_check == ConfigurationCheck::NotWanted
            && self.directory.remove_file(CHECK_MARK_NAME).is_err()
        {
            self.configuration_check = ConfigurationCheck::Later;
        }
    }

    /// Keeps the credentials digest of a healthy process for the next comparison. Without it the worst result is an unneeded restart.
    pub(in crate::supervise) fn note_credentials(&mut self, which: ProcessKind<'_>) {
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

    /// Compares the configuration at the start of the running process with the present one. Unknown counts as different.
    fn compare(&self) -> Result<Compared, Report> {
        let instance = &self.settings.instance;
        let journal = self.driver.journal();
        let Some(which) = journal.serving_process() else {
            return Ok(Compared::Same(format!("{instance} has nothing to run")));
        };
        let Some(record) = self.processes.of(which) else {
            return Ok(Compared::Same(format!(
                "{instance} does not run yet: its next process loads the present configuration"
            )));
        };
        let Some(release) = which.release() else { return Ok(Compared::Different) };
        let manifest = self.driver.store().head(release)?;
        // Also for a dry run, which writes nothing.
        let agent = self.processes.agent_now(&manifest, Answers::Read);
        // With an unreadable configuration the agent could not start again, so it is not restarted.
        let present = agent.as_ref().map_err(AgentError::clone);
        let present = present.and_then(|agent| agent.configuration()).map_err(|error| {
            Report::of(Class::Failed, format!("cannot restart {instance}: its configuration can't be loaded"))
                .because(error.message)
                .hint("correct it; the running process is not touched")
        })?;
        // In this order: a process that has not loaded yet will load the configuration that was read above.
        let not_loaded = has_not_loaded_yet(&record.leader, self.settings.commands.is_run)?;
        let same = match loaded::of(self.driver.files().layout(), instance, &record.leader) {
            Loaded::Known(digest) => present == Some(digest),
            Loaded::Unnoted => not_loaded,
            Loaded::Unknown if not_loaded => return Ok(Compared::TooEarly),
            Loaded::Unknown => false,
        };
        let layout = self.driver.files().layout();
        let known = loaded::credentials(layout, instance, &record.leader);
        let renewed = known.is_some_and(|known| agent.ok().and_then(|agent| agent.credentials()) != Some(known));
        let same = same && !renewed;
        let text = || format!("{instance} runs with the present configuration");
        Ok(if same { Compared::Same(text()) } else { Compared::Different })
    }
}

/// True if a process is still `sidle run`, which becomes the agent later.
fn has_not_loaded_yet(leader: &Identity, is_run: fn(&[String]) -> bool) -> Result<bool, OsError> {
    let command = proc_fs::command_line(leader.pid)?.unwrap_or_default();
    // A process has no arguments for a moment after its start.
    Ok(command.is_empty() || is_run(&command))
}
