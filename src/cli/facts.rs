//! How results look: one line per fact, names and columns aligned, sizes in MiB.

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

impl fmt::Display for Facts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.lines.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
        formatter.write_str(&table(rows))
    }
}

/// Rows with their columns aligned, two spaces between, no space at the ends of lines.
pub fn table(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: Vec<String>| {
        let cells: Vec<String> =
            row.into_iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.into_iter().map(line).collect::<Vec<_>>().join("\n")
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
    fn columns_are_aligned_and_sizes_never_vanish() {
        let facts = Facts::new().with("package", "demo").with("size", size(1)).to_string();
        assert_eq!(facts, "package  demo\nsize     0.1 MiB");
        assert_eq!(size(0), "0.0 MiB");
        assert_eq!(size(5 << 20), "5.0 MiB");
        assert_eq!((count(1, "file"), count(0, "file")), ("1 file".to_owned(), "0 files".to_owned()));
    }
}
