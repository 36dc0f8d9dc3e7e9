//! `sidle supervise`: runs an instance's agent.

use super::{Context, Ended, agents, own};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::environment::Passed;
use crate::os::units;
use crate::self_upgrade;
use crate::store::{self, Store};
use crate::supervise::{SuperviseSettings, supervise as run_supervisor};
use crate::switch::journal::files::InstanceFiles;
use clap::Args;

/// `sidle supervise INSTANCE`
#[derive(Debug, Args)]
pub struct SuperviseArguments {
    /// The instance
    instance: InstanceName,
    /// Check settings and state, then exit
    #[arg(long)]
    check: bool,
    /// Start even if no release of the package is installed yet, and wait for the first switch
    #[arg(long)]
    wait: bool,
}

impl SuperviseArguments {
    /// The instance.
    pub fn instance(&self) -> &InstanceName {
        &self.instance
    }
}

/// Runs an instance's agent until a signal ends it.
pub fn supervise(context: &Context, arguments: &SuperviseArguments) -> Result<Ended, Report> {
    // Before they are read: a change meanwhile counts as not read.
    let digest = Settings::digest(&context.layout)?;
    let settings = Settings::read(&context.layout)?;
    let (package, configuration) = settings.instance(&context.layout, &arguments.instance)?;
    self_upgrade::refuse(&package, "supervise")?;
    if !arguments.wait {
        refuse_unknown(context, &arguments.instance, &package)?;
    }
    if arguments.check {
        let files = InstanceFiles::new(&context.layout, &arguments.instance, &package);
        let usable = files.journal().and_then(|_| files.history()).and_then(|_| files.verdicts());
        return Ok(usable.map(|_| Ended::Well)?);
    }
    // What the service manager has set, root has set in the unit.
    let passed = if units::is_service() { Passed::everything() } else { settings.passed(&arguments.instance) };
    let supervise = SuperviseSettings {
        instance: arguments.instance.clone(),
        package,
        configuration,
        host: settings,
        agents: agents::parts,
        passed,
        commands: own::COMMANDS,
        digest: digest.to_string(),
    };
    run_supervisor(&context.layout, supervise)?;
    Ok(Ended::Well)
}

/// Refuses an instance with neither a release nor state: a misspelt name would run for ever and look healthy. With state an agent may be running,
/// whatever became of its releases.
fn refuse_unknown(context: &Context, instance: &InstanceName, package: &PackageName) -> Result<(), Report> {
    let layout = &context.layout;
    let is_known = Store::new(layout, package).releases().map_or(true, |there| !there.is_empty())
        || Dir::open(&layout.instance(instance)).is_ok();
    if is_known {
        return Ok(());
    }
    let packages = store::packages(layout)?;
    let there: Vec<&str> = packages.iter().map(PackageName::as_str).collect();
    let there =
        if there.is_empty() { "nothing is installed".to_owned() } else { format!("installed: {}", there.join(", ")) };
    Err(Report::of(
        Class::Failed,
        format!("cannot supervise {instance}: no release of {package} is installed; {there}"),
    )
    .hint("`sidle install FILE` installs a release; `sidle supervise --wait` starts without one, and waits for the first switch"))
}
