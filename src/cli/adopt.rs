//! `sidle adopt` and `sidle unadopt`: a running agent of a distribution's package is taken over, and given back.

use super::follow::follow;
use super::order::ModeName;
use super::output::Output;
use super::rehearse::{Before, Rehearsed, rehearse};
use super::{Context, Ended, adopting, agents, instance_of, missed};
use crate::adoption::may_start;
use crate::adoption::plan::{AdoptionPlan, Chosen, Earlier, resume};
use crate::adoption::record::Adoption;
use crate::adoption::unadopt::{Return, Unadopted};
use crate::agent::findings::Findings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::switch::Mode;
use crate::switch::journal::files::InstanceFiles;
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
    take_over(context, arguments, &mut Findings::default())
}

/// The same. Adds the findings to `findings`, for a command whose result they are a part of.
pub(super) fn take_over(
    context: &Context,
    arguments: &AdoptArguments,
    findings: &mut Findings,
) -> Result<Ended, Report> {
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
            warn(output, findings, warnings);
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
        let variables = plan.variables()?;
        let rehearsed = arguments
            .rehearse
            .then(|| rehearse(context, &instance.files, plan.release(), Before::Packaged(plan.leader(), &variables)));
        *findings = found(&plan, rehearsed.transpose()?)?;
        show(output, &plan, findings);
        return Ok(Ended::Well);
    }
    let (mut adoption, warnings) = plan.begin()?;
    warn(output, findings, warnings);
    let switch = plan.switch(&adoption, agents::caller(&context.layout), &|step| output.step(step));
    let ended = switch.and_then(|switch| {
        let ended = follow(&instance.files, switch, output)?;
        findings.notes.extend(notes_of(&instance.files, switch));
        Ok(ended)
    });
    warn(output, findings, plan.finish(&mut adoption)?);
    ended
}

fn warn(output: &Output, findings: &mut Findings, warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        output.warning(&warning);
        findings.warnings.push(warning);
    }
}

/// The notes of a switch that has ended, and which command lists what was published in its downtime.
fn notes_of(files: &InstanceFiles, switch: u64) -> Vec<String> {
    match files.history() {
        Ok(history) => {
            let entry = history.find(switch);
            entry
                .map(|entry| entry.notes.iter().cloned().chain(missed::hint(files, entry)).collect())
                .unwrap_or_default()
        }
        // The adoption is done, whoever can't read of it.
        Err(error) => {
            let remedy = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
            vec![format!("the notes of the adoption cannot be read: {error}{remedy}")]
        }
    }
}

fn found(plan: &AdoptionPlan<'_>, rehearsed: Option<Rehearsed>) -> Result<Findings, Report> {
    let (was_done, notes) = rehearsed.map_or((false, Vec::new()), |rehearsed| (rehearsed.was_done, rehearsed.notes));
    Ok(Findings { rehearsed: was_done, notes, ..plan.dry_run()? })
}

fn show(output: &Output, plan: &AdoptionPlan<'_>, findings: &Findings) {
    let mut value = json!(findings);
    value["process"] = json!(plan.leader().pid);
    output.result(findings.lines(), value);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::os::dir::Dir;
    use crate::switch::journal::history::HISTORY_NAME;

    /// The adoption had been done, and the command failed.
    #[test]
    fn a_history_that_cannot_be_read_is_a_note_with_its_remedy() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let (instance, package) = ("salt-minion".parse().unwrap(), "salt-minion".parse().unwrap());
        let files = InstanceFiles::new(&layout, &instance, &package);
        assert_eq!(notes_of(&files, 1), Vec::<String>::new());
        let place = Dir::open_or_create(&layout.instance(&instance), 0o755).unwrap();
        place.write_atomic(HISTORY_NAME, b"{", 0o644).unwrap();
        let notes = notes_of(&files, 1);
        assert!(notes.len() == 1 && notes[0].contains("history") && notes[0].contains("; "), "{notes:?}");
    }
}
