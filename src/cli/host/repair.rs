//! `sidle repair`: mends what is broken of releases, and nothing else: from this host's own files, then from a bundle file or the repository.

use super::list::packages;
use super::repository::{FetchArguments, is_named, notices, open, progress};
use crate::acquire::Payload;
use crate::bundle::file::BundledPayload;
use crate::bundle::manifest::Manifest;
use crate::bundle::rebuild::frames_of;
use crate::bundle::unpack::PayloadSource;
use crate::cli::dry_run::DryRun;
use crate::cli::facts::{Facts, count};
use crate::cli::{Context, Ended, input};
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::store::Store;
use crate::store::check::Depth;
use crate::store::collect::Effect;
use crate::store::incident::Occasion;
use crate::store::repair::{NoPayload, Repaired};
use crate::store::repair_dry_run::ExpectedRepair;
use crate::version::Release;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// `sidle repair PACKAGE [RELEASE]`
#[derive(Debug, Args)]
pub struct RepairArguments {
    /// The package
    package: PackageName,
    /// The release [default: all installed]
    release: Option<Release>,
    /// Hash every file, also files that look unchanged
    #[arg(long)]
    full: bool,
    /// The watch on the running release asks for it
    #[arg(long, hide = true)]
    watch: bool,
    #[command(flatten)]
    dry: DryRun,
    #[command(flatten)]
    means: MeansArguments,
}

/// Where what is broken may come from.
#[derive(Debug, Args)]
pub struct MeansArguments {
    /// Take files for the repair from this bundle file
    #[arg(long, value_name = "FILE", conflicts_with = "offline")]
    from: Option<PathBuf>,
    /// Do not fetch from the repository
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    fetch: FetchArguments,
}

/// `sidle repair`: exit 3 where nothing is broken, 6 where something stays so.
pub fn repair(context: &Context, arguments: &RepairArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    packages(context, Some(package))?;
    let store = Store::new(&context.layout, package);
    let depth = if arguments.full { Depth::Full } else { Depth::Quick };
    let occasion = if arguments.watch { Occasion::Watch } else { Occasion::Request };
    let releases = arguments.release.clone().map_or_else(|| store.releases(), |release| Ok(vec![release]))?;
    let (mut facts, mut values) = (Facts::new(), Vec::new());
    let (mut damaged, mut changed) = (false, false);
    for release in releases {
        let repaired = mend(context, &arguments.means, &store, &release, (depth, occasion))?;
        damaged |= !repaired.left.is_empty();
        changed |= repaired.changed();
        tell(&mut facts, &format!("{package} {release}"), &repaired, context.effect);
        values.push(value(&release, &repaired));
    }
    context.output.result(facts, json!({"package": package, "releases": values}));
    Ok(match (damaged, changed) {
        (true, _) => Ended::As(Class::Integrity),
        (false, true) => Ended::Well,
        (false, false) => Ended::As(Class::NothingToDo),
    })
}

/// One release: first with what is here, under the lock; then with what must be brought, which is brought without it.
pub(super) fn mend(
    context: &Context,
    means: &MeansArguments,
    store: &Store,
    release: &Release,
    how: (Depth, Occasion),
) -> Result<Repaired, Report> {
    // The watch looks often, and mostly finds nothing: that needs no lock, which a switch may be waiting for.
    if how.1 == Occasion::Watch && store.check(release, how.0)?.is_empty() {
        return Ok(Repaired::default());
    }
    if context.effect == Effect::DryRun {
        return dry_run(context, means, store, release, how.0);
    }
    let manifest = store.manifest(release)?;
    let here = store.repair(&store.lock()?, release, how, &mut NoPayload)?;
    let broken = broken_files(&manifest, &here);
    if broken.is_empty() {
        return Ok(here);
    }
    let with = |payload: &mut dyn PayloadSource| -> Result<Repaired, Report> {
        let more = store.repair(&store.lock()?, release, how, payload)?;
        let mut mended = here.mended.clone();
        mended.extend(more.mended);
        Ok(Repaired { mended, aside: [here.aside.clone(), more.aside].concat(), ..more })
    };
    if let Some(file) = &means.from {
        let file = input::open(file, "a bundle file that holds the release")?;
        return with(&mut BundledPayload::new(file, &manifest));
    }
    if means.offline || !is_named(context, &means.fetch)? {
        return Ok(here);
    }
    let notices = notices(context);
    let mut fetcher = open(context, &means.fetch, &notices)?;
    let mut payload = Payload::of(&mut fetcher, &manifest);
    if let Err(report) = payload.fetch(&frames_of(&manifest, &broken), &progress(context, "fetching")) {
        return Ok(Repaired { unreachable: Some(report), ..here });
    }
    let repaired = with(&mut payload)?;
    payload.done()?;
    Ok(repaired)
}

/// What `mend` would do. Frames of a bundle file are read and verified; those of a repository are not fetched.
fn dry_run(
    context: &Context,
    means: &MeansArguments,
    store: &Store,
    release: &Release,
    depth: Depth,
) -> Result<Repaired, Report> {
    let _lock = store.lock_for(context.effect)?;
    let ExpectedRepair { mut repaired, lacking, manifest } = store.dry_run_repair(release, depth)?;
    if lacking.is_empty() {
        return Ok(repaired);
    }
    if let Some(file) = &means.from {
        let file = input::open(file, "a bundle file that holds the release")?;
        let frames = frames_of(&manifest, &lacking);
        let mut payload = BundledPayload::new(file, &manifest);
        let read = payload
            .frames(&frames)
            .and_then(|mut source| frames.iter().try_for_each(|frame| source.next(frame).map(|_| ())));
        if let Err(error) = read {
            repaired.unreachable = Some(Report::new(error.class, &error, None));
            return Ok(repaired);
        }
    } else if means.offline || !is_named(context, &means.fetch)? {
        return Ok(repaired);
    }
    repaired.mended.extend(repaired.left.drain(..).map(|problem| problem.path.to_string_lossy().into_owned()));
    Ok(repaired)
}

fn broken_files(manifest: &Manifest, repaired: &Repaired) -> Vec<usize> {
    let is_left = |path: &str| repaired.left.iter().any(|problem| problem.path == Path::new(path));
    let entries = manifest.entries.iter().enumerate();
    entries.filter(|(_, entry)| is_left(entry.path.as_str())).map(|(index, _)| index).collect()
}

pub(super) fn tell(facts: &mut Facts, name: &str, repaired: &Repaired, effect: Effect) {
    let sound = repaired.left.is_empty();
    let (did, left) = match effect {
        Effect::Apply => ("repaired", "still damaged"),
        Effect::DryRun => ("would repair", "would stay damaged"),
    };
    let word = match (sound, repaired.changed()) {
        (true, false) => "nothing is broken".to_owned(),
        (true, true) => format!("{did}: {}", count(repaired.mended.len(), "path")),
        (false, _) => format!("{left}: {}", count(repaired.left.len(), "problem")),
    };
    facts.add(name, word);
    for (path, place) in &repaired.aside {
        let would = if effect == Effect::DryRun { "would be " } else { "" };
        facts.add("", format!("{path} does not belong there: {would}set aside as {}", place.display()));
    }
    for problem in &repaired.left {
        facts.add("", problem);
    }
    for words in repaired.stuck_words() {
        facts.add("", words);
    }
    if let Some(report) = repaired.unreachable.as_ref().filter(|_| !sound) {
        facts.add("", report);
        facts.add("", "name a bundle file that holds the release with --from FILE, or the repository in the settings");
    }
}

pub(super) fn value(release: &Release, repaired: &Repaired) -> Value {
    let mut left: Vec<String> = repaired.left.iter().map(ToString::to_string).collect();
    left.extend(repaired.stuck_words());
    let aside: Vec<Value> = repaired.aside.iter().map(|(path, place)| json!({"path": path, "place": place})).collect();
    json!({"release": release, "sound": left.is_empty(), "mended": repaired.mended, "aside": aside, "problems": left})
}
