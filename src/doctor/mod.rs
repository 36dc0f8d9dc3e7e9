//! The checks of a host. They change nothing and take no lock; a check that cannot run is a finding of its own.
//!
//! One file for each group: [`store`], [`location`], [`processes`], [`units`], [`packages`], [`trust`]; an agent's [`Examiner`] adds groups.
//! [`explanations`] says what each kind of finding means, and in which words logs tell of it.

pub mod explanations;
pub mod location;
pub mod packages;
pub mod processes;
pub mod store;
pub mod trust;
pub mod units;

use crate::agent::examination::{Case, Examiner, Group, Severity};
use crate::agent::{AgentSettings, Answers, Registry};
use crate::bundle::manifest::Manifest;
use crate::config::Settings;
use crate::digest::Digest;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::environment::Passed;
use crate::os::{OsError, file};
use crate::rehearsal::Part;
use crate::store::{Store, owners};
use crate::supervise::status::{AgentStatus, SupervisorStatus};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::on_record;
use jiff::Timestamp;
use std::path::{Path, PathBuf};

/// The instance to check.
pub struct CheckedInstance<'a> {
    /// Where everything lies.
    pub layout: &'a Layout,
    /// The package.
    pub package: &'a PackageName,
    /// The instance of it.
    pub instance: &'a InstanceName,
    /// The status of its supervisor; None: no supervisor lives.
    pub supervised: Result<Option<SupervisorStatus>, OsError>,
    /// The agents: their observers and examiners.
    pub registry: Registry,
    /// The time.
    pub now: Timestamp,
}

impl CheckedInstance<'_> {
    fn status(&self) -> Option<&SupervisorStatus> {
        self.supervised.as_ref().ok()?.as_ref()
    }

    fn agent(&self) -> Option<&AgentStatus> {
        self.status()?.agent.as_ref()
    }
}

/// Checks the settings, the owners of directories, and the trust.
pub fn host(layout: &Layout, now: Timestamp) -> Vec<Group> {
    let mut settings = Group::new("settings");
    let read = Settings::read(layout);
    match &read {
        Ok(_) => settings.good(format!("{} can be read", layout.settings().display())),
        Err(report) => {
            let remedy = report.hint.clone().unwrap_or_default();
            settings.find(Severity::Error, "settings-invalid", report.to_string(), remedy);
        }
    }
    vec![settings, owners(layout), trust::check(layout, read.ok().as_ref(), now)]
}

/// Checks who may write to sidle's directories.
fn owners(layout: &Layout) -> Group {
    let mut group = Group::new("owners");
    match owners::check(layout) {
        Ok(foreign) if foreign.is_empty() => group.good("only their owner may write to sidle's directories"),
        Ok(foreign) => {
            for place in foreign {
                let severity = if place.is_refused() { Severity::Error } else { Severity::Warning };
                group.find(severity, "foreign-directory", place.to_string(), place.remedy());
            }
        }
        Err(error) => group.unknown("the owners of sidle's directories", error, "run `sidle doctor` as root"),
    }
    group
}

/// Checks one instance.
pub fn instance(checked: &CheckedInstance<'_>) -> Vec<Group> {
    let store = Store::new(checked.layout, checked.package);
    let files = InstanceFiles::new(checked.layout, checked.instance, checked.package);
    let (stored, whole) = store::check(&store, &files);
    let current = whole.as_ref().map(|whole| &whole.manifest);
    let configuration = configuration(checked, current);
    let agent = current.map(|manifest| &manifest.agent);
    let asked = whole.as_ref().zip(configuration.as_ref()).filter(|_| checked.agent().is_some());
    let present = asked.and_then(|(whole, configuration)| configuration_now(checked, whole, configuration));
    let examiner = agent.and_then(|agent| (checked.registry)(agent).ok()?.examiner);
    let mut groups = vec![stored, location::check(&store, current)];
    groups.push(processes::check(checked, &store, &files, present));
    groups.push(units::check(checked, &store));
    groups.push(packages::check(checked, examiner));
    if let (Some(examiner), Some(whole), Some(configuration)) = (examiner, &whole, configuration) {
        groups.extend(agents_own(checked, examiner, whole, &configuration));
    }
    groups
}

/// The agent's configuration directory: as the settings say, or the manifest.
fn configuration(checked: &CheckedInstance<'_>, manifest: Option<&Manifest>) -> Option<PathBuf> {
    let named = Settings::read(checked.layout).and_then(|settings| settings.instance(checked.layout, checked.instance));
    let named = named.ok().and_then(|(_, configuration)| configuration);
    named.or_else(|| manifest.map(|manifest| checked.layout.on_host(manifest.service.config.as_ref())))
}

/// The checks that an agent adds.
fn agents_own(
    checked: &CheckedInstance<'_>,
    examiner: &dyn Examiner,
    whole: &store::Current,
    configuration: &Path,
) -> Vec<Group> {
    let release = release(whole, configuration);
    let running = checked.agent();
    // A record that cannot be read is a finding of the processes.
    let recorded = on_record(checked.layout, checked.instance).unwrap_or_default();
    // Not the supervisor: it adopts orphans.
    let own = running.map(|agent| agent.leader.pid).into_iter().chain(recorded.iter().map(|leader| leader.pid));
    let own: Vec<u32> = own.collect();
    let reaches = running.map(|agent| agent.reaches.clone()).unwrap_or_default();
    let passed = passed(checked);
    examiner.examine(Case {
        root: checked.layout.root(),
        configuration,
        release: release.as_ref(),
        passed: &passed,
        state: &checked.layout.instance(checked.instance),
        own: &own,
        reaches: &reaches,
    })
}

/// The current release, which can be asked; None: it is damaged.
fn release(whole: &store::Current, configuration: &Path) -> Option<Part> {
    let tree = whole.tree.as_ref().and_then(|tree| file::canonical(tree).ok())?;
    Some(Part::of(tree, &whole.manifest, configuration))
}

/// The variables that the agent's programs get. Settings that cannot be read are a finding of their own.
fn passed(checked: &CheckedInstance<'_>) -> Passed {
    Settings::read(checked.layout).map(|settings| settings.passed(checked.instance)).unwrap_or_default()
}

/// The digest of the configuration that the agent would load now; None: unknown.
fn configuration_now(checked: &CheckedInstance<'_>, whole: &store::Current, configuration: &Path) -> Option<Digest> {
    let answers = Answers::Read(checked.layout.instance(checked.instance));
    let (passed, release) = (passed(checked), release(whole, configuration));
    let settings = AgentSettings { passed, release, answers, ..AgentSettings::new(configuration) };
    ((checked.registry)(&whole.manifest.agent).ok()?.observer)(&settings).ok()?.configuration().ok()?
}
