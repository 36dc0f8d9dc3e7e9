//! Adoption: a running agent of a distribution's package becomes an instance of sidle's without losing a job, and is given back later.
//!
//! [`plan`] takes an agent over, [`unadopt`] gives it back, and [`record`] keeps what an adoption changes on the host. docs/adopting.md tells the
//! administrator's side.

mod asking_unit;
pub mod dry_run;
mod environment;
mod extras;
mod host_settings;
pub mod manual_start;
pub mod may_start;
pub mod packaged_tree;
pub mod plan;
pub mod record;
pub mod replacement_unit;
pub mod running_agent;
pub mod unadopt;

use crate::agent::adoption::Adopter;
use crate::agent::{AgentError, AgentKind, AgentSettings, Answers, Registry};
use crate::bundle::manifest::Head;
use crate::bundle::path::BundlePath;
use crate::config::Settings;
use crate::failure::Report;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::{file, units};
use crate::rehearsal::Part;
use crate::store::Store;
use crate::store::check::Depth;
use crate::switch::journal::files::InstanceFiles;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where packages have their commands, in the search path.
const PACKAGES_COMMANDS: [&str; 5] = ["usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];

/// An instance that adopts an agent, with the knowledge about the kinds of agents.
#[derive(Clone)]
pub struct AdoptingInstance {
    /// Its files.
    pub files: InstanceFiles,
    /// The agents: their adopters and observers.
    pub registry: Registry,
}

impl AdoptingInstance {
    fn layout(&self) -> &Layout {
        self.files.layout()
    }

    fn name(&self) -> &InstanceName {
        self.files.instance()
    }

    fn package(&self) -> &PackageName {
        self.files.package()
    }

    /// How a kind of agent is adopted; None: not at all.
    fn adopter(&self, kind: &AgentKind) -> Result<Option<&'static dyn Adopter>, AgentError> {
        Ok((self.registry)(kind)?.adopter)
    }

    /// The commands of a release that the package's agent has in the search path: those that `/usr/local/sbin` gets. Names and paths in the release.
    fn replaced(&self, manifest: &Head) -> Result<BTreeMap<String, BundlePath>, AgentError> {
        let adopter = self.adopter(&manifest.agent)?;
        Ok(adopter.map(|adopter| replaced(self.layout(), adopter, &manifest.commands)).unwrap_or_default())
    }

    fn store(&self) -> Store {
        Store::new(self.layout(), self.package())
    }

    /// The configuration directory that the settings name.
    fn named_configuration(&self) -> Result<Option<PathBuf>, Report> {
        Ok(Settings::read(self.layout())?.instance(self.layout(), self.name())?.1)
    }

    /// The settings of the agent of an installed release, which is asked what it makes of the configuration.
    fn agent(&self, manifest: &Head, answers: fn(PathBuf) -> Answers) -> Result<AgentSettings, Report> {
        let (configuration, store, release) = (self.configuration(manifest)?, self.store(), manifest.release());
        // A damaged program is not asked.
        store.judge(&release, store.check_without_index(&release, Depth::Quick)?.1)?;
        let tree = file::canonical(store.tree(&release)?.path())?;
        let part = Part::of(tree, manifest, &configuration);
        let passed = Settings::read(self.layout())?.passed(self.name());
        let settings = AgentSettings { passed, ..AgentSettings::new(&configuration) };
        Ok(settings.asking(part, answers(self.layout().instance(self.name()))))
    }

    /// The configuration directory for a release: as the settings say, or its manifest.
    fn configuration(&self, manifest: &Head) -> Result<PathBuf, Report> {
        Ok(self.named_configuration()?.unwrap_or_else(|| self.layout().on_host(Path::new(&manifest.service.config))))
    }
}

fn replaced(
    layout: &Layout,
    adopter: &dyn Adopter,
    commands: &BTreeMap<String, BundlePath>,
) -> BTreeMap<String, BundlePath> {
    let is_there =
        |name: &str| PACKAGES_COMMANDS.iter().any(|place| file::is_input(&layout.root().join(place).join(name)));
    let replaced = commands.iter().filter(|(name, _)| adopter.is_command(name) && is_there(name));
    replaced.map(|(name, path)| (name.clone(), path.clone())).collect()
}

/// True where this host's systemd runs what lies below the root.
fn is_own_host(layout: &Layout) -> bool {
    layout.root() == Path::new("/") && units::is_running()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make and look at real files")]

    use super::*;
    use std::fs;

    /// Commands with these names.
    fn commands(names: &[&str]) -> BTreeMap<String, BundlePath> {
        names.iter().map(|name| ((*name).to_owned(), "bin/x".parse().unwrap())).collect()
    }

    #[test]
    fn only_commands_of_the_packages_agent_are_replaced() {
        let root = tempfile::tempdir().unwrap();
        let programs = root.path().join("usr/bin");
        fs::create_dir_all(&programs).unwrap();
        for name in ["python3", "salt-call", "salt-minion"] {
            fs::write(programs.join(name), "").unwrap();
        }
        let layout = Layout::new(root.path());
        let release = commands(&["python3", "salt-call", "salt-minion", "salt-pip"]);
        let replaced = replaced(&layout, &crate::salt::adoption::SaltAdopter, &release);
        assert_eq!(replaced.into_keys().collect::<Vec<_>>(), ["salt-call", "salt-minion"]);
    }
}
