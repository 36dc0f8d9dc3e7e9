//! `sidle rollout`: the rollout of a fleet that this host belongs to.

use super::{Context, Ended, instance_of};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::clock;
use crate::store::Store;
use crate::switch::journal::claim::{Claim, RolloutId};
use crate::switch::journal::files::InstanceFiles;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::time::Duration;

/// A claim without another end: longer than a rollout takes, shorter than people forget why a host refuses the next one.
const CLAIM_DURATION: Duration = Duration::from_secs(7 * 86_400);

/// `sidle rollout`
#[derive(Debug, Subcommand)]
pub enum RolloutVerb {
    /// Claim an instance for a rollout: orders of other rollouts are refused
    Claim(ClaimArguments),
    /// End the claim of a rollout on an instance
    Unclaim(UnclaimArguments),
}

/// `sidle rollout claim PACKAGE ID --epoch N`
#[derive(Debug, Args)]
#[command(
    after_help = "For programs that drive a fleet. A claimed instance refuses another rollout, and an older epoch of the same rollout (exit code 12). It obeys \
                  commands without --rollout: a person may always act."
)]
pub struct ClaimArguments {
    /// The package
    package: PackageName,
    /// The rollout
    id: RolloutId,
    /// Counts the drivers of the rollout: a driver that takes over raises the number by one; a number more than a million higher is refused
    #[arg(long, value_name = "NUMBER")]
    epoch: u64,
    /// Claim the instance for this long
    #[arg(long = "for", value_name = "TIME", value_parser = crate::config::duration, default_value = "7d")]
    duration: Duration,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle rollout unclaim PACKAGE ID`
#[derive(Debug, Args)]
pub struct UnclaimArguments {
    /// The package
    package: PackageName,
    /// The rollout
    id: RolloutId,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// Show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The options of a command that a rollout gives.
#[derive(Debug, Clone, Default, Args)]
pub struct OrderOptions {
    /// The rollout that gives this order: the instance is claimed for it, and refuses the orders of other rollouts
    #[arg(long, value_name = "ID", requires = "epoch")]
    rollout: Option<RolloutId>,
    /// The epoch of the rollout; a lower number than before is refused
    #[arg(long, value_name = "NUMBER", requires = "rollout")]
    epoch: Option<u64>,
}

impl OrderOptions {
    /// Claims the instance for the rollout that gives the order, if one does. A dry run only checks.
    pub fn claim(&self, files: &InstanceFiles, is_dry_run: bool) -> Result<(), Report> {
        let (Some(id), Some(epoch)) = (&self.rollout, self.epoch) else { return Ok(()) };
        let now = clock::now();
        files.claim(Claim::new(id.clone(), epoch, now, later(now, CLAIM_DURATION)), is_dry_run)?;
        Ok(())
    }
}

/// `sidle rollout …`
pub fn rollout(context: &Context, verb: &RolloutVerb) -> Result<Ended, Report> {
    match verb {
        RolloutVerb::Claim(arguments) => claim(context, arguments),
        RolloutVerb::Unclaim(arguments) => unclaim(context, arguments),
    }
}

fn claim(context: &Context, arguments: &ClaimArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    let instance = instance_of(package, arguments.instance.as_ref());
    // A claim on a mistyped name would fence nothing.
    if Store::new(&context.layout, package).releases()?.is_empty() {
        return Err(Report::of(Class::Failed, format!("cannot claim {package}: no release of it is installed"))
            .hint("`sidle list` shows the installed packages"));
    }
    let now = clock::now();
    let wanted = Claim::new(arguments.id.clone(), arguments.epoch, now, later(now, arguments.duration));
    let files = InstanceFiles::new(&context.layout, &instance, package);
    let claim = files.claim(wanted, arguments.dry_run)?;
    let would = if arguments.dry_run { "would belong" } else { "belongs" };
    context.output.result(
        format!("{instance} {would} to rollout {claim}"),
        json!({"dry_run": arguments.dry_run, "instance": instance, "rollout": claim}),
    );
    Ok(Ended::Well)
}

fn unclaim(context: &Context, arguments: &UnclaimArguments) -> Result<Ended, Report> {
    let instance = instance_of(&arguments.package, arguments.instance.as_ref());
    let files = InstanceFiles::new(&context.layout, &instance, &arguments.package);
    let unclaimed = files.end_claim(&arguments.id, arguments.dry_run)?;
    let text = match (unclaimed, arguments.dry_run) {
        (true, true) => format!("{instance} would no longer belong to rollout {}", arguments.id),
        (true, false) => format!("{instance} no longer belongs to rollout {}", arguments.id),
        (false, _) => format!("{instance} does not belong to rollout {}", arguments.id),
    };
    context.output.result(&text, json!({"dry_run": arguments.dry_run, "instance": instance, "unclaimed": unclaimed}));
    Ok(if unclaimed { Ended::Well } else { Ended::As(Class::NothingToDo) })
}

fn later(now: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    now.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
