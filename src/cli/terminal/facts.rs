//! How results look: one line per fact, names and columns aligned, sizes in MiB.

use crate::cli::output::Lines;
use std::fmt;

/// Facts under names, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Facts {
    lines: Vec<(String, String)>,
}

impl Facts {
    /// No facts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.add(name, value);
        self
    }

    /// Adds a fact.
    pub fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.lines.push((name.to_owned(), value.to_string()));
    }
}

impl From<Facts> for Lines {
    fn from(facts: Facts) -> Self {
        let rows: Vec<Vec<String>> = facts.lines.into_iter().map(|(name, value)| vec![name, value]).collect();
        Self::table(&rows)
    }
}

/// A size as people read it.
pub fn size(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    // Rounded up to a tenth: what has bytes is not shown as nothing.
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(MEBIBYTE));
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// `1 file`, `2 files`, `2 entries`.
pub fn count(number: usize, noun: &str) -> String {
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_never_vanish() {
        assert_eq!((size(0), size(1)), ("0.0 MiB".to_owned(), "0.1 MiB".to_owned()));
        assert_eq!(size(5 << 20), "5.0 MiB");
        assert_eq!((count(1, "file"), count(0, "file")), ("1 file".to_owned(), "0 files".to_owned()));
    }
}
