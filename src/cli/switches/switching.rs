//! The commands switch, rollback, restart, cancel. They ask the supervisor, or write the request into the journal if no supervisor runs; then they
//! follow the journal, which needs no socket.

use super::foresight::{refuse_overlap_alone, show, show_if_changed, show_rehearsed};
use super::own_release;
use crate::adoption::running_agent;
use crate::cli::dry_run::DryRun;
use crate::cli::follow::{follow, words};
use crate::cli::reach::{Reached, reach, reach_after_a_commit};
use crate::cli::rollout::OrderOptions;
use crate::cli::timing::Timing;
use crate::cli::{Context, Ended, adopting, agents, instance_of};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock::Moment;
use crate::os::{clock, process};
use crate::store::Store;
use crate::store::collect::Effect;
use crate::supervise::control::{Answer, Command, SwitchCommand, ask};
use crate::switch::driver::Driver;
use crate::switch::driver::requests::BadReleases;
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use crate::switch::process::on_record;
use crate::switch::{self, Mode, Purpose};
use crate::version::Release;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::time::Duration;

/// The mode of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Start the new process beside the old process: no job is lost, no job runs twice
    Overlap,
    /// Wait until no job runs; jobs published during the downtime are missed, and `status` shows the length of the downtime
    Idle,
    /// Do not wait: the returns of running jobs are lost; jobs published during the downtime are missed
    Now,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Overlap => Self::Overlap,
            ModeName::Idle => Self::Idle,
            ModeName::Now => Self::Now,
        }
    }
}

/// The options of all switches.
#[derive(Debug, Clone, Args)]
pub struct Terms {
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// How to switch [default: overlap where possible, else idle]
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    /// Change nothing and give up, if jobs still run after this time: 90s, 30m, 2h [default: the setting `switch_deadline`, 30m]
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration)]
    deadline: Option<Duration>,
    /// Return at once, while the switch goes on; `sidle status` shows the progress
    #[arg(long)]
    no_wait: bool,
    /// A note that `sidle history` shows
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Allow a release that is marked as bad (it failed on this host); `upgrade` also takes a declined release (an administrator rolled back from it)
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    order: OrderOptions,
}

impl Terms {
    /// Claims the instance for the rollout that gives the order, if one does.
    pub fn claim(&self, context: &Context, files: &InstanceFiles) -> Result<(), Report> {
        self.order.claim(files, context.effect == Effect::DryRun)
    }

    /// The named instance, if any.
    pub fn instance(&self) -> Option<&InstanceName> {
        self.instance.as_ref()
    }

    /// True if a release that failed on this host is allowed.
    pub fn is_forced(&self) -> bool {
        self.force
    }
}

/// `sidle switch PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct SwitchArguments {
    /// The package
    package: PackageName,
    /// The release [default: the newest installed release, even if you rolled back from it before]
    release: Option<Release>,
    #[command(flatten)]
    dry: DryRun,
    /// With --dry-run: also load this host's configuration with the release, as a switch does before it begins; writes only below /run and lock files
    #[arg(long, requires = "dry_run")]
    rehearse: bool,
    #[command(flatten)]
    terms: Terms,
}

impl SwitchArguments {
    /// A switch to this release.
    pub fn to(package: PackageName, release: Release, terms: Terms) -> Self {
        Self { package, release: Some(release), dry: DryRun::default(), rehearse: false, terms }
    }
}

/// `sidle rollback PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// The package
    package: PackageName,
    /// The release [default: the previous release]
    release: Option<Release>,
    /// Show what would be done, also to the configuration; change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    terms: Terms,
}

/// `sidle restart PACKAGE`
#[derive(Debug, Args)]
pub struct RestartArguments {
    /// The package [default: the package of --instance]
    #[arg(required_unless_present = "instance")]
    package: Option<PackageName>,
    /// Restart only if the configuration changed since the process started, or if the process is not healthy; during a switch, check again when the switch ends
    #[arg(long)]
    if_changed: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    terms: Terms,
}

/// Switches to an installed release.
pub fn switch(context: &Context, arguments: &SwitchArguments) -> Result<Ended, Report> {
    let to = match &arguments.release {
        Some(release) => release.clone(),
        None => newest(context, &arguments.package)?,
    };
    if arguments.rehearse && !arguments.package.is_sidle() {
        let instance = instance_of(&arguments.package, arguments.terms.instance.as_ref());
        let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
        arguments.terms.claim(context, &files)?;
        return show_rehearsed(context, &files, command(context, &instance, &arguments.terms, Purpose::Switch, to)?);
    }
    begin(context, &arguments.package, &arguments.terms, Purpose::Switch, to)
}

fn newest(context: &Context, package: &PackageName) -> Result<Release, Report> {
    let releases = Store::new(&context.layout, package).releases()?;
    releases.into_iter().next_back().ok_or_else(|| {
        Report::of(Class::Failed, format!("cannot switch {package}: no release of it is installed"))
            .hint("`sidle install FILE` installs a release; `sidle list` shows the installed packages")
    })
}

/// Goes back to the previous release, or to a named one.
pub fn rollback(context: &Context, arguments: &RollbackArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.terms.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    arguments.terms.claim(context, &files)?;
    let mut journal = files.journal()?;
    if arguments.package.is_sidle() {
        let current = Store::new(&context.layout, &arguments.package).current(&instance)?;
        journal.previous = own_release::previous(&journal, current.as_ref());
    }
    let Some(to) = arguments.release.clone().or(journal.previous) else {
        let releases = Store::new(&context.layout, &arguments.package).releases()?;
        let kept: Vec<String> = releases.iter().map(Release::to_string).collect();
        let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
        return Err(Report::of(
            Class::NothingToDo,
            format!("cannot roll back {instance}: it has no previous release; installed releases: {kept}"),
        )
        .hint(format!("name an installed release: `sidle rollback {} RELEASE`", arguments.package)));
    };
    if arguments.package.is_sidle() {
        return own_release::take_up(context, &arguments.package, &to, Purpose::Rollback);
    }
    begin(context, &arguments.package, &arguments.terms, Purpose::Rollback, to)
}

/// Restarts the current release.
pub fn restart(context: &Context, arguments: &RestartArguments) -> Result<Ended, Report> {
    let (package, instance) = match (&arguments.package, &arguments.terms.instance) {
        (Some(package), instance) => (package.clone(), instance_of(package, instance.as_ref())),
        (None, Some(instance)) => {
            let (package, _) = crate::config::Settings::read(&context.layout)?.instance(&context.layout, instance)?;
            (package, instance.clone())
        }
        (None, None) => {
            return Err(crate::cli::usage(
                "cannot restart: name a package or an instance",
                "`sidle restart PACKAGE`, or `sidle restart --instance INSTANCE`",
            ));
        }
    };
    let current = InstanceFiles::new(&context.layout, &instance, &package).journal()?.proven;
    let to = current.ok_or_else(|| {
        Report::of(Class::NothingToDo, format!("cannot restart {instance}: it has no current release yet"))
            .hint(format!("`sidle switch {package}` makes an installed release current"))
    })?;
    if arguments.if_changed {
        return restart_if_changed(context, &package, &arguments.terms, &instance, to);
    }
    begin(context, &package, &arguments.terms, Purpose::Restart, to)
}

/// Restarts the current release if its configuration has changed.
fn restart_if_changed(
    context: &Context,
    package: &PackageName,
    terms: &Terms,
    instance: &InstanceName,
    to: Release,
) -> Result<Ended, Report> {
    let files = InstanceFiles::new(&context.layout, instance, package);
    terms.claim(context, &files)?;
    let before = files.journal()?.live;
    let command = command(context, instance, terms, Purpose::Restart, to)?;
    if context.effect == Effect::DryRun {
        return show_if_changed(context, &files, command);
    }
    let nothing = |text: String| {
        context.output.result(&text, json!({"switch": null}));
        Ok(Ended::As(Class::NothingToDo))
    };
    match reach(context, &files, &Command::RestartIfChanged(Box::new(command)))? {
        Reached::Supervisor(Answer::Refused(report)) if report.class == Class::NothingToDo => nothing(report.message),
        Reached::Supervisor(Answer::Refused(report)) => Err(report),
        Reached::Supervisor(Answer::Accepted { switch, .. })
            if before.as_ref().is_some_and(|live| live.id == switch) =>
        {
            let text = format!("switch {switch} is under way; the configuration is checked again when it ends");
            context.output.result(&text, json!({"switch": switch, "pending": true}));
            Ok(Ended::As(Class::Pending))
        }
        Reached::Supervisor(Answer::Accepted { switch, .. }) => accepted(context, &files, terms, switch),
        Reached::Nobody(_) => {
            nothing(format!("nothing runs {instance} now: its next process loads the present configuration"))
        }
    }
}

fn begin(
    context: &Context,
    package: &PackageName,
    terms: &Terms,
    purpose: Purpose,
    to: Release,
) -> Result<Ended, Report> {
    own_release::refuse(package, &purpose.to_string())?;
    let settings = crate::config::Settings::read(&context.layout)?;
    let instance = instance_of(package, terms.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, package);
    terms.claim(context, &files)?;
    if context.effect == Effect::DryRun {
        return show(context, &files, command(context, &instance, terms, purpose, to)?, (Vec::new(), Value::Null));
    }
    let command = command(context, &instance, terms, purpose, to.clone()).inspect_err(|why| {
        // The supervisor's log has refusals, too; without a supervisor there is no log.
        let refused = Command::Refused { purpose, to, why: why.clone() };
        let _ = ask(&context.layout, &instance, &refused);
    })?;
    running_agent::refuse(&adopting(&context.layout, &instance, package), &command.request.to)?;
    match reach_after_a_commit(context, &files, &Command::Switch(Box::new(command.clone())))? {
        Reached::Supervisor(Answer::Refused(report)) => Err(report),
        // The command does not wait for a window, which may open next week.
        Reached::Supervisor(Answer::Accepted { switch, .. }) if command.when.opens.is_some() => {
            let live = files.journal()?.live.filter(|live| live.id == switch);
            let words = live.as_ref().map_or_else(|| "has begun".to_owned(), words);
            context.output.result(
                format!("switch {switch} is accepted: {words}; `sidle cancel {package}` cancels it"),
                json!({"switch": switch, "pending": true, "schedule": live.and_then(|live| live.schedule)}),
            );
            Ok(Ended::As(Class::Pending))
        }
        Reached::Supervisor(Answer::Accepted { switch, .. }) => accepted(context, &files, terms, switch),
        Reached::Nobody(lock) => leave(context, &files, lock, command, &settings),
    }
}

/// Follows an accepted switch, unless --no-wait was given.
fn accepted(context: &Context, files: &InstanceFiles, terms: &Terms, switch: u64) -> Result<Ended, Report> {
    if !terms.no_wait {
        return follow(files, switch, &context.output);
    }
    context.output.result(
        format!("switch {switch} is accepted; `sidle status {}` shows its progress", files.package()),
        json!({"switch": switch, "pending": true}),
    );
    Ok(Ended::As(Class::Pending))
}

pub(super) fn command(
    context: &Context,
    instance: &InstanceName,
    terms: &Terms,
    purpose: Purpose,
    to: Release,
) -> Result<SwitchCommand, Report> {
    let settings = crate::config::Settings::read(&context.layout)?;
    let origin = agents::caller(&context.layout);
    let by_job = origin.is_some();
    Ok(SwitchCommand {
        request: switch::Request {
            purpose,
            to,
            reason: terms.reason.clone(),
            by: process::user_name(process::user()),
            origin,
        },
        mode: terms.mode.map(Mode::from),
        deadline_seconds: terms.deadline.unwrap_or(settings.switch_deadline).as_secs(),
        force: terms.force,
        when: terms.timing.when(&settings, instance, purpose, by_job, clock::now())?,
    })
}

/// Writes the request into the journal, without a supervisor; the next supervisor performs it.
fn leave(
    context: &Context,
    files: &InstanceFiles,
    lock: DriverLock,
    command: SwitchCommand,
    settings: &crate::config::Settings,
) -> Result<Ended, Report> {
    let now = Moment::now();
    let alone = on_record(&context.layout, files.instance())?;
    refuse_overlap_alone(files.instance(), &alone, command.mode)?;
    let mut driver = Driver::new(files.clone(), lock, settings.limits, now)?;
    let bad = if command.force { BadReleases::TryAgain } else { BadReleases::Refuse };
    // Without a running process there is nothing to overlap with; without a supervisor nothing can check a running process.
    let (mode, to) = (command.mode.unwrap_or(Mode::Idle), command.request.to.clone());
    let switch = driver.request(command.planned(mode, Vec::new(), now.wall)?, bad, now)?;
    let instance = files.instance();
    let schedule = driver.journal().live.as_ref().and_then(|live| live.schedule.clone());
    let waits = schedule.as_ref().map_or_else(String::new, |schedule| format!(", and waits for {schedule}"));
    let why = match alone.first() {
        None => format!("nothing runs {instance} now"),
        Some(leader) => format!("process {} of {instance} runs without a supervisor", leader.pid),
    };
    context.output.result(
        format!("switch {switch} to {to} is pending: {why}; it begins when `sidle supervise {instance}` starts{waits}"),
        json!({"switch": switch, "pending": true, "schedule": schedule}),
    );
    Ok(Ended::As(Class::Pending))
}
