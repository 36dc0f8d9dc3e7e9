//! The findings of an examination of a host, and the part of it that an agent brings.

use crate::failure::Class;
use crate::os::environment::Passed;
use crate::rehearsal::Part;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// How bad a finding is, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing to do; good to know.
    Note,
    /// The check could not run. Not known to be good.
    Unknown,
    /// It works now, but not for ever or not in every case.
    Warning,
    /// It does not work.
    Error,
}

impl Severity {
    /// The word before a finding.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Unknown => "not checked",
            Self::Warning => "warning",
            Self::Error => "ERROR",
        }
    }
}

/// A kind of finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Its id, which never changes its meaning: programs look for it.
    pub id: &'static str,
    /// Its class of failure, for the exit code.
    pub class: Class,
    /// What it means.
    pub means: &'static str,
    /// What to do about it, where a finding names nothing better.
    pub remedy: &'static str,
    /// Sentences of logs and messages that come with it; `…` stands for what differs.
    pub words: &'static [&'static str],
}

/// Something found on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind: an [`Explanation`] has it.
    pub id: &'static str,
    /// Its severity here.
    pub severity: Severity,
    /// What was found, with names and numbers.
    pub what: String,
    /// What to do; empty: nothing.
    pub remedy: String,
}

/// The findings of one sort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Their sort: `store`.
    pub name: &'static str,
    /// The checks that found nothing, in few words.
    pub looked_at: Vec<String>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// The kind of a check that could not run.
pub const COULD_NOT_LOOK: &str = "could-not-look";

impl Group {
    /// An empty group.
    pub fn new(name: &'static str) -> Self {
        Self { name, looked_at: Vec::new(), findings: Vec::new() }
    }

    /// Notes a check that found nothing.
    pub fn good(&mut self, what: impl Into<String>) {
        self.looked_at.push(what.into());
    }

    /// Notes a finding.
    pub fn find(&mut self, severity: Severity, id: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding { id, severity, what: what.into(), remedy: remedy.into() });
    }

    /// Notes a check that could not run, the reason, and the remedy.
    pub fn unknown(&mut self, what: &str, reason: impl fmt::Display, remedy: &str) {
        self.find(Severity::Unknown, COULD_NOT_LOOK, format!("{what}: {reason}"), remedy);
    }
}

/// One agent of a host.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The root of the host: `/`.
    pub root: &'a Path,
    /// Its configuration directory.
    pub configuration: &'a Path,
    /// The current release, its tree by the real path; None: no whole current release.
    pub release: Option<&'a Part>,
    /// The variables of this process that the release's programs get.
    pub passed: &'a Passed,
    /// The instance's state directory.
    pub state: &'a Path,
    /// The instance's supervisor and the agents' first processes. Their descendants belong to the instance, too.
    pub own: &'a [u32],
    /// The peers that the running agent is proven to reach.
    pub reaches: &'a [String],
}

/// One kind of agent's part of an examination. It changes nothing on the host.
pub trait Examiner: Sync {
    /// The kinds of findings that it adds. For the id of a general kind, only the words are added.
    fn explanations(&self) -> &'static [Explanation];

    /// Programs of the agent that people call by name, and that other installations may bring, too.
    fn programs(&self) -> &'static [&'static str];

    /// Examines one agent.
    fn examine(&self, case: Case<'_>) -> Vec<Group>;
}
