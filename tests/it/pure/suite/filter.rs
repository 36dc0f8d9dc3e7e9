//! The filters of nextest, as far as this suite uses them: sets of tests, by name, by program, and joined.

use regex_lite::Regex;

/// A filter.
#[derive(Debug)]
pub enum Filter {
    All,
    None,
    Name(Matcher),
    Not(Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
}

/// What a name has to be like.
#[derive(Debug, Clone)]
pub enum Matcher {
    Contains(String),
    Equals(String),
    Matches(String),
}

impl Matcher {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(match text.strip_prefix('=') {
            Some(name) => Self::Equals(name.to_owned()),
            None => match text.strip_prefix('/').map(|rest| rest.strip_suffix('/')) {
                Some(pattern) => {
                    let pattern = pattern.ok_or("an expression without an end")?;
                    Regex::new(pattern).map_err(|error| error.to_string())?;
                    Self::Matches(pattern.to_owned())
                }
                None => Self::Contains(text.strip_prefix('~').unwrap_or(text).to_owned()),
            },
        })
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Contains(part) => name.contains(part),
            Self::Equals(whole) => name == whole,
            Self::Matches(pattern) => Regex::new(pattern).unwrap().is_match(name),
        }
    }

    /// One for each alternative of an expression.
    pub fn alternatives(&self) -> Vec<Self> {
        match self {
            Self::Contains(_) | Self::Equals(_) => vec![self.clone()],
            Self::Matches(pattern) => alternatives(pattern).into_iter().map(Self::Matches).collect(),
        }
    }
}

impl Filter {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.trim();
        let filter = either(&mut rest)?;
        if rest.is_empty() { Ok(filter) } else { Err(format!("left over: {rest}")) }
    }

    /// Whether it has a test of this program.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Name(matcher) => matcher.matches(name),
            Self::Not(filter) => !filter.matches(name),
            Self::And(one, other) => one.matches(name) && other.matches(name),
            Self::Or(one, other) => one.matches(name) || other.matches(name),
        }
    }

    /// All names in it.
    pub fn names(&self) -> Vec<&Matcher> {
        match self {
            Self::All | Self::None => Vec::new(),
            Self::Name(matcher) => vec![matcher],
            Self::Not(filter) => filter.names(),
            Self::And(one, other) | Self::Or(one, other) => [one.names(), other.names()].concat(),
        }
    }
}

/// Takes one of these words from the beginning.
fn take(rest: &mut &str, words: &[&'static str]) -> Option<&'static str> {
    let word = words.iter().find(|word| rest.starts_with(**word))?;
    *rest = rest[word.len()..].trim_start();
    Some(word)
}

fn either(rest: &mut &str) -> Result<Filter, String> {
    let mut filter = both(rest)?;
    while take(rest, &["|", "or ", "+"]).is_some() {
        filter = Filter::Or(Box::new(filter), Box::new(both(rest)?));
    }
    Ok(filter)
}

fn both(rest: &mut &str) -> Result<Filter, String> {
    let mut filter = single(rest)?;
    while let Some(word) = take(rest, &["&", "and ", "-"]) {
        let other = single(rest)?;
        let other = if word == "-" { Filter::Not(Box::new(other)) } else { other };
        filter = Filter::And(Box::new(filter), Box::new(other));
    }
    Ok(filter)
}

fn single(rest: &mut &str) -> Result<Filter, String> {
    if take(rest, &["not ", "!"]).is_some() {
        return Ok(Filter::Not(Box::new(single(rest)?)));
    }
    if take(rest, &["("]).is_some() {
        let filter = either(rest)?;
        return take(rest, &[")"]).map(|_| filter).ok_or_else(|| format!("no end of a group at {rest}"));
    }
    let (word, after) = rest.split_once('(').ok_or_else(|| format!("no set at {rest}"))?;
    // An expression may have parentheses of its own; it ends with a slash.
    let end = match after.strip_prefix('/') {
        Some(expression) => expression.find("/)").map(|at| at + 2),
        None => after.find(')'),
    };
    let end = end.ok_or_else(|| format!("no end of {rest}"))?;
    let (inside, after) = (&after[..end], after[end + 1..].trim_start());
    *rest = after;
    match word {
        "test" => Ok(Filter::Name(Matcher::parse(inside)?)),
        "all" => Ok(Filter::All),
        // This program is the one that is asked about.
        "binary" if inside == "it" => Ok(Filter::All),
        "none" | "binary" | "kind" | "platform" => Ok(Filter::None),
        _ => Err(format!("{word} is not known")),
    }
}

/// An expression in parts: each has one choice of one of its alternatives, and the others as they are.
pub fn alternatives(pattern: &str) -> Vec<String> {
    within(pattern, 0, pattern.len())
}

fn within(pattern: &str, start: usize, end: usize) -> Vec<String> {
    let all = choices(&pattern[start..end]);
    if all.len() > 1 {
        let with = |choice: &&str| {
            within(&format!("{}{choice}{}", &pattern[..start], &pattern[end..]), start, start + choice.len())
        };
        return all.iter().flat_map(with).collect();
    }
    let parts = groups(&pattern[start..end]).into_iter().map(|(from, to)| within(pattern, start + from, start + to));
    let parts: Vec<String> = parts.flatten().filter(|part| part != pattern).collect();
    if parts.is_empty() { vec![pattern.to_owned()] } else { parts }
}

/// The insides of the groups on the top level.
fn groups(pattern: &str) -> Vec<(usize, usize)> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for (at, c) in special(pattern) {
        match c {
            '(' => open.push(at + 1),
            ')' => {
                let start = open.pop();
                found.extend(start.filter(|_| open.is_empty()).map(|start: usize| (start, at)));
            }
            _ => {}
        }
    }
    found
}

/// The alternatives on the top level.
fn choices(inside: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in special(inside) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    parts
}

/// The parentheses and bars that mean something: not escaped, and in no class.
fn special(pattern: &str) -> Vec<(usize, char)> {
    let (mut escaped, mut class, mut found) = (false, false, Vec::new());
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => class = true,
            ']' => class = false,
            '(' | ')' | '|' if !class => found.push((at, c)),
            _ => {}
        }
    }
    found
}
