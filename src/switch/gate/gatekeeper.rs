//! The files of the gate: writes the roles, reads the reports of the guards. [`crate::agent::gate`] defines the formats.

use crate::agent::gate::{
    CLAIMS_NAME, GuardReport, HANDOVER_NAME, MENDING_NAME, OWED_NAME, REPORT_LENGTH_MAXIMUM, ROLES_LENGTH_MAXIMUM,
    ROLES_NAME, Roles, SLOTS_NAME,
};
use crate::crash_point;
use crate::layout::Layout;
use crate::name::InstanceName;
use crate::os::OsError;
use crate::os::dir::Dir;
use crate::os::{proc_fs, process};
use std::path::{Path, PathBuf};
use std::time::Duration;

const GATE_NAME: &str = "gate";
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const LOCK_MODE: u32 = 0o600;

/// The gate of one instance. Its files are made from the journal: they may vanish at any time and are made again.
#[derive(Debug)]
pub struct Gatekeeper {
    path: PathBuf,
}

impl Gatekeeper {
    /// Names the gate of `instance`; opens nothing.
    pub fn new(layout: &Layout, instance: &InstanceName) -> Self {
        Self { path: layout.run(instance).join(GATE_NAME) }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user to whom the guards' directories belong; None: there are none.
    pub fn owner(&self) -> Option<u32> {
        Some(Dir::open_if_exists(&self.path).ok()??.stat(CLAIMS_NAME).ok()??.uid)
    }

    /// Makes the directories. `owner`: the user of the guards, if it is not the user of this process. If they were another user's, what that user has left for
    /// the next process is removed: it is nobody's word any more.
    pub fn prepare(&mut self, owner: Option<u32>) -> Result<(), OsError> {
        let owner = owner.unwrap_or_else(process::user);
        let gate = Dir::open_or_create(&self.path, DIRECTORY_MODE)?;
        for name in [CLAIMS_NAME, SLOTS_NAME, HANDOVER_NAME] {
            let directory = gate.child_or_create(name, DIRECTORY_MODE)?;
            if directory.stat_self()?.uid == owner {
                continue;
            }
            directory.set_owner(owner)?;
            if name == CLAIMS_NAME {
                continue;
            }
            for left in directory.names()? {
                let is_of_the_former = directory.stat(&left)?.is_some_and(|stat| stat.uid != owner);
                if is_of_the_former {
                    directory.remove_tree(&left)?;
                }
            }
        }
        // The guards need this file when the file system is full, so it is made early. Jobs run without it, so its failure is ignored.
        if gate.stat(OWED_NAME)?.is_none() {
            let _ = gate.create_file(OWED_NAME, LOCK_MODE);
        }
        match gate.stat(OWED_NAME)? {
            Some(file) if file.uid != owner => gate.set_owner_of(OWED_NAME, owner, file.gid),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the roles, if they have changed, and returns their serial number. `owner` is asked if the directories have vanished, see
    /// [`Gatekeeper::prepare`].
    pub fn publish(&mut self, roles: &Roles, owner: impl FnOnce() -> Option<u32>) -> Result<u64, OsError> {
        let gate = match Dir::open_if_exists(&self.path)? {
            Some(gate) if gate.stat(CLAIMS_NAME)?.is_some() => gate,
            Some(_) | None => {
                self.prepare(owner())?;
                Dir::open(&self.path)?
            }
        };
        // A file that is too long is ignored; the next serial number is then above those that the guards have reported.
        let found = gate.read_if_exists(ROLES_NAME, ROLES_LENGTH_MAXIMUM).unwrap_or_default();
        let found = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
        let serial = Roles::serial_of(&found);
        if serial > 0 && found == roles.to_text(serial) {
            return Ok(serial);
        }
        let followed = roles.slots.iter().filter_map(|slot| self.report(slot.leader)).map(|report| report.serial);
        let serial = followed.chain([serial]).max().unwrap_or(0).saturating_add(1);
        crash_point!("gate.before");
        gate.write_atomic(ROLES_NAME, roles.to_text(serial).as_bytes(), FILE_MODE)?;
        crash_point!("gate.after");
        Ok(serial)
    }

    /// Makes jobs wait until this time since boot, while files are repaired; None: jobs wait no longer.
    pub fn hold_jobs(&self, until: Option<Duration>) -> Result<(), OsError> {
        let Some(gate) = Dir::open_if_exists(&self.path)? else { return Ok(()) };
        match until {
            Some(until) => gate.write_atomic(MENDING_NAME, until.as_secs_f64().to_string().as_bytes(), FILE_MODE),
            None => gate.remove_file(MENDING_NAME),
        }
    }

    /// Says that the file system of the gate is full; None: it is not, or that is unknown.
    pub fn no_room(&self) -> Option<String> {
        let space = Dir::open_if_exists(&self.path).ok()??.space().ok()?;
        let path = self.path.display();
        match (space.free_bytes, space.free_inodes) {
            (_, Some(0)) => Some(format!("no inode is free on the file system of {path}")),
            (0, _) => Some(format!("no byte is free on the file system of {path}")),
            _ => None,
        }
    }

    /// Reads the report of a process's guard; None: no readable report.
    pub fn report(&self, leader: u32) -> Option<GuardReport> {
        let slots = Dir::open_if_exists(&self.path.join(SLOTS_NAME)).ok()??;
        let bytes = slots.read_if_exists(report_name(leader), REPORT_LENGTH_MAXIMUM).ok()??;
        GuardReport::parse(&bytes).filter(|report| report.leader == leader)
    }

    /// Reads all reports, also those that ended processes have left; the newest first.
    pub fn reports(&self) -> Vec<GuardReport> {
        let slots = Dir::open_if_exists(&self.path.join(SLOTS_NAME)).ok().flatten();
        let names = slots.and_then(|slots| slots.names().ok()).unwrap_or_default();
        let leaders = names.iter().filter_map(|name| name.to_str()?.strip_suffix(".json")?.parse().ok());
        let mut reports: Vec<GuardReport> = leaders.filter_map(|leader| self.report(leader)).collect();
        reports.sort_by(|one, other| other.updated.total_cmp(&one.updated));
        reports
    }

    /// Removes the files that an earlier process with the same pid may have left, and the pid files of all processes that have ended: an agent that
    /// works as another user cannot remove its own.
    pub fn forget(&self, leader: u32) -> Result<(), OsError> {
        let Some(gate) = Dir::open_if_exists(&self.path)? else { return Ok(()) };
        for name in gate.names()? {
            let Some(pid) = name.to_str().and_then(leader_of) else { continue };
            if pid == leader || proc_fs::process(pid)?.is_none() {
                gate.remove_file(&name)?;
            }
        }
        for name in [SLOTS_NAME, HANDOVER_NAME] {
            if let Some(directory) = Dir::open_if_exists(&self.path.join(name))? {
                directory.remove_file(report_name(leader))?;
            }
        }
        Ok(())
    }
}

/// The leader that the name of a pid file ends with.
fn leader_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".pid")?;
    stem.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

fn report_name(leader: u32) -> String {
    format!("{leader}.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process;

    #[test]
    fn pid_files_of_processes_that_have_ended_are_removed_and_those_of_others_stay() {
        let root = tempfile::tempdir().unwrap();
        let mut gatekeeper = Gatekeeper::new(&Layout::new(root.path()), &"salt-minion".parse().unwrap());
        gatekeeper.prepare(None).unwrap();
        let gate = Dir::open(gatekeeper.path()).unwrap();
        let own = std::process::id();
        let kept = [format!("{own}.pid"), format!("process_responsibility_{own}.pid")];
        let gone = ["1.pid", "4194999.pid", "process_responsibility_4194999.pid"].map(str::to_owned);
        for name in kept.iter().chain(&gone) {
            gate.write_atomic(name.as_str(), b"1", FILE_MODE).unwrap();
        }
        gatekeeper.forget(1).unwrap();
        for (names, there) in [(&kept[..], true), (&gone[..], false)] {
            for name in names {
                assert_eq!(gate.stat(name.as_str()).unwrap().is_some(), there, "{name}");
            }
        }
        assert!(gate.stat(OWED_NAME).unwrap().is_some() && gate.stat(CLAIMS_NAME).unwrap().is_some());
    }

    /// A schedule that the minion's user left there was taken up, and run, by root's minion.
    #[test]
    fn the_next_user_finds_nothing_of_the_former_one() {
        let root = tempfile::tempdir().unwrap();
        let mut gatekeeper = Gatekeeper::new(&Layout::new(root.path()), &"salt-minion".parse().unwrap());
        assert_eq!(gatekeeper.owner(), None);
        // Only root can give files away: else it is the same user, whose files stay.
        let former = if process::user() == 0 { 1 } else { process::user() };
        gatekeeper.prepare(Some(former)).unwrap();
        assert_eq!(gatekeeper.owner(), Some(former));
        let gate = Dir::open(gatekeeper.path()).unwrap();
        let left = [(CLAIMS_NAME, "any_1"), (SLOTS_NAME, "1.json"), (HANDOVER_NAME, "x.json")];
        for (directory, name) in left {
            let directory = gate.child(directory).unwrap();
            directory.write_atomic(name, b"{}", FILE_MODE).unwrap();
            directory.set_owner_of(name, former, rustix::process::getgid().as_raw()).unwrap();
        }
        gate.child(SLOTS_NAME).unwrap().write_atomic("own.json", b"{}", FILE_MODE).unwrap();
        gatekeeper.prepare(Some(former)).unwrap();
        assert!(left.iter().all(|(directory, name)| gate.child(*directory).unwrap().stat(*name).unwrap().is_some()));
        gatekeeper.prepare(None).unwrap();
        for (directory, name) in left {
            let stays = directory == CLAIMS_NAME || former == process::user();
            assert_eq!(gate.child(directory).unwrap().stat(name).unwrap().is_some(), stays, "{directory}/{name}");
            assert_eq!(gate.stat(directory).unwrap().unwrap().uid, process::user(), "{directory}");
        }
        assert_eq!(gate.stat(OWED_NAME).unwrap().unwrap().uid, process::user());
        assert!(gate.child(SLOTS_NAME).unwrap().stat("own.json").unwrap().is_some());
    }

    #[test]
    fn a_guard_that_works_as_another_user_finds_what_it_can_lock_when_there_is_no_room_for_claims() {
        let root = tempfile::tempdir().unwrap();
        let mut gatekeeper = Gatekeeper::new(&Layout::new(root.path()), &"salt-minion".parse().unwrap());
        // Only root can give files away.
        let user = if process::user() == 0 { 1 } else { process::user() };
        for _ in 0..2 {
            gatekeeper.prepare(Some(user)).unwrap();
            let gate = Dir::open(gatekeeper.path()).unwrap();
            for name in [OWED_NAME, CLAIMS_NAME] {
                assert_eq!(gate.stat(name).unwrap().unwrap().uid, user, "{name}");
            }
            assert_eq!(gate.stat(OWED_NAME).unwrap().unwrap().mode & 0o777, LOCK_MODE);
        }
    }
}
