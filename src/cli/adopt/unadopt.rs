//! `sidle unadopt`: the package's agent runs again, and sidle's is gone.
//!
//! The package's agent has no guard before it runs, so the two are never there at once: ours is ended once no job runs, and what is
//! published until the other one is up is missed. How long that was is told.

use super::environment;
use super::record::Adoption;
use crate::agent::gate::{GATE_VARIABLE, ROLE_VARIABLE};
use crate::agent::{AgentKind, AgentSettings, Subject};
use crate::cli::{Context, Ended, adopter, agents, instance_of};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock::Moment;
use crate::os::process::{self, Program};
use crate::os::{clock, proc_fs, units};
use crate::store::Store;
use crate::supervise::control::{Answer, Command, ask};
use crate::supervise::status::SupervisorStatus;
use crate::switch::driver::Driver;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::{INSTANCE_VARIABLE, LEADER_VARIABLE, RELEASE_VARIABLE, ROOT_VARIABLE, described};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(100);
/// How long the package's agent may take to come up.
const START_WAIT: Duration = Duration::from_secs(60);
/// A supervisor looks a few times a second whether it can give its agent back.
const ANSWER_ROOM: Duration = Duration::from_secs(10);

/// `sidle unadopt PACKAGE`
#[derive(Debug, Args)]
pub struct UnadoptArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the one named as the package]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Give up if jobs still run after this time: 90s, 30m, 2h [default: the setting `switch_deadline`, 30m]
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration)]
    deadline: Option<Duration>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Gives an adopted agent back.
pub fn unadopt(context: &Context, arguments: &UnadoptArguments) -> Result<Ended, Report> {
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
        let mut steps = vec![
            "wait until no job runs, then end the running release: the package's agent has no guard, and beside ours it would do every job \
             a second time"
                .to_owned(),
            "from then on nobody is there until the package's agent is up: what is published meanwhile is missed".to_owned(),
        ];
        steps.push(format!(
            "remove the unit that stands in for {} and {} commands",
            adoption.unit,
            adoption.commands.len()
        ));
        steps.push(format!("start it: {}", adoption.way_out(layout, &instance).join("; ")));
        context.output.result(steps.clone(), json!({"steps": steps}));
        return Ok(Ended::Well);
    }
    refuse_own_job(context, &instance)?;
    let settings = Settings::read(layout)?;
    let files = InstanceFiles::new(layout, &instance, package);
    let configuration = configuration(context, &settings, &files, &instance)?;
    let watched = Watched { kind: adoption.agent, configuration: configuration.clone(), told: None };
    let patience = arguments.deadline.unwrap_or(settings.switch_deadline);
    let since = match end_ours(context, &files, patience, &settings, watched)? {
        Gone::Since(since) => since,
        Gone::Not(work) => {
            let work = work.map_or_else(String::new, |work| format!(" with {work}"));
            let told = format!("still busy{work} at the deadline, nothing was changed");
            context.output.result(&told, json!({"released": false}));
            return Ok(Ended::As(Class::Busy));
        }
    };
    let from = clock::now();
    environment::remove(layout, &instance, adoption.managed)?;
    adoption.undo(layout, &instance)?;
    start(&adoption)?;
    let up = comes_up(&adoption, configuration);
    let outage = clock::since_boot().saturating_sub(since);
    let missed = missed(&adoption, from)?;
    let told = format!("{} runs again; downtime {:.1} s", adoption.unit, outage.as_secs_f64());
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
                adoption.way_out(layout, &instance).join("; ")
            )),
        });
    }
    let milliseconds = u64::try_from(outage.as_millis()).unwrap_or(u64::MAX);
    context.output.result(
        std::iter::once(told).chain(missed).collect::<Vec<_>>(),
        json!({"released": instance, "outage_milliseconds": milliseconds}),
    );
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

/// A job of the agent itself would wait for its own end.
fn refuse_own_job(context: &Context, instance: &InstanceName) -> Result<(), Report> {
    let agent = SupervisorStatus::read(&context.layout, instance)?.and_then(|status| status.agent);
    let above = proc_fs::ancestors(process::own_number())?;
    if !agent.is_some_and(|agent| above.iter().any(|process| process.pid == agent.leader.pid)) {
        return Ok(());
    }
    Err(Report {
        class: Class::Conflict,
        message: format!("cannot release {instance}: a job of it asks, and it is not idle before that job has ended"),
        causes: Vec::new(),
        hint: Some(
            "ask from a shell, or let the job ask for it later: `systemd-run --on-active=5 sidle unadopt …`".to_owned(),
        ),
    })
}

/// Where what was published while nobody was there can be seen.
fn missed(adoption: &Adoption, from: Timestamp) -> Result<Option<String>, Report> {
    let zone = clock::zone(None)?;
    // To the second, and nothing is left out.
    let now = clock::now();
    let until = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
    let words =
        adopter(adoption.agent).map(|adopter| adopter.missed(&from.to_zoned(zone.clone()), &until.to_zoned(zone)));
    Ok(words)
}

/// What came of ending the running release.
enum Gone {
    /// Nobody is there since then (time since boot).
    Since(Duration),
    /// It stayed busy, with this.
    Not(Option<String>),
}

/// How often is looked at what an agent still does, to tell it.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// The agent that is waited for.
struct Watched {
    kind: AgentKind,
    configuration: Option<PathBuf>,
    told: Option<(Duration, Option<String>)>,
}

impl Watched {
    /// Tells what is waited for, when that is something new.
    fn tell(&mut self, context: &Context, files: &InstanceFiles) -> Result<(), Report> {
        let now = clock::since_boot();
        if self.told.as_ref().is_some_and(|(at, _)| now < *at + TELL_INTERVAL) {
            return Ok(());
        }
        let agent = SupervisorStatus::read(&context.layout, files.instance())?.and_then(|status| status.agent);
        let (Some(agent), Some(configuration)) = (agent, &self.configuration) else { return Ok(()) };
        let activity = agents(self.kind, &AgentSettings::new(configuration))
            .map(|observer| observer.activity(Subject::unguarded(&agent.leader)));
        let work = activity.ok().as_ref().and_then(described);
        if let Some(work) =
            work.as_ref().filter(|work| self.told.as_ref().is_none_or(|(_, told)| told.as_ref() != Some(*work)))
        {
            context.output.step(format!("waiting for {work}"));
        }
        self.told = Some((now, work));
        Ok(())
    }
}

/// Ends the running release once it is idle.
fn end_ours(
    context: &Context,
    files: &InstanceFiles,
    patience: Duration,
    settings: &Settings,
    mut watched: Watched,
) -> Result<Gone, Report> {
    let deadline_seconds = patience.as_secs();
    match ask(&context.layout, files.instance(), &Command::Unadopt { deadline_seconds })? {
        Some(Answer::Refused(report)) => return Err(report),
        Some(Answer::Accepted { .. }) => context.output.step("waiting until no job runs"),
        None => {
            let Some(lock) = files.try_drive()? else {
                return Err(crate::cli::usage("cannot ask the supervisor: it does not answer", "try again"));
            };
            let now = Moment::now();
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
                return Ok(Gone::Since(since));
            }
        } else if clock::since_boot() >= give_up_at {
            return Ok(Gone::Not(watched.told.and_then(|(_, work)| work)));
        } else {
            watched.tell(context, files)?;
        }
        clock::sleep(INTERVAL);
    }
}

fn start(adoption: &Adoption) -> Result<(), Report> {
    if adoption.managed {
        return Ok(units::start(&adoption.unit)?);
    }
    let mut words = adoption.command.iter();
    let mut program = Program::new(words.next().cloned().unwrap_or_default());
    program.arguments = words.map(Into::into).collect();
    // It is nobody's but the host's, whoever asked for it.
    let own = [GATE_VARIABLE, ROLE_VARIABLE, INSTANCE_VARIABLE, LEADER_VARIABLE, RELEASE_VARIABLE, ROOT_VARIABLE];
    program.without = own.map(Into::into).into();
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
        clock::sleep(INTERVAL);
    }
    false
}
