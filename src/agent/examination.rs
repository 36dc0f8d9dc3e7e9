//! What an examination of a host finds, and what an agent adds to it: its peers, its key, a second one of it, and the words of its logs.

use crate::failure::Class;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// How bad a finding is, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing to do; good to know.
    Note,
    /// It could not be looked at. Not known to be good.
    Unknown,
    /// It works, and will not for ever, or not in every case.
    Warning,
    /// It does not work.
    Error,
}

impl Severity {
    /// The word before a finding.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Unknown => "could not look",
            Self::Warning => "warning",
            Self::Error => "ERROR",
        }
    }
}

/// A kind of finding: what it means wherever it is met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Short, and never another one: programs look for it.
    pub id: &'static str,
    /// The class of failure that it is, for the exit code.
    pub class: Class,
    /// What it means.
    pub means: &'static str,
    /// What to do about it, where a finding names nothing better.
    pub remedy: &'static str,
    /// Sentences that people see of it in logs and messages; `…` stands for what differs.
    pub words: &'static [&'static str],
}

/// Something found on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind: an [`Explanation`] has it.
    pub id: &'static str,
    /// How bad it is here.
    pub severity: Severity,
    /// What was found, with names and numbers.
    pub what: String,
    /// What to do; empty: nothing has to be done.
    pub remedy: String,
}

/// What came of looking at things of one sort.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Their sort: `store`.
    pub name: &'static str,
    /// What was looked at and found good, in few words.
    pub looked_at: Vec<String>,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// The kind of what could not be looked at.
pub const COULD_NOT_LOOK: &str = "could-not-look";

impl Group {
    /// Nothing was looked at yet.
    pub fn new(name: &'static str) -> Self {
        Self { name, looked_at: Vec::new(), findings: Vec::new() }
    }

    /// Notes what was found good.
    pub fn good(&mut self, what: impl Into<String>) {
        self.looked_at.push(what.into());
    }

    /// Notes a finding.
    pub fn find(&mut self, severity: Severity, id: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding { id, severity, what: what.into(), remedy: remedy.into() });
    }

    /// Notes what could not be looked at, because of what, and how it could be.
    pub fn unknown(&mut self, what: &str, reason: impl fmt::Display, remedy: &str) {
        self.find(Severity::Unknown, COULD_NOT_LOOK, format!("{what}: {reason}"), remedy);
    }
}

/// One agent of a host, as an examination has it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The directory that everything of sidle lies below: `/`.
    pub root: &'a Path,
    /// Its configuration directory.
    pub configuration: &'a Path,
    /// The tree of the current release, by its real path, and the environment of its service; None: there is no whole one.
    pub release: Option<(&'a Path, &'a [(OsString, OsString)])>,
    /// Processes that are sidle's own for this instance: its supervisor and the agents' first ones. What descends from them is, too.
    pub own: &'a [u32],
    /// The peers that the running agent is proven to reach.
    pub reaches: &'a [String],
}

/// What an examination asks of one kind of agent. It looks only: nothing on the host is changed by it.
pub trait Examiner: Sync {
    /// The kinds of findings that it adds. Where an id is a general one, only the words count, which are added to those.
    fn explanations(&self) -> &'static [Explanation];

    /// Programs of the agent that people call by name, and that other installations of it bring, too.
    fn programs(&self) -> &'static [&'static str];

    /// Looks at one agent: a group for each sort of things.
    fn examine(&self, case: Case<'_>) -> Vec<Group>;
}
