//! An order to switch an instance: made once of the command line, the settings and the caller, then sent to the supervisor, or written into the journal
//! if no supervisor runs, and followed in the journal, which needs no socket.

use super::follow::{follow, words};
use super::reach::{Reached, reach, reach_after_a_commit};
use super::timing::Timing;
use crate::adoption::running_agent;
use crate::cli::rollout::OrderOptions;
use crate::cli::{Context, Ended, adopting, agents, instance_of};
use crate::config::Settings;
use crate::failure::{Class, Reason, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock::{self, Moment};
use crate::os::process::{self, Identity};
use crate::store::Store;
use crate::store::collect::Effect;
use crate::supervise::control::{Answer, Command, SwitchCommand, ask};
use crate::switch::driver::{Driver, Policy};
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use crate::switch::process::on_record;
use crate::switch::{self, Mode, Purpose, peers};
use crate::version::Release;
use clap::{Args, ValueEnum};
use serde_json::json;
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
#[derive(Debug, Clone, Default, Args)]
pub struct Terms {
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    pub(super) instance: Option<InstanceName>,
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
    pub(super) force: bool,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    order: OrderOptions,
}

impl Terms {
    /// The instance of the order.
    pub(super) fn instance_of(&self, package: &PackageName) -> InstanceName {
        instance_of(package, self.instance.as_ref())
    }

    /// The files of the instance, which is claimed for the rollout that gives the order, if one does.
    pub(super) fn claim(&self, context: &Context, package: &PackageName) -> Result<InstanceFiles, Report> {
        let files = InstanceFiles::new(&context.layout, &self.instance_of(package), package);
        self.order.claim(&files, context.effect == Effect::DryRun)?;
        Ok(files)
    }
}

/// What was ordered.
pub(super) struct Order<'a> {
    pub(super) context: &'a Context,
    pub(super) files: InstanceFiles,
    pub(super) purpose: Purpose,
    pub(super) to: Release,
    terms: &'a Terms,
    settings: Settings,
}

impl<'a> Order<'a> {
    /// An order for an instance, by its files, to run the release `to`.
    pub(super) fn new(
        context: &'a Context,
        files: InstanceFiles,
        terms: &'a Terms,
        purpose: Purpose,
        to: Release,
    ) -> Result<Self, Report> {
        Ok(Self { context, files, purpose, to, terms, settings: Settings::read(&context.layout)? })
    }

    /// The order as the supervisor gets it. Refuses to begin outside the maintenance windows, unless an option says otherwise.
    pub(super) fn command(&self) -> Result<SwitchCommand, Report> {
        let Self { terms, settings, purpose, .. } = self;
        let origin = agents::caller(&self.context.layout);
        let when = terms.timing.when(settings, self.files.instance(), *purpose, origin.is_some(), clock::now())?;
        Ok(SwitchCommand {
            request: switch::Request {
                purpose: *purpose,
                to: self.to.clone(),
                reason: terms.reason.clone(),
                by: process::user_name(process::user()),
                origin,
            },
            mode: terms.mode.map(Mode::from),
            deadline_seconds: terms.deadline.unwrap_or(*settings.switch_deadline).as_secs(),
            force: terms.force,
            when,
        })
    }

    /// Refuses a release that the agent's peers would not take, by what they have said: the rehearsal refuses it, too, but begins later.
    pub(super) fn refuse_by_peers(&self) -> Result<(), Report> {
        let (files, to) = (&self.files, &self.to);
        if self.purpose != Purpose::Switch || self.settings.rehearsal != Policy::Refuse {
            return Ok(());
        }
        let Some(from) = files.journal()?.proven else { return Ok(()) };
        let agent = Store::new(files.layout(), files.package()).head(&from)?.agent;
        let rehearser = agents::parts(&agent)?.rehearser;
        let reasons =
            rehearser.map(|rehearser| peers::refuse(files.layout(), files.instance(), rehearser, &to.version));
        reasons.unwrap_or_default().into_iter().next().map_or(Ok(()), |reason| {
            let hint =
                "nothing was changed; once the master is newer, a plan there (`salt-run sidle.plan`) tells this host";
            let message = format!("cannot switch {} to {to}: {reason}", files.instance());
            Err(Report::of(Class::Failed, message).hint(hint).reason(Reason::Peers))
        })
    }

    /// Begins the switch, and follows it.
    pub(super) fn begin(&self) -> Result<Ended, Report> {
        let Self { context, files, .. } = self;
        let command = self.refuse_by_peers().and_then(|()| self.command()).inspect_err(|why| {
            // The supervisor's log has refusals, too; without a supervisor there is no log.
            let refused = Command::Refused { purpose: self.purpose, to: self.to.clone(), why: why.clone() };
            let _ = ask(files.layout(), files.instance(), &refused);
        })?;
        running_agent::refuse(&adopting(&context.layout, files.instance(), files.package()), &self.to)?;
        match reach_after_a_commit(context, files, &Command::Switch(Box::new(command.clone())))? {
            Reached::Supervisor(Answer::Refused(report)) => Err(report),
            // The command does not wait for a window, which may open next week.
            Reached::Supervisor(Answer::Accepted { switch, .. }) if command.when.opens.is_some() => {
                let live = files.journal()?.live.filter(|live| live.id == switch);
                let words = live.as_ref().map_or_else(|| "has begun".to_owned(), words);
                context.output.result(
                    format!("switch {switch} is accepted: {words}; `sidle cancel {}` cancels it", files.package()),
                    json!({"switch": switch, "pending": true, "schedule": live.and_then(|live| live.schedule)}),
                );
                Ok(Ended::As(Class::Pending))
            }
            Reached::Supervisor(Answer::Accepted { switch, .. }) => self.accepted(switch),
            Reached::Nobody(lock) => self.leave(lock, command),
        }
    }

    /// Begins the restart if the configuration has changed.
    pub(super) fn begin_if_changed(&self) -> Result<Ended, Report> {
        let Self { context, files, .. } = self;
        let before = files.journal()?.live.map(|live| live.id);
        let nothing = |text: String| {
            context.output.result(&text, json!({"switch": null}));
            Ok(Ended::As(Class::NothingToDo))
        };
        match reach(context, files, &Command::RestartIfChanged(Box::new(self.command()?)))? {
            Reached::Supervisor(Answer::Refused(report)) if report.class == Class::NothingToDo => {
                nothing(report.message)
            }
            Reached::Supervisor(Answer::Refused(report)) => Err(report),
            Reached::Supervisor(Answer::Accepted { switch, .. }) if before == Some(switch) => {
                let text = format!("switch {switch} is under way; the configuration is checked again when it ends");
                context.output.result(&text, json!({"switch": switch, "pending": true}));
                Ok(Ended::As(Class::Pending))
            }
            Reached::Supervisor(Answer::Accepted { switch, .. }) => self.accepted(switch),
            Reached::Nobody(_) => nothing(unchanged_as_nothing_runs(files.instance())),
        }
    }

    /// Follows the accepted switch, unless --no-wait was given.
    fn accepted(&self, switch: u64) -> Result<Ended, Report> {
        if !self.terms.no_wait {
            return follow(&self.files, switch, &self.context.output);
        }
        self.context.output.result(
            format!("switch {switch} is accepted; `sidle status {}` shows its progress", self.files.package()),
            json!({"switch": switch, "pending": true}),
        );
        Ok(Ended::As(Class::Pending))
    }

    /// Writes the request into the journal, without a supervisor; the next supervisor performs it.
    fn leave(&self, lock: DriverLock, command: SwitchCommand) -> Result<Ended, Report> {
        let (now, instance) = (Moment::now(), self.files.instance());
        let alone = on_record(self.files.layout(), instance)?;
        refuse_overlap_alone(instance, &alone, command.mode)?;
        let mut driver = Driver::new(self.files.clone(), lock, self.settings.limits(), now)?;
        // Without a running process there is nothing to overlap with; without a supervisor nothing can check a running process.
        let (bad, mode) = (command.bad_releases(), command.mode.unwrap_or(Mode::Idle));
        let switch = driver.request(command.planned(mode, Vec::new(), now.wall)?, bad, now)?;
        let schedule = driver.journal().live.as_ref().and_then(|live| live.schedule.clone());
        let waits = schedule.as_ref().map_or_else(String::new, |schedule| format!(", and waits for {schedule}"));
        let why = match alone.first() {
            None => format!("nothing runs {instance} now"),
            Some(leader) => format!("process {} of {instance} runs without a supervisor", leader.pid),
        };
        let to = &self.to;
        self.context.output.result(
            format!(
                "switch {switch} to {to} is pending: {why}; it begins when `sidle supervise {instance}` starts{waits}"
            ),
            json!({"switch": switch, "pending": true, "schedule": schedule}),
        );
        Ok(Ended::As(Class::Pending))
    }
}

/// Why a restart for a changed configuration has nothing to do without a process.
pub(super) fn unchanged_as_nothing_runs(instance: &InstanceName) -> String {
    format!("nothing runs {instance} now: its next process loads the present configuration")
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
