//! The directory of a dry run's rehearsal, beside that of the supervisor: named for its process, so that the next dry run removes what a killed
//! dry run left.

use crate::os::OsError;
use crate::os::clock;
use crate::os::dir::Dir;
use crate::os::process::Identity;
use crate::switch::rehearsal::performance::DIRECTORY_NAME;
use crate::switch::rehearsal::workplace::fresh;
use std::path::{Path, PathBuf};

const PREFIX: &str = "dry-run-";

/// A directory of this process alone; removed when dropped.
pub struct Room {
    run: Dir,
    name: String,
    path: PathBuf,
}

impl Room {
    /// Makes the directory below `run`, the instance's run directory, and removes those of dead processes, whose programs it ends.
    pub fn take(run: &Path) -> Result<Self, OsError> {
        let run = Dir::open_or_create(run, 0o755)?;
        for name in run.names()? {
            let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(owner) else {
                continue;
            };
            let owner = Identity { boot_id: clock::boot_id()?, pid: owner.0, start_time: owner.1 };
            if !owner.is_alive()? {
                fresh(&run.child(&name)?, DIRECTORY_NAME)?;
                run.remove_tree(&name)?;
            }
        }
        let own = Identity::own()?;
        let name = format!("{PREFIX}{}-{}", own.pid, own.start_time);
        let path = run.child_or_create(&name, 0o711)?.path().to_owned();
        Ok(Self { run, name, path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.run.remove_tree(&self.name);
    }
}

/// The process number and the start time in a name.
fn owner(rest: &str) -> Option<(u32, u64)> {
    let (pid, start_time) = rest.split_once('-')?;
    Some((pid.parse().ok()?, start_time.parse().ok()?))
}
