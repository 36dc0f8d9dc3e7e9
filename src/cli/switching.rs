//! The verbs that switch: switch, rollback, restart, cancel, supervise. They ask the supervisor where one lives, and write the wish down where
//! none does; then they follow the journal, which needs no socket.

use super::output::Output;
use super::{Context, Ended, agents, instance_of, rehearsers, usage};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::{clock, process};
use crate::store::Store;
use crate::supervise::control::{Answer, Request, Wish, ask};
use crate::supervise::{SuperviseSettings, supervise as run_supervisor};
use crate::switch::drive::{BadReleases, Driver, Moment, Rehearsals};
use crate::switch::files::InstanceFiles;
use crate::switch::{Entry, Journal, Mode, Phase, Purpose, Switch};
use crate::version::Release;
use clap::{Args, ValueEnum};
use jiff::SignedDuration;
use serde_json::json;
use std::time::Duration;

/// What a switch may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Bring the new process up beside the old one: no job is lost, none runs twice
    Overlap,
    /// Wait until no job runs; what is published while nobody is there is missed, and status says how long that was
    Idle,
    /// Do not wait: the returns of running jobs are lost
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

/// What all switches take.
#[derive(Debug, Args)]
pub struct Terms {
    /// The instance; the package's default one without this
    #[arg(long)]
    instance: Option<InstanceName>,
    /// What the switch may cost; overlap where that can be done, else idle
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    /// How long to wait for running jobs, then change nothing: 90s, 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration)]
    deadline: Option<Duration>,
    /// Return at once; `sidle status` tells how far it is
    #[arg(long)]
    no_wait: bool,
    /// Why, for the history
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Try a release that failed on this host before
    #[arg(long)]
    force: bool,
}

/// `sidle switch PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct SwitchArguments {
    /// The package
    package: PackageName,
    /// The release; the newest installed one without this
    release: Option<Release>,
    #[command(flatten)]
    terms: Terms,
}

/// `sidle rollback PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// The package
    package: PackageName,
    /// The release; the previous one without this
    release: Option<Release>,
    #[command(flatten)]
    terms: Terms,
}

/// `sidle restart PACKAGE`
#[derive(Debug, Args)]
pub struct RestartArguments {
    /// The package
    package: PackageName,
    #[command(flatten)]
    terms: Terms,
}

/// `sidle cancel PACKAGE`
#[derive(Debug, Args)]
pub struct CancelArguments {
    /// The package
    package: PackageName,
    /// The instance; the package's default one without this
    #[arg(long)]
    instance: Option<InstanceName>,
}

/// `sidle supervise INSTANCE`
#[derive(Debug, Args)]
pub struct SuperviseArguments {
    /// The instance
    instance: InstanceName,
}

/// Switches to an installed release.
pub fn switch(context: &Context, arguments: &SwitchArguments) -> Result<Ended, Report> {
    let to = match &arguments.release {
        Some(release) => release.clone(),
        None => newest(context, &arguments.package)?,
    };
    begin(context, &arguments.package, &arguments.terms, Purpose::Switch, to)
}

fn newest(context: &Context, package: &PackageName) -> Result<Release, Report> {
    let releases = Store::new(&context.layout, package).releases()?;
    releases.into_iter().next_back().ok_or_else(|| Report {
        class: Class::Failed,
        message: format!("cannot switch {package}: no release of it is installed"),
        causes: Vec::new(),
        hint: Some("`sidle install FILE` installs one; `sidle list` shows the packages that are there".to_owned()),
    })
}

/// Goes back to the previous release, or to a named one.
pub fn rollback(context: &Context, arguments: &RollbackArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.terms.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    let journal = files.journal()?;
    let Some(to) = arguments.release.clone().or(journal.previous) else {
        let releases = Store::new(&context.layout, &arguments.package).releases()?;
        let kept: Vec<String> = releases.iter().map(Release::to_string).collect();
        let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
        return Err(Report {
            class: Class::NothingToDo,
            message: format!("cannot go back: {instance} has had no other release; kept are: {kept}"),
            causes: Vec::new(),
            hint: Some(format!("`sidle rollback {} RELEASE` goes to one of those", arguments.package)),
        });
    };
    begin(context, &arguments.package, &arguments.terms, Purpose::Rollback, to)
}

/// Starts the current release again.
pub fn restart(context: &Context, arguments: &RestartArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.terms.instance.as_ref());
    let current = InstanceFiles::new(&context.layout, &instance, &arguments.package).journal()?.proven;
    let to = current.ok_or_else(|| Report {
        class: Class::NothingToDo,
        message: format!("cannot restart {instance}: it has no current release yet"),
        causes: Vec::new(),
        hint: Some(format!("`sidle switch {}` makes an installed release the current one", arguments.package)),
    })?;
    begin(context, &arguments.package, &arguments.terms, Purpose::Restart, to)
}

fn begin(
    context: &Context,
    package: &PackageName,
    terms: &Terms,
    purpose: Purpose,
    to: Release,
) -> Result<Ended, Report> {
    let settings = crate::config::Settings::read(&context.layout)?;
    let instance = instance_of(package, terms.instance.as_ref());
    let wish = Wish {
        purpose,
        mode: terms.mode.map(Mode::from),
        to,
        deadline_seconds: terms.deadline.unwrap_or(settings.switch_deadline).as_secs(),
        reason: terms.reason.clone(),
        by: process::user_name(process::user()),
        force: terms.force,
    };
    let files = InstanceFiles::new(&context.layout, &instance, package);
    match ask(&context.layout, &instance, &Request::Switch(wish.clone()))? {
        Some(Answer::Refused(report)) => Err(report),
        Some(Answer::Accepted { switch }) if terms.no_wait => {
            context.output.result(
                &format!("switch {switch} is accepted; `sidle status {package}` tells how far it is"),
                json!({"switch": switch, "pending": true}),
            );
            Ok(Ended::As(Class::Pending))
        }
        Some(Answer::Accepted { switch }) => follow(&files, switch, &context.output),
        None => leave(context, &files, wish, &settings),
    }
}

/// Without a supervisor the wish is written down; the next supervisor carries it out.
fn leave(
    context: &Context,
    files: &InstanceFiles,
    wish: Wish,
    settings: &crate::config::Settings,
) -> Result<Ended, Report> {
    let now = Moment { wall: clock::now(), since_boot: clock::since_boot() };
    let Some(lock) = files.try_drive()? else {
        return Err(Report {
            class: Class::Locked,
            message: format!("cannot ask the supervisor of {}: it does not answer yet", files.instance()),
            causes: Vec::new(),
            hint: Some("it may be starting or ending just now: try again".to_owned()),
        });
    };
    let mut driver = Driver::new(files.clone(), lock, settings.limits, now)?;
    let deadline = SignedDuration::from_secs(i64::try_from(wish.deadline_seconds).unwrap_or(i64::MAX));
    let request = crate::switch::Request {
        purpose: wish.purpose,
        // Nothing runs, so there is nothing to overlap with.
        mode: wish.mode.unwrap_or(Mode::Idle),
        to: wish.to.clone(),
        deadline: now.wall.saturating_add(deadline).unwrap_or(jiff::Timestamp::MAX),
        reason: wish.reason,
        by: wish.by,
        notes: Vec::new(),
        adopted: None,
    };
    let bad = if wish.force { BadReleases::TryAgain } else { BadReleases::Refuse };
    let switch = driver.request(request, bad, now)?;
    let instance = files.instance();
    context.output.result(
        &format!("switch {switch} to {} is written down: nothing runs {instance} now, so it begins when `sidle supervise {instance}` starts", wish.to),
        json!({"switch": switch, "pending": true}),
    );
    Ok(Ended::As(Class::Pending))
}

/// How often the journal is looked at while a command follows a switch.
const FOLLOW_LOOK: Duration = Duration::from_millis(100);
/// A supervisor that has been gone for this long is not coming back by itself while somebody waits.
const SUPERVISOR_GONE: Duration = Duration::from_secs(10);

/// Follows a switch to its end and tells each step.
pub(super) fn follow(files: &InstanceFiles, id: u64, output: &Output) -> Result<Ended, Report> {
    let mut told = String::new();
    let mut seen = clock::since_boot();
    loop {
        let journal = files.journal()?;
        match journal.live.as_ref().filter(|live| live.id == id) {
            Some(live) => {
                let words = words(live);
                if words != told {
                    output.step(&words);
                    told = words;
                }
            }
            None => {
                if let Some(entry) = files.history()?.find(id) {
                    return Ok(concluded(entry, &journal, output));
                }
            }
        }
        // The supervisor holds the lock while it lives.
        match files.try_drive()? {
            None => seen = clock::since_boot(),
            Some(_) if clock::since_boot().saturating_sub(seen) > SUPERVISOR_GONE => {
                output.result(
                    &format!("switch {id} is not finished: its supervisor is gone; it goes on when `sidle supervise {}` starts", files.instance()),
                    json!({"switch": id, "pending": true}),
                );
                return Ok(Ended::As(Class::Pending));
            }
            Some(_) => {}
        }
        clock::sleep(FOLLOW_LOOK);
    }
}

/// A live switch in one line.
pub(super) fn words(live: &Switch) -> String {
    let phase = match live.phase {
        Phase::Checking => "checking the files of both releases",
        Phase::Rehearsing => "rehearsing: loading this host's configuration and modules",
        Phase::Waiting => "waiting until no job runs",
        Phase::Freezing => "looking once more",
        Phase::Stopping => "stopping the old process",
        Phase::Starting => "starting the new process",
        Phase::Proving => "waiting until the new process reaches its peers",
        Phase::Handing => "handing the jobs over to the new process",
        Phase::Probation => "on probation",
        Phase::Flipping => "making it current",
        Phase::Retiring => "current; the old process finishes what it has",
        Phase::Returning => "going back: the old process takes the jobs again, the new one finishes what it has",
        Phase::Retreating => "going back: ending the new process",
        Phase::Restarting => "going back: starting the release that worked",
        Phase::Reproving => "going back: waiting until it reaches its peers",
        Phase::Stranded => "stranded: the release that worked does not come up; it is tried again and again",
        Phase::Committed
        | Phase::RolledBack
        | Phase::Refused
        | Phase::Cancelled
        | Phase::Expired
        | Phase::Abandoned => "ending",
    };
    let waits = live.waiting_for.as_ref().map_or_else(String::new, |waiting| format!(" ({waiting})"));
    format!("{} to {}: {phase}{waits}", live.purpose, live.to)
}

fn concluded(entry: &Entry, journal: &Journal, output: &Output) -> Ended {
    let outage = Duration::from_millis(entry.outage_milliseconds);
    let why = entry.failure.as_ref().map_or_else(String::new, |failure| format!(": {}", failure.text));
    let now = journal.proven.as_ref().map_or_else(|| "none".to_owned(), Release::to_string);
    let (text, class) = match entry.result {
        Phase::Committed => {
            (format!("{} is current; nobody was there for {:.1} s", entry.to, outage.as_secs_f64()), None)
        }
        Phase::RolledBack => (
            format!(
                "went back from {}{why}; current is {now}; nobody was there for {:.1} s",
                entry.to,
                outage.as_secs_f64()
            ),
            Some(Class::RolledBack),
        ),
        Phase::Expired => {
            (format!("still busy at the deadline, nothing was changed{why}; current is {now}"), Some(Class::Busy))
        }
        Phase::Cancelled => (format!("taken back, nothing was changed; current is {now}"), Some(Class::Failed)),
        Phase::Abandoned => (format!("given up{why}; current is {now}"), Some(Class::Failed)),
        _ => (format!("refused, nothing was changed{why}; current is {now}"), Some(Class::Failed)),
    };
    let notes = entry.notes.iter().map(|note| format!("note: {note}"));
    output.result(&std::iter::once(text).chain(notes).collect::<Vec<_>>().join("\n"), entry);
    class.map_or(Ended::Well, Ended::As)
}

/// Takes back the live switch.
pub fn cancel(context: &Context, arguments: &CancelArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    let Some(live) = files.journal()?.live else {
        context.output.result(&format!("{instance} has no live switch"), json!({"switch": null}));
        return Ok(Ended::As(Class::NothingToDo));
    };
    match ask(&context.layout, &instance, &Request::Cancel)? {
        Some(Answer::Refused(report)) => Err(report),
        Some(Answer::Accepted { switch }) => follow(&files, switch, &context.output).map(|ended| match ended {
            // What was asked for is what came.
            Ended::As(Class::Failed) => Ended::Well,
            other => other,
        }),
        None => {
            let Some(lock) = files.try_drive()? else {
                return Err(usage("cannot ask the supervisor: it does not answer", "try again"));
            };
            let now = Moment { wall: clock::now(), since_boot: clock::since_boot() };
            let settings = crate::config::Settings::read(&context.layout)?;
            Driver::new(files, lock, settings.limits, now)?.cancel(now)?;
            context.output.result(&format!("switch {} is taken back", live.id), json!({"switch": live.id}));
            Ok(Ended::Well)
        }
    }
}

/// Runs an instance's agent until told to end.
pub fn supervise(context: &Context, arguments: &SuperviseArguments) -> Result<Ended, Report> {
    let settings = crate::config::Settings::read(&context.layout)?;
    let (package, configuration) = settings.instance(&context.layout, &arguments.instance)?;
    let supervise = SuperviseSettings {
        instance: arguments.instance.clone(),
        package,
        configuration,
        limits: settings.limits,
        stop: settings.limits.stop,
        restart_pause_minimum: settings.restart_pause_minimum,
        restart_pause_maximum: settings.restart_pause_maximum,
        rehearsals: Rehearsals { rehearsers, policy: settings.rehearsal },
    };
    run_supervisor(&context.layout, supervise, agents)?;
    Ok(Ended::Well)
}
