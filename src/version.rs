//! Versions, revisions, releases and platforms: their text and their order.

use semver::{Prerelease, Version as Semver};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Longest version text. Caps what a hostile manifest can put into directory names and listings.
pub const VERSION_LENGTH_MAXIMUM: usize = 48;

/// A text that is not a version, release or platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {text:?}: expected {expected}")]
pub struct VersionError {
    text: String,
    expected: &'static str,
}

fn refuse<T>(text: &str, expected: &'static str) -> Result<T, VersionError> {
    Err(VersionError { text: text.to_owned(), expected })
}

/// A version as published (`3007.17`, `3006.0rc9`), ordered by semver after padding to three numbers: 3006.0rc9 < 3006.0rc10 < 3006.0 <
/// 3006.10.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    text: String,
    order: Semver,
}

const VERSION_FORM: &str = "a version: one to three numbers joined by dots, then optionally a pre-release such as rc1, as in 3007.17 or 3006.0rc2";

impl Version {
    /// The version as published.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        if text.len() > VERSION_LENGTH_MAXIMUM {
            return refuse(text, VERSION_FORM);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, tail) = text.split_at(end);
        let mut padded = [0_u64; 3];
        let parts: Vec<&str> = numbers.split('.').collect();
        if parts.len() > padded.len() {
            return refuse(text, VERSION_FORM);
        }
        for (slot, part) in padded.iter_mut().zip(&parts) {
            // A leading zero would give one release two names.
            if part.len() > 1 && part.starts_with('0') {
                return refuse(text, VERSION_FORM);
            }
            let Ok(number) = part.parse() else { return refuse(text, VERSION_FORM) };
            *slot = number;
        }
        let Ok(pre) = Prerelease::new(&separated(tail)) else { return refuse(text, VERSION_FORM) };
        let [major, minor, patch] = padded;
        Ok(Self { text: text.to_owned(), order: Semver { pre, ..Semver::new(major, minor, patch) } })
    }
}

/// Separates letters and digits so that semver orders `rc10` by number (`rc.10`). A hyphen or tilde is only punctuation.
fn separated(tail: &str) -> String {
    let mut result = String::new();
    for character in tail.chars().filter(|c| *c != '~' && *c != '-') {
        let border = result
            .chars()
            .last()
            .is_some_and(|last| last != '.' && character != '.' && last.is_ascii_digit() != character.is_ascii_digit());
        if border {
            result.push('.');
        }
        result.push(character);
    }
    result
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl std::hash::Hash for Version {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    /// Semver's order; texts with one meaning (`3007` and `3007.0`) are ordered by text, so that equality stays equality of names.
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.cmp(&other.order).then_with(|| self.text.cmp(&other.text))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

crate::as_text!(Version);

/// A version and the revision of its rebuild: installed, switched to and collected as a unit. Text form `3007.17-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Release {
    /// The version as published.
    pub version: Version,
    /// Counts rebuilds of the same version, from 1.
    pub revision: u32,
}

const RELEASE_FORM: &str = "a release: a version, a hyphen and a revision from 1 on, as in 3007.17-1";

impl FromStr for Release {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let Some((version, revision)) = text.rsplit_once('-') else { return refuse(text, RELEASE_FORM) };
        let canonical = !revision.starts_with(['0', '+']);
        match revision.parse() {
            Ok(revision) if canonical => Ok(Self { version: version.parse()?, revision }),
            _ => refuse(text, RELEASE_FORM),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.version, self.revision)
    }
}

crate::as_text!(Release);

/// The operating system, architecture and C library of a payload. Text form `linux-x86_64-glibc2.28`; `linux-any` runs everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Platform {
    /// The kernel's architecture name (`x86_64`, `aarch64`), or `any`.
    pub architecture: String,
    /// The C library it needs, if any.
    pub flavour: Option<Flavour>,
}

/// The C library a platform needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flavour {
    /// glibc of this version or newer.
    Glibc(LibcVersion),
    /// musl.
    Musl,
}

/// A glibc version, `2.28`.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LibcVersion {
    pub major: u32,
    pub minor: u32,
}

const LIBC_FORM: &str = "a glibc version such as 2.28";
const PLATFORM_FORM: &str = "a platform such as linux-x86_64-glibc2.28 or linux-any";

impl FromStr for LibcVersion {
    type Err = VersionError;
    /// Reads `2.28`; a third number (`2.2.5`, as old symbol versions have it) is read and ignored.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let numbers: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some([major, minor] | [major, minor, _]) => Ok(Self { major: *major, minor: *minor }),
            _ => refuse(text, LIBC_FORM),
        }
    }
}

impl fmt::Display for LibcVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

crate::as_text!(LibcVersion);

/// The first two numbers of a version of Linux, `3.10`.
#[expect(missing_docs, reason = "the fields' names say what they hold")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelVersion {
    pub major: u32,
    pub minor: u32,
}

const KERNEL_FORM: &str = "a version of Linux such as 3.10";

impl FromStr for KernelVersion {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let numbers: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some([major, minor]) => Ok(Self { major: *major, minor: *minor }),
            _ => refuse(text, KERNEL_FORM),
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

crate::as_text!(KernelVersion);

impl FromStr for Platform {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let parts: Vec<&str> = text.split('-').collect();
        let (architecture, flavour) = match parts.as_slice() {
            ["linux", architecture] => (*architecture, None),
            ["linux", architecture, "musl"] => (*architecture, Some(Flavour::Musl)),
            ["linux", architecture, flavour] => match flavour.strip_prefix("glibc") {
                Some(version) => (*architecture, Some(Flavour::Glibc(version.parse()?))),
                None => return refuse(text, PLATFORM_FORM),
            },
            _ => return refuse(text, PLATFORM_FORM),
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if architecture.is_empty() || architecture.len() > 16 || !architecture.chars().all(plain) {
            return refuse(text, PLATFORM_FORM);
        }
        let platform = Self { architecture: architecture.to_owned(), flavour };
        // A platform has one text: `glibc2.028` would be a second name of the same one.
        if platform.to_string() == text { Ok(platform) } else { refuse(text, PLATFORM_FORM) }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "linux-{}", self.architecture)?;
        match &self.flavour {
            None => Ok(()),
            Some(Flavour::Musl) => formatter.write_str("-musl"),
            Some(Flavour::Glibc(version)) => write!(formatter, "-glibc{version}"),
        }
    }
}

crate::as_text!(Platform);

impl Platform {
    /// The architecture that runs on every machine.
    pub const ANY: &str = "any";

    /// How well this platform fits a host of `architecture` with `libc` (None: no glibc); greater is better, None: not at all. A native
    /// build beats `any`; a higher glibc floor beats a lower one; glibc beats musl.
    pub fn fit(&self, architecture: &str, libc: Option<LibcVersion>) -> Option<(bool, Option<LibcVersion>)> {
        let native = self.architecture == architecture;
        if !native && self.architecture != Self::ANY {
            return None;
        }
        match (&self.flavour, libc) {
            (None | Some(Flavour::Musl), _) => Some((native, None)),
            (Some(Flavour::Glibc(needed)), Some(host)) if *needed <= host => Some((native, Some(*needed))),
            (Some(Flavour::Glibc(_)), _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_order_as_published() {
        let sorted = ["3006.0rc9", "3006.0rc10", "3006.0", "3006.9", "3006.10", "3007", "3007.0", "3007.17", "3008.5"];
        for pair in sorted.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_release_has_one_spelling() {
        assert_eq!("3007.17-1".parse::<Release>().unwrap().to_string(), "3007.17-1");
        for bad in
            ["3007.17", "3007.17-0", "3007.17-01", "3007.17-+1", "-1", "3007..1-1", "03007.1-1", "a-1", "1.2.3.4-1"]
        {
            assert!(bad.parse::<Release>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_takes_the_best_platform_that_fits() {
        let host = Some(LibcVersion { major: 2, minor: 31 });
        let fit = |text: &str| text.parse::<Platform>().unwrap().fit("x86_64", host);
        assert!(fit("linux-x86_64-glibc2.28") > fit("linux-x86_64-glibc2.17"));
        assert!(fit("linux-x86_64-glibc2.17") > fit("linux-x86_64"));
        assert!(fit("linux-x86_64") > fit("linux-any"));
        assert_eq!(fit("linux-x86_64-glibc2.36"), None);
        assert_eq!(fit("linux-aarch64"), None);
        assert!("linux-x86_64-glibc2.028".parse::<Platform>().is_err());
        assert!("windows-x86_64".parse::<Platform>().is_err());
    }
}
