//! The roles whose files people sign: root, targets, and delegated roles.

use crate::bundle::member::is_role_name;
use crate::trust::Role;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a delegated role: `[a-z0-9._-]`, at most 64 characters, no leading dot, no top-level role's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RoleName(String);

impl RoleName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its name in a snapshot: `NAME.json`.
    pub(in crate::repository) fn file(&self) -> String {
        format!("{self}.json")
    }
}

impl FromStr for RoleName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if is_role_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "{text:?} is not a role name: use a-z, 0-9, '.', '_', '-', no leading dot, and not root, targets, snapshot, timestamp"
        ))
    }
}

crate::as_text!(RoleName);

impl fmt::Display for RoleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A role whose next file waits for signatures; each rests on the roles before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignedRole {
    /// Root.
    Root,
    /// The top-level targets.
    Targets,
    /// A delegated role.
    Delegated(RoleName),
}

impl SignedRole {
    /// The published name of a version: `2.targets.json`.
    pub fn file(&self, version: u64) -> String {
        format!("{version}.{self}.json")
    }
}

impl fmt::Display for SignedRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Role::Root.fmt(formatter),
            Self::Targets => Role::Targets.fmt(formatter),
            Self::Delegated(name) => name.fmt(formatter),
        }
    }
}
