//! A hold: a person forbids switches of an instance.

use crate::failure::{Class, Report, moment};
use crate::name::{InstanceName, PackageName};
use crate::saved::Saved;
use crate::switch::journal::request::Purpose;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest reason, in characters: every refusal repeats it.
pub const REASON_LENGTH_MAXIMUM: usize = 1_000;

/// What a hold forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Switches and restarts. A rollback stays possible: it is the way out of trouble.
    Upgrades,
    /// Also rollbacks. The way back of a failed switch is never held.
    All,
}

/// A hold on one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    schema: u32,
    /// Since when.
    pub at: Timestamp,
    /// The user who set it.
    pub by: String,
    /// The user's reason.
    pub reason: String,
    /// Its end; None: until `sidle unhold`.
    pub until: Option<Timestamp>,
    /// What it forbids.
    pub scope: Scope,
}

impl Saved for Hold {
    const NAME: &'static str = "hold";
    // one hold with its reason.
    const LENGTH_MAXIMUM: u64 = 64 * 1024;
    const REMEDY: &'static str = "`sidle unhold` removes the file; then hold the instance again";
}

impl Hold {
    /// Makes a hold that begins at `at`.
    pub fn new(at: Timestamp, by: String, reason: &str, until: Option<Timestamp>, scope: Scope) -> Self {
        let reason = reason.chars().take(REASON_LENGTH_MAXIMUM).collect();
        Self { schema: Self::SCHEMA, at, by, reason, until, scope }
    }

    /// True until it expires.
    pub fn is_on(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// True if it forbids a switch of this purpose now.
    pub fn forbids(&self, purpose: Purpose, now: Timestamp) -> bool {
        let in_scope = match purpose {
            Purpose::Switch | Purpose::Restart => true,
            Purpose::Rollback => self.scope == Scope::All,
        };
        in_scope && self.is_on(now)
    }

    /// The refusal of a switch that it forbids.
    pub fn refusal(&self, purpose: Purpose, instance: &InstanceName, package: &PackageName) -> Report {
        let named =
            if instance.as_str() == package.as_str() { String::new() } else { format!(" --instance {instance}") };
        let back = match self.scope {
            Scope::Upgrades => "; a rollback is possible during the hold",
            Scope::All => "",
        };
        Report::of(Class::Held, format!("cannot {purpose} {instance}: it is held {self}"))
            .hint(format!("`sidle unhold {package}{named}` lifts the hold{back}"))
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
            formatter.write_str("; rollbacks are held, too")?;
        }
        if self.reason.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.reason) }
    }
}
