//! Extras: packages that have been laid over a release on this host, in a directory that the next release may not look into.
//!
//! An agent says which would vanish ([`Vanishing`], a part of what a rehearsal finds) and what lays them over the next release, too
//! ([`Builder`]); whoever drives a switch runs that and moves what was built into place.

use crate::os::process::Program;
use crate::rehearsal::{Performance, Scene};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// What comes of extras that would vanish.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtrasPolicy {
    /// The switch is refused.
    #[default]
    Refuse,
    /// It is told.
    Report,
    /// They are laid over the new release, too; the switch is refused where that can't be done.
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
    /// Where the trial would find them; None: that can't be told.
    pub into: Option<PathBuf>,
}

/// How extras are laid over a release.
#[derive(Debug)]
pub struct Building {
    /// What builds them. It prints its report.
    pub program: Program,
    /// The directory that it fills, an empty one below its own working directory.
    pub built: PathBuf,
    /// Where that belongs.
    pub into: PathBuf,
    /// The ends of names which say that a package is there, whole: these entries are moved last.
    pub seals: &'static [&'static str],
}

/// How one kind of agent has extras built.
pub trait Builder: Sync {
    /// What builds `vanishing` for the scene's trial in the empty directory `work`, out of the packages in the directory `wheels`; None: from
    /// where its own configuration says. An error, in words: these can't be built.
    fn building(
        &self,
        scene: &Scene,
        vanishing: &Vanishing,
        wheels: Option<&Path>,
        work: &Path,
    ) -> Result<Building, String>;

    /// What came of it: what a person may want to know, or why they are not to be used.
    fn built(&self, vanishing: &Vanishing, built: &Performance) -> Result<Vec<String>, String>;

    /// What a person can do where they could not be built.
    fn remedy(&self, wheels: Option<&Path>) -> String;
}
