//! `sidle uses`: which functions of which modules the agent has called on this host, as its guard has counted them.

use crate::cli::host::list::packages;
use crate::cli::output::Lines;
use crate::cli::rehearse::{Before, Came, perform};
use crate::cli::{Context, Ended, agents, instance_of};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::rehearsal::states::Depth;
use crate::rehearsal::uses::{Known, Need, Uses};
use crate::store::Store;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::uses;
use crate::version::Release;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Places of one function that the text names; --json has all.
const PLACES_MAX: usize = 3;

/// `sidle uses PACKAGE`
#[derive(Debug, Args)]
pub struct UsesArguments {
    /// The package
    package: PackageName,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
}

/// Shows the count; where there is none, what the host's configuration, highstate and log name.
pub fn uses(context: &Context, arguments: &UsesArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    packages(context, Some(package))?;
    let files = InstanceFiles::new(&context.layout, &instance_of(package, arguments.instance.as_ref()), package);
    let instance = files.instance();
    let proven = files.journal()?.proven;
    let counted = match known(context, &files, proven.as_ref())? {
        Known::Counted(counted) => counted,
        Known::NotCounted(why) => {
            let needs = proven.map_or_else(
                || Err("no release works here yet".to_owned()),
                |release| needs(context, &files, &release),
            );
            let needs = needs.map_err(|cannot| not_counted(instance, &why, &cannot))?;
            let value = json!({
                "package": package, "instance": instance, "counted": false, "why": why, "days": 0, "since": null, "until": null, "enough": false,
                "cut": null, "uses": needs.values().collect::<Vec<_>>(),
            });
            context.output.result(named(&why, &needs), value);
            return Ok(Ended::Well);
        }
    };
    let (since, until) = counted.span().unzip();
    let value = json!({
        "package": package, "instance": instance, "counted": true, "why": null, "days": counted.days(), "since": since, "until": until,
        "enough": counted.is_enough(), "cut": counted.cut(), "uses": counted.all(),
    });
    context.output.result(lines(&counted), value);
    Ok(Ended::Well)
}

fn not_counted(instance: &InstanceName, why: &str, cannot: &str) -> Report {
    let also = if why == cannot {
        String::new()
    } else {
        format!("; nor can its release say what its configuration names: {cannot}")
    };
    Report::of(Class::Failed, format!("cannot tell what {instance} uses: {why}{also}")).hint(
        "a minion counts from its start under sidle on, if its release has the guard and `count_uses` is not false; as root, this command also shows what \
         configuration, highstate and log name",
    )
}

/// A function that is named on this host, and not counted.
#[derive(Debug, Serialize)]
struct Named {
    kind: String,
    name: String,
    /// Nobody has counted.
    times: u64,
    days: u64,
    last: Option<String>,
    #[serde(rename = "where")]
    places: Vec<String>,
}

/// What the release that works here finds in this host's configuration, highstate and log, as in a rehearsal; an error: why it cannot look.
fn needs(
    context: &Context,
    files: &InstanceFiles,
    release: &Release,
) -> Result<BTreeMap<(String, String), Named>, String> {
    let look = || {
        let settings = Settings::read(&context.layout)?;
        perform(context, &settings, files, release, Before::Release(None), Depth::Render)
    };
    let found = match look() {
        Ok(Came::Found(found)) => found,
        Ok(Came::Skipped(why) | Came::NotDone(why)) => return Err(why),
        Err(report) => return Err(report.message),
    };
    if let Some(why) = found.blocking.first().or(found.unknown.first()).filter(|_| found.needs.is_empty()) {
        return Err(why.clone());
    }
    let mut all: BTreeMap<(String, String), Named> = BTreeMap::new();
    for Need { kind, name, place, last } in found.needs {
        let entry = all.entry((kind.clone(), name.clone()));
        let named = entry.or_insert(Named { kind, name, times: 0, days: 0, last: None, places: Vec::new() });
        named.places.push(place);
        named.last = named.last.take().max(last);
    }
    Ok(all)
}

fn named(why: &str, needs: &BTreeMap<(String, String), Named>) -> Lines {
    let mut rows = vec![
        vec!["uses".to_owned(), format!("not counted: {why}")],
        vec![
            "instead".to_owned(),
            "what this host's configuration, highstate and log name: more may be used".to_owned(),
        ],
    ];
    rows.extend(needs.values().map(|each| {
        let last = each.last.as_ref().map_or_else(String::new, |day| format!(", last on {day}"));
        let more = each.places.len().saturating_sub(PLACES_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let places: Vec<&str> = each.places.iter().take(PLACES_MAX).map(String::as_str).collect();
        vec![each.kind.clone(), format!("{}: {}{more}{last}", each.name, places.join("; "))]
    }));
    Lines::table(&rows)
}

/// The count of an instance of an installed package.
fn known(context: &Context, files: &InstanceFiles, proven: Option<&Release>) -> Result<Known, Report> {
    let Some(proven) = proven else { return Ok(Known::NotCounted("no release works here yet".to_owned())) };
    let kind = Store::new(&context.layout, files.package()).head(proven)?.agent;
    Ok(match agents::parts(&kind)?.rehearser {
        Some(rehearser) => uses::of(&context.layout, files.instance(), rehearser),
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
