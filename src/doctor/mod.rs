//! The examination of a host: all that could go wrong, looked at in one go. It changes nothing, takes no lock, and what it could not look at is
//! a finding of its own.
//!
//! One file for each sort of things: [`store`], [`processes`], [`units`], [`places`], [`trust`], [`packages`]; what only an agent's own
//! knowledge tells is its [`Examiner`]'s. [`explanations`] says what each kind of finding means, and in which words logs tell of it.

pub mod explanations;
pub mod location;
pub mod packages;
pub mod processes;
pub mod store;
pub mod trust;
pub mod units;

use crate::agent::examination::{Case, Examiner, Group, Severity};
use crate::agent::{AgentKind, AgentSettings, Registry};
use crate::bundle::manifest::{Manifest, Service};
use crate::config::Settings;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::file;
use crate::os::process::Identity;
use crate::store::{Store, owners};
use crate::switch::files::InstanceFiles;
use crate::switch::processes::on_record;
use crate::version::Release;
use jiff::Timestamp;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is checked.
pub struct CheckedInstance<'a> {
    /// Where everything lies.
    pub layout: &'a Layout,
    /// The package.
    pub package: &'a PackageName,
    /// The instance of it.
    pub instance: &'a InstanceName,
    /// What its supervisor says; None: none lives.
    pub supervised: Option<Supervised>,
    /// The agents: their observers and examiners.
    pub registry: Registry,
    /// The time.
    pub now: Timestamp,
}

/// What a supervisor says of itself and its agent.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// Its process.
    pub pid: u32,
    /// The version of its program; empty: it does not say.
    pub version: String,
    /// What keeps it from running the agent.
    pub trouble: Option<String>,
    /// The agent; None: none runs.
    pub agent: Option<Running>,
}

/// An agent that runs.
#[derive(Debug, Clone)]
pub struct Running {
    /// What it runs; None: nothing of sidle's, it is being adopted.
    pub release: Option<Release>,
    /// Its first process.
    pub leader: Identity,
    /// The peers that it reaches.
    pub reaches: Vec<String>,
    /// What it lacks to be healthy.
    pub lacks: Option<String>,
}

/// Looks at what the host has once: settings, owners of places, trust.
pub fn host(layout: &Layout, now: Timestamp) -> Vec<Group> {
    let mut settings = Group::new("settings");
    let read = Settings::read(layout);
    match &read {
        Ok(_) => settings.good(format!("{} can be understood", layout.settings().display())),
        Err(report) => {
            let remedy = report.hint.clone().unwrap_or_default();
            settings.find(Severity::Error, "settings-invalid", report.to_string(), remedy);
        }
    }
    vec![settings, owners(layout), trust::check(layout, read.ok().as_ref(), now)]
}

/// Looks at whose the places are that sidle works in.
fn owners(layout: &Layout) -> Group {
    let mut group = Group::new("owners");
    match owners::check(layout) {
        Ok(foreign) if foreign.is_empty() => group.good("what sidle works in is its owner's alone"),
        Ok(foreign) => {
            for place in foreign {
                let severity = if place.is_refused() { Severity::Error } else { Severity::Warning };
                group.find(severity, "foreign-directory", place.to_string(), place.remedy());
            }
        }
        Err(error) => group.unknown("whose the places are that sidle works in", error, "run it as root"),
    }
    group
}

/// Looks at one instance.
pub fn instance(checked: &CheckedInstance<'_>) -> Vec<Group> {
    let store = Store::new(checked.layout, checked.package);
    let files = InstanceFiles::new(checked.layout, checked.instance, checked.package);
    let (stored, whole) = store::check(&store, &files);
    let current = whole.as_ref().map(|whole| &whole.manifest);
    let configuration = configuration(checked, current);
    let agent = current.map(|manifest| &manifest.agent);
    let examiner = agent.and_then(|agent| (checked.registry)(agent).ok()?.examiner);
    let mut groups = vec![stored, location::check(&store, current)];
    groups.push(processes::check(checked, &store, &files, agent.zip(configuration.as_ref())));
    groups.push(units::check(checked, &store));
    groups.push(packages::check(checked, examiner));
    if let (Some(examiner), Some(whole), Some(configuration)) = (examiner, &whole, configuration) {
        groups.extend(agents_own(checked, examiner, whole, &configuration));
    }
    groups
}

/// Where the agent's configuration is: as the settings say, or the manifest.
fn configuration(checked: &CheckedInstance<'_>, manifest: Option<&Manifest>) -> Option<PathBuf> {
    let named = Settings::read(checked.layout).and_then(|settings| settings.instance(checked.layout, checked.instance));
    let named = named.ok().and_then(|(_, configuration)| configuration);
    named.or_else(|| manifest.map(|manifest| checked.layout.on_host(manifest.service.config.as_ref())))
}

/// What only the agent's own knowledge tells.
fn agents_own(
    checked: &CheckedInstance<'_>,
    examiner: &dyn Examiner,
    whole: &store::Current,
    configuration: &std::path::Path,
) -> Vec<Group> {
    let environment = &whole.manifest.service.environment;
    let environment: Vec<(OsString, OsString)> = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), Service::expanded(value, configuration)))
        .collect();
    let tree = whole.tree.as_ref().and_then(|tree| file::canonical(tree).ok());
    let supervised = checked.supervised.as_ref();
    let running = supervised.and_then(|supervised| supervised.agent.as_ref());
    // What can't be read of the record is told of among the processes.
    let recorded = on_record(checked.layout, checked.instance).unwrap_or_default();
    let own = supervised.map(|supervised| supervised.pid).into_iter().chain(running.map(|agent| agent.leader.pid));
    let own: Vec<u32> = own.chain(recorded.iter().map(|leader| leader.pid)).collect();
    let reaches = running.map(|agent| agent.reaches.clone()).unwrap_or_default();
    examiner.examine(Case {
        root: checked.layout.root(),
        configuration,
        release: tree.as_deref().map(|tree| (tree, environment.as_slice())),
        own: &own,
        reaches: &reaches,
    })
}

/// The digest of what the agent of `kind` would load of its configuration now; None: it can't be told.
fn configuration_now(
    checked: &CheckedInstance<'_>,
    (kind, configuration): (&AgentKind, &PathBuf),
) -> Option<crate::digest::Digest> {
    ((checked.registry)(kind).ok()?.observer)(&AgentSettings::new(configuration)).ok()?.configuration().ok()?
}
