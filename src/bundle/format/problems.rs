//! All problems of a tree or a manifest, reported at once.

use crate::bundle::limits::PROBLEMS_MAXIMUM;
use crate::failure::List;
use std::fmt;

/// A capped list of problems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    listed: List,
    total: usize,
}

impl Problems {
    /// Adds a problem of `subject`, whose unprintable characters are escaped.
    pub fn add(&mut self, subject: &str, what: impl fmt::Display) {
        self.total += 1;
        if self.listed.0.len() < PROBLEMS_MAXIMUM {
            self.listed.0.push(format!("{}: {what}", subject.escape_debug()));
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The listed problems, in the order in which they were found.
    pub fn listed(&self) -> &[String] {
        &self.listed.0
    }

    /// Adds the problems of another list.
    pub fn append(&mut self, other: Self) {
        self.total += other.total;
        let room = PROBLEMS_MAXIMUM.saturating_sub(self.listed.0.len());
        self.listed.0.extend(other.listed.0.into_iter().take(room));
    }
}

impl fmt::Display for Problems {
    /// All on one line: what prints them takes the lines from [`std::error::Error::source`].
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.listed.0.len();
        match self.total {
            0 | 1 => write!(formatter, "{}", self.listed),
            total if total == shown => write!(formatter, "{total} problems: {}", self.listed),
            total => write!(formatter, "{total} problems, of which the first {shown} are: {}", self.listed),
        }
    }
}

impl std::error::Error for Problems {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if self.total > 1 { Some(&self.listed) } else { None }
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
        let text = problems.to_string();
        assert!(text.starts_with("1001 problems, of which the first ") && text.lines().count() == 1, "{text}");
        assert_eq!(problems.listed().len(), PROBLEMS_MAXIMUM);
    }

    #[test]
    fn a_report_keeps_the_lines_of_a_list_and_a_log_has_them_in_one_line() {
        use crate::bundle::manifest::ManifestError;
        use crate::failure::Report;
        let mut problems = Problems::default();
        problems.add("a", "bad");
        let one = Report::from(ManifestError::Unsafe(problems.clone()));
        assert_eq!((one.to_string().as_str(), one.lines.len()), ("cannot accept the manifest: a: bad", 0));
        problems.add("b\nERROR forged", "worse");
        let report = Report::from(ManifestError::Unsafe(problems));
        assert_eq!(report.headline(), "cannot accept the manifest: 2 problems");
        assert_eq!(report.lines, ["a: bad", "b\\nERROR forged: worse"]);
        assert_eq!(report.to_string(), "cannot accept the manifest: 2 problems: a: bad; b\\nERROR forged: worse");
    }
}
