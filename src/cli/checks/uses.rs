//! `sidle uses`: which functions of which modules the agent has called on this host, as its guard has counted them.

use crate::cli::host::list::packages;
use crate::cli::output::Lines;
use crate::cli::{Context, Ended, agents, instance_of};
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::rehearsal::uses::{Known, Uses};
use crate::store::Store;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::uses;
use clap::Args;
use serde_json::json;

/// `sidle uses PACKAGE`
#[derive(Debug, Args)]
pub struct UsesArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
}

/// Shows the count.
pub fn uses(context: &Context, arguments: &UsesArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    packages(context, Some(package))?;
    let instance = instance_of(package, arguments.instance.as_ref());
    let counted = match known(context, package, &instance)? {
        Known::Counted(counted) => counted,
        Known::NotCounted(why) => {
            return Err(Report::of(Class::Failed, format!("cannot tell what {instance} uses: {why}")).hint(
                "a minion counts from its start under sidle on, if its release has the guard and `count_uses` is not false; as root, \
                 `sidle rehearse` shows what its configuration needs",
            ));
        }
    };
    let (since, until) = counted.span().unzip();
    let value = json!({
        "package": package, "instance": instance, "days": counted.days(), "since": since, "until": until,
        "enough": counted.is_enough(), "cut": counted.cut(), "uses": counted.all(),
    });
    context.output.result(lines(&counted), value);
    Ok(Ended::Well)
}

/// The count of an instance of an installed package.
fn known(context: &Context, package: &PackageName, instance: &InstanceName) -> Result<Known, Report> {
    let store = Store::new(&context.layout, package);
    let proven = InstanceFiles::new(&context.layout, instance, package).journal()?.proven;
    let Some(proven) = proven else { return Ok(Known::NotCounted("no release works here yet".to_owned())) };
    let kind = store.head(&proven)?.agent;
    Ok(match agents::parts(&kind)?.rehearser {
        Some(rehearser) => uses::of(&context.layout, instance, rehearser),
        None => Known::NotCounted(format!("nobody counts for agents of the kind {}", kind.as_str())),
    })
}

fn lines(counted: &Uses) -> Lines {
    let mut rows = vec![vec!["uses".to_owned(), counted.covers()]];
    rows.extend(
        counted.all().into_iter().map(|each| vec![each.kind.clone(), format!("{}: {}", each.name, each.told())]),
    );
    Lines::table(&rows)
}
