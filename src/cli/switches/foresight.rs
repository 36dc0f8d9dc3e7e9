//! The dry runs of switch, rollback, restart and upgrade: the supervisor says what a request would come to, or the files of the instance do.

use crate::adoption::running_agent;
use crate::cli::switches::rehearse::{Before, Rehearsed, rehearse};
use crate::cli::{Context, Ended, adopting};
use crate::failure::{Class, Report};
use crate::name::InstanceName;
use crate::os::clock::Moment;
use crate::os::process::Identity;
use crate::supervise::control::{Answer, Command, SwitchCommand, ask};
use crate::switch::driver::foresee::{Foreseen, Tree, foresee as foresee_by_files};
use crate::switch::driver::requests::BadReleases;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::on_record;
use crate::switch::{Mode, Purpose};
use serde_json::{Value, json};

/// What a switch would come to.
pub(super) struct Foresight {
    /// The switch.
    pub(super) foreseen: Foreseen,
    /// False: the switch would wait for a supervisor.
    pub(super) is_supervised: bool,
}

/// Asks the supervisor, or reads the files if no supervisor runs or the release is not installed yet.
pub(super) fn foresee(
    context: &Context,
    files: &InstanceFiles,
    command: SwitchCommand,
    tree: Tree,
) -> Result<Foresight, Report> {
    running_agent::refuse(&adopting(&context.layout, files.instance(), files.package()), &command.request.to)?;
    if tree == Tree::Installed {
        if let Some(foreseen) = supervised(files, command.clone(), false)? {
            return Ok(Foresight { foreseen, is_supervised: true });
        }
    }
    let is_supervised = crate::supervise::status::SupervisorStatus::read(&context.layout, files.instance())?.is_some();
    let alone = on_record(&context.layout, files.instance())?;
    if !is_supervised {
        refuse_overlap_alone(files.instance(), &alone, command.mode)?;
    }
    let now = Moment::now();
    // As the supervisor would choose: without a running process there is nothing to overlap with.
    let usual = if is_supervised { Mode::Overlap } else { Mode::Idle };
    let mode = command.mode.unwrap_or(usual);
    let bad = if command.force { BadReleases::TryAgain } else { BadReleases::Refuse };
    let new = command.foreseen(mode, Vec::new(), now.wall)?;
    let foreseen = foresee_by_files(files, &files.journal()?, (new, tree), bad, now)?;
    Ok(Foresight { foreseen, is_supervised })
}

/// The supervisor's answer; None: no supervisor listens.
pub(super) fn supervised(
    files: &InstanceFiles,
    command: SwitchCommand,
    if_changed: bool,
) -> Result<Option<Foreseen>, Report> {
    let question = Command::Foresee { switch: Box::new(command), if_changed };
    match ask(files.layout(), files.instance(), &question)? {
        None => Ok(None),
        Some(Answer::Refused(report)) => Err(report),
        Some(Answer::Accepted { foreseen: Some(foreseen), .. }) => Ok(Some(*foreseen)),
        Some(Answer::Accepted { foreseen: None, .. }) => {
            Err(Report::of(Class::Failed, "cannot understand the supervisor's answer to a dry run")
                .hint("the supervisor may be of another version of sidle: restart the supervisor"))
        }
    }
}

/// Prints what a switch would come to. `more` are lines and values of the verb.
pub(super) fn tell(
    context: &Context,
    files: &InstanceFiles,
    purpose: Purpose,
    foresight: &Foresight,
    (more, values): (Vec<String>, Value),
) -> Ended {
    let Foresight { foreseen, is_supervised } = foresight;
    let Foreseen { switch, from, to, mode, schedule, notes } = foreseen;
    let instance = files.instance();
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
    context.output.result(lines, value);
    Ended::Well
}

/// The command of a verb, for an instance.
pub(super) fn show(
    context: &Context,
    files: &InstanceFiles,
    command: SwitchCommand,
    more: (Vec<String>, Value),
) -> Result<Ended, Report> {
    let purpose = command.request.purpose;
    let foresight = foresee(context, files, command, Tree::Installed)?;
    Ok(tell(context, files, purpose, &foresight, more))
}

/// A switch, with its rehearsal.
pub(super) fn show_rehearsed(
    context: &Context,
    files: &InstanceFiles,
    command: SwitchCommand,
) -> Result<Ended, Report> {
    let purpose = command.request.purpose;
    let mut foresight = foresee(context, files, command, Tree::Installed)?;
    let foreseen = &mut foresight.foreseen;
    let Rehearsed { was_rehearsed, notes } =
        rehearse(context, files, &foreseen.to, Before::Release(foreseen.from.as_ref()))?;
    foreseen.notes.extend(notes);
    Ok(tell(context, files, purpose, &foresight, (Vec::new(), json!({"rehearsed": was_rehearsed}))))
}

/// A restart that is only wanted if the configuration has changed.
pub(super) fn show_if_changed(
    context: &Context,
    files: &InstanceFiles,
    command: SwitchCommand,
) -> Result<Ended, Report> {
    let nothing = |text: &str| {
        context.output.result(text, json!({"switch": null}));
        Ok(Ended::As(Class::NothingToDo))
    };
    if let Some(live) = files.journal()?.live {
        let text = format!("switch {} is under way; the configuration would be checked again when it ends", live.id);
        context.output.result(&text, json!({"switch": live.id, "pending": true}));
        return Ok(Ended::As(Class::Pending));
    }
    let purpose = command.request.purpose;
    match supervised(files, command, true) {
        Ok(Some(foreseen)) => {
            let foresight = Foresight { foreseen, is_supervised: true };
            Ok(tell(context, files, purpose, &foresight, (Vec::new(), Value::Null)))
        }
        Ok(None) => {
            nothing(&format!("nothing runs {} now: its next process loads the present configuration", files.instance()))
        }
        Err(report) if report.class == Class::NothingToDo => nothing(&report.message),
        Err(report) => Err(report),
    }
}

/// Refuses an overlap with a process that no supervisor can check.
pub(super) fn refuse_overlap_alone(
    instance: &InstanceName,
    alone: &[Identity],
    mode: Option<Mode>,
) -> Result<(), Report> {
    let Some(leader) = alone.first().filter(|_| mode == Some(Mode::Overlap)) else { return Ok(()) };
    let pid = leader.pid;
    let message =
        format!("cannot overlap: process {pid} of {instance} runs without a supervisor, which would have to check it");
    Err(Report::of(Class::Failed, message).hint(format!(
        "start the supervisor first: `systemctl start sidle@{instance}`, or `sidle supervise {instance}`"
    )))
}
