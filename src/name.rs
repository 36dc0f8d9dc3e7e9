//! Names of packages and instances, which are directory names in the store.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest name: enough for any distribution's packages; a target path still fits USTAR's prefix.
pub const NAME_LENGTH_MAXIMUM: usize = 64;

/// A text that is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot use {text:?} as a name: 1 to {NAME_LENGTH_MAXIMUM} characters of a-z, 0-9, '.', '_', '+' and '-', the first a letter or digit, and not {}",
    RESERVED.join(" or ")
)]
pub struct NameError {
    text: String,
}

/// Names that the layout uses beside packages.
const RESERVED: [&str; 3] = ["adopt", "instances", "trust"];

/// True for a possible directory name in the store. No `/`, no leading `.` or `-`: a name cannot escape or look like an option.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    first
        && !RESERVED.contains(&text)
        && text.len() <= NAME_LENGTH_MAXIMUM
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._+-".contains(&byte))
}

/// Gives types with a text form what `#[serde(try_from = "String", into = "String")]` needs.
#[macro_export]
macro_rules! as_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = <$type as std::str::FromStr>::Err;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
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

        crate::as_text!($name);

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

/// The package whose releases are this program, and the kind of agent that their manifests name.
pub const SIDLE: &str = "sidle";

impl PackageName {
    /// True for `sidle`: its releases are this program, and no agent.
    pub fn is_sidle(&self) -> bool {
        self.0 == SIDLE
    }
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
