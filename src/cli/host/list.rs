//! `sidle list`: what is installed, and what stands where.

use super::marks::{Mark, holds, marks};
use crate::cli::facts::size;
use crate::cli::output::Lines;
use crate::cli::tone::{Place, Tone, Toned};
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::clock;
use crate::store::preflight::Host;
use crate::store::{self, Store, host_fingerprint};
use clap::Args;
use serde_json::{Value, json};

/// `sidle list [PACKAGE]`
#[derive(Debug, Args)]
pub struct ListArguments {
    /// The package [default: all]
    package: Option<PackageName>,
}

/// The state of a release that this host cannot run: a switch to it would fail.
const CANNOT_START: &str = "cannot start here";

/// What a state means at a glance.
const TONES: [Toned; 4] = [
    Toned("current", Place::Last, Tone::Good),
    Toned("bad", Place::Last, Tone::Bad),
    Toned(CANNOT_START, Place::Last, Tone::Bad),
    Toned("held", Place::After(""), Tone::Warning),
];

/// `sidle list`
pub fn list(context: &Context, arguments: &ListArguments) -> Result<Ended, Report> {
    let mut rows = vec![["PACKAGE", "RELEASE", "PLATFORM", "SIZE", "STATE"].map(str::to_owned).to_vec()];
    let mut listed: Vec<Value> = Vec::new();
    let (mut held, mut reasons) = (Vec::new(), Vec::new());
    let host = Host::of(context.layout.root());
    for package in packages(context, arguments.package.as_ref())? {
        let store = Store::new(&context.layout, &package);
        held.extend(holds(&context.layout, &package, clock::now())?);
        let marks = marks(&context.layout, &package)?;
        for release in store.releases()?.into_iter().rev() {
            let none: Vec<Mark> = Vec::new();
            let marks = marks.get(&release).unwrap_or(&none);
            let mut states: Vec<String> = marks.iter().map(ToString::to_string).collect();
            // A receipt that can't be read is told in its row: the others are still worth a list.
            let (platform, bytes, lacks, problem) = match store.head(&release) {
                Ok(manifest) => {
                    let lacks = host_fingerprint::lacks(&manifest, &host);
                    (Some(manifest.platform.to_string()), Some(manifest.space.content_bytes), lacks, None)
                }
                Err(error) => (None, None, Vec::new(), Some(error.to_string())),
            };
            if !lacks.is_empty() {
                states.push(CANNOT_START.to_owned());
                reasons.push(format!("{package} {release} {CANNOT_START}: {}", lacks.join("; ")));
            }
            let state = problem.clone().unwrap_or_else(|| states.join(", "));
            rows.push(vec![
                package.to_string(),
                release.to_string(),
                platform.clone().unwrap_or_else(|| "?".to_owned()),
                bytes.map_or_else(|| "?".to_owned(), size),
                state,
            ]);
            listed.push(json!({
                "package": package, "release": release, "platform": platform, "content_bytes": bytes, "marks": marks, "lacks": lacks, "problem": problem,
                "path": context.layout.versions(&package).join(release.to_string()),
            }));
        }
    }
    let text = if listed.is_empty() {
        Lines::from("nothing is installed; `sidle install FILE` installs a release")
    } else {
        let lines: Vec<String> = held.iter().map(|(instance, hold)| format!("{instance} is held {hold}")).collect();
        Lines::table(&rows).and(lines).and(reasons).toned(&TONES)
    };
    let holds: Vec<Value> = held.iter().map(|(instance, hold)| json!({"instance": instance, "hold": hold})).collect();
    context.output.result(text, json!({"releases": listed, "holds": holds}));
    Ok(Ended::Well)
}

/// The named package, or all packages with releases. A package without an installed release is an error.
pub(in crate::cli) fn packages(context: &Context, named: Option<&PackageName>) -> Result<Vec<PackageName>, Report> {
    let mut installed = Vec::new();
    for package in store::packages(&context.layout)? {
        if !Store::new(&context.layout, &package).releases()?.is_empty() {
            installed.push(package);
        }
    }
    match named {
        None => Ok(installed),
        Some(name) if installed.contains(name) => Ok(vec![name.clone()]),
        Some(name) => Err(unknown(name, &installed)),
    }
}

fn unknown(name: &PackageName, installed: &[PackageName]) -> Report {
    Report::of(Class::Failed, format!("cannot find the package {name}: {}", not_installed(installed)))
        .hint("`sidle install FILE` installs a release; `sidle list` shows the installed releases")
}

/// Says that a package is not installed, and which are.
pub fn not_installed(installed: &[PackageName]) -> String {
    let names: Vec<&str> = installed.iter().map(PackageName::as_str).collect();
    let there =
        if names.is_empty() { "nothing is installed".to_owned() } else { format!("installed: {}", names.join(", ")) };
    format!("it is not installed; {there}")
}
