//! A package of a repository as the command line names it, with or without a release.

use crate::name::{NameError, PackageName};
use crate::version::{Release, Version, VersionError};
use std::fmt;
use std::str::FromStr;

/// `PACKAGE` or `PACKAGE@RELEASE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The package.
    pub package: PackageName,
    /// The release; None: the newest.
    pub release: Option<Release>,
}

impl Wanted {
    /// The probable meaning of `PACKAGE@VERSION`: its first revision.
    pub fn with_a_revision(text: &str) -> Option<String> {
        let (package, version) = text.split_once('@')?;
        let (package, version): (PackageName, Version) = (package.parse().ok()?, version.parse().ok()?);
        Some(format!("{package}@{version}-1"))
    }
}

impl FromStr for Wanted {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (package, release) =
            text.split_once('@').map_or((text, None), |(package, release)| (package, Some(release)));
        Ok(Self {
            package: package.parse().map_err(|error: NameError| error.to_string())?,
            release: release.map(str::parse).transpose().map_err(|error: VersionError| error.to_string())?,
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.release {
            Some(release) => write!(out, "{} {release}", self.package),
            None => self.package.fmt(out),
        }
    }
}
