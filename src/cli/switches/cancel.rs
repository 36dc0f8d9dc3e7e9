//! `sidle cancel`: takes the live switch back.

use super::follow::{follow, words};
use super::reach::{Reached, reach};
use crate::cli::{Context, Ended, instance_of};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock::Moment;
use crate::supervise::control::{Answer, Command};
use crate::switch::driver::Driver;
use crate::switch::journal::files::InstanceFiles;
use clap::Args;
use serde_json::json;

/// `sidle cancel PACKAGE`
#[derive(Debug, Args)]
#[command(
    after_help = "Possible until phase `flipping`, in which the new release becomes current, and in phase `stranded`. If sidle has already stopped or \
                  started a process, the switch rolls back."
)]
pub struct CancelArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Cancels the live switch.
pub fn cancel(context: &Context, arguments: &CancelArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    let Some(live) = files.journal()?.live else {
        context.output.result(format!("{instance} has no live switch"), json!({"switch": null}));
        return Ok(Ended::As(Class::NothingToDo));
    };
    let too_late = |switch: u64| {
        Report::of(Class::Conflict, format!("cannot cancel switch {switch}: it is committed"))
            .hint(format!("`sidle rollback {}` rolls back when it ends", arguments.package))
    };
    if live.phase.is_committed() {
        return Err(too_late(live.id));
    }
    if arguments.dry_run {
        let text = format!("switch {} would be cancelled; now: {}", live.id, words(&live));
        context.output.result(text, json!({"dry_run": true, "switch": live.id}));
        return Ok(Ended::Well);
    }
    match reach(context, &files, &Command::Cancel)? {
        Reached::Supervisor(Answer::Refused(report)) => Err(report),
        Reached::Supervisor(Answer::Accepted { switch, .. }) => match follow(&files, switch, &context.output)? {
            // The switch was cancelled, as requested.
            Ended::As(Class::Failed | Class::RolledBack) => Ok(Ended::Well),
            Ended::Well => Err(too_late(switch)),
            Ended::As(class) => Ok(Ended::As(class)),
        },
        Reached::Nobody(lock) => {
            let now = Moment::now();
            let settings = crate::config::Settings::read(&context.layout)?;
            let over = Driver::new(files, lock, settings.limits(), now)?.cancel_unsupervised(now)?;
            let rest = format!("; its changes are undone when `sidle supervise {instance}` starts");
            let text = format!("switch {} cancelled{}", live.id, if over { "" } else { &rest });
            context.output.result(text, json!({"switch": live.id}));
            Ok(Ended::Well)
        }
    }
}
