//! A hold: a person's word that an instance stays as it is.

use crate::failure::{Class, Report, moment};
use crate::name::{InstanceName, PackageName};
use crate::saved::{self, SavedError};
use crate::switch::journal::request::Purpose;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The file's name in the instance's state directory.
pub const HOLD_NAME: &str = "hold";
/// Longest file read: one hold with its reason.
pub const HOLD_LENGTH_MAXIMUM: u64 = 64 * 1024;
/// Longest reason, in characters: it is part of every refusal.
pub const REASON_LENGTH_MAXIMUM: usize = 1_000;

const SCHEMA: u32 = 1;

/// What a hold stands against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Switches and restarts. A rollback is how a person gets out of trouble: it stays possible.
    Forth,
    /// Rollbacks, too. The way back of a failed switch is never held.
    All,
}

/// A hold on one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hold {
    schema: u32,
    /// Since when.
    pub at: Timestamp,
    /// Who holds it.
    pub by: String,
    /// Why, in their words.
    pub reason: String,
    /// Until when; None: until it is lifted.
    pub until: Option<Timestamp>,
    /// What it stands against.
    pub scope: Scope,
}

impl Hold {
    /// A hold from `at` on.
    pub fn new(at: Timestamp, by: String, reason: &str, until: Option<Timestamp>, scope: Scope) -> Self {
        let reason = reason.chars().take(REASON_LENGTH_MAXIMUM).collect();
        Self { schema: SCHEMA, at, by, reason, until, scope }
    }

    /// True while it counts.
    pub fn is_on(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// True where it keeps a switch of this purpose from beginning now.
    pub fn forbids(&self, purpose: Purpose, now: Timestamp) -> bool {
        let meant = match purpose {
            Purpose::Switch | Purpose::Restart => true,
            Purpose::Rollback => self.scope == Scope::All,
        };
        meant && self.is_on(now)
    }

    /// The refusal of what it forbids.
    pub fn refusal(&self, purpose: Purpose, instance: &InstanceName, package: &PackageName) -> Report {
        let named =
            if instance.as_str() == package.as_str() { String::new() } else { format!(" --instance {instance}") };
        let back = match self.scope {
            Scope::Forth => "; a rollback is possible all the same",
            Scope::All => "",
        };
        Report {
            class: Class::Held,
            message: format!("cannot {purpose} {instance}: it is held {self}"),
            causes: Vec::new(),
            hint: Some(format!("`sidle unhold {package}{named}` lifts the hold{back}")),
        }
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a hold has no map keys but strings");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the file's content.
    pub fn parse(bytes: &[u8]) -> Result<Self, SavedError> {
        saved::parse(bytes, SCHEMA)
    }
}

/// `by root since …, until …: the reason`.
impl fmt::Display for Hold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "by {} since {}", self.by, moment(self.at))?;
        match self.until {
            Some(until) => write!(formatter, ", until {}", moment(until))?,
            None => formatter.write_str(", until it is lifted")?,
        }
        if self.scope == Scope::All {
            formatter.write_str(", against rollbacks, too")?;
        }
        if self.reason.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.reason) }
    }
}
