//! `sidle rehearse`: the check before a switch, by itself: what would fail or vanish on this host with another release, and what brings it back.

use super::rehearsal_page;
use super::rehearse::{Before, Came, perform, words_of_mending};
use crate::cli::author::manifests;
use crate::cli::facts::Facts;
use crate::cli::{Context, Ended, agents, instance_of, usage};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::rehearsal::lost::{Lost, Successors};
use crate::rehearsal::states::Depth;
use crate::rehearsal::{ExtrasPolicy, Rehearsal, Rehearser};
use crate::store::Store;
use crate::switch::journal::files::InstanceFiles;
use crate::switch::uses;
use crate::version::Release;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names in one line of the text; --json has all of them.
const NAMES_MAX: usize = 16;

/// `sidle rehearse PACKAGE RELEASE`
#[derive(Debug, Args)]
pub struct RehearseArguments {
    /// The package
    package: PackageName,
    /// The release to check; it need not be installed, if --manifest has it
    release: Release,
    /// The instance [default: the instance with the package's name]
    #[arg(long)]
    instance: Option<InstanceName>,
    /// A bundle file or a manifest with the release: only the lists of modules are compared, and nothing is loaded
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// How far to compare the highstates of both releases [default: the setting `highstate`]
    #[arg(long, value_name = "DEPTH", value_parser = ["off", "render", "test"], conflicts_with = "manifest")]
    highstate: Option<String>,
    /// Write what is found into this file, too: one HTML page without other files
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// How a release was compared with the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Both have loaded this host's configuration and modules.
    Loaded,
    /// The lists in their manifests.
    Lists,
    /// Not at all.
    Nothing,
}

impl Compared {
    fn word(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Lists => "lists",
            Self::Nothing => "nothing",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Loaded => "both releases loaded this host's configuration and modules",
            Self::Lists => {
                "by the lists in the manifests; nothing was loaded, and nothing of this host's own was tried"
            }
            Self::Nothing => "nothing to compare with",
        }
    }
}

/// `sidle rehearse`
pub fn rehearse(context: &Context, arguments: &RehearseArguments) -> Result<Ended, Report> {
    let package = &arguments.package;
    let files = InstanceFiles::new(&context.layout, &instance_of(package, arguments.instance.as_ref()), package);
    let from = files.journal()?.proven;
    let (found, compared) = match &arguments.manifest {
        Some(_) => by_lists(context, arguments, from.as_ref())?,
        None => by_loading(context, arguments, &files, from.as_ref())?,
    };
    tell(context, arguments, from.as_ref(), &found, compared)
}

fn by_loading(
    context: &Context,
    arguments: &RehearseArguments,
    files: &InstanceFiles,
    from: Option<&Release>,
) -> Result<(Rehearsal, Compared), Report> {
    let (package, release) = (&arguments.package, &arguments.release);
    if !Store::new(&context.layout, package).is_installed(release)? {
        return Err(Report::of(Class::Failed, format!("cannot rehearse {package} {release}: it is not installed")).hint(
            format!("`sidle install {package}@{release}` changes nothing that runs; or give a bundle file with --manifest FILE"),
        ));
    }
    let settings = Settings::read(&context.layout)?;
    let states = arguments.highstate.as_deref().map_or(settings.highstate, Depth::named);
    let (found, was_done) = match perform(context, &settings, files, release, Before::Release(from), states)? {
        Came::Found(found) => (*found, true),
        Came::NotDone(why) | Came::Skipped(why) => (Rehearsal::not_done(why), false),
    };
    let mending = found.vanishing.as_ref().and_then(|vanishing| vanishing.mending(settings.extras));
    let mut found = found.weighed(if mending.is_some() { ExtrasPolicy::Report } else { settings.extras });
    found.notes.extend(mending.map(words_of_mending));
    if let Some(from) = from.filter(|_| was_done) {
        let store = Store::new(&context.layout, package);
        if let Some(rehearser) = agents::parts(&store.head(release)?.agent)?.rehearser {
            found = uses::weighed(found, &store, files.instance(), rehearser, [from, release])?;
        }
    }
    Ok((found, if from.is_some() && was_done { Compared::Loaded } else { Compared::Nothing }))
}

fn by_lists(
    context: &Context,
    arguments: &RehearseArguments,
    from: Option<&Release>,
) -> Result<(Rehearsal, Compared), Report> {
    let (package, release) = (&arguments.package, &arguments.release);
    let path = arguments.manifest.clone().unwrap_or_default();
    let listed = manifests(context, &path)?;
    let is_it =
        |manifest: &crate::bundle::manifest::Manifest| manifest.package == *package && manifest.release() == *release;
    let Some(trial) = listed.into_iter().find(is_it) else {
        let hint = "`sidle inspect FILE` shows what a file holds";
        return Err(usage(format!("cannot rehearse {package} {release}: {} does not have it", path.display()), hint));
    };
    let Some(from) = from else { return Ok((Rehearsal::default(), Compared::Nothing)) };
    let former = Store::new(&context.layout, package).manifest(from)?;
    let rehearser = agents::parts(&trial.agent)?.rehearser;
    let lost = rehearser.and_then(|rehearser| Some((rehearser, rehearser.lost(&trial.offers, &former.offers)?)));
    if let Some((rehearser, lost)) = lost {
        let known = uses::of(&context.layout, &instance_of(package, arguments.instance.as_ref()), rehearser);
        let found = Rehearsal { lost, ..Rehearsal::default() }.by_use(&known, rehearser.successors());
        return Ok((found, Compared::Lists));
    }
    let which = if trial.offers.is_empty() { release } else { from };
    let why = format!(
        "the manifest of {which} does not list what its loader offers: pack the release with this sidle, as a new revision"
    );
    Ok((Rehearsal::not_done(why), Compared::Nothing))
}

fn tell(
    context: &Context,
    arguments: &RehearseArguments,
    from: Option<&Release>,
    found: &Rehearsal,
    compared: Compared,
) -> Result<Ended, Report> {
    let (package, release) = (&arguments.package, &arguments.release);
    let successors = successors(context, arguments, from)?;
    let refuses = found.refuses();
    let from_words = from.map_or_else(String::new, |from| format!("{from} to "));
    let mut facts = Facts::new().with("rehearsed", format!("{package} {from_words}{release}: {}", compared.told()));
    for (name, texts) in
        [("refuses", &found.blocking), ("not known", &found.unknown), ("refuses", &found.peers), ("note", &found.notes)]
    {
        for text in texts {
            facts.add(name, text);
        }
    }
    // A release that does not come up has no list of its own.
    if found.lost.is_empty() && compared != Compared::Nothing && !refuses {
        facts.add("lost", "no function of a module");
    }
    for (name, text) in lines(&found.lost, successors) {
        facts.add(name, text);
    }
    let lost: Vec<Value> = found
        .lost
        .iter()
        .map(|lost| {
            json!({
                "kind": lost.kind, "module": lost.module, "functions": lost.functions, "whole": lost.whole,
                "successor": successors.and_then(|successors| (successors.find)(&lost.kind, &lost.module)),
            })
        })
        .collect();
    let value = json!({
        "package": package, "instance": instance_of(package, arguments.instance.as_ref()), "from": from, "to": release,
        "compared": compared.word(), "refuses": refuses, "blocking": found.blocking, "unknown": found.unknown, "peers": found.peers, "notes": found.notes,
        "highstate": found.states, "lost": lost, "successors_as_of": successors.map(|successors| successors.as_of),
    });
    if let Some(path) = &arguments.page {
        write_page(path, &rehearsal_page::page(&value, compared.told()))?;
        facts.add("page", path.display());
    }
    context.output.result(facts, value);
    Ok(if refuses { Ended::As(Class::Failed) } else { Ended::Well })
}

fn write_page(path: &Path, page: &str) -> Result<(), Report> {
    let Some(name) = path.file_name() else {
        return Err(usage(
            format!("cannot write {}: the path names no file", path.display()),
            "name a file: --page rehearsal.html",
        ));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(Dir::open(parent.unwrap_or(Path::new(".")))?.write_atomic(name, page.as_bytes(), 0o644)?)
}

/// The list of packages that bring modules back, of the kind of agent that runs here or would.
fn successors(
    context: &Context,
    arguments: &RehearseArguments,
    from: Option<&Release>,
) -> Result<Option<Successors>, Report> {
    let store = Store::new(&context.layout, &arguments.package);
    let known = [Some(&arguments.release), from].into_iter().flatten();
    for release in known {
        if store.is_installed(release)? {
            let agent = store.head(release)?.agent;
            return Ok(agents::parts(&agent)?.rehearser.and_then(Rehearser::successors));
        }
    }
    Ok(None)
}

/// What is lost: by the package that brings it back, and by kind where none is known.
fn lines(lost: &[Lost], successors: Option<Successors>) -> Vec<(&'static str, String)> {
    let mut by_package: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut by_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut part = Vec::new();
    for module in lost {
        let name = format!("{} {}", module.kind, module.module);
        match successors.and_then(|successors| (successors.find)(&module.kind, &module.module)) {
            Some(package) => by_package.entry(package).or_default().push(name),
            None if module.whole => by_kind.entry(&module.kind).or_default().push(module.module.clone()),
            None => part.push(format!("{name} ({})", module.functions.len())),
        }
    }
    let mut lines = Vec::new();
    for (package, names) in by_package {
        let text = format!("{}: `extras = [\"{package}\"]` in the recipe brings them back", listed(&names));
        lines.push(("lost", text));
    }
    let has_more = !by_kind.is_empty();
    for (kind, names) in by_kind {
        lines.push(("lost", format!("{} of kind {kind}: {}", names.len(), listed(&names))));
    }
    if has_more {
        let as_of = successors.map_or_else(String::new, |successors| format!(" of {}", successors.as_of));
        let text = format!(
            "where no extension is named, none is on the list{as_of}: keep what you use with \
             `sidle pack --keep-modules NAME,… --from OLD`"
        );
        lines.push(("next", text));
    }
    if !part.is_empty() {
        let text = format!("{}: functions of modules that are there (--json names them)", listed(&part));
        lines.push(("lost in part", text));
    }
    lines
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!(" and {more} more (--json has all)") } else { String::new() };
    format!("{}{more}", names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", "))
}
