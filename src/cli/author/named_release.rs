//! Releases as the command line names them: `PACKAGE@RELEASE[/PLATFORM]`.

use crate::bundle::member::ReleaseId;
use crate::name::{NameError, PackageName};
use crate::version::{Platform, Release, VersionError};
use std::fmt;
use std::str::FromStr;

/// A release, of one platform or of all.
#[derive(Debug, Clone)]
pub struct NamedRelease {
    package: PackageName,
    release: Release,
    platform: Option<Platform>,
}

impl NamedRelease {
    /// True when this release is meant.
    pub fn means(&self, id: &ReleaseId) -> bool {
        self.package == id.package
            && self.release == id.release
            && self.platform.as_ref().is_none_or(|platform| *platform == id.platform)
    }
}

impl FromStr for NamedRelease {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (package, rest) = text.split_once('@').ok_or("name PACKAGE@RELEASE[/PLATFORM]")?;
        let (release, platform) =
            rest.split_once('/').map_or((rest, None), |(release, platform)| (release, Some(platform)));
        let version = |error: VersionError| error.to_string();
        Ok(Self {
            package: package.parse().map_err(|error: NameError| error.to_string())?,
            release: release.parse().map_err(version)?,
            platform: platform.map(str::parse).transpose().map_err(version)?,
        })
    }
}

impl fmt::Display for NamedRelease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.package, self.release)?;
        self.platform.as_ref().map_or(Ok(()), |platform| write!(formatter, "/{platform}"))
    }
}
