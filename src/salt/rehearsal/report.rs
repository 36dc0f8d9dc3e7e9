//! The report of `sidle_rehearsal.py`: what one release made of this host. The head of that file says what the fields mean.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The schema that this sidle reads.
const SCHEMA: u32 = 1;

/// A report is a quarter of a megabyte; a larger one is no report.
const REPORT_BYTES_MAX: usize = 16 << 20;

/// What one release made of this host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct RehearsalReport {
    /// Version of the format.
    pub schema: u32,
    /// The release's version; None when Salt could not even be imported.
    pub version: Option<String>,
    /// Version of its Python.
    pub python: String,
    /// What the rehearsal could not touch: `files`, `network`.
    #[serde(default)]
    pub sealed: BTreeSet<String>,
    /// How the minion would fail to come up at all.
    pub failure: Option<Failure>,
    /// Functions by kind of module and by module.
    #[serde(default)]
    pub functions: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// Those that this host's own files provide, `module.function`, by kind.
    #[serde(default)]
    pub own: BTreeMap<String, BTreeSet<String>>,
    /// Names of the grains.
    #[serde(default)]
    pub grains: BTreeSet<String>,
    /// What would not load.
    #[serde(default)]
    pub errors: Vec<LoadError>,
    /// What is configured and not there.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// Warnings about the configuration.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Options of this host that the release doesn't know.
    #[serde(default)]
    pub unknown_options: BTreeSet<String>,
    /// Packages that `salt-pip` installed for its Python; None: an older program didn't look.
    #[serde(default)]
    pub extras: Option<Vec<Extra>>,
    /// The version of its sign-in at a master; None: not known.
    #[serde(default)]
    pub sign_in: Option<u32>,
    /// All packages that its Python sees.
    #[serde(default)]
    pub packages: BTreeSet<String>,
}

/// A package that `salt-pip` installed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Extra {
    /// Its normalised name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where it is.
    pub directory: String,
}

/// How a minion would fail to come up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// How far it came: `configuration`, `user`, `grains` or `modules`.
    pub stage: String,
    /// Why.
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
pub struct LoadError {
    /// The kind of module, in the loader's word.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// True for this host's own, false for the release's.
    pub own: bool,
    /// How.
    pub how: How,
    /// Why; may be empty.
    pub reason: String,
}

/// Something configured that the release doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Missing {
    /// The kind of module, in the loader's word.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Where it is configured.
    #[serde(rename = "where")]
    pub place: String,
}

/// Why bytes are no report.
#[derive(Debug)]
pub enum ReportError {
    /// There are too many.
    TooLarge,
    /// They aren't the JSON that is meant.
    Malformed(serde_json::Error),
    /// Another version of the format.
    Schema(u32),
}

impl fmt::Display for ReportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("cannot read the rehearsal's report: ")?;
        match self {
            Self::TooLarge => write!(formatter, "it is larger than {REPORT_BYTES_MAX} bytes"),
            Self::Malformed(error) => error.fmt(formatter),
            Self::Schema(schema) => write!(formatter, "its schema is {schema}, and this sidle reads {SCHEMA}"),
        }
    }
}

impl std::error::Error for ReportError {}

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
