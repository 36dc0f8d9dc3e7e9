//! The supervisor's log, without its switches: its begin and end, refusals, problems, repairs.

use super::Supervisor;
use super::control::{Answer, Command};
use super::events::Question;
use super::status::AgentStatus;
use super::tree::Repaired;
use crate::failure::{Class, Report};
use crate::switch::driver::Policy;
use crate::switch::driver::log::seconds;
use crate::switch::journal::repeated::Rehearsed;
use crate::version::Release;
use std::process::ExitStatus;
use tracing::{debug, error, info, warn};

impl Supervisor {
    /// Logs the settings, but nothing that could be secret.
    pub(super) fn log_settings(&self) {
        let settings = &self.settings;
        let rehearsal = match settings.host.rehearsal {
            Policy::Refuse => "refuse",
            Policy::Report => "report",
            Policy::Off => "off",
        };
        info!(
            instance = %settings.instance, version = env!("CARGO_PKG_VERSION"), probation = seconds(settings.host.limits().probation),
            start_timeout = seconds(settings.host.limits().start), stop_timeout = seconds(settings.host.limits().stop),
            switch_deadline = seconds(*settings.host.switch_deadline), rehearsal, scrub_every = seconds(*settings.host.scrub_every),
            "the supervisor starts with these settings"
        );
    }

    /// Logs a request to end.
    pub(super) fn log_ending(&self, first: bool) {
        let how =
            if first { "the agent is asked to end" } else { "this is the second request: the agent is ended at once" };
        info!(instance = %self.settings.instance, "the supervisor was asked to end; {how}");
    }

    /// Logs the end of the supervisor.
    pub(super) fn log_end(&self) {
        let agent = if self.restarting { "the agent runs on for the next supervisor" } else { "the agent has ended" };
        info!(instance = %self.settings.instance, "the supervisor has ended; {agent}");
    }

    /// Logs a request. The change of the journal logs an accepted switch.
    pub(super) fn log_question(&self, question: &Question) {
        let (instance, by, name) = (&self.settings.instance, question.by.as_str(), command_name(&question.command));
        match &question.command {
            Ok(Command::Cancel | Command::Unadopt { .. }) => info!(%instance, by, "{name} is asked for"),
            Ok(Command::Refused { why, .. }) => warn!(%instance, by, %why, "{name} is refused"),
            Ok(Command::Switch(_) | Command::RestartIfChanged(_) | Command::Adopt { .. } | Command::DryRun { .. })
            | Err(_) => {
                debug!(%instance, by, "{name} is asked for");
            }
        }
    }

    /// Logs a refusal.
    pub(super) fn log_refusal(&self, question: &Question, answer: &Answer) {
        let Answer::Refused(report) = answer else { return };
        if matches!(question.command, Ok(Command::DryRun { .. })) {
            return;
        }
        let (instance, by, name) = (&self.settings.instance, question.by.as_str(), command_name(&question.command));
        let command = question.command.as_ref().ok().and_then(Command::switch);
        let named = command.map(|command| command.request.by.as_str()).filter(|name| *name != by);
        let origin = command.and_then(|command| command.request.origin.as_ref()).map(ToString::to_string);
        let reason = command.map(|command| command.request.reason.as_str()).filter(|reason| !reason.is_empty());
        let why = report.to_string();
        if report.class == Class::NothingToDo {
            info!(%instance, by, named, origin, why, reason, "{name} is not needed");
        } else {
            warn!(%instance, by, named, origin, why, reason, "{name} is refused");
        }
    }

    /// Logs a repair before a start.
    pub(super) fn log_repair_before_start(&self, note: Option<&str>) {
        if let Some(note) = note {
            warn!(instance = %self.settings.instance, "{note}");
        }
    }

    /// Shows and logs a failure; sidle tries again.
    pub(super) fn troubled(&mut self, text: String) {
        if self.logged_trouble.as_ref() != Some(&text) {
            warn!(instance = %self.settings.instance, why = text, "an act failed; sidle tries again");
        }
        self.logged_trouble = Some(text.clone());
        self.trouble = Some(text);
    }

    /// Shows and logs a problem that needs a person.
    pub(super) fn needs_a_person(&mut self, text: String) {
        if self.logged_trouble.as_ref() != Some(&text) {
            error!(instance = %self.settings.instance, why = text, "the agent does not run as it should; see `sidle doctor`");
        }
        self.logged_trouble = Some(text.clone());
        self.trouble = Some(text);
    }

    /// Logs the end of a problem.
    pub(super) fn recovered(&mut self) {
        if self.logged_trouble.take().is_some() {
            info!(instance = %self.settings.instance, "the agent is healthy again");
        }
    }

    /// Logs a change of the agent's health.
    pub(super) fn log_health(&self, status: &AgentStatus) {
        let as_before = |before: &AgentStatus| {
            (&before.leader, &before.lacks, &before.reaches) == (&status.leader, &status.lacks, &status.reaches)
        };
        if !self.health.as_ref().is_some_and(|(_, before)| as_before(before)) {
            let (instance, reaches) = (&self.settings.instance, status.reaches.join(", "));
            debug!(%instance, reaches, lacks = status.lacks, "health of process {} of {}", status.leader.pid, status.name());
        }
    }

    /// Logs the result of a repair of a running release.
    pub(super) fn log_repair(&self, release: &Release, result: Repaired, is_lasting: bool) {
        let instance = &self.settings.instance;
        match result {
            Repaired::NothingToDo => debug!(%instance, "the files of {release} are whole"),
            Repaired::Mended => {
                warn!(%instance, "files of {release} were damaged while it runs, and are repaired: `sidle history` names them");
            }
            Repaired::Broken if is_lasting => {
                error!(%instance, "files of {release} are damaged, and this host has no intact copies: use `sidle repair`");
            }
            Repaired::Broken => warn!(%instance, "files of {release} are damaged; sidle tries the repair again"),
        }
    }

    /// Logs the result of a scrub.
    pub(super) fn log_scrub(&self, status: ExitStatus) {
        let instance = &self.settings.instance;
        if status.success() {
            info!(%instance, "the scrub has verified every file of the installed releases");
        } else {
            error!(%instance, "the scrub has failed, or found damage that it can't repair: see `sidle verify --full`");
        }
    }

    /// Logs the result of a repeated rehearsal.
    pub(super) fn log_rehearsed_again(&self, again: &Rehearsed) {
        let (instance, release, changes) = (&self.settings.instance, &again.release, again.changes.join("; "));
        if again.loads() {
            info!(%instance, changes, "the host has changed; {release} would come up again");
        } else if !again.fails() {
            warn!(%instance, changes, why = %again, "the host has changed; whether {release} would come up again is unknown");
        } else {
            error!(%instance, changes, why = %again, "the host has changed; {release} would not come up again");
        }
    }
}

fn command_name(command: &Result<Command, Report>) -> String {
    match command {
        Err(_) => "a request".to_owned(),
        Ok(Command::Cancel) => "a cancellation".to_owned(),
        Ok(Command::Refused { purpose, to, .. }) => format!("a {purpose} to {to}"),
        Ok(Command::Unadopt { .. }) => "giving the agent back".to_owned(),
        Ok(Command::DryRun { switch, .. }) => format!("a dry run of a {}", switch.request.purpose),
        Ok(Command::Adopt { switch, .. }) => format!("an adoption as {}", switch.request.to),
        Ok(Command::Switch(switch) | Command::RestartIfChanged(switch)) => {
            format!("a {} to {}", switch.request.purpose, switch.request.to)
        }
    }
}
