//! The directory that a rehearsal or a rebuild works in, and the program that works there.

use crate::os::dir::Dir;
use crate::os::process::{Identity, Program, SignalNumber};
use crate::os::{OsError, notify};
use crate::rehearsal::Scene;
use std::io::{Read as _, Seek as _, SeekFrom};

/// The file with the working process, so that the next run ends a process that outlives its supervisor.
const PROCESS_NAME: &str = "process";
const PROCESS_BYTES_MAX: u64 = 4 << 10;
/// Only the end of the error output is of use: the exception.
const ERRORS_BYTES_MAX: u64 = 8 << 10;

/// Variables of a working agent: with them a guard in the tree would take the rehearsal for an agent.
const NOT_PASSED_ON: [&str; 7] = [
    notify::NOTIFY_SOCKET,
    "SIDLE_GATE",
    "SIDLE_ROLE",
    crate::switch::process::LEADER_VARIABLE,
    crate::switch::process::INSTANCE_VARIABLE,
    crate::switch::process::RELEASE_VARIABLE,
    crate::switch::process::ROOT_VARIABLE,
];

/// Returns the program with the variables that the scene's agent would get, without those of a working agent.
pub(in crate::switch) fn in_scene(program: Program, scene: &Scene) -> Program {
    Program { without: NOT_PASSED_ON.map(Into::into).into(), passed: scene.passed.clone(), ..program }
}

/// Writes down which process works in a directory, for [`fresh`].
pub(in crate::switch) fn record(directory: &Dir, identity: &Identity) -> Result<(), OsError> {
    let bytes = serde_json::to_vec(identity).expect("an identity has no map keys but strings");
    directory.write_atomic(PROCESS_NAME, &bytes, 0o600)
}

/// Returns an empty directory of this name; ends the process that may still write into the previous directory.
pub(in crate::switch) fn fresh(run: &Dir, name: &str) -> Result<Dir, OsError> {
    if let Some(left) = run.child_if_exists(name)? {
        // A process without a readable record is not ended here: it ends by itself.
        let bytes = left.read_if_exists(PROCESS_NAME, PROCESS_BYTES_MAX)?.unwrap_or_default();
        if let Ok(identity) = serde_json::from_slice::<Identity>(&bytes) {
            identity.signal(SignalNumber::KILL)?;
        }
        run.remove_tree(name)?;
    }
    // A program that runs as another user needs to pass through to its scratch directory.
    run.child_or_create(name, 0o711)
}

/// Returns the end of a file.
pub(in crate::switch) fn end_of(directory: &Dir, name: &str) -> Result<String, OsError> {
    let mut file = directory.open_file(name)?;
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::End(0)).and_then(|length| {
        file.seek(SeekFrom::Start(length.saturating_sub(ERRORS_BYTES_MAX)))?;
        file.take(ERRORS_BYTES_MAX).read_to_end(&mut bytes)
    });
    read.map_err(|source| OsError::new("read", &directory.path().join(name), source))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
