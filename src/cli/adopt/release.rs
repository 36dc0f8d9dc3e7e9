//! `sidle release`: the package's agent runs again, and sidle's is gone.
//!
//! The package's agent has no guard before it runs, so the two are never there at once: ours is ended once no job runs, and what is
//! published until the other one is up is missed. How long that was is told.

use super::record::Adoption;
use crate::agent::{AgentSettings, Subject};
use crate::cli::{Context, Ended, adopter, agents, instance_of};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::process::Program;
use crate::os::{clock, units};
use crate::store::Store;
use crate::supervise::control::{Answer, Request, ask};
use crate::supervise::status::SupervisorStatus;
use crate::switch::drive::{Driver, Moment};
use crate::switch::files::InstanceFiles;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(100);
/// How long the package's agent may take to come up.
const START_WAIT: Duration = Duration::from_secs(60);
/// A supervisor looks a few times a second whether it can give its agent back.
const ANSWER_ROOM: Duration = Duration::from_secs(10);

/// `sidle release PACKAGE`
#[derive(Debug, Args)]
pub struct ReleaseArguments {
    /// The package
    package: PackageName,
    /// The instance; the package's default one without this
    #[arg(long)]
    instance: Option<InstanceName>,
    /// How long to wait for running jobs, then change nothing: 90s, 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration)]
    deadline: Option<Duration>,
    /// Prints what would be done, and changes nothing
    #[arg(long)]
    dry_run: bool,
}

/// Gives an adopted agent back.
pub fn release(context: &Context, arguments: &ReleaseArguments) -> Result<Ended, Report> {
    let (package, layout) = (&arguments.package, &context.layout);
    let instance = instance_of(package, arguments.instance.as_ref());
    let adoption = Adoption::read(layout, &instance)?.ok_or_else(|| Report {
        class: Class::NothingToDo,
        message: format!("cannot release {instance}: it was not adopted"),
        causes: Vec::new(),
        hint: Some(format!("`sidle adopt {package}` takes a running agent of a package over")),
    })?;
    if let Some(why) = adoption.lacks(layout)? {
        return Err(Report {
            class: Class::Failed,
            message: format!("cannot release {instance}: {why}"),
            causes: Vec::new(),
            hint: Some("install the package again; what runs is not touched meanwhile".to_owned()),
        });
    }
    if arguments.dry_run {
        let mut steps =
            vec!["wait until no job runs, then end the running release; from then on nobody is there".to_owned()];
        steps.push(format!(
            "remove the unit that stands in for {} and {} commands",
            adoption.unit,
            adoption.commands.len()
        ));
        steps.push(format!("start it: {}", adoption.way_out(layout).join("; ")));
        context.output.result(&steps.join("\n"), json!({"steps": steps}));
        return Ok(Ended::Well);
    }
    let settings = Settings::read(layout)?;
    let files = InstanceFiles::new(layout, &instance, package);
    let configuration = configuration(context, &settings, &files, &instance)?;
    let ended = end_ours(context, &files, arguments.deadline.unwrap_or(settings.switch_deadline), &settings)?;
    let Some(since) = ended else {
        context.output.result("still busy at the deadline, nothing was changed", json!({"released": false}));
        return Ok(Ended::As(Class::Busy));
    };
    adoption.undo(layout, &instance)?;
    start(&adoption)?;
    let up = comes_up(&adoption, configuration);
    let outage = clock::since_boot().saturating_sub(since);
    let told = format!("{} runs again; nobody was there for {:.1} s", adoption.unit, outage.as_secs_f64());
    if !up {
        return Err(Report {
            class: Class::Failed,
            message: format!(
                "cannot see the agent of {} reach its peers within {} s",
                adoption.unit,
                START_WAIT.as_secs()
            ),
            causes: Vec::new(),
            hint: Some(format!(
                "nothing of sidle runs; if it does not either: {}",
                adoption.way_out(layout).join("; ")
            )),
        });
    }
    let milliseconds = u64::try_from(outage.as_millis()).unwrap_or(u64::MAX);
    context.output.result(&told, json!({"released": instance, "outage_milliseconds": milliseconds}));
    Ok(Ended::Well)
}

/// The configuration directory of the release that runs; None: none does any more.
fn configuration(
    context: &Context,
    settings: &Settings,
    files: &InstanceFiles,
    instance: &InstanceName,
) -> Result<Option<PathBuf>, Report> {
    let (_, named) = settings.instance(&context.layout, instance)?;
    let Some(release) = files.journal()?.proven else { return Ok(named) };
    let manifest = Store::new(&context.layout, files.package()).manifest(&release)?;
    Ok(Some(named.unwrap_or_else(|| context.layout.on_host(manifest.service.config.as_ref()))))
}

/// Ends the running release once it is idle; gives since when nobody is there. None: it stayed busy.
fn end_ours(
    context: &Context,
    files: &InstanceFiles,
    patience: Duration,
    settings: &Settings,
) -> Result<Option<Duration>, Report> {
    let deadline_seconds = patience.as_secs();
    match ask(&context.layout, files.instance(), &Request::Release { deadline_seconds })? {
        Some(Answer::Refused(report)) => return Err(report),
        Some(Answer::Accepted { .. }) => context.output.step("waiting until no job runs"),
        None => {
            let Some(lock) = files.try_drive()? else {
                return Err(crate::cli::usage("cannot ask the supervisor: it does not answer", "try again"));
            };
            let now = Moment { wall: clock::now(), since_boot: clock::since_boot() };
            Driver::new(files.clone(), lock, settings.limits, now)?.release(now)?;
        }
    }
    let give_up_at = clock::since_boot() + patience + ANSWER_ROOM;
    let mut since = None;
    loop {
        if files.journal()?.proven.is_none() {
            let since = *since.get_or_insert(clock::since_boot());
            let status = SupervisorStatus::read(&context.layout, files.instance())?;
            if status.is_none_or(|status| status.agent.is_none()) {
                return Ok(Some(since));
            }
        } else if clock::since_boot() >= give_up_at {
            return Ok(None);
        }
        clock::sleep(LOOK);
    }
}

fn start(adoption: &Adoption) -> Result<(), Report> {
    if adoption.managed {
        return Ok(units::start(&adoption.unit)?);
    }
    let mut words = adoption.command.iter();
    let mut program = Program::new(words.next().cloned().unwrap_or_default());
    program.arguments = words.map(Into::into).collect();
    program.start_detached()?;
    Ok(())
}

/// Waits until the package's agent reaches its peers.
fn comes_up(adoption: &Adoption, configuration: Option<PathBuf>) -> bool {
    let (Some(adopter), Some(configuration)) = (adopter(adoption.agent), configuration) else { return true };
    let give_up_at = clock::since_boot() + START_WAIT;
    while clock::since_boot() < give_up_at {
        if let Ok(Some(found)) = adopter.find(&configuration, None) {
            let health = agents(adoption.agent, &AgentSettings::new(&configuration))
                .map(|agent| agent.health(Subject::unguarded(&found.leader)));
            if health.is_ok_and(|health| health.lacks(&[]).is_none()) {
                return true;
            }
        }
        clock::sleep(LOOK);
    }
    false
}
