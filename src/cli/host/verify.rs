//! `sidle verify`: compares the files of releases with what was signed.

use super::list::packages;
use crate::cli::facts::{Facts, count};
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::process;
use crate::store::Store;
use crate::store::check::{Defect, Depth};
use crate::version::Release;
use clap::Args;
use serde_json::json;

/// `sidle verify PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The package
    package: PackageName,
    /// The release [default: all installed]
    release: Option<Release>,
    /// Hash every file, also files that look unchanged
    #[arg(long)]
    full: bool,
    /// Write nothing, not even the index of unchanged files
    #[arg(long)]
    dry_run: bool,
}

/// `sidle verify`
pub fn verify(context: &Context, arguments: &VerifyArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    packages(context, Some(package))?;
    let store = Store::new(&context.layout, package);
    let depth = if arguments.full { Depth::Full } else { Depth::Quick };
    if arguments.full {
        // Whoever runs reads, too, and comes first.
        process::give_way_on_disk();
    }
    let releases = arguments.release.clone().map_or_else(|| store.releases(), |release| Ok(vec![release]))?;
    let (mut facts, mut values, mut damaged) = (Facts::new(), Vec::new(), false);
    for release in releases {
        let problems = if arguments.dry_run {
            store.check_without_index(&release, depth)?.1
        } else {
            store.check(&release, depth)?
        };
        let is_sound = problems.iter().all(|problem| problem.defect == Defect::Stray);
        let name = format!("{package} {release}");
        match (is_sound, arguments.full) {
            (true, true) => facts.add(&name, "every file is as it was signed"),
            (true, false) => facts.add(&name, "nothing has changed since it was verified"),
            (false, _) => facts.add(&name, format!("damaged: {}", count(problems.len(), "problem"))),
        }
        for problem in &problems {
            facts.add("", problem);
        }
        if !is_sound {
            damaged = true;
            facts.add("", format!("the next start repairs the release, or now: sidle repair {package} {release}"));
        }
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        values.push(json!({"release": release, "sound": is_sound, "problems": problems}));
    }
    context.output.result(facts, json!({"package": package, "releases": values}));
    Ok(if damaged { Ended::As(Class::Integrity) } else { Ended::Well })
}
