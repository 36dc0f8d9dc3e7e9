//! The path patterns of delegations: shell wildcards over target names (TUF §4.5, `PATHPATTERN`), as python-tuf reads them. People name releases by
//! the same wildcards.

use crate::bundle::member::ReleaseId;
use crate::name::PackageName;
use serde::Deserialize;
use std::str::FromStr;

/// Releases: `PACKAGE/RELEASE/PLATFORM` with wildcards, such as `salt-minion/3006.*/*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ReleasePattern(String);

/// Why a text is no [`ReleasePattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot use the pattern {0}: it has not the form PACKAGE/RELEASE/PLATFORM; write `*` for what may be anything, as in `salt-minion/3006.*/*`"
)]
pub struct ReleasePatternError(String);

impl ReleasePattern {
    /// Whether package, release and platform fit.
    pub fn fits(&self, id: &ReleaseId) -> bool {
        fits(&self.0, &id.to_string())
    }

    /// Whether the package fits, whatever the release.
    pub fn is_about(&self, package: &PackageName) -> bool {
        may_fit_below(&self.0, package.as_str())
    }
}

impl FromStr for ReleasePattern {
    type Err = ReleasePatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for ReleasePattern {
    type Error = ReleasePatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.split('/').count() == 3 { Ok(Self(text)) } else { Err(ReleasePatternError(text)) }
    }
}

/// One token of a pattern.
enum Token {
    /// `*`: any characters, or none.
    Any,
    /// `?`: one character.
    One,
    /// `[a-z]`, `[!a-z]`: one character inside, or outside, these ranges.
    Set { ranges: Vec<(char, char)>, is_negated: bool },
    /// This character.
    Literal(char),
}

/// True when `name` fits `pattern`. Case counts, and no wildcard matches a `/`.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), name.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if part_fits(&tokens(pattern), name) => {}
            _ => return false,
        }
    }
}

/// True when some name below the top-level directory `directory` fits `pattern`.
pub fn may_fit_below(pattern: &str, directory: &str) -> bool {
    pattern.split_once('/').is_some_and(|(first, _)| part_fits(&tokens(first), directory))
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        tokens.push(match (first, set(rest)) {
            ('*', _) => Token::Any,
            ('?', _) => Token::One,
            ('[', Some((token, after))) => {
                rest = after;
                token
            }
            _ => Token::Literal(first),
        });
    }
    tokens
}

/// Reads a set after its `[`; None without a closing `]`: then the bracket is a literal. A `]` at the start is a member.
fn set(text: &str) -> Option<(Token, &str)> {
    let (is_negated, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let first = text.chars().next()?.len_utf8();
    let end = first + text[first..].find(']')?;
    let members: Vec<char> = text[..end].chars().collect();
    let mut ranges = Vec::new();
    let mut rest = members.as_slice();
    while let [from, more @ ..] = rest {
        let (to, more) = if let ['-', to, more @ ..] = more { (to, more) } else { (from, more) };
        ranges.push((*from, *to));
        rest = more;
    }
    Some((Token::Set { ranges, is_negated }, &text[end + 1..]))
}

/// Time is bounded by the product of both lengths: only the last `*` is retried.
fn part_fits(tokens: &[Token], part: &str) -> bool {
    let part: Vec<char> = part.chars().collect();
    let (mut token, mut place) = (0, 0);
    let mut last_any = None;
    loop {
        match tokens.get(token) {
            Some(Token::Any) => {
                last_any = Some((token, place));
                token += 1;
                continue;
            }
            None if place == part.len() => return true,
            Some(wanted) if part.get(place).is_some_and(|found| wanted.takes(*found)) => {
                (token, place) = (token + 1, place + 1);
                continue;
            }
            _ => {}
        }
        let Some((any, from)) = last_any.filter(|(_, from)| *from < part.len()) else { return false };
        last_any = Some((any, from + 1));
        (token, place) = (any + 1, from + 1);
    }
}

impl Token {
    fn takes(&self, found: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Set { ranges, is_negated } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&found)) != *is_negated
            }
            Self::Literal(wanted) => *wanted == found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_the_shells_and_stop_at_slashes() {
        for (pattern, name) in [
            ("*", "a"),
            ("*", ""),
            ("a*c", "abbc"),
            ("a*c", "ac"),
            ("*a*b*", "xaxbx"),
            ("foo-?.tgz", "foo-1.tgz"),
            ("releases/*/*", "releases/x/y"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]]", "]"),
            ("[a", "[a"),
            ("é?", "éü"),
            ("a/b", "a/b"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*", "a/b"),
            ("a?b", "a/b"),
            ("a[!x]b", "a/b"),
            ("*/b", "b"),
            ("a*c", "abb"),
            ("foo-?.tgz", "foo-12.tgz"),
            ("README.md", "README.MD"),
            ("[a-c]x", "dx"),
            ("[!a-c]x", "bx"),
            ("a", "/a"),
            ("a/", "a"),
            ("", "a"),
            ("**", "a/b"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_directory_is_reached_by_patterns_that_go_into_it() {
        for pattern in ["a/b", "a/*", "*/*/*/*", "[a-c]/x", "?/"] {
            assert!(may_fit_below(pattern, "a"), "{pattern}");
        }
        for pattern in ["a", "*", "b/*", "ab/*", "", "/a"] {
            assert!(!may_fit_below(pattern, "a"), "{pattern}");
        }
    }

    #[test]
    fn many_wildcards_cost_no_more_than_their_length() {
        assert!(!fits(&"*a".repeat(2_000), &format!("{}b", "a".repeat(4_000))));
    }
}
