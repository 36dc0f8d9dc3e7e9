//! The agent's job that runs a command: its publisher, and the peer that it came through.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text kept of each part: the journal repeats it with every step of a switch.
pub const TEXT_LENGTH_MAX: usize = 256;

/// A job out of which a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The agent's name in the operator's words: `Salt`.
    pub agent: String,
    /// The agent's own name for it: a Salt jid.
    pub job: String,
    /// Its function: `cmd.run`; None: no longer known.
    pub function: Option<String>,
    /// Its publisher, as the agent names it; None: not known.
    pub user: Option<String>,
    /// The peer that it came from, or all that it may have come from.
    pub peers: Vec<String>,
}

impl Caller {
    /// The same with its texts cut to the longest that is kept.
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
