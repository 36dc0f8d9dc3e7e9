//! `sidle scrub`: hashes every file of the installed releases, slowly and giving way to everybody, and mends what is broken. What a timer runs.

use super::list::packages;
use super::repair::{MeansArguments, mend, tell, value};
use super::repository::progress;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::{Facts, count};
use crate::cli::{Context, Ended};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::process;
use crate::store::Store;
use crate::store::check::Depth;
use crate::store::collect::Effect;
use crate::store::incident::Occasion;
use crate::version::Release;
use clap::Args;
use serde_json::{Value, json};

/// `sidle scrub [PACKAGE]`
#[derive(Debug, Args)]
pub struct ScrubArguments {
    /// The package [default: all]
    package: Option<PackageName>,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    means: MeansArguments,
}

/// `sidle scrub`: exit 6 where something stays broken.
pub fn scrub(context: &Context, arguments: &ScrubArguments) -> Result<Ended, Report> {
    let rate = Settings::read(&context.layout)?.scrub_rate.0;
    process::give_way();
    let (mut facts, mut values, mut worst) = (Facts::new(), Vec::new(), None);
    for package in packages(context, arguments.package.as_ref())? {
        let store = Store::new(&context.layout, &package);
        for release in store.releases()? {
            match scrub_one(context, &arguments.means, (&store, &release), rate, &mut facts) {
                Ok((told, is_whole)) => {
                    values.push(told);
                    if !is_whole {
                        worst = Some(Class::Integrity);
                    }
                }
                // One release that cannot be read keeps no other from its scrub.
                Err(report) => {
                    let problems = [report.to_string()];
                    values.push(json!({"package": package, "release": release, "sound": false, "problems": problems}));
                    worst = worst.or(Some(report.class));
                    facts.add(&format!("{package} {release}"), report);
                }
            }
        }
    }
    context.output.result(facts, json!({"releases": values}));
    Ok(worst.map_or(Ended::Well, Ended::As))
}

/// Scrubs one release; what to tell programs of it, and whether it is whole now.
fn scrub_one(
    context: &Context,
    means: &MeansArguments,
    (store, release): (&Store, &Release),
    rate: u64,
    facts: &mut Facts,
) -> Result<(Value, bool), Report> {
    let package = store.package();
    let name = format!("{package} {release}");
    let mut entries = None;
    if context.effect == Effect::Apply {
        let (scrubbed, _) = store.scrub(release, rate, &progress(context, "hashing"))?;
        if scrubbed.found == 0 {
            facts.add(&name, format!("{} are as they were signed", count(scrubbed.all, "entry")));
            let told = json!({"package": package, "release": release, "entries": scrubbed.all, "sound": true});
            return Ok((told, true));
        }
        entries = Some(scrubbed.all);
    }
    let repaired = mend(context, means, store, release, (Depth::Full, Occasion::Scrub))?;
    tell(facts, &name, &repaired, context.effect);
    let mut told = value(release, &repaired);
    told["package"] = json!(package);
    if let Some(entries) = entries {
        told["entries"] = json!(entries);
    }
    Ok((told, repaired.left.is_empty()))
}
