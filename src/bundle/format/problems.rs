//! All problems of a tree or a manifest, reported at once.

use crate::bundle::limits::PROBLEMS_MAXIMUM;
use std::fmt;

/// A capped list of problems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    listed: Vec<String>,
    total: usize,
}

impl Problems {
    /// Adds a problem of `subject`, whose unprintable characters are escaped.
    pub fn add(&mut self, subject: &str, what: impl fmt::Display) {
        self.total += 1;
        if self.listed.len() < PROBLEMS_MAXIMUM {
            self.listed.push(format!("{}: {what}", subject.escape_debug()));
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The listed problems, in the order in which they were found.
    pub fn listed(&self) -> &[String] {
        &self.listed
    }

    /// Adds the problems of another list.
    pub fn append(&mut self, other: Self) {
        self.total += other.total;
        let room = PROBLEMS_MAXIMUM.saturating_sub(self.listed.len());
        self.listed.extend(other.listed.into_iter().take(room));
    }
}

impl fmt::Display for Problems {
    /// One problem stands on the same line, more stand on a line each.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([only], 1) = (self.listed.as_slice(), self.total) {
            return formatter.write_str(only);
        }
        write!(formatter, "{} problems", self.total)?;
        for problem in &self.listed {
            write!(formatter, "\n  {problem}")?;
        }
        match self.total - self.listed.len() {
            0 => Ok(()),
            more => write!(formatter, "\n  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_manifest_cannot_fill_the_terminal() {
        let mut problems = Problems::default();
        problems.add("a\n\u{1b}[31m", "bad");
        assert_eq!(problems.to_string(), "a\\n\\u{1b}[31m: bad");
        for _ in 0..1000 {
            problems.add("x", "bad");
        }
        assert_eq!(problems.total, 1001);
        assert_eq!(problems.to_string().lines().count(), PROBLEMS_MAXIMUM + 2);
    }
}
