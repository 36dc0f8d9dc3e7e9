//! The tree of a packaged agent, for the record of an adoption.

use super::AdoptingInstance;
use crate::agent::AgentKind;
use crate::agent::adoption::RunningAgent;
use crate::rehearsal::{Former, Part};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A package's tree, and the variables of the agent's process by which it finds packages that were installed over the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackagedTree {
    tree: PathBuf,
    environment: Vec<(String, String)>,
}

impl PackagedTree {
    /// The tree of a running agent; None: it has none, or what it executes is not for us to start.
    pub(super) fn of(instance: &AdoptingInstance, agent: &AgentKind, found: &RunningAgent) -> Option<Self> {
        let rehearser = (instance.registry)(agent).ok()?.rehearser?;
        let Former::Packaged(part, _) = rehearser.packaged(&found.leader) else { return None };
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let environment = part.environment.into_iter().map(|(name, value)| Some((text(name)?, text(value)?)));
        Some(Self { tree: part.tree, environment: environment.collect::<Option<_>>()? })
    }

    /// The tree as a rehearsal has it.
    pub(super) fn part(&self) -> Part {
        let environment = self.environment.iter().map(|(name, value)| (name.into(), value.into()));
        Part { tree: self.tree.clone(), environment: environment.collect() }
    }
}
