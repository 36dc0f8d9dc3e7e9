//! `sidle export`: releases of a repository in one file, to be carried by hand.

use crate::bundle::member::ReleaseId;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::{Facts, size};
use crate::cli::wanted::Wanted;
use crate::cli::{Context, Ended};
use crate::failure::{Class, Report};
use crate::os::{clock, file};
use crate::repository::{Listed, Repository};
use crate::version::Release;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `sidle export REPO PACKAGE[@RELEASE]… -o FILE`
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The repository's directory
    repository: PathBuf,
    /// The packages to export; without @RELEASE, the newest published release of each
    #[arg(required = true, value_name = "PACKAGE[@RELEASE]")]
    releases: Vec<Wanted>,
    /// Write only what a host lacks that has this release installed; repeat it for hosts that have one of several
    #[arg(long, value_name = "RELEASE")]
    since: Vec<Release>,
    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    dry: DryRun,
}

/// `sidle export`
pub fn export(context: &Context, arguments: &ExportArguments) -> Result<Ended, Report> {
    if !arguments.force && file::open(&arguments.output).is_ok() {
        let message = format!("cannot export into {}: the file exists already", arguments.output.display());
        return Err(Report::of(Class::Conflict, message).hint("name another file, or overwrite it with --force"));
    }
    let repository = Repository::open_for(&arguments.repository, context.effect)?;
    let listed = repository.releases()?;
    let mut ids = Vec::new();
    for wanted in &arguments.releases {
        ids.extend(find(&listed, wanted, &arguments.repository)?);
    }
    write(context, &repository, (&ids, &arguments.since), &arguments.output)?;
    Ok(Ended::Well)
}

/// Writes the bundle and says so.
pub fn write(
    context: &Context,
    repository: &Repository,
    (ids, since): (&[ReleaseId], &[Release]),
    output: &Path,
) -> Result<(), Report> {
    let (warnings, bytes) = repository.export(ids, since, output, clock::now())?;
    for warning in warnings {
        context.output.warning(&warning.to_string());
    }
    let mut facts = Facts::new();
    for id in ids {
        facts.add("exported", id);
    }
    let before = since.iter().map(ToString::to_string).collect::<Vec<_>>();
    if !before.is_empty() {
        facts.add("only for hosts with", before.join(" or "));
    }
    facts.add("file", format!("{} ({})", output.display(), size(bytes)));
    facts.add("on each host", format!("sidle install {}", output.file_name().map_or(output, Path::new).display()));
    let names: Vec<String> = ids.iter().map(ToString::to_string).collect();
    context.output.result(facts, json!({"file": output, "bytes": bytes, "releases": names, "since": before}));
    Ok(())
}

/// The releases of all platforms that `wanted` means: those that are published where it names none.
fn find(listed: &[Listed], wanted: &Wanted, repository: &Path) -> Result<Vec<ReleaseId>, Report> {
    let of_package = || listed.iter().filter(|one| one.id.package == wanted.package);
    let newest = || {
        let published = of_package().filter(|one| one.is_published).map(|one| &one.id.release).max();
        published.or_else(|| of_package().map(|one| &one.id.release).max())
    };
    let release = wanted.release.as_ref().or_else(newest);
    let ids: Vec<ReleaseId> =
        of_package().filter(|one| Some(&one.id.release) == release).map(|one| one.id.clone()).collect();
    if !ids.is_empty() {
        return Ok(ids);
    }
    let mut there: Vec<String> = of_package().map(|one| one.id.release.to_string()).collect();
    there.dedup();
    let (asked, there) = match (&wanted.release, there.as_slice()) {
        (_, []) => (wanted.package.to_string(), "it has no release of that package".to_owned()),
        (None, _) => (wanted.package.to_string(), "it has no published release of that package".to_owned()),
        (Some(release), there) => (format!("{} {release}", wanted.package), format!("it has {}", there.join(", "))),
    };
    let message = format!("cannot export {asked}: {} does not have that release; {there}", repository.display());
    let hint = format!("`sidle repo add {} PACKED_DIR` adds a packed release", repository.display());
    Err(Report::of(Class::Failed, message).hint(hint))
}
