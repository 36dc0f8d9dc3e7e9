//! The report of `sidle_rehearsal.py`: what one release made of this host. The head of that file says what the fields mean.

use super::highstate::Highstate;
use crate::rehearsal::uses::Need;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The schema that this sidle reads.
const SCHEMA: u32 = 1;

/// A report is a quarter of a megabyte; a larger one is no report.
const REPORT_BYTES_MAX: usize = 16 << 20;

/// What one release made of this host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_rehearsal.py says what the fields mean")]
pub struct RehearsalReport {
    pub schema: u32,
    pub version: Option<String>,
    pub python: String,
    #[serde(default)]
    pub sealed: BTreeSet<String>,
    pub failure: Option<Failure>,
    #[serde(default)]
    pub functions: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    #[serde(default)]
    pub own: BTreeMap<String, BTreeSet<String>>,
    #[serde(default)]
    pub grains: BTreeSet<String>,
    #[serde(default)]
    pub errors: Vec<LoadError>,
    #[serde(default)]
    pub missing: Vec<Missing>,
    #[serde(default)]
    pub problems: Vec<String>,
    #[serde(default)]
    pub unknown_options: BTreeSet<String>,
    #[serde(default)]
    pub extras: Option<Vec<Extra>>,
    #[serde(default)]
    pub extras_place: Option<PathBuf>,
    #[serde(default)]
    pub sign_in: Option<u32>,
    #[serde(default)]
    pub packages: BTreeSet<String>,
    #[serde(default)]
    pub own_versions: BTreeMap<String, String>,
    #[serde(default)]
    pub highstate: Option<Highstate>,
    #[serde(default)]
    pub masters: Option<KnownMasters>,
    #[serde(default)]
    pub needs: Vec<Need>,
}

/// What is known of the minion's masters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_masters.py says what the fields mean")]
pub struct KnownMasters {
    pub named: Vec<String>,
    pub told: Vec<Told>,
    pub now: u64,
}

/// The newest word of a master.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_masters.py says what the fields mean")]
pub struct Told {
    #[serde(alias = "master")]
    pub name: String,
    pub version: String,
    pub minimum_auth_version: Option<u32>,
    pub at: u64,
    pub source: String,
}

/// A package that `salt-pip` installed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_rehearsal.py says what the fields mean")]
pub struct Extra {
    pub name: String,
    pub version: String,
    pub directory: String,
}

/// How a minion would fail to come up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_rehearsal.py says what the fields mean")]
pub struct Failure {
    pub stage: String,
    pub reason: String,
}

/// How a module did not load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// It could not be imported.
    Import,
    /// It raised an exception later.
    Failed,
    /// It said itself that it is not for this host.
    Declined,
}

/// A module that would not load, or a grains function that failed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_rehearsal.py says what the fields mean")]
pub struct LoadError {
    pub kind: String,
    pub name: String,
    pub file: String,
    pub own: bool,
    pub how: How,
    pub reason: String,
}

/// Something configured that the release doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(missing_docs, reason = "the head of sidle_rehearsal.py says what the fields mean")]
pub struct Missing {
    pub kind: String,
    pub name: String,
    #[serde(rename = "where")]
    pub place: String,
}

/// Why bytes are no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There are too many.
    #[error("cannot read the rehearsal's report: it is larger than {REPORT_BYTES_MAX} bytes")]
    TooLarge,
    /// They are not the JSON of a report.
    #[error("cannot read the rehearsal's report: {0}")]
    Malformed(serde_json::Error),
    /// Another version of the format.
    #[error("cannot read the rehearsal's report: its schema is {0}, and this sidle reads {SCHEMA}")]
    Schema(u32),
}

impl RehearsalReport {
    /// Reads a report.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReportError> {
        if bytes.len() > REPORT_BYTES_MAX {
            return Err(ReportError::TooLarge);
        }
        let report: Self = serde_json::from_slice(bytes).map_err(ReportError::Malformed)?;
        if report.schema == SCHEMA { Ok(report) } else { Err(ReportError::Schema(report.schema)) }
    }

    /// True when a kind of module has the function `name`, `module.function`.
    pub fn has(&self, kind: &str, name: &str) -> bool {
        let (module, function) = name.split_once('.').unwrap_or((name, ""));
        self.functions.get(kind).and_then(|modules| modules.get(module)).is_some_and(|names| names.contains(function))
    }

    /// The entry of a module that would not load.
    pub fn error(&self, kind: &str, name: &str) -> Option<&LoadError> {
        self.errors.iter().find(|error| error.kind == kind && error.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_report_of_this_schema_is_one() {
        let good = br#"{"schema":1,"version":"3008.5","python":"3.11.7","failure":null,"functions":{"module":{"test":["ping"]}},"new":[]}"#;
        let report = RehearsalReport::parse(good).unwrap();
        assert!(
            report.has("module", "test.ping") && !report.has("module", "test") && !report.has("states", "test.ping")
        );
        for (bytes, part) in [
            (&br#"{"schema":2,"python":"3"}"#[..], "its schema is 2"),
            (&good[..good.len() - 1], "EOF"),
            (b"", "EOF"),
            (b"[]", "invalid"),
            (b"{\"schema\":1,\"python\":\"3\",\"failure\":null} noise", "trailing"),
            (&vec![b' '; REPORT_BYTES_MAX + 1], "larger than"),
        ] {
            let message = RehearsalReport::parse(bytes).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
