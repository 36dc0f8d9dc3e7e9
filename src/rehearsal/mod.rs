//! Rehearsals: before its trial, a release loads this host's own configuration and extensions.
//!
//! An agent names the program ([`Rehearser::program`]) and judges its report ([`Rehearser::judge`]); the driver of a switch runs it. What failed
//! with the former release, too, never counts against the trial.

pub mod extras;
pub mod lost;
pub mod states;
pub mod uses;
mod weighing;

pub use extras::ExtrasPolicy;

use crate::bundle::contents::Offers;
use crate::bundle::manifest::{Head, Service};
use crate::os::account::Rights;
use crate::os::environment::Passed;
use crate::os::process::{self, Identity, Program};
use crate::version::Version;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The findings of a rehearsal, in the operator's words, the weightiest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// Reasons not to switch.
    pub blocking: Vec<String>,
    /// Notes.
    pub notes: Vec<String>,
    /// Why the rehearsal could not be done, or not be compared: reasons not to switch, too.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// Why nobody can tell which extras would vanish: the settings say whether that is a reason.
    #[serde(default)]
    pub unknown_extras: Option<String>,
    /// Why the agent's peers would not take the release, by what they have said: reasons not to switch, except on the way back to a release that has worked.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Extras of the former release that would vanish: the settings say whether they are reasons.
    #[serde(default)]
    pub extras: Vec<String>,
    /// The same extras for a rebuild; None: there are none, or a rebuild is impossible.
    #[serde(default)]
    pub vanishing: Option<extras::Vanishing>,
    /// The functions that would vanish, for who asks for all of them: the notes have the sums.
    #[serde(skip)]
    pub lost: Vec<lost::Lost>,
    /// What the release that works here, or this one where there is none, needs by configuration, highstate and log.
    #[serde(skip)]
    pub needs: Vec<uses::Need>,
    /// The used functions among them.
    #[serde(skip)]
    pub used: Vec<uses::Use>,
    /// The comparison of what both releases would do by this host's own configuration; None: nothing was asked.
    #[serde(skip)]
    pub states: Option<states::Compared>,
}

/// Most lines of [`Rehearsal::told`]: status shows them.
const LINES_MAX: usize = 12;

impl Rehearsal {
    /// This rehearsal with its extras among the reasons, or among the notes.
    #[must_use]
    pub fn weighed(mut self, policy: ExtrasPolicy) -> Self {
        let (extras, unknown) = (std::mem::take(&mut self.extras), self.unknown_extras.take());
        match policy {
            ExtrasPolicy::Refuse | ExtrasPolicy::Rebuild => {
                self.blocking.extend(extras);
                self.unknown.extend(unknown);
            }
            ExtrasPolicy::Report => self.notes.splice(..0, extras.into_iter().chain(unknown)).for_each(drop),
        }
        self
    }

    /// A rehearsal that was not done, for this reason: nothing is known about the release.
    pub fn not_done(why: String) -> Self {
        Self { unknown: vec![why], ..Self::default() }
    }

    /// This rehearsal of a release that is known to work on this host: what the rehearsal could not find out, and what others have said, is a note.
    #[must_use]
    pub fn of_proven(mut self) -> Self {
        let (unknown, peers) = (std::mem::take(&mut self.unknown), std::mem::take(&mut self.peers));
        self.notes.splice(..0, unknown.into_iter().chain(peers)).for_each(drop);
        self
    }

    /// True when there is a reason not to switch.
    pub fn refuses(&self) -> bool {
        self.reasons().next().is_some()
    }

    fn reasons(&self) -> impl Iterator<Item = &String> {
        self.blocking.iter().chain(&self.unknown).chain(&self.peers)
    }

    /// The reasons as one line, for a journal and for messages; None when nothing blocks.
    pub fn refusal(&self) -> Option<String> {
        let first = self.reasons().next()?;
        let more = self.reasons().count() - 1;
        Some(if more == 0 { first.clone() } else { format!("{first} (and {more} more)") })
    }

    /// The lines for the journal: the notes, and the reasons if they do not refuse.
    pub fn told(&self, refuses: bool) -> Vec<String> {
        let reasons = self.reasons().filter(|_| !refuses);
        let mut told: Vec<String> = reasons.chain(&self.notes).cloned().collect();
        if told.len() > LINES_MAX {
            let more = told.len() - (LINES_MAX - 1);
            told.truncate(LINES_MAX - 1);
            told.push(format!("and {more} more"));
        }
        told
    }
}

/// A release in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its tree, by its real path.
    pub tree: PathBuf,
    /// The environment that its manifest gives its service, expanded.
    pub environment: Vec<(OsString, OsString)>,
}

impl Part {
    /// A release with the environment of its service.
    pub fn of(tree: PathBuf, manifest: &Head, configuration: &Path) -> Self {
        let environment = manifest.service.environment.iter();
        let environment = environment.map(|(name, value)| (name.into(), Service::expanded(value, configuration)));
        Self { tree, environment: environment.collect() }
    }
}

/// The releases and the configuration of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene {
    /// The release to switch to.
    pub trial: Part,
    /// What works here now.
    pub former: Former,
    /// The agent's configuration directory.
    pub config_directory: PathBuf,
    /// The variables of this process that the agent would get.
    pub passed: Passed,
    /// What is asked about the states that the agent applies; None: nothing.
    pub states: Option<states::Asked>,
}

/// What works on a host before a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Former {
    /// Nothing: there is nothing to compare with.
    Nothing,
    /// A release of sidle's.
    Release(Part),
    /// A packaged agent that an adoption takes over. It is asked with the rights of its own process.
    Packaged(Part, Rights),
    /// Something that cannot be asked, because of this.
    Unknown(String),
}

impl From<Option<Part>> for Former {
    fn from(part: Option<Part>) -> Self {
        part.map_or(Self::Nothing, Self::Release)
    }
}

impl Former {
    /// What can be asked.
    pub fn part(&self) -> Option<&Part> {
        match self {
            Self::Release(part) | Self::Packaged(part, _) => Some(part),
            Self::Nothing | Self::Unknown(_) => None,
        }
    }

    /// The performance of what cannot be asked.
    pub fn failed(&self) -> Option<Performance> {
        match self {
            Self::Unknown(why) => {
                Some(Performance { failure: Some(why.clone()), output: Vec::new(), errors: String::new() })
            }
            Self::Nothing | Self::Release(_) | Self::Packaged(..) => None,
        }
    }
}

/// One of a scene's releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The release to switch to.
    Trial,
    /// The release that works here now.
    Former,
}

impl Scene {
    /// The part of a role; only the former may be absent.
    pub fn part(&self, role: Role) -> Option<&Part> {
        match role {
            Role::Trial => Some(&self.trial),
            Role::Former => self.former.part(),
        }
    }

    /// The rights with which the program of a role is started; None: those of this process.
    pub fn rights(&self, role: Role) -> Option<&Rights> {
        match (role, &self.former) {
            (Role::Former, Former::Packaged(_, rights)) if rights.user != process::user() => Some(rights),
            _ => None,
        }
    }
}

/// The end and the output of a rehearsal's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Performance {
    /// Why its output does not count: not started, killed, out of time, a failing exit code. None: it ended well.
    pub failure: Option<String>,
    /// Its standard output.
    pub output: Vec<u8>,
    /// The end of its standard error.
    pub errors: String,
}

/// How one kind of agent is rehearsed.
pub trait Rehearser: Sync {
    /// The program that loads the scene's configuration with the release of `role`, and prints a report. It may write only below `scratch`, an empty
    /// directory. None: this release can't be rehearsed; the judge says what that means.
    fn program(&self, scene: &Scene, role: Role, scratch: &Path) -> Option<Program>;

    /// Judges the reports. None: that release was not rehearsed.
    fn judge(&self, trial: Option<&Performance>, former: Option<&Performance>) -> Rehearsal;

    /// Judges the report of a release that worked here until the host changed: only what such a change can cause counts. None: not rehearsed.
    fn judge_again(&self, again: Option<&Performance>) -> Rehearsal;

    /// A packaged agent by its first process, for the comparison with the release that takes over.
    fn packaged(&self, _leader: &Identity) -> Former {
        Former::Nothing
    }

    /// Packages that bring modules back; None: nobody has listed any for this agent.
    fn successors(&self) -> Option<lost::Successors> {
        None
    }

    /// The functions that a release does not have and the former one has, by the lists in their manifests; None: a manifest has no list.
    fn lost(&self, _trial: &Offers, _former: &Offers) -> Option<Vec<lost::Lost>> {
        None
    }

    /// Where the agent's guard counts what the host uses, by the options of the running agent (None: not known) or by what the instance's state
    /// directory has of the configuration; None: nobody counts for this agent, or its place is not known.
    fn uses_file(&self, _options: Option<&serde_json::Value>, _state: &Path) -> Option<PathBuf> {
        None
    }

    /// Why the agent's peers would not take a release of this version, by what they have said, without a rehearsal. `options` and `state`: as in
    /// [`Self::uses_file`]. By default nothing is known.
    fn peers_refuse(&self, _options: Option<&serde_json::Value>, _state: &Path, _version: &Version) -> Vec<String> {
        Vec::new()
    }

    /// Kinds of modules that no rehearsal loads: only the lists tell of them.
    fn listed_only(&self) -> &'static [&'static str] {
        &[]
    }

    /// Rebuilds extras; None: this agent has none.
    fn builder(&self) -> Option<&dyn extras::Builder> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rehearsal_is_told_in_a_few_lines_the_reasons_first() {
        let said = |count: usize, what: &str| (0..count).map(|number| format!("{what} {number}")).collect();
        let rehearsal = Rehearsal { blocking: said(2, "reason"), notes: said(20, "note"), ..Rehearsal::default() };
        let lines = rehearsal.told(false);
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[..3], ["reason 0".to_owned(), "reason 1".to_owned(), "note 0".to_owned()]);
        assert_eq!(lines.last().map(String::as_str), Some("and 11 more"));
        assert_eq!(rehearsal.refusal().as_deref(), Some("reason 0 (and 1 more)"));
        let lost = || Rehearsal { extras: said(1, "extra"), notes: said(1, "note"), ..Rehearsal::default() };
        assert_eq!(lost().weighed(ExtrasPolicy::Refuse).refusal().as_deref(), Some("extra 0"));
        let told = lost().weighed(ExtrasPolicy::Report);
        assert_eq!((told.refusal(), told.told(true)), (None, vec!["extra 0".to_owned(), "note 0".to_owned()]));
        assert!(Rehearsal::default().told(false).is_empty() && Rehearsal::default().refusal().is_none());
    }

    #[test]
    fn what_a_rehearsal_could_not_find_out_refuses_unless_the_release_is_known_to_work() {
        let blind = || Rehearsal::not_done("blind".to_owned());
        assert_eq!((blind().refuses(), blind().refusal().as_deref()), (true, Some("blind")));
        assert_eq!((blind().told(true), blind().told(false)), (Vec::new(), vec!["blind".to_owned()]));
        let proven = blind().of_proven();
        assert_eq!((proven.refuses(), proven.told(true)), (false, vec!["blind".to_owned()]));
        let old = || Rehearsal { peers: vec!["older".to_owned()], ..Rehearsal::default() };
        assert_eq!((old().refusal().as_deref(), old().told(false)), (Some("older"), vec!["older".to_owned()]));
        assert_eq!((old().of_proven().refuses(), old().of_proven().notes), (false, vec!["older".to_owned()]));
        let extras = || Rehearsal { unknown_extras: Some("no list".to_owned()), ..Rehearsal::default() };
        for policy in [ExtrasPolicy::Refuse, ExtrasPolicy::Rebuild] {
            assert_eq!(extras().weighed(policy).refusal().as_deref(), Some("no list"));
        }
        let told = extras().weighed(ExtrasPolicy::Report);
        assert_eq!((told.refusal(), told.told(true)), (None, vec!["no list".to_owned()]));
    }
}
