//! `sidle collect`: removes releases that nobody wants and nobody uses.

use super::list::packages;
use super::marks::{Mark, marks};
use crate::cli::facts::{Facts, size};
use crate::cli::{Context, Ended};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::store::Store;
use crate::store::collect::{CollectRequest, Collected, Effect, KeepReason};
use crate::version::Release;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `sidle collect [PACKAGE]`
#[derive(Debug, Args)]
pub struct CollectArguments {
    /// The package [default: all]
    package: Option<PackageName>,
    /// How many releases to keep besides current, previous and those in use, newest first [default: the setting `keep_extra`, 1]
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Show what would be deleted; delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle collect`
pub fn collect(context: &Context, arguments: &CollectArguments) -> Result<Ended, Report> {
    let reserve = arguments.keep.map_or_else(|| Ok(Settings::read(&context.layout)?.keep_extra), Ok::<_, Report>)?;
    let effect = if arguments.dry_run { Effect::DryRun } else { Effect::Apply };
    let (mut facts, mut values, mut removed) = (Facts::new(), Vec::new(), 0);
    for package in packages(context, arguments.package.as_ref())? {
        let store = Store::new(&context.layout, &package);
        let lock = store.lock_for(context.effect)?;
        // Read under the lock: no switch can make another release current in between.
        let wanted = wanted(&marks(&context.layout, &package)?);
        let collected = store.collect(&lock, &CollectRequest { wanted: &wanted, reserve, effect })?;
        removed += collected.removed.len();
        tell(&mut facts, &package, &collected, effect);
        values.push(value(&package, &collected));
    }
    if removed == 0 {
        facts.add("nothing to do", "no release can be removed");
    }
    context.output.result(facts, json!({"dry_run": arguments.dry_run, "packages": values}));
    Ok(if removed == 0 { Ended::As(Class::NothingToDo) } else { Ended::Well })
}

/// `sidle remove PACKAGE RELEASE`
#[derive(Debug, Args)]
pub struct RemoveArguments {
    /// The package
    package: PackageName,
    /// The release
    release: Release,
    /// Say whether the release can be deleted; delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// `sidle remove`
pub fn remove(context: &Context, arguments: &RemoveArguments) -> Result<Ended, Report> {
    let RemoveArguments { package, release, dry_run } = arguments;
    let effect = if *dry_run { Effect::DryRun } else { Effect::Apply };
    let store = Store::new(&context.layout, package);
    store.tree(release)?;
    let lock = store.lock_for(context.effect)?;
    let wanted = wanted(&marks(&context.layout, package)?);
    let bytes = store.remove(&lock, release, wanted.get(release), effect)?;
    let word = if *dry_run { "would remove" } else { "removed" };
    let text = Facts::new().with(word, format!("{package} {release} ({})", size(bytes)));
    context.output.result(text, json!({"dry_run": dry_run, "package": package, "release": release, "bytes": bytes}));
    Ok(Ended::Well)
}

fn wanted(marks: &BTreeMap<Release, Vec<Mark>>) -> BTreeMap<Release, String> {
    let reasons = marks.iter().filter_map(|(release, marks)| {
        let reasons: Vec<String> = marks.iter().filter(|mark| mark.keeps()).map(ToString::to_string).collect();
        (!reasons.is_empty()).then(|| (release.clone(), reasons.join(", ")))
    });
    reasons.collect()
}

fn reason(kept: &KeepReason) -> String {
    match kept {
        KeepReason::Wanted(reason) => reason.clone(),
        KeepReason::Reserve => "in reserve".to_owned(),
        KeepReason::InUse(holders) => {
            let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
            format!("in use: {}", holders.join("; "))
        }
    }
}

fn tell(facts: &mut Facts, package: &PackageName, collected: &Collected, effect: Effect) {
    let word = if effect == Effect::Apply { "removed" } else { "would remove" };
    for (release, bytes) in &collected.removed {
        facts.add(word, format!("{package} {release} ({})", size(*bytes)));
    }
    for (release, kept) in &collected.kept {
        facts.add("kept", format!("{package} {release}: {}", reason(kept)));
    }
}

fn value(package: &PackageName, collected: &Collected) -> Value {
    let removed = collected.removed.iter().map(|(release, bytes)| json!({"release": release, "bytes": bytes}));
    let kept = collected.kept.iter().map(|(release, kept)| {
        let in_use = matches!(kept, KeepReason::InUse(_));
        json!({"release": release, "reason": reason(kept), "in_use": in_use})
    });
    json!({"package": package, "removed": removed.collect::<Vec<_>>(), "kept": kept.collect::<Vec<_>>()})
}
