//! A host as the pattern for others: what must not be cloned is removed. Installed releases, trust, settings and adoptions stay.
//!
//! An instance without a journal runs what `current` names, so a clone starts the proven release.

use crate::adoption::record::{Adoption, Stage};
use crate::agent::{AgentSettings, Answers, IdentityPaths, Registry};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::layout::{self, Layout};
use crate::name::{InstanceName, PackageName};
use crate::os::dir::Dir;
use crate::os::{OsError, file};
use crate::rehearsal::Part;
use crate::store::check::Depth;
use crate::store::collect::Effect;
use crate::store::incident::INCIDENTS_NAME;
use crate::store::{Store, packages};
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What becomes of the files that make an agent this host's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityFiles {
    /// They are removed: a clone gets its own.
    Remove,
    /// They stay.
    Keep,
}

/// Removes what must not be cloned, and returns the paths. A dry run only returns the paths. Refuses while a supervisor or an agent of this root
/// runs, or an adoption is unfinished.
pub fn generalize(
    layout: &Layout,
    registry: Registry,
    identity: IdentityFiles,
    effect: Effect,
) -> Result<Vec<PathBuf>, Report> {
    let packages = packages(layout)?;
    let instances = instances(layout, &packages)?;
    let _locks = alone(layout, &instances)?;
    refuse_users(layout, &packages)?;
    let mut found = below(&layout.instances())?;
    found.extend(below(&layout.runs())?);
    found.extend(below(&layout.cache())?);
    for package in &packages {
        found.extend(below(&layout.package(package).join(layout::STAGING))?);
        found.extend(existing(layout, &layout.receipts(package).join(INCIDENTS_NAME))?);
    }
    if identity == IdentityFiles::Remove {
        for instance in &instances {
            found.extend(identity_of(layout, registry, instance)?);
        }
    }
    found.sort();
    found.dedup();
    if effect == Effect::Apply {
        // An install that is under way would lose its staging directory.
        let _packages =
            packages.iter().map(|package| Store::new(layout, package).lock()).collect::<Result<Vec<_>, _>>()?;
        found.iter().try_for_each(|path| remove(path))?;
    }
    Ok(found)
}

/// An instance and its package.
type Named = (InstanceName, PackageName);

/// The instances with state or a link; for a package without any, its default instance.
fn instances(layout: &Layout, packages: &[PackageName]) -> Result<BTreeSet<Named>, Report> {
    let settings = Settings::read(layout)?;
    let mut found = BTreeSet::new();
    if let Some(directory) = Dir::open_if_exists(&layout.instances())? {
        for name in directory.names()?.iter().filter_map(|name| name.to_str()?.parse::<InstanceName>().ok()) {
            let (package, _) = settings.instance(layout, &name)?;
            found.insert((name, package));
        }
    }
    for package in packages {
        let default = InstanceName::default_of(package);
        let names = Dir::open_if_exists(&layout.package(package))?.map_or_else(|| Ok(Vec::new()), |all| all.names())?;
        let of_link = |name: &str| match name.strip_prefix(layout::CURRENT)?.strip_prefix('-') {
            Some(instance) => instance.parse().ok(),
            None => Some(default.clone()),
        };
        let links: Vec<InstanceName> = names.iter().filter_map(|name| of_link(name.to_str()?)).collect();
        found.extend(links.into_iter().map(|instance| (instance, package.clone())));
        if !found.iter().any(|(_, known)| known == package) {
            found.insert((default, package.clone()));
        }
    }
    Ok(found)
}

/// The drivers' locks: no supervisor runs, and none starts meanwhile.
fn alone(layout: &Layout, instances: &BTreeSet<Named>) -> Result<Vec<DriverLock>, Report> {
    let mut locks = Vec::new();
    for (name, package) in instances {
        if Adoption::read(layout, name)?.is_some_and(|adoption| adoption.stage == Stage::Begun) {
            let message = format!("cannot generalize this host: the adoption of {name} is unfinished");
            return Err(Report::of(Class::Conflict, message).hint(format!("finish it: `sidle adopt {package}`")));
        }
        if Dir::open_if_exists(&layout.instance(name))?.is_none() {
            continue;
        }
        let files = InstanceFiles::new(layout, name, package);
        let Some(lock) = files.try_drive()? else {
            let by = files.driver().map_or_else(String::new, |holder| format!(", {holder}"));
            let message = format!("cannot generalize this host: the supervisor of {name} runs{by}");
            let hint = format!("stop it first: `systemctl stop sidle@{name}`; what runs needs what would be removed");
            return Err(Report::of(Class::Conflict, message).hint(hint));
        };
        locks.push(lock);
    }
    Ok(locks)
}

/// Refuses while a release is in use: an agent may outlive its supervisor.
fn refuse_users(layout: &Layout, packages: &[PackageName]) -> Result<(), Report> {
    for package in packages {
        let store = Store::new(layout, package);
        for release in store.releases()? {
            if let Some(holder) = store.users(&release)?.first() {
                let message = format!("cannot generalize this host: {package} {release} is in use: {holder}");
                return Err(Report::of(Class::Conflict, message).hint("end that process first"));
            }
        }
    }
    Ok(())
}

/// What lies in a directory.
fn below(directory: &Path) -> Result<Vec<PathBuf>, OsError> {
    let Some(open) = Dir::open_if_exists(directory)? else { return Ok(Vec::new()) };
    Ok(open.names()?.into_iter().map(|name| directory.join(name)).collect())
}

/// The files that make the instance's agent this host's agent.
fn identity_of(layout: &Layout, registry: Registry, (name, package): &Named) -> Result<Vec<PathBuf>, Report> {
    let store = Store::new(layout, package);
    let newest = || Ok::<_, Report>(store.releases()?.into_iter().next_back());
    let Some(release) = store.current(name)?.map_or_else(newest, |release| Ok(Some(release)))? else {
        return Ok(Vec::new());
    };
    let manifest = store.head(&release)?;
    let settings = Settings::read(layout)?;
    let (passed, named) = (settings.passed(name), settings.instance(layout, name)?.1);
    let configuration = named.unwrap_or_else(|| layout.on_host(Path::new(&manifest.service.config)));
    if Dir::open_if_exists(&configuration)?.is_none() {
        return Ok(Vec::new());
    }
    // A damaged program is not asked.
    store.judge(&release, store.check_without_index(&release, Depth::Quick)?.1)?;
    let part = Part::of(file::canonical(store.tree(&release)?.path())?, &manifest, &configuration);
    let image = Some(layout.root()).filter(|root| *root != Path::new("/")).map(Path::to_owned);
    // No answer is kept: what lies in the instance's state is removed.
    let asking = AgentSettings::new(&configuration).asking(part, Answers::Forgotten);
    let settings = AgentSettings { passed, image, ..asking };
    let agent = (registry(&manifest.agent)?.observer)(&settings)?;
    let IdentityPaths { keys, others } = agent.identity_files()?;
    let there = |paths: &[PathBuf]| {
        let found: Vec<Option<PathBuf>> = paths.iter().map(|path| existing(layout, path)).collect::<Result<_, _>>()?;
        Ok::<Vec<PathBuf>, Report>(found.into_iter().flatten().collect())
    };
    let (found, mut removed) = (there(&keys)?, there(&others)?);
    let has_run = !removed.is_empty() || InstanceFiles::new(layout, name, package).journal()?.proven.is_some();
    if let Some(first) = keys.first().filter(|_| found.is_empty() && has_run) {
        let message =
            format!("cannot generalize this host: {name} has run here, and its key is not at {}", first.display());
        return Err(Report::of(Class::Failed, message).hint(format!(
            "find the key, since each clone would have it: `find / -name {}`; once it is removed: `sidle generalize --keep-identity`",
            first.file_name().unwrap_or_default().to_string_lossy()
        )));
    }
    removed.extend(found);
    Ok(removed)
}

/// The path below the root, if there is such an entry. A configuration in an image names paths as its host will see them.
fn existing(layout: &Layout, path: &Path) -> Result<Option<PathBuf>, Report> {
    let path = if path.starts_with(layout.root()) { path.to_owned() } else { layout.on_host(path) };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let Some(directory) = Dir::open_if_exists(parent)? else { return Ok(None) };
    if directory.stat(name)?.is_none() {
        return Ok(None);
    }
    // An absolute link in an image leads to the host on which the image is made.
    if !file::canonical(parent)?.starts_with(file::canonical(layout.root())?) {
        let message = format!("cannot remove {}: a link in its path leads out of the root", path.display());
        return Err(
            Report::of(Class::Failed, message).hint("remove it yourself, or run `sidle generalize` in the image")
        );
    }
    Ok(Some(path))
}

fn remove(path: &Path) -> Result<(), OsError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let Some(directory) = Dir::open_if_exists(parent)? else { return Ok(()) };
    directory.remove_tree(name)?;
    directory.sync()
}
