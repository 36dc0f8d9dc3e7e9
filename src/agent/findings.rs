//! The findings of an adoption on a host, and the files that it would change. `sidle adopt` shows them, and so do `sidle setup --adopt` and `sidle push --action adopt`.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A file that an adoption would write or move, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// What the adoption would write there.
    pub what: String,
}

/// The findings of an adoption, or of its dry run. A dry run alone has steps and changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Findings {
    /// The steps of the adoption.
    pub steps: Vec<String>,
    /// True if the dry run was a rehearsal, too: the release has loaded this host's configuration.
    pub rehearsed: bool,
    /// The findings of the rehearsal, and the notes of the switch.
    pub notes: Vec<String>,
    /// Problems that do not stop the adoption.
    pub warnings: Vec<String>,
    /// Files that would be there afterwards.
    pub changes: Vec<Change>,
    /// What would stay as it is.
    pub unchanged: Vec<String>,
}

impl Findings {
    /// Those of a dry run on a host that does not have the release: nothing can be compared with it.
    pub fn without_release() -> Self {
        let note = "not compared, because the release is not installed on this host: functions, extra packages and masters of the running agent, and the \
                    settings of its unit. Install the release without adopting (`sidle setup` without --adopt, or `sidle push --action install`); then this \
                    dry run compares them";
        Self { notes: vec![note.to_owned()], ..Self::default() }
    }

    /// In lines for people.
    pub fn lines(&self) -> Vec<String> {
        let is_dry_run = !self.steps.is_empty();
        let mut lines = self.steps.clone();
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        if is_dry_run {
            extend_below(&mut lines, "the rehearsal found:", self.notes.iter().cloned());
        } else {
            lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        }
        let changes = self.changes.iter().map(|change| format!("{}: {}", change.path.display(), change.what));
        extend_below(&mut lines, "would change:", changes);
        extend_below(&mut lines, "would not change:", self.unchanged.iter().cloned());
        lines
    }
}

/// Adds a heading and indented lines; nothing without lines.
fn extend_below(lines: &mut Vec<String>, heading: &str, texts: impl Iterator<Item = String>) {
    let mut texts = texts.peekable();
    if texts.peek().is_some() {
        lines.push(heading.to_owned());
        lines.extend(texts.map(|text| format!("  {text}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_has_headings_and_an_adoption_has_notes() {
        let text = |text: &str| vec![text.to_owned()];
        let done = Findings { notes: text("1 function vanished"), warnings: text("MemoryMax"), ..Findings::default() };
        assert_eq!(done.lines(), ["warning: MemoryMax", "note: 1 function vanished"]);
        let changes = vec![Change { path: "/etc/a".into(), what: "the unit".to_owned() }];
        let dry = Findings { steps: text("switch"), changes, unchanged: text("the cache"), ..done };
        let expected = [
            "switch",
            "warning: MemoryMax",
            "the rehearsal found:",
            "  1 function vanished",
            "would change:",
            "  /etc/a: the unit",
            "would not change:",
            "  the cache",
        ];
        assert_eq!(dry.lines(), expected);
        assert!(Findings::without_release().lines()[0].starts_with("note: not compared"));
    }
}
