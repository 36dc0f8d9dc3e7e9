//! The four top-level roles of TUF.

use crate::trust::limits;
use std::fmt;

/// A top-level role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Names the keys of all top-level roles.
    Root,
    /// Signs what is published.
    Targets,
    /// Names the one set of versions that belongs together.
    Snapshot,
    /// Says which snapshot is the newest.
    Timestamp,
}

impl Role {
    /// Every top-level role.
    pub const ALL: [Self; 4] = [Self::Root, Self::Targets, Self::Snapshot, Self::Timestamp];

    /// The role's name in metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Targets => "targets",
            Self::Snapshot => "snapshot",
            Self::Timestamp => "timestamp",
        }
    }

    /// The name of its file where names carry no version: `root.json`.
    pub fn file(self) -> String {
        format!("{self}.json")
    }

    /// The largest file of this role that is read.
    pub fn bytes_maximum(self) -> usize {
        match self {
            Self::Root => limits::ROOT_BYTES_MAXIMUM,
            Self::Targets => limits::TARGETS_BYTES_MAXIMUM,
            Self::Snapshot => limits::SNAPSHOT_BYTES_MAXIMUM,
            Self::Timestamp => limits::TIMESTAMP_BYTES_MAXIMUM,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
