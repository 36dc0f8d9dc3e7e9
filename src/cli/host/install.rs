//! `sidle install`: a release beside what runs.

use super::repository::{self, FetchArguments, progress, warn};
use crate::acquire::Acquired;
use crate::cli::facts::{Facts, size};
use crate::cli::wanted::Wanted;
use crate::cli::{Context, Ended, input, usage};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::clock;
use crate::os::dir::Dir;
use crate::store::Store;
use crate::store::collect::Effect;
use crate::store::install::{Installed, Placement, install as install_bundle};
use crate::store::preflight::{Hazards, Host};
use crate::trust_store::{Judge, Persist, TrustStore};
use crate::version::Release;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `sidle install FILE|PACKAGE[@RELEASE]`
#[derive(Debug, Args)]
pub struct InstallArguments {
    /// A bundle file, or a package of the repository: its newest release that fits this host and that the setting `releases` admits, or the named release
    #[arg(value_name = "FILE|PACKAGE[@RELEASE]")]
    what: PathBuf,
    /// The release to install, if the bundle has several [default: the newest that fits this host]
    #[arg(long)]
    release: Option<Release>,
    /// Verify, and check the free space; write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    fetch: FetchArguments,
}

/// Where releases may lie.
#[derive(Debug, Clone, Default, Args)]
pub struct PlaceArguments {
    /// Install even if the directory for releases is cleaned by age, in memory, or on a network file system
    #[arg(long)]
    force_place: bool,
}

impl PlaceArguments {
    /// What to do about a place that isn't one to install into.
    pub fn hazards(&self) -> Hazards {
        if self.force_place { Hazards::Accept } else { Hazards::Refuse }
    }
}

/// What is to be installed.
pub enum Source {
    /// A bundle file.
    File(PathBuf),
    /// A release of the repository.
    Repository(Wanted),
}

impl Source {
    /// What a word of the command line means: a path, where there is one or it looks like one; else a package.
    pub fn of(
        context: &Context,
        what: &Path,
        release: Option<&Release>,
        fetch: &FetchArguments,
    ) -> Result<Self, Report> {
        let text = what.to_string_lossy();
        let is_path = text.contains('/') || what.extension().is_some_and(|end| end == "sidle");
        if is_path || crate::os::file::is_input(what) {
            return Ok(Self::File(what.to_owned()));
        }
        if Dir::open(what).is_ok() && !repository::is_named(context, fetch)? {
            return Err(no_bundle(what));
        }
        let wanted: Wanted = text.parse().map_err(|reason| {
            let hint = Wanted::with_a_revision(&text).map_or_else(
                || "name a bundle file, or PACKAGE, or PACKAGE@RELEASE".to_owned(),
                |meant| format!("a release has a revision, too: {meant}, if it is the first"),
            );
            usage(format!("cannot install {text}: there is no such file, and it names no package: {reason}"), hint)
        })?;
        let release = wanted.release.or_else(|| release.cloned());
        Ok(Self::Repository(Wanted { release, ..wanted }))
    }
}

/// `sidle install`
pub fn install(context: &Context, arguments: &InstallArguments) -> Result<Ended, Report> {
    let effect = if arguments.dry_run { Effect::DryRun } else { Effect::Apply };
    let hazards = arguments.place.hazards();
    let installed = match Source::of(context, &arguments.what, arguments.release.as_ref(), &arguments.fetch)? {
        Source::File(file) => {
            let installed = from_file(context, &file, arguments.release.as_ref(), (effect, hazards))?;
            tell(context, &installed, effect, None)?;
            installed
        }
        Source::Repository(wanted) => {
            let from = repository::install(context, &wanted, &arguments.fetch, (effect, hazards), &|_| true)?;
            tell(context, &from.installed, effect, Some(&from))?;
            from.installed
        }
    };
    Ok(if installed.fresh { Ended::Well } else { Ended::As(Class::NothingToDo) })
}

fn no_bundle(directory: &Path) -> Report {
    usage(
        format!("cannot install {}: it is a directory, and no bundle", directory.display()),
        "name a bundle file, which `sidle export` or `sidle pack --repo` writes; if it is a repository: --repository file:///THE/DIRECTORY PACKAGE",
    )
}

/// Installs from a bundle file.
pub fn from_file(
    context: &Context,
    file: &Path,
    release: Option<&Release>,
    (effect, hazards): (Effect, Hazards),
) -> Result<Installed, Report> {
    let persist = if effect == Effect::Apply { Persist::Store } else { Persist::Forget };
    let trust = context.layout.trust();
    place_from_file(context, file, release, &trust, (&context.layout, effect, hazards, persist))
}

/// Installs from a bundle file into another place what this host trusts; the host remembers nothing of it.
pub fn from_file_elsewhere(
    context: &Context,
    file: &Path,
    release: Option<&Release>,
    (layout, hazards): (&Layout, Hazards),
) -> Result<Installed, Report> {
    let trust = context.layout.trust();
    place_from_file(context, file, release, &trust, (layout, Effect::Apply, hazards, Persist::Forget))
}

/// Unpacks the newest release of a bundle file into another place, to be read there, if the trust store at `trust` vouches for it.
pub fn unpacked_elsewhere(context: &Context, file: &Path, trust: &Path, layout: &Layout) -> Result<Installed, Report> {
    place_from_file(context, file, None, trust, (layout, Effect::Apply, Hazards::Accept, Persist::Forget))
}

fn place_from_file(
    context: &Context,
    file: &Path,
    release: Option<&Release>,
    trust: &Path,
    (layout, effect, hazards, persist): (&Layout, Effect, Hazards, Persist),
) -> Result<Installed, Report> {
    let file = input::open(file, "a bundle file, which `sidle export` or `sidle pack --repo` writes")?;
    let expiry = Settings::read(&context.layout)?.expiry_by_hand();
    let trust_store = TrustStore::open(trust)?;
    let authority = Judge { trust_store: &trust_store, now: clock::now(), expiry, persist };
    let (host, progress) = (Host::of(context.layout.root()), progress(context, "installing"));
    let place = Placement { layout, host: &host, hazards, effect, progress: &progress };
    let reader = std::io::BufReader::with_capacity(1 << 20, file);
    let installed = install_bundle(reader, &authority, release, &place)?;
    warn(context, &installed);
    Ok(installed)
}

fn tell(context: &Context, installed: &Installed, effect: Effect, from: Option<&Acquired>) -> Result<(), Report> {
    let Installed { package, release, fresh, content_bytes, .. } = installed;
    let store = Store::new(&context.layout, package);
    let current = store.current(&crate::name::InstanceName::default_of(package))?;
    let is_dry_run = effect == Effect::DryRun;
    let word = match (fresh, is_dry_run) {
        (false, _) => "already installed",
        (true, true) => "would install",
        (true, false) => "installed",
    };
    let mut facts = Facts::new().with(word, format!("{package} {release}")).with("size", size(*content_bytes));
    if let Some(from) = from {
        let (word, fetched) =
            if is_dry_run { ("to fetch", from.lacking_bytes) } else { ("fetched", from.received_bytes) };
        facts.add(word, format!("{} (the whole payload has {})", size(fetched), size(from.payload_bytes)));
    }
    if !is_dry_run {
        facts.add("place", context.layout.versions(package).join(release.to_string()).display());
    }
    let current_text = current.as_ref().map_or_else(|| "none yet".to_owned(), ToString::to_string);
    facts.add("current", format!("{current_text} (unchanged)"));
    if !is_dry_run && current.as_ref() != Some(release) {
        facts.add("next", format!("sidle switch {package} {release}"));
    }
    let mut value = json!({
        "package": package, "release": release, "fresh": fresh, "dry_run": is_dry_run, "content_bytes": content_bytes, "current": current,
        "warnings": installed.remarks(),
    });
    if let (Some(from), Some(fields)) = (from, value.as_object_mut()) {
        fields.insert("received_bytes".to_owned(), from.received_bytes.into());
        fields.insert("lacking_bytes".to_owned(), from.lacking_bytes.into());
        fields.insert("payload_bytes".to_owned(), from.payload_bytes.into());
    }
    context.output.result(facts, value);
    Ok(())
}
