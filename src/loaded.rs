//! The configuration with which an agent's process was started: noted in the run directory just before sidle becomes the agent.

use crate::digest::Digest;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::saved;
use serde::{Deserialize, Serialize};

/// The name of the directory of notes in an instance's run directory: one file per first process.
const LOADED_NAME: &str = "loaded";
const NOTE_LENGTH_MAXIMUM: u64 = 4096;

/// A note. It names its process in full: pids are reused.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    leader: Identity,
    configuration: Option<Digest>,
    /// The digest of its credentials when it was first healthy.
    #[serde(default)]
    credentials: Option<Digest>,
}

fn note_of(directory: &Dir, name: &str) -> Option<Note> {
    serde_json::from_slice(&directory.read_if_exists(name, NOTE_LENGTH_MAXIMUM).ok()??).ok()
}

/// Notes the configuration of this process, and removes the notes of ended processes. None: unknown.
pub fn note(layout: &Layout, instance: &InstanceName, configuration: Option<Digest>) -> Result<(), OsError> {
    let directory = Dir::open_or_create(&layout.run(instance).join(LOADED_NAME), 0o755)?;
    for name in directory.names()? {
        let known = name.to_str().and_then(|name| note_of(&directory, name));
        if !known.is_some_and(|note| note.leader.is_alive().unwrap_or(true)) {
            directory.remove_file(&name)?;
        }
    }
    let leader = Identity::own()?;
    let name = leader.pid.to_string();
    directory.write_atomic(name, &saved::line(&Note { leader, configuration, credentials: None }), 0o600)
}

/// Notes the credentials of a healthy process, unless they are noted already.
pub fn note_credentials(
    layout: &Layout,
    instance: &InstanceName,
    leader: &Identity,
    credentials: Digest,
) -> Result<(), OsError> {
    let Some(directory) = Dir::open_if_exists(&layout.run(instance).join(LOADED_NAME))? else { return Ok(()) };
    let name = leader.pid.to_string();
    let note = note_of(&directory, &name).filter(|note| note.leader == *leader && note.credentials.is_none());
    let Some(note) = note else { return Ok(()) };
    directory.write_atomic(name, &saved::line(&Note { credentials: Some(credentials), ..note }), 0o600)
}

/// The noted credentials of a process.
pub fn credentials(layout: &Layout, instance: &InstanceName, leader: &Identity) -> Option<Digest> {
    let directory = Dir::open_if_exists(&layout.run(instance).join(LOADED_NAME)).ok()??;
    note_of(&directory, &leader.pid.to_string()).filter(|note| note.leader == *leader)?.credentials
}

/// The configuration of a process's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// No note: it has not begun yet, or another version of sidle began it.
    Unnoted,
    /// It is being read, or could not be read.
    Unknown,
    /// This configuration.
    Known(Digest),
}

/// The configuration with which a process was started.
pub fn of(layout: &Layout, instance: &InstanceName, leader: &Identity) -> Loaded {
    let directory = Dir::open_if_exists(&layout.run(instance).join(LOADED_NAME)).ok().flatten();
    let note = directory.and_then(|directory| note_of(&directory, &leader.pid.to_string()));
    match note.filter(|note| note.leader == *leader) {
        None => Loaded::Unnoted,
        Some(Note { configuration: None, .. }) => Loaded::Unknown,
        Some(Note { configuration: Some(digest), .. }) => Loaded::Known(digest),
    }
}
