//! The dry runs of switch, rollback, restart and upgrade: the supervisor says what a request would come to, or the files of the instance do.

use super::order::{Order, refuse_overlap_alone, unchanged_as_nothing_runs};
use super::rehearse::{Before, Rehearsed, rehearse};
use crate::adoption::running_agent;
use crate::cli::{Ended, adopting};
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::supervise::control::{Answer, Command, SwitchCommand, ask};
use crate::supervise::status::SupervisorStatus;
use crate::switch::driver::dry_run::{self, ExpectedSwitch, Tree};
use crate::switch::process::on_record;
use crate::switch::{Mode, Purpose};
use serde_json::{Value, json};

/// What a switch would come to.
pub(super) struct Expected {
    /// The switch.
    switch: ExpectedSwitch,
    /// False: the switch would wait for a supervisor.
    is_supervised: bool,
}

impl Order<'_> {
    /// Asks the supervisor, or reads the files if no supervisor runs or the release is not installed yet.
    pub(super) fn dry_run(&self, tree: Tree) -> Result<Expected, Report> {
        let (files, layout, instance) = (&self.files, self.files.layout(), self.files.instance());
        self.refuse_by_peers()?;
        let command = self.command()?;
        running_agent::refuse(&adopting(layout, instance, files.package()), &self.to)?;
        if tree == Tree::Installed {
            if let Some(switch) = self.supervised(command.clone(), false)? {
                return Ok(Expected { switch, is_supervised: true });
            }
        }
        let is_supervised = SupervisorStatus::read(layout, instance)?.is_some();
        if !is_supervised {
            refuse_overlap_alone(instance, &on_record(layout, instance)?, command.mode)?;
        }
        let now = Moment::now();
        // As the supervisor would choose: without a running process there is nothing to overlap with.
        let usual = if is_supervised { Mode::Overlap } else { Mode::Idle };
        let (bad, mode) = (command.bad_releases(), command.mode.unwrap_or(usual));
        let new = command.dry_run(mode, Vec::new(), now.wall)?;
        let switch = dry_run::dry_run(files, &files.journal()?, (new, tree), bad, now)?;
        Ok(Expected { switch, is_supervised })
    }

    /// The supervisor's answer; None: no supervisor listens.
    fn supervised(&self, command: SwitchCommand, if_changed: bool) -> Result<Option<ExpectedSwitch>, Report> {
        let question = Command::DryRun { switch: Box::new(command), if_changed };
        match ask(self.files.layout(), self.files.instance(), &question)? {
            None => Ok(None),
            Some(Answer::Refused(report)) => Err(report),
            Some(Answer::Accepted { expected: Some(expected), .. }) => Ok(Some(*expected)),
            Some(Answer::Accepted { expected: None, .. }) => {
                Err(Report::of(Class::Failed, "cannot understand the supervisor's answer to a dry run")
                    .hint("the supervisor may be of another version of sidle: restart the supervisor"))
            }
        }
    }

    /// Prints what the switch would come to. `more` are lines and values of the verb.
    pub(super) fn tell(&self, expected: &Expected, more: Vec<String>, values: Value) -> Ended {
        let ExpectedSwitch { switch, from, to, mode, schedule, notes } = &expected.switch;
        let is_supervised = expected.is_supervised;
        let (instance, purpose) = (self.files.instance(), self.purpose);
        let (verb, to_text) = match purpose {
            Purpose::Switch => ("switch to", to.to_string()),
            Purpose::Rollback => ("roll back to", to.to_string()),
            Purpose::Restart => ("restart", to.to_string()),
        };
        let from_text = match (purpose, from) {
            (Purpose::Restart, _) => String::new(),
            (_, Some(from)) => format!(" from {from}"),
            (_, None) => ", its first release".to_owned(),
        };
        let waits = match (is_supervised, schedule) {
            (true, None) => String::new(),
            (true, Some(schedule)) => format!("; it would wait for {schedule}"),
            (false, _) => format!("; it would wait until `sidle supervise {instance}` starts"),
        };
        let mut lines = vec![format!("{instance} would {verb} {to_text}{from_text} in mode {mode}{waits}")];
        lines.extend(notes.iter().map(|note| format!("  {note}")));
        lines.extend(more);
        let mut value = json!({
            "instance": instance, "switch": switch, "purpose": purpose, "from": from, "to": to, "mode": mode,
            "schedule": schedule, "notes": notes, "pending": !is_supervised || schedule.is_some(),
        });
        if let (Some(fields), Value::Object(values)) = (value.as_object_mut(), values) {
            fields.extend(values);
        }
        self.context.output.result(lines, value);
        Ended::Well
    }

    /// Shows the switch.
    pub(super) fn show(&self) -> Result<Ended, Report> {
        Ok(self.tell(&self.dry_run(Tree::Installed)?, Vec::new(), Value::Null))
    }

    /// Shows the switch, with its rehearsal.
    pub(super) fn show_rehearsed(&self) -> Result<Ended, Report> {
        let mut expected = self.dry_run(Tree::Installed)?;
        let switch = &mut expected.switch;
        let Rehearsed { was_done, notes, states } =
            rehearse(self.context, &self.files, &switch.to, Before::Release(switch.from.as_ref()))?;
        switch.notes.extend(notes);
        Ok(self.tell(&expected, Vec::new(), json!({"rehearsed": was_done, "highstate": states})))
    }

    /// Shows a restart that is only wanted if the configuration has changed.
    pub(super) fn show_if_changed(&self) -> Result<Ended, Report> {
        let output = &self.context.output;
        let nothing = |text: String| {
            output.result(text, json!({"switch": null}));
            Ok(Ended::As(Class::NothingToDo))
        };
        let command = self.command()?;
        if let Some(live) = self.files.journal()?.live {
            let text =
                format!("switch {} is under way; the configuration would be checked again when it ends", live.id);
            output.result(&text, json!({"switch": live.id, "pending": true}));
            return Ok(Ended::As(Class::Pending));
        }
        match self.supervised(command, true) {
            Ok(Some(switch)) => Ok(self.tell(&Expected { switch, is_supervised: true }, Vec::new(), Value::Null)),
            Ok(None) => nothing(unchanged_as_nothing_runs(self.files.instance())),
            Err(report) if report.class == Class::NothingToDo => nothing(report.message),
            Err(report) => Err(report),
        }
    }
}
