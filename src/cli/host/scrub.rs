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
use clap::Args;
use serde_json::json;

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
    let (mut facts, mut values, mut damaged) = (Facts::new(), Vec::new(), false);
    for package in packages(context, arguments.package.as_ref())? {
        let store = Store::new(&context.layout, &package);
        for release in store.releases()? {
            if context.effect == Effect::DryRun {
                let repaired = mend(context, &arguments.means, &store, &release, (Depth::Full, Occasion::Scrub))?;
                damaged |= !repaired.left.is_empty();
                tell(&mut facts, &format!("{package} {release}"), &repaired, context.effect);
                let mut told = value(&release, &repaired);
                told["package"] = json!(package);
                values.push(told);
                continue;
            }
            let (scrubbed, _) = store.scrub(&release, rate, &progress(context, "hashing"))?;
            let name = format!("{package} {release}");
            if scrubbed.found == 0 {
                facts.add(&name, format!("{} are as they were signed", count(scrubbed.all, "entry")));
                values.push(json!({"package": package, "release": release, "entries": scrubbed.all, "sound": true}));
                continue;
            }
            let repaired = mend(context, &arguments.means, &store, &release, (Depth::Full, Occasion::Scrub))?;
            damaged |= !repaired.left.is_empty();
            tell(&mut facts, &name, &repaired, context.effect);
            let mut told = value(&release, &repaired);
            told["package"] = json!(package);
            told["entries"] = json!(scrubbed.all);
            values.push(told);
        }
    }
    context.output.result(facts, json!({"releases": values}));
    Ok(if damaged { Ended::As(Class::Integrity) } else { Ended::Well })
}
