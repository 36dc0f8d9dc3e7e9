//! What a release gets beside its agent: extras by a lock of their hashes, modules that an older release had, and what the release says of both.

use super::{PackArguments, PackPlan};
use crate::bundle::contents::Contents;
use crate::bundle::limits::ROOT_MAXIMUM_BYTES;
use crate::bundle::manifest::Manifest;
use crate::cli::host::unpacked_elsewhere;
use crate::cli::{Context, agents, usage};
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::os::dir::Dir;
use crate::os::file;
use crate::store::Store;
use crate::store::install::Installed;
use crate::trust_store::TrustStore;
use std::path::{Path, PathBuf};

/// The metadata of a repository, and its first root.
const METADATA: &str = "metadata";
const FIRST_ROOT: &str = "1.root.json";
/// Where the older release is unpacked in the temporary directory, and where the base.
const OLDER: &str = "older";
const BASE: &str = "base";

/// The lock of a recipe's extras for this version: `RECIPE-VERSION.lock` beside the recipe.
pub(super) fn lock_of(plan: &PackPlan) -> PathBuf {
    plan.home.join(format!("{}-{}.lock", plan.stem, plan.version))
}

/// Modules of an older release that the build lays into the new one.
pub(super) struct Keeping {
    /// Their names, with spaces between them.
    pub(super) names: String,
    /// The tree of the older release.
    pub(super) tree: PathBuf,
    /// What it is: `salt-minion 3006.30-1`.
    pub(super) origin: String,
}

impl Keeping {
    /// Makes the older release's tree readable; None: nothing is kept.
    pub(super) fn prepare(context: &Context, arguments: &PackArguments, work: &Dir) -> Result<Option<Self>, Report> {
        let (names, Some(from)) = (&arguments.keep_modules, &arguments.from) else { return Ok(None) };
        let names = names.join(" ");
        if Dir::open(from).is_ok() {
            let tree = file::canonical(from)?;
            return Ok(Some(Self { names, origin: tree.display().to_string(), tree }));
        }
        let layout = Layout::new(&file::canonical(work.path())?.join(OLDER));
        let installed = unpacked(context, arguments, from, &layout)?;
        let tree = layout.versions(&installed.package).join(installed.release.to_string());
        let origin = format!("{} {}", installed.package, installed.release);
        Ok(Some(Self { names, tree, origin }))
    }
}

/// A release that was packed already, unpacked.
pub(super) struct Base {
    pub(super) tree: PathBuf,
    pub(super) manifest: Manifest,
}

impl Base {
    /// Unpacks it, if it is an earlier revision of what is to be packed.
    pub(super) fn unpack(
        context: &Context,
        arguments: &PackArguments,
        plan: &PackPlan,
        (file, work): (&Path, &Dir),
    ) -> Result<Self, Report> {
        let layout = Layout::new(&file::canonical(work.path())?.join(BASE));
        let Installed { package, release, .. } = unpacked(context, arguments, file, &layout)?;
        if package != plan.recipe.package
            || release.version != arguments.version
            // A lock is for the version: it has no revision.
            || (!arguments.lock && release.revision >= arguments.revision)
        {
            let message = format!("cannot pack {}: {} has {package} {release}", plan.name, file.display());
            let hint = "name a bundle file with the same version and a lower revision (--revision)";
            return Err(usage(message, hint));
        }
        let tree = layout.versions(&package).join(release.to_string());
        Ok(Self { tree, manifest: Store::new(&layout, &package).manifest(&release)? })
    }
}

/// Unpacks a bundle file that the repository of `--repo`, which is the author's own, or this host vouches for.
fn unpacked(context: &Context, arguments: &PackArguments, file: &Path, layout: &Layout) -> Result<Installed, Report> {
    context.output.step(format!("unpacking {}", file.display()));
    let by_host = || unpacked_elsewhere(context, file, &context.layout.trust(), layout);
    let Some(repository) = &arguments.repo else { return by_host() };
    let root = Dir::open(&repository.join(METADATA))?.read(FIRST_ROOT, ROOT_MAXIMUM_BYTES)?;
    let store = TrustStore::open_or_create(&layout.trust())?;
    store.lock()?.pin(&root, &Digest::of(&root))?;
    match unpacked_elsewhere(context, file, &layout.trust(), layout) {
        // Another's release: this host may trust it.
        Err(refused) if refused.class == Class::NotTrusted => by_host().map_err(|_| refused),
        done => done,
    }
}

/// What the release in `tree` says of itself, after a check that it has what was asked for.
pub(super) fn contents(arguments: &PackArguments, plan: &PackPlan, tree: &Dir) -> Result<Contents, Report> {
    let describer = agents::parts(&plan.recipe.agent)?.describer;
    let path = file::canonical(tree.path())?;
    let contents = match describer.and_then(|describer| describer(&path)) {
        None => Contents::default(),
        Some(program) => {
            let (success, output) = program.output()?;
            if !success {
                let message = format!("cannot pack {}: the release cannot list its own modules", plan.name);
                return Err(Report::of(Class::Failed, message).hint("the lines above say why"));
            }
            Contents::parse(&output).map_err(|error| Report::of(Class::Failed, error.to_string()))?
        }
    };
    let has = |wanted: &String| {
        let (name, version) = wanted.split_once("==").unwrap_or((wanted, ""));
        contents.extras.iter().any(|extra| extra.name == normalised(name) && extra.version == version)
    };
    let kept = |wanted: &String| {
        let (kind, name) = wanted.split_once('.').map_or((None, wanted.as_str()), |(kind, name)| (Some(kind), name));
        contents.kept.iter().any(|module| module.name == name && kind.is_none_or(|kind| module.kind == kind))
    };
    let mut lacking = plan.recipe.extras.iter().filter(|wanted| !has(wanted));
    let mut lost = arguments.keep_modules.iter().filter(|wanted| !kept(wanted));
    match lacking.next().or_else(|| lost.next()) {
        None => Ok(contents),
        Some(what) => Err(usage(
            format!("cannot pack {}: the tree does not have {what}", plan.name),
            "leave out --tree, so that the recipe's command builds the tree with it; or give the tree what it lacks with `build-tree --layer only`",
        )),
    }
}

/// A package's name as indexes compare it.
pub(super) fn normalised(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            other => normal.push(other.to_ascii_lowercase()),
        }
    }
    normal
}
