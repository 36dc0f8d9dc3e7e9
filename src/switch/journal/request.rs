//! What is asked for: the kind of switch, where to, by whom and why.

use crate::agent::AgentKind;
use crate::agent::caller::Caller;
use crate::os::process::Identity;
use crate::version::Release;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text kept of a reason, in characters. An agent's error output must not swell the journal, which is written at every step.
pub const TEXT_LENGTH_MAXIMUM: usize = 1_000;

/// Why a switch was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// To another release.
    Switch,
    /// To the previous release, or a named one, leaving one that is no longer wanted.
    Rollback,
    /// To the same release, to take up a changed configuration.
    Restart,
}

impl fmt::Display for Purpose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Switch => "switch",
            Self::Rollback => "rollback",
            Self::Restart => "restart",
        })
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// The kind of switch.
    pub purpose: Purpose,
    /// The release to go to.
    pub to: Release,
    /// Why, in the words of the asker.
    pub reason: String,
    /// The user who asked.
    pub by: String,
    /// The agent's job out of which they asked; None: none, as far as can be seen.
    #[serde(default)]
    pub origin: Option<Caller>,
}

impl Request {
    /// This request, short enough for a file that is written at every step.
    #[must_use]
    pub fn bounded(self) -> Self {
        let origin = self.origin.map(Caller::bounded);
        Self { reason: shortened(&self.reason), by: shortened(&self.by), origin, ..self }
    }
}

/// A process that sidle did not start: what a first switch takes over from, and what its way back leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopted {
    /// Its first process, when it was adopted.
    pub leader: Identity,
    /// What kind of agent it is.
    pub agent: AgentKind,
    /// The unit that runs it; None: no service manager does.
    pub unit: Option<String>,
    /// How it is started again without one: a program and its arguments.
    pub command: Vec<String>,
}

/// `text` as long as it may be in the journal.
pub(in crate::switch) fn shortened(text: &str) -> String {
    text.chars().take(TEXT_LENGTH_MAXIMUM).collect()
}
