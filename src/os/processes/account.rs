//! Accounts: the users of this host by `/etc/passwd`, and the rights that a process has.

use crate::os::{Result, file, proc_fs};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The administrator's number.
pub const ROOT: u32 = 0;
/// `/etc/passwd` of a large site.
const PASSWD_BYTES_MAXIMUM: u64 = 1 << 20;
/// `/proc/PID/status` has a line or two a CPU, and the groups of a member of very many.
const STATUS_BYTES_MAXIMUM: u64 = 1 << 20;

/// A user of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub name: String,
    /// The number.
    pub user: u32,
    /// The home directory.
    pub home: PathBuf,
}

/// The users, in the order of the file. Without a readable file: none.
fn accounts() -> Vec<Account> {
    let passwd =
        file::read_if_exists(Path::new("/etc/passwd"), PASSWD_BYTES_MAXIMUM).ok().flatten().unwrap_or_default();
    let account = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let user = fields.get(2)?.parse().ok()?;
        Some(Account { name: fields[0].to_owned(), user, home: fields.get(5)?.into() })
    };
    String::from_utf8_lossy(&passwd).lines().filter_map(account).collect()
}

/// The account of a number.
pub fn of(user: u32) -> Option<Account> {
    accounts().into_iter().find(|account| account.user == user)
}

/// A user's name, or else the number.
pub fn user_name(user: u32) -> String {
    of(user).map_or_else(|| user.to_string(), |account| account.name)
}

/// The number of a named user.
pub fn user_number(name: &str) -> Option<u32> {
    accounts().into_iter().find(|account| account.name == name).map(|account| account.user)
}

/// The rights of a process: those with which its program may be started again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// More groups.
    pub groups: Vec<u32>,
}

impl Rights {
    /// The rights of a process. None: it is gone, or has those of several users: a program that lends its owner's rights (`su`) was told by one
    /// user what to do with the rights of another.
    pub fn of(pid: u32) -> Result<Option<Self>> {
        let path = PathBuf::from(format!("/proc/{pid}/status"));
        let before = proc_fs::process(pid)?;
        let Some(bytes) = file::read_if_exists(&path, STATUS_BYTES_MAXIMUM)? else { return Ok(None) };
        let is_same = before.is_some_and(|before| {
            proc_fs::process(pid).is_ok_and(|now| now.is_some_and(|now| now.start_time == before.start_time))
        });
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)).filter(|_| is_same))
    }

    fn parse(status: &str) -> Option<Self> {
        let numbers = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_ascii_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
        };
        // Real, effective, saved, and that of its files.
        let one = |numbers: Vec<u32>| match numbers[..] {
            [real, effective, saved, files] if [effective, saved, files] == [real; 3] => Some(real),
            _ => None,
        };
        Some(Self { user: one(numbers("Uid")?)?, group: one(numbers("Gid")?)?, groups: numbers("Groups")? })
    }

    /// Whether they are root's.
    pub fn are_roots(&self) -> bool {
        self.user == ROOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_rights_of_two_users_has_none_of_its_own() {
        let of = |uid: &str, gid: &str| Rights::parse(&format!("Name:\ta\nUid:\t{uid}\nGid:\t{gid}\nGroups:\t4 27 \n"));
        let rights = Rights { user: 5, group: 6, groups: vec![4, 27] };
        assert_eq!(of("5\t5\t5\t5", "6\t6\t6\t6"), Some(rights));
        for (uid, gid) in [("5\t0\t0\t0", "6\t6\t6\t6"), ("0\t0\t0\t5", "0\t0\t0\t0"), ("5\t5\t5\t5", "6\t42\t42\t42")]
        {
            assert_eq!(of(uid, gid), None, "{uid} {gid}");
        }
        let own = Rights::of(std::process::id()).unwrap().unwrap();
        assert_eq!(own.user, rustix::process::geteuid().as_raw());
        assert_eq!(Rights::of(u32::MAX - 1).unwrap(), None);
    }
}
