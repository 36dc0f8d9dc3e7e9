//! The request for a switch: its kind, its release, the user who asks, the reason.

use crate::agent::AgentKind;
use crate::agent::caller::Caller;
use crate::os::account::Rights;
use crate::os::process::Identity;
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text kept, in characters: an agent's error output must not swell the journal, which is written at every step.
pub const TEXT_LENGTH_MAXIMUM: usize = 1_000;

/// The kind of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// To another release.
    Switch,
    /// To the previous or a named release; the release that is left is marked as declined.
    Rollback,
    /// To the same release, for example to load a changed configuration.
    Restart,
}

impl fmt::Display for Purpose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// The request for a switch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The kind of switch.
    pub purpose: Purpose,
    /// The release to go to.
    pub to: Release,
    /// The user's reason.
    pub reason: String,
    /// The user who asked.
    pub by: String,
    /// The agent's job that ran the command; None: no job that sidle can see.
    #[serde(default)]
    pub origin: Option<Caller>,
}

impl Request {
    /// Shortens the texts for the journal, which is written at every step.
    #[must_use]
    pub fn bounded(self) -> Self {
        let origin = self.origin.map(Caller::bounded);
        Self { reason: shortened(&self.reason), by: shortened(&self.by), origin, ..self }
    }
}

/// A process that sidle did not start: an adoption takes over from it, and goes back to it if it fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopted {
    /// Its first process at the time of the adoption.
    pub leader: Identity,
    /// Its kind of agent.
    pub agent: AgentKind,
    /// The systemd unit that runs it, if any.
    pub unit: Option<String>,
    /// The program and its arguments to start it again without a unit.
    pub command: Vec<String>,
    /// The rights with which they were started; None: not known for certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<Rights>,
}

/// Shortens `text` to [`TEXT_LENGTH_MAXIMUM`].
pub(in crate::switch) fn shortened(text: &str) -> String {
    text.chars().take(TEXT_LENGTH_MAXIMUM).collect()
}
