//! Verdicts on releases: bad (failed on this host) and declined (left by a rollback).

use crate::saved::Saved;
use crate::switch::journal::record::Switch;
use crate::version::Release;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why sidle does not choose a release by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Since when.
    pub at: Timestamp,
    /// The reason, for people.
    pub reason: String,
}

/// The verdicts of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    schema: u32,
    /// Releases that did not come up or did not stay up on this host.
    pub bad: BTreeMap<Release, Verdict>,
    /// Releases that a person left by a rollback to another release.
    pub declined: BTreeMap<Release, Verdict>,
    /// Releases that once did not come up in time, perhaps because of the host. The second time they are bad.
    #[serde(default)]
    pub late: BTreeMap<Release, Verdict>,
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { schema: Self::SCHEMA, bad: BTreeMap::new(), declined: BTreeMap::new(), late: BTreeMap::new() }
    }
}

impl Saved for Verdicts {
    const NAME: &'static str = "verdicts";
    // several hundred releases with their reasons.
    const LENGTH_MAXIMUM: u64 = 1024 * 1024;
    const REMEDY: &'static str = "move the file away: sidle then forgets which releases failed on this host";
}

impl Verdicts {
    /// Updates the verdicts after the end of `switch`. A committed release has worked, so its verdicts are removed.
    #[must_use]
    pub fn after(mut self, switch: &Switch) -> Self {
        let at = switch.phase_since;
        if switch.phase == crate::switch::Phase::Committed {
            self.bad.remove(&switch.request.to);
            self.declined.remove(&switch.request.to);
            self.late.remove(&switch.request.to);
        }
        let late = switch.late().cloned();
        let again = late.clone().filter(|release| self.late.contains_key(release));
        if let Some(release) = late {
            let reason = switch.failure.as_ref().map_or_else(String::new, |failure| failure.text.clone());
            self.late.insert(release, Verdict { at, reason });
        }
        if let Some(release) = switch.condemned().or(again.as_ref()) {
            let reason = switch
                .failure
                .as_ref()
                .map_or_else(String::new, |failure| format!("{}: {}", failure.phase, failure.text));
            self.bad.insert(release.clone(), Verdict { at, reason });
        }
        if let Some(release) = switch.declined() {
            let reason = match switch.request.reason.as_str() {
                "" => "left by a rollback".to_owned(),
                why => format!("left by a rollback: {why}"),
            };
            self.declined.insert(release.clone(), Verdict { at, reason });
        }
        self
    }
}
