//! Bringing up a host's first agent: the least configuration, a key, and peers that accept it.

use super::{AgentError, AgentSettings};
use crate::failure::Report;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// The peers of a first agent, its name, and the key that its peers must have.
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

/// An agent's name and key, and the answer of each peer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Introduced {
    /// The agent's name at its peers.
    pub id: String,
    /// The fingerprint of its key.
    pub key: String,
    /// Each peer, and what it says.
    pub peers: Vec<(String, Standing)>,
}

/// The answer of one peer to the agent's key.
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

/// The peers that a configuration names, and the agent's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// The agent's name at its peers.
    pub id: String,
    /// Their names; None: it names none.
    pub peers: Option<Vec<String>>,
    /// The fingerprint of the key that they must have; None: any key.
    pub pin: Option<String>,
}

/// How one kind of agent is brought up.
pub trait Introducer: Sync {
    /// The peers that the configuration names, as the release of `settings` reads it. `root`: the host's.
    fn configured(&self, settings: &AgentSettings, root: &Path) -> Result<Configured, AgentError>;

    /// The file of a first configuration.
    fn file(&self, told: &Told) -> FirstFile;

    /// True if `text` is a file that [`Self::file`] made, and has no line of anybody else.
    fn wrote(&self, text: &[u8]) -> bool;

    /// Makes the agent's key, if it has none, and shows it to each peer once.
    fn introduce(&self, settings: &AgentSettings, root: &Path) -> Result<Introduced, AgentError>;
}

/// Accepts the keys of first agents, at a peer that runs on this machine.
pub trait Acceptor: Debug + Sync {
    /// Accepts the key of the agent `id` if it has this fingerprint. False: it was accepted before.
    fn accept(&self, id: &str, key: &str) -> Result<bool, Report>;
}
