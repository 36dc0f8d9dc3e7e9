//! Extras: packages that were installed over a release on this host, in a directory that the next release may not read. A rehearsal names extras
//! that would vanish ([`Vanishing`]), and a [`Builder`] rebuilds them for the next release.

use crate::os::process::Program;
use crate::rehearsal::{Performance, Scene};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The policy for extras that would vanish.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtrasPolicy {
    /// The switch is refused.
    #[default]
    Refuse,
    /// They are reported.
    Report,
    /// They are rebuilt for the new release; if that fails, the switch is refused.
    Rebuild,
}

/// One package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// Its normalised name.
    pub name: String,
    /// Its version; empty: not known.
    pub version: String,
}

impl fmt::Display for Extra {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.name, self.version)
    }
}

/// Extras of the former release that the trial would not see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vanishing {
    /// The packages.
    pub packages: Vec<Extra>,
    /// Where the former release finds them.
    pub from: PathBuf,
    /// Where the trial would find them; None: not known.
    pub into: Option<PathBuf>,
    /// Whether the trial could use their files as they are: then they are copied, and not built anew.
    #[serde(default)]
    pub fits: bool,
    /// The line of a recipe that brings them with a release; None: no recipe can.
    #[serde(default)]
    pub recipe: Option<String>,
}

impl Vanishing {
    /// What the policy would do about them; None: nothing.
    pub fn mending(&self, policy: ExtrasPolicy) -> Option<Mending> {
        match policy {
            ExtrasPolicy::Refuse | ExtrasPolicy::Rebuild if self.fits => Some(Mending::Copy),
            ExtrasPolicy::Rebuild => Some(Mending::Rebuild),
            ExtrasPolicy::Refuse | ExtrasPolicy::Report => None,
        }
    }
}

/// How extras come to a release that would not see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mending {
    /// Their files are copied.
    Copy,
    /// They are installed anew.
    Rebuild,
}

impl Mending {
    /// For people: what is done, and what was done.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Copy => ("copy", "copied"),
            Self::Rebuild => ("rebuild", "rebuilt"),
        }
    }
}

/// A rebuild of extras.
#[derive(Debug)]
pub struct Building {
    /// The program. It prints a report.
    pub program: Program,
    /// The directory that it fills, an empty one below its own working directory.
    pub built: PathBuf,
    /// The final directory.
    pub into: PathBuf,
    /// Ends of names that mark a package as complete: these entries are moved last.
    pub seals: &'static [&'static str],
    /// The file in such an entry that lists the files of the package: CSV whose first column is a path relative to the directory.
    pub record: &'static str,
    /// Whether a new final directory gets the owner of the former one, who may add packages.
    pub keeps_owner: bool,
}

/// How one kind of agent has extras built.
pub trait Builder: Sync {
    /// Plans the rebuild of `vanishing` for the scene's trial in the empty directory `work`, from packages in `wheels`; None: from the sources of
    /// its own configuration. An error says why these can't be built.
    fn building(
        &self,
        scene: &Scene,
        vanishing: &Vanishing,
        wheels: Option<&Path>,
        work: &Path,
    ) -> Result<Building, String>;

    /// Judges the result: notes, or why the rebuilt extras must not be used.
    fn built(&self, vanishing: &Vanishing, built: &Performance) -> Result<Vec<String>, String>;

    /// What a person can do after these packages could not be rebuilt.
    fn remedy(&self, vanishing: &Vanishing, wheels: Option<&Path>) -> String;
}
