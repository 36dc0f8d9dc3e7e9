//! `sidle pack`: a recipe or a tree becomes a packed release, and with `--repo` a published one in a file of its own.

mod building;
mod layer;
mod suggest;

use super::author::{SigningArguments, SigningKeys, publication_facts, write_bundle};
use super::dry_run::DryRun;
use super::facts::{Facts, size};
use super::{Context, Ended, agents, input, source_date_epoch, usage};
use crate::agent::AgentKind;
use crate::bundle::contents::{self, Contents};
use crate::bundle::host_versions;
use crate::bundle::limits::MANIFEST_COMPRESSED_MAXIMUM_BYTES;
use crate::bundle::manifest::{Manifest, decompress};
use crate::bundle::pack::{LEVEL_BEST, LEVEL_DEFAULT, PAYLOAD_NAME, PackInput, Packed, pack as pack_tree};
use crate::bundle::recipe::{Build, Recipe};
use crate::bundle::survey::survey;
use crate::bundle::systems::Systems;
use crate::failure::Report;
use crate::name::PackageName;
use crate::os::dir::Dir;
use crate::os::{clock, file, host};
use crate::repository::{Added, PackedRelease, Repository, RepositoryError};
use crate::store::collect::Effect;
use crate::trust::publish::Lifetimes;
use crate::version::Version;
use clap::Args;
use clap::builder::ArgPredicate;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Name of the compressed manifest in the output directory.
pub const MANIFEST_NAME: &str = "manifest.json.zst";
/// Largest recipe read.
const RECIPE_BYTES_MAXIMUM: u64 = 256 * 1024;

/// `sidle pack RECIPE|TREE --version VERSION`
#[derive(Debug, Args)]
pub struct PackArguments {
    /// A recipe (a .toml file that says how to build), or a directory with the files of the release
    #[arg(
        value_name = "RECIPE|TREE",
        required = false,
        required_unless_present = "suggest_extras",
        default_value_if("suggest_extras", ArgPredicate::IsPresent, ".")
    )]
    recipe: PathBuf,
    /// The upstream version: 3007.17
    #[arg(
        long,
        required = false,
        required_unless_present = "suggest_extras",
        default_value_if("suggest_extras", ArgPredicate::IsPresent, "0")
    )]
    version: Version,
    /// The number of this build of the version
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    revision: u32,
    /// The package; only for a directory without a recipe
    #[arg(long)]
    package: Option<PackageName>,
    /// The kind of agent: salt, demo or command; only for a directory without a recipe
    #[arg(long)]
    agent: Option<AgentKind>,
    /// The program that runs as the service, relative to the directory; only for a directory without a recipe
    #[arg(long, value_name = "PATH")]
    command: Option<String>,
    /// Pack this directory instead of the recipe's build
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Instead of building, take the files of this release, a bundle file that this host or --repo trusts, and add the recipe's extras and the kept
    /// modules to them: a higher revision of the same version
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tree", "source"])]
    base: Option<PathBuf>,
    /// Where the recipe's build takes its input from (`SIDLE_SOURCE`). What lies at this path, from where you are, is passed by its whole path
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// An earlier release (a packed directory or a manifest), or a repository with earlier releases of the package: files that have not changed
    /// since go into separate frames, which hosts with these files need not fetch [default: the repository of --repo]
    #[arg(long, value_name = "DIR|REPO")]
    previous: Vec<PathBuf>,
    /// Resolve the recipe's extras, with --base beside the packages of that release, and write their lock beside the recipe: RECIPE-VERSION.lock.
    /// Nothing is packed
    #[arg(long, conflicts_with_all = ["output", "previous", "keep_modules"])]
    lock: bool,
    /// Modules that this version of the agent dropped, to be taken from an older release: NAME for each kind that has it, or KIND.NAME
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "from")]
    keep_modules: Vec<String>,
    /// The older release: a bundle file that this host or --repo trusts, or a directory with its tree
    #[arg(long, value_name = "OLD", requires = "keep_modules")]
    from: Option<PathBuf>,
    /// Print the extras and kept modules that bring back what the release NEW has lost since OLD: bundle files or manifests. Nothing is packed
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["recipe", "version", "tree", "repo", "output", "previous", "lock", "keep_modules"])]
    suggest_extras: Option<Vec<PathBuf>>,
    /// Suggest only what is used: the uses of a fleet (`salt-run sidle.uses format=data`) or of a host (`sidle --json uses`)
    #[arg(long, value_name = "FILE", requires = "suggest_extras")]
    uses: Option<PathBuf>,
    /// The directory for manifest and payload [default: PACKAGE-RELEASE here]; with --repo, the bundle file [default: PACKAGE-RELEASE.sidle here]
    #[arg(long, short, value_name = "DIR|FILE")]
    output: Option<PathBuf>,
    /// Add the release to this repository, publish it, and export it into one bundle file
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    #[command(flatten)]
    keys: SigningArguments,
    /// Compress as much as possible: slower to pack, smaller to fetch
    #[arg(long, conflicts_with = "level")]
    best: bool,
    /// zstd level
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..=22))]
    level: Option<i32>,
    #[command(flatten)]
    dry: DryRun,
}

/// Everything that packing needs, decided before anything is written.
struct PackPlan {
    recipe: Recipe,
    /// The directory in which a build's command runs, and to which its tree is relative.
    home: PathBuf,
    /// The name of the recipe's file, without its extension.
    stem: String,
    version: Version,
    /// `PACKAGE-RELEASE`.
    name: String,
    output: PathBuf,
    previous: Vec<Manifest>,
    epoch: u64,
    level: i32,
}

/// `sidle pack`
pub fn pack(context: &Context, arguments: &PackArguments) -> Result<Ended, Report> {
    if let Some(paths) = &arguments.suggest_extras {
        return suggest::suggest(context, arguments, paths);
    }
    let mut plan = plan(arguments)?;
    // First: a build may take minutes, and a missing key is found at once.
    let published = arguments.repo.as_ref().filter(|_| !arguments.lock);
    if arguments.lock && arguments.base.is_none() && arguments.repo.is_some() {
        let hint = "leave out --repo: a lock is not published; beside --base it says which releases are trusted";
        return Err(usage("cannot use --repo with --lock", hint));
    }
    let keys = published.map(|_| arguments.keys.open()).transpose()?;
    if keys.is_none() && !arguments.keys.is_empty() {
        return Err(usage(
            "cannot use --key without --repo",
            "name the repository's directory with --repo: packing alone signs nothing",
        ));
    }
    if context.effect == Effect::DryRun {
        return dry_run(context, arguments, &plan, keys.as_ref());
    }
    let parent = match plan.output.parent() {
        // A lock is written beside the recipe, and nothing else is.
        _ if arguments.lock => &plan.home,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = Dir::open_or_create(parent, 0o755)?;
    let work = building::Work::new(&parent, &plan.name)?;
    if arguments.lock {
        return lock(context, arguments, &plan, &work);
    }
    let output = if keys.is_some() { work.directory.try_clone()? } else { Dir::open_or_create(&plan.output, 0o755)? };
    let tree = building::tree(context, arguments, &mut plan, &work)?;
    let contents = layer::contents(arguments, &plan, &tree)?;
    let packed = compress(context, arguments, &plan, (&tree, contents), &output)?;
    output.write_atomic(MANIFEST_NAME, &packed.manifest_bytes, 0o644)?;
    match (&arguments.repo, &keys) {
        (Some(path), Some(keys)) => {
            let mut repository = Repository::open(path)?;
            let files = [MANIFEST_NAME, PAYLOAD_NAME].map(|name| output.path().join(name));
            let (manifest, mut payload) = super::author::packed_files(&files[0], &files[1])?;
            let release = PackedRelease { manifest: &manifest, payload: &mut payload };
            let (added, publication) =
                repository.add_and_publish(release, keys.publish(), &Lifetimes::default(), clock::now())?;
            let (Added::Staged(id) | Added::Already(id)) = added;
            context.output.step(packed_facts(&packed));
            if !publication.signed.is_empty() {
                context.output.step(publication_facts(&publication));
            }
            write_bundle(context, &repository, (&[id], &[]), &plan.output)?;
        }
        _ => tell(context, &packed, &plan),
    }
    Ok(Ended::Well)
}

fn lock(
    context: &Context,
    arguments: &PackArguments,
    plan: &PackPlan,
    work: &building::Work<'_>,
) -> Result<Ended, Report> {
    let lock = building::lock(context, arguments, plan, work)?;
    let facts =
        Facts::new().with("locked", lock.display()).with("next", "look at the lock, keep it with the recipe, and pack");
    context.output.result(facts, json!({"lock": lock, "extras": plan.recipe.extras}));
    Ok(Ended::Well)
}

/// What packing would do: the tree is looked at as packing does, the keys are compared with the repository's; nothing is built or compressed.
fn dry_run(
    context: &Context,
    arguments: &PackArguments,
    plan: &PackPlan,
    keys: Option<&SigningKeys>,
) -> Result<Ended, Report> {
    if arguments.lock {
        let lock = layer::lock_of(plan);
        context.output.result(
            Facts::new().with("would lock", lock.display()),
            json!({"lock": lock, "extras": plan.recipe.extras}),
        );
        return Ok(Ended::Well);
    }
    let mut facts = Facts::new().with("would pack", &plan.name);
    let mut value = json!({
        "package": plan.recipe.package, "release": format!("{}-{}", arguments.version, arguments.revision), "output": plan.output,
    });
    if let Some(base) = &arguments.base {
        facts.add("would add to", base.display());
    } else if let (None, Build::Command(command)) = (&arguments.tree, &plan.recipe.build) {
        facts.add("would build by", command.join(" "));
    } else {
        let requires = &plan.recipe.requires;
        let tree = building::named_tree(arguments, plan)?;
        let survey = survey(&tree, &requires.libraries, requires.glibc, host::parallelism())?;
        let bytes: u64 = survey.found.iter().map(|(entry, _)| entry.size()).sum();
        facts.add("files", format!("{} in {} entries", size(bytes), survey.found.len()));
        if let Some(floor) = survey.asks.libc_floor {
            facts.add("needs glibc", format!("{floor} or newer"));
            facts.add("starts on", Systems::with(floor).words());
        }
        for (name, value) in host_versions::of_machine(survey.asks.kernel_floor, survey.asks.x86_64_level) {
            facts.add(name, value);
        }
        value["platform"] = json!(survey.asks.platform);
        value["content_bytes"] = json!(bytes);
    }
    facts.add("would write", plan.output.display());
    if let (Some(path), Some(keys)) = (&arguments.repo, keys) {
        Repository::open_for(path, Effect::DryRun)?.may_publish(keys.publish())?;
        facts.add("would publish in", path.display());
        value["repository"] = json!(path);
    }
    context.output.result(facts, value);
    Ok(Ended::Well)
}

fn plan(arguments: &PackArguments) -> Result<PackPlan, Report> {
    let (recipe, home) = recipe(arguments)?;
    let agent = agents::parts(&recipe.agent);
    let agent = agent.map_err(|error| usage(error.message, "correct `agent` in the recipe, or --agent"))?;
    if let Some(missing) = agent.commands.iter().find(|name| !recipe.commands.contains_key(**name)) {
        let message =
            format!("cannot pack {}: an agent of kind {} needs the command `{missing}`", recipe.package, agent.kind);
        return Err(usage(message, format!("write a recipe with `{missing} = \"bin/...\"` below [commands]")));
    }
    let name = format!("{}-{}-{}", recipe.package, arguments.version, arguments.revision);
    let extension = if arguments.repo.is_some() { ".sidle" } else { "" };
    let output = arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}{extension}")));
    let mut previous = Vec::new();
    // What is published into a repository comes after what that has. Where there is none, that is told where it is needed.
    let earlier = arguments.repo.as_ref().filter(|_| arguments.previous.is_empty());
    let is_there = |path: &PathBuf| match Repository::open_for(path, Effect::DryRun) {
        Ok(_) => Ok(true),
        Err(RepositoryError::NoRepository { .. }) => Ok(false),
        Err(error) => Err(Report::from(error)),
    };
    let earlier = match earlier {
        Some(path) => is_there(path)?.then_some(path),
        None => None,
    };
    for path in arguments.previous.iter().chain(earlier) {
        previous.extend(manifests(path, &recipe.package)?);
    }
    // No release comes after itself: packed once more, after a failure, it has the same bytes.
    previous.retain(|manifest| (&manifest.version, manifest.revision) != (&arguments.version, arguments.revision));
    let level = arguments.level.unwrap_or(if arguments.best { LEVEL_BEST } else { LEVEL_DEFAULT });
    let stem = arguments.recipe.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let version = arguments.version.clone();
    Ok(PackPlan { recipe, home, stem, version, name, output, previous, epoch: source_date_epoch()?, level })
}

fn recipe(arguments: &PackArguments) -> Result<(Recipe, PathBuf), Report> {
    const EXPECTED: &str = "a recipe (a .toml file), or a directory that is the tree";
    let path = &arguments.recipe;
    let of_tree = [arguments.package.is_some(), arguments.agent.is_some(), arguments.command.is_some()];
    if Dir::open(path).is_err() {
        if of_tree.contains(&true) {
            let hint = "leave out --package, --agent and --command: the recipe has them";
            return Err(usage(format!("cannot override the recipe {}", path.display()), hint));
        }
        let bytes = input::read(path, RECIPE_BYTES_MAXIMUM, EXPECTED)?;
        let recipe = Recipe::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| {
            let report = Report::from(error);
            Report { message: format!("{}: {}", path.display(), report.message), ..report }
        })?;
        let path = file::canonical(path)?;
        return Ok((recipe, path.parent().unwrap_or(Path::new("/")).to_owned()));
    }
    let (Some(package), Some(agent), Some(command)) = (&arguments.package, &arguments.agent, &arguments.command) else {
        let hint = "name a recipe instead, or add --package NAME --agent KIND --command bin/PROGRAM";
        return Err(usage(format!("cannot tell what is in the tree {}", path.display()), hint));
    };
    Ok((Recipe::of_tree(package.clone(), agent.clone(), file::canonical(path)?, command)?, PathBuf::from("/")))
}

/// The manifests of a packed directory, of a manifest file, or of all releases of the package in a repository.
fn manifests(path: &Path, package: &PackageName) -> Result<Vec<Manifest>, Report> {
    const EXPECTED: &str = "a packed directory, its manifest, or a repository";
    let parse = |bytes: Vec<u8>| Ok::<_, Report>(Manifest::parse(&decompress(&bytes)?)?);
    let Ok(directory) = Dir::open(path) else {
        return Ok(vec![parse(input::read(path, MANIFEST_COMPRESSED_MAXIMUM_BYTES, EXPECTED)?)?]);
    };
    if let Some(bytes) = directory.read_if_exists(MANIFEST_NAME, MANIFEST_COMPRESSED_MAXIMUM_BYTES)? {
        return Ok(vec![parse(bytes)?]);
    }
    let repository = Repository::open_for(path, Effect::DryRun)?;
    let listed = repository.releases()?.into_iter().filter(|one| one.id.package == *package);
    listed.map(|one| parse(repository.manifest(&one.id)?)).collect()
}

fn compress(
    context: &Context,
    arguments: &PackArguments,
    plan: &PackPlan,
    (tree, contents): (&Dir, Contents),
    output: &Dir,
) -> Result<Packed, Report> {
    let bar = context.output.bar("packing");
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let packed = pack_tree(&PackInput {
        tree,
        recipe: &plan.recipe,
        version: arguments.version.clone(),
        revision: arguments.revision,
        previous: &plan.previous,
        source_date_epoch: plan.epoch,
        level: plan.level,
        threads: host::parallelism(),
        progress: &progress,
        contents,
        output,
    });
    bar.finish_and_clear();
    Ok(packed?)
}

fn packed_facts(packed: &Packed) -> Facts {
    let manifest = &packed.manifest;
    let own = manifest.generations.iter().position(|generation| *generation == manifest.release());
    let new = manifest.frames.iter().filter(|frame| Some(frame.generation as usize) == own);
    let mut facts = Facts::new()
        .with("packed", manifest.id())
        .with("files", format!("{} in {} entries", size(manifest.space.content_bytes), manifest.entries.len()))
        .with("payload", format!("{} in {} frames", size(manifest.payload.length), manifest.frames.len()));
    if manifest.generations.len() > 1 {
        facts.add("new in it", size(new.map(|frame| frame.length).sum()));
    }
    if let Some(floor) = manifest.libc_floor {
        facts.add("needs glibc", format!("{floor} or newer"));
        facts.add("starts on", Systems::with(floor).words());
    }
    for (name, value) in host_versions::of_machine(manifest.kernel_floor, manifest.x86_64_level) {
        facts.add(name, value);
    }
    if !manifest.host_libraries.is_empty() {
        facts.add("needs libraries", host_versions::in_words(&manifest.host_libraries, &manifest.host_versions));
    }
    for (name, value) in contents::words(&manifest.extras, &manifest.kept) {
        facts.add(name, value);
    }
    facts
}

fn tell(context: &Context, packed: &Packed, plan: &PackPlan) {
    let output = plan.output.display();
    let facts = packed_facts(packed).with("written to", &output).with("next", format!("sidle repo add REPO {output}"));
    let manifest = &packed.manifest;
    let value = json!({
        "package": manifest.package, "release": manifest.release(), "platform": manifest.platform, "output": plan.output,
        "content_bytes": manifest.space.content_bytes, "payload_bytes": manifest.payload.length,
        "payload_sha256": manifest.payload.sha256, "libc_floor": manifest.libc_floor, "host_libraries": manifest.host_libraries,
        "host_versions": manifest.host_versions, "kernel_floor": manifest.kernel_floor,
        "x86_64_level": manifest.x86_64_level, "extras": manifest.extras, "kept": manifest.kept,
    });
    context.output.result(facts, value);
}
