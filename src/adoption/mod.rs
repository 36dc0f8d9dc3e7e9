//! Adoption: a running agent of a distribution's package becomes an instance of sidle's without losing a job, and is given back later.
//!
//! [`plan`] takes an agent over, [`unadopt`] gives it back, and [`record`] keeps what an adoption changes on the host. docs/adopting.md tells the
//! administrator's side.

mod environment;
pub mod foresight;
pub mod manual_start;
pub mod other_package;
pub mod plan;
pub mod record;
pub mod replacement_unit;
pub mod running_agent;
pub mod unadopt;

use crate::agent::adoption::Adopter;
use crate::agent::{AgentError, AgentKind, Registry};
use crate::bundle::manifest::Manifest;
use crate::config::Settings;
use crate::failure::Report;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::units;
use crate::store::Store;
use crate::switch::journal::files::InstanceFiles;
use std::path::{Path, PathBuf};

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

    fn store(&self) -> Store {
        Store::new(self.layout(), self.package())
    }

    /// The configuration directory that the settings name.
    fn named_configuration(&self) -> Result<Option<PathBuf>, Report> {
        Ok(Settings::read(self.layout())?.instance(self.layout(), self.name())?.1)
    }

    /// The configuration directory for a release: as the settings say, or its manifest.
    fn configuration(&self, manifest: &Manifest) -> Result<PathBuf, Report> {
        Ok(self.named_configuration()?.unwrap_or_else(|| self.layout().on_host(Path::new(&manifest.service.config))))
    }
}

/// True where this host's systemd runs what lies below the root.
fn is_own_host(layout: &Layout) -> bool {
    layout.root() == Path::new("/") && units::is_running()
}
