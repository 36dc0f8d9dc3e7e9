//! Names of packages and instances: what may be a directory name in the store, and nothing else.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest name. Long enough for any distribution's package name; short enough that a target path fits USTAR's prefix.
pub const NAME_LENGTH_MAXIMUM: usize = 64;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameError {
    text: String,
}

impl fmt::Display for NameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "cannot use {:?} as a name: 1 to {NAME_LENGTH_MAXIMUM} characters of a-z, 0-9, '.', '_', '+' and '-', the first a letter or digit, and not {}",
            self.text,
            RESERVED.join(" or ")
        )
    }
}

impl std::error::Error for NameError {}

/// Names that the layout uses itself beside those of packages.
const RESERVED: [&str; 3] = ["adopt", "instances", "trust"];

/// True for what may name a directory in the store. No `/`, no leading `.` or `-`: a name cannot escape or look like an option.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    first
        && !RESERVED.contains(&text)
        && text.len() <= NAME_LENGTH_MAXIMUM
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._+-".contains(&byte))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                if is_name(text) { Ok(Self(text.to_owned())) } else { Err(NameError { text: text.to_owned() }) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

name_type! {
    /// A package: `salt-minion`, `venv-salt-minion`.
    PackageName
}
name_type! {
    /// Which implementation watches a package's agent, as its manifest names it: `salt`. The register in `cli::agents` has the implementations.
    AgentKind
}
name_type! {
    /// One running agent of a package on a host. The default instance is named like its package.
    InstanceName
}

impl InstanceName {
    /// The default instance of a package.
    pub fn default_of(package: &PackageName) -> Self {
        Self(package.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_escape_its_directory() {
        for bad in ["", ".", "..", "a/b", "-x", ".hidden", "A", "a b", "a\n", "trust", &"x".repeat(65)] {
            assert!(bad.parse::<PackageName>().is_err(), "{bad:?}");
        }
        for good in ["salt-minion", "venv-salt-minion", "a", "lib64.x_y+z", "3proxy"] {
            assert_eq!(good.parse::<PackageName>().unwrap().as_str(), good);
        }
    }
}
