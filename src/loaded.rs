//! With which configuration an agent's process was started: noted in the run directory by the program that becomes the agent, just before.

use crate::digest::Digest;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use serde::{Deserialize, Serialize};

/// The name of the directory of notes in an instance's run directory: one file per first process.
const LOADED_NAME: &str = "loaded";
const NOTE_LENGTH_MAXIMUM: u64 = 4096;

/// A note. It names its process in full: numbers come again.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    leader: Identity,
    configuration: Option<Digest>,
}

fn note_of(directory: &Dir, name: &str) -> Option<Note> {
    serde_json::from_slice(&directory.read_if_exists(name, NOTE_LENGTH_MAXIMUM).ok()??).ok()
}

/// Notes the configuration of this very process, and forgets that of processes that are gone. None: it can't be told.
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
    let bytes = serde_json::to_vec(&Note { leader, configuration }).expect("a note has no map keys but strings");
    directory.write_atomic(name, &bytes, 0o600)
}

/// The configuration that a process was started with; None: that is not known.
pub fn of(layout: &Layout, instance: &InstanceName, leader: &Identity) -> Option<Digest> {
    let directory = Dir::open_if_exists(&layout.run(instance).join(LOADED_NAME)).ok()??;
    let note = note_of(&directory, &leader.pid.to_string())?;
    note.configuration.filter(|_| note.leader == *leader)
}
