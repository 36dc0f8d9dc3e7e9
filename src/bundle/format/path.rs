//! A path inside a release: relative, with one spelling, and never out of its tree.

use crate::bundle::limits::{COMPONENT_MAXIMUM_BYTES, DEPTH_MAXIMUM, PATH_MAXIMUM_BYTES};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A relative path of plain components: no `..`, `.`, empty component, leading or trailing `/`, NUL or control character.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BundlePath(String);

/// Why a text is no path of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text is empty.
    #[error("the path is empty")]
    Empty,
    /// It begins with `/`: it names a place of the host.
    #[error("the path is absolute")]
    Absolute,
    /// It has a component `.` or `..`, or an empty one: it leaves the tree, or is a second name of something in it.
    #[error("the path has an empty component, '.' or '..'")]
    Component,
    /// It has a control character: it could forge lines of a listing.
    #[error("the path has a control character")]
    Control,
    /// It, a component of it, or its depth is over the limits.
    #[error("the path is too long or too deep")]
    TooLong,
}

impl BundlePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for the file system, relative to the tree's root.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Its directory (empty: the tree's root) and its last component.
    pub fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }

    /// Why `text` is not a path, if so.
    pub fn check(text: &str) -> Result<(), PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) || text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        let mut depth = 0;
        for component in text.split('/') {
            depth += 1;
            if matches!(component, "" | "." | "..") {
                return Err(PathError::Component);
            }
            if component.len() > COMPONENT_MAXIMUM_BYTES {
                return Err(PathError::TooLong);
            }
        }
        if depth > DEPTH_MAXIMUM || text.len() > PATH_MAXIMUM_BYTES { Err(PathError::TooLong) } else { Ok(()) }
    }
}

impl FromStr for BundlePath {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::check(text).map(|()| Self(text.to_owned()))
    }
}

crate::as_text!(BundlePath);

impl Borrow<str> for BundlePath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BundlePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    #[test]
    fn what_leaves_the_tree_is_no_path() {
        let long = "x".repeat(256);
        let deep = vec!["a"; 65].join("/");
        for (text, error) in [
            ("", PathError::Empty),
            ("/etc/passwd", PathError::Absolute),
            ("..", PathError::Component),
            ("a/../b", PathError::Component),
            ("a/./b", PathError::Component),
            ("a//b", PathError::Component),
            ("a/", PathError::Component),
            ("a\0b", PathError::Control),
            ("a\nb", PathError::Control),
            ("a\u{9b}31m", PathError::Control),
            (long.as_str(), PathError::TooLong),
            (deep.as_str(), PathError::TooLong),
        ] {
            assert_eq!(text.parse::<BundlePath>(), Err(error), "{text:?}");
        }
        for good in ["a", "lib/python3.11/site-packages/…/x y.py", "...", ".hidden", "-x", "a\\b"] {
            assert_eq!(good.parse::<BundlePath>().unwrap().as_str(), good);
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_stays_inside(text in r"[a./\\ \x00-]{0,12}") {
            if let Ok(path) = text.parse::<BundlePath>() {
                prop_assert!(path.as_path().components().all(|component| matches!(component, Component::Normal(_))));
                let rebuilt: std::path::PathBuf = path.as_path().components().collect();
                prop_assert_eq!(rebuilt.to_str(), Some(text.as_str()));
            }
        }
    }
}
