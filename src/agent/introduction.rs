//! Bringing up a host's first agent: the least configuration, a key, and peers that accept it.

use super::{AgentError, AgentSettings};
use std::path::{Path, PathBuf};

/// What a first agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its peers: names or addresses.
    pub peers: Vec<String>,
    /// Its name at its peers; None: it chooses its own.
    pub id: Option<String>,
    /// The fingerprint of its peers' key; None: it believes the first key that it is shown.
    pub pin: Option<String>,
}

/// The file that tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFile {
    /// Relative to the configuration directory.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// What the peers of an agent make of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduced {
    /// The agent's name at its peers.
    pub id: String,
    /// The fingerprint of its key.
    pub key: String,
    /// Each peer, and what it says.
    pub peers: Vec<(String, Standing)>,
}

/// What one peer makes of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It has accepted the key.
    Accepted,
    /// A person has to accept it there; how.
    Waits(String),
    /// It does not answer, for this reason.
    Silent(String),
    /// Nothing will come of waiting: why, and the remedy.
    Refused(String, String),
}

/// How one kind of agent is brought up.
pub trait Introducer: Sync {
    /// The peers that the configuration names, as the release of `settings` reads it; None: it names none. `root`: the host's.
    fn configured(&self, settings: &AgentSettings, root: &Path) -> Result<Option<Vec<String>>, AgentError>;

    /// The file of a first configuration.
    fn file(&self, told: &Told) -> FirstFile;

    /// Makes the agent's key, if it has none, and shows it to each peer once.
    fn introduce(&self, settings: &AgentSettings, root: &Path) -> Result<Introduced, AgentError>;
}
