//! `sidle adopt` and `sidle unadopt`: a running agent of a distribution's package is taken over, and given back.

use super::follow::follow;
use super::order::ModeName;
use super::rehearse::{Before, Rehearsed, rehearse};
use super::{Context, Ended, adopting, agents, instance_of, missed};
use crate::adoption::dry_run::ExpectedChanges;
use crate::adoption::may_start;
use crate::adoption::plan::{AdoptionPlan, Chosen, Earlier, resume};
use crate::adoption::record::Adoption;
use crate::adoption::unadopt::{Return, Unadopted};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::switch::Mode;
use crate::version::Release;
use clap::Args;
use jiff::SignedDuration;
use serde_json::json;
use std::time::Duration;

/// `sidle adopt PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct AdoptArguments {
    /// The package
    package: PackageName,
    /// The release that takes over [default: the newest installed]
    release: Option<Release>,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// The systemd unit of the distribution's package [default: PACKAGE.service]
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
    /// How to take over [default: overlap]
    #[arg(long, value_enum)]
    mode: Option<ModeName>,
    /// Show what would change, and what would not; change nothing
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: also load this host's configuration with the packaged agent and with the release, as the adoption does before it begins; writes only
    /// below /run and lock files
    #[arg(long, requires = "dry_run")]
    rehearse: bool,
    /// The command that asks for the adoption starts the supervisor first.
    #[arg(skip)]
    starts_supervisor: bool,
}

impl AdoptArguments {
    /// The default instance, to this release.
    pub(super) fn to(package: &PackageName, release: &Release, mode: Option<ModeName>, dry_run: bool) -> Self {
        let (package, release) = (package.clone(), Some(release.clone()));
        Self { package, release, instance: None, unit: None, mode, dry_run, rehearse: dry_run, starts_supervisor: true }
    }
}

/// `sidle unadopt PACKAGE`
#[derive(Debug, Args)]
pub struct UnadoptArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Change nothing and give up, if jobs still run after this time: 90s, 30m, 2h [default: the setting `switch_deadline`, 30m]
    #[arg(long, value_name = "TIME", value_parser = crate::config::duration)]
    deadline: Option<Duration>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle may-start UNIT PACKAGE`: asked by a unit before it starts its agent.
#[derive(Debug, Args)]
pub struct MayStartArguments {
    /// The unit that is about to start
    unit: String,
    /// The package whose agent sidle runs
    package: PackageName,
    /// The instance
    #[arg(long)]
    instance: InstanceName,
}

/// Takes a running agent over.
pub fn adopt(context: &Context, arguments: &AdoptArguments) -> Result<Ended, Report> {
    let (package, output) = (&arguments.package, &context.output);
    let name = instance_of(package, arguments.instance.as_ref());
    let instance = adopting(&context.layout, &name, package);
    let earlier = match resume(&instance, arguments.dry_run)? {
        Earlier::None => None,
        Earlier::Adopted => {
            let text = format!("{name} is adopted already; `sidle unadopt {package}` gives it back");
            Some((text, Ended::As(Class::NothingToDo)))
        }
        Earlier::Completed { release, warnings } => {
            warnings.iter().for_each(|warning| output.warning(warning));
            Some((
                format!("{name} is adopted: the adoption that was cut off is completed, {release} runs"),
                Ended::Well,
            ))
        }
    };
    if let Some((text, ended)) = earlier {
        output.result(text, json!({"adopted": name}));
        return Ok(ended);
    }
    let chosen = Chosen {
        release: arguments.release.clone(),
        unit: arguments.unit.clone(),
        mode: arguments.mode.map(Mode::from),
        is_dry_run: arguments.dry_run,
    };
    let plan = AdoptionPlan::new(&instance, &chosen)?;
    if arguments.dry_run {
        if !arguments.starts_supervisor {
            plan.refuse_unsupervised()?;
        }
        let rehearsed = arguments
            .rehearse
            .then(|| rehearse(context, &instance.files, plan.release(), Before::Packaged(plan.leader())));
        return show(context, &plan, rehearsed.transpose()?);
    }
    let (mut adoption, warning) = plan.begin()?;
    if let Some(warning) = warning {
        output.warning(&warning);
    }
    let switch = plan.switch(&adoption, agents::caller(&context.layout), &|step| output.step(step));
    let ended = switch.and_then(|switch| follow(&instance.files, switch, output));
    for warning in plan.finish(&mut adoption)? {
        output.warning(&warning);
    }
    ended
}

fn show(context: &Context, plan: &AdoptionPlan<'_>, rehearsed: Option<Rehearsed>) -> Result<Ended, Report> {
    let (steps, expected) = (plan.steps()?, plan.dry_run()?);
    let notes = rehearsed.as_ref().map(|rehearsed| rehearsed.notes.as_slice()).unwrap_or_default();
    let found = notes.iter().map(|note| format!("  {note}"));
    let heading = rehearsed.as_ref().filter(|_| !notes.is_empty()).map(|_| "the rehearsal found:".to_owned());
    let lines: Vec<String> = steps.iter().cloned().chain(heading).chain(found).chain(expected.lines()).collect();
    let ExpectedChanges { changes, unchanged } = expected;
    let value = json!({
        "steps": steps, "process": plan.leader().pid, "changes": changes, "unchanged": unchanged, "notes": notes,
        "rehearsed": rehearsed.is_some_and(|rehearsed| rehearsed.was_done),
    });
    context.output.result(lines, value);
    Ok(Ended::Well)
}

/// Gives an adopted agent back.
pub fn unadopt(context: &Context, arguments: &UnadoptArguments) -> Result<Ended, Report> {
    let output = &context.output;
    let name = instance_of(&arguments.package, arguments.instance.as_ref());
    let instance = adopting(&context.layout, &name, &arguments.package);
    let plan = Return::new(&instance)?;
    if arguments.dry_run {
        let steps = plan.steps()?;
        output.result(steps.clone(), json!({"steps": steps}));
        return Ok(Ended::Well);
    }
    match plan.perform(arguments.deadline, &|step| output.step(step))? {
        Unadopted::Busy(work) => {
            let work = work.map_or_else(String::new, |work| format!(" with {work}"));
            let text = format!("still busy{work} at the deadline, nothing was changed");
            output.result(text, json!({"released": false}));
            Ok(Ended::As(Class::Busy))
        }
        Unadopted::Back { downtime, missed: told, extras } => {
            let text = format!("{} runs again; downtime {:.1} s", plan.adoption.unit, downtime.as_secs_f64());
            let milliseconds = u64::try_from(downtime.as_millis()).unwrap_or(u64::MAX);
            let from = clock::now().checked_sub(SignedDuration::try_from(downtime).unwrap_or_default());
            let command = from.ok().and_then(|from| missed::command(&instance.files, from));
            let hint = command.as_ref().map(|command| format!("with the extension saltext-sidle: `{command}`"));
            output.result(
                std::iter::once(text).chain(told).chain(hint).chain(extras.clone()).collect::<Vec<_>>(),
                json!({"released": name, "downtime_milliseconds": milliseconds, "extras": extras, "missed": command}),
            );
            Ok(Ended::Well)
        }
    }
}

/// Refuses the start of a unit whose agent sidle runs already.
pub fn may_start(context: &Context, arguments: &MayStartArguments) -> Result<Ended, Report> {
    let MayStartArguments { unit, package, instance } = arguments;
    let Some(adoption) = Adoption::read(&context.layout, instance)? else { return Ok(Ended::Well) };
    let instance = adopting(&context.layout, instance, package);
    may_start::refuse(&instance, &adoption, unit).map(|()| Ended::Well)
}
