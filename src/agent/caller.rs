//! Who asks, when it is an agent's own job that does: who gave that job, and through whom.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text kept of each part: it is written down with every step of a switch.
pub const TEXT_LENGTH_MAX: usize = 256;

/// A job out of which a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// Whose job, in the operator's words: `Salt`.
    pub agent: String,
    /// The agent's own name for it: a Salt jid.
    pub job: String,
    /// What it does: `cmd.run`; None: not known any more.
    pub function: Option<String>,
    /// Who gave it, as the agent has it; None: not known.
    pub user: Option<String>,
    /// The peer that it came from; several where it is one of them and not known which.
    pub peers: Vec<String>,
}

impl Caller {
    /// The same with no text longer than is kept.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let shorten = |text: &mut String| *text = text.chars().take(TEXT_LENGTH_MAX).collect();
        shorten(&mut self.job);
        self.function.iter_mut().chain(&mut self.user).for_each(shorten);
        self.peers.truncate(8);
        self.peers.iter_mut().for_each(shorten);
        self
    }
}

/// `Salt job 2026… (cmd.run) of root, from salt.example.org`.
impl fmt::Display for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} job {}", self.agent, self.job)?;
        if let Some(function) = &self.function {
            write!(formatter, " ({function})")?;
        }
        if let Some(user) = &self.user {
            write!(formatter, " of {user}")?;
        }
        if self.peers.is_empty() { Ok(()) } else { write!(formatter, ", from {}", self.peers.join(" or ")) }
    }
}
