//! The fate of a directory under systemd-tmpfiles: the rules of tmpfiles.d(5) and their precedence.
//!
//! The accident behind this: an agent's tree below `/var/tmp` lost each file that was unused for a month, while its stamp, which was rewritten
//! now and then, said that the tree was complete.

use crate::os::dir::Dir;
use crate::os::{OsError, file};
use crate::trust::pattern;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// The directories of fragments; of fragments with the same name the first counts (tmpfiles.d(5), CONFIGURATION DIRECTORIES AND PRECEDENCE).
const DIRECTORIES: [&str; 5] =
    ["etc/tmpfiles.d", "run/tmpfiles.d", "usr/local/lib/tmpfiles.d", "usr/lib/tmpfiles.d", "lib/tmpfiles.d"];
/// Largest fragment read; the largest of a distribution has 3 KiB. A huge file must not fill the memory.
const FRAGMENT_BYTES_MAXIMUM: u64 = 1 << 20;
/// The rules that systemd ships, and that other cleaners follow.
const DEFAULTS: &str = "q /tmp - - - 10d\nq /var/tmp - - - 30d";
/// Types that clean by age, if the line has an age.
const CLEANS: &str = "dDevqQCxX";
/// Types whose path is a pattern.
const PATTERNS: &str = "wexXrRzZmtThHaA";
/// Types of which a path may have one line: a second is ignored.
const ALONE: &str = "fFdDvqQpLcbCwexXrR";

/// The fate of a directory's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Files unused for some time are removed.
    Cleaned(Rule),
    /// All files are removed at boot.
    Emptied(Rule),
}

/// One line of a fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    kind: char,
    path: String,
    has_age: bool,
    is_for_boot: bool,
    /// The fragment; None: a rule of `DEFAULTS`.
    fragment: Option<PathBuf>,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fragment {
            Some(fragment) => write!(formatter, "the rule for {} in {}", self.path, fragment.display()),
            None => write!(formatter, "the usual rule for {}", self.path),
        }
    }
}

/// The rules of one root.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

impl Rules {
    /// Reads the rules of the system below `root`.
    pub fn read(root: &Path) -> Result<Self, OsError> {
        let mut fragments: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
        for directory in DIRECTORIES {
            let Some(directory) = Dir::open_if_exists(&root.join(directory))? else { continue };
            for name in directory.names()? {
                if Path::new(&name).extension().is_some_and(|end| end == "conf") {
                    fragments.entry(name.clone()).or_insert_with(|| directory.path().join(&name));
                }
            }
        }
        let mut rules = Vec::new();
        for path in fragments.into_values() {
            // A link to /dev/null masks the fragment of that name: it reads as empty.
            let text = file::read_if_exists(&path, FRAGMENT_BYTES_MAXIMUM)?.unwrap_or_default();
            rules.extend(parse(&String::from_utf8_lossy(&text), Some(&path)));
        }
        Ok(Self::of(rules))
    }

    fn of(mut rules: Vec<Rule>) -> Self {
        let mut seen = HashSet::new();
        rules.retain(|rule| {
            !ALONE.contains(rule.kind) || seen.insert((PATTERNS.contains(rule.kind), rule.path.clone()))
        });
        let named: HashSet<String> = rules.iter().map(|rule| rule.path.clone()).collect();
        rules.extend(parse(DEFAULTS, None).into_iter().filter(|rule| !named.contains(&rule.path)));
        Self { rules }
    }

    /// The fate of the directory at `path`, absolute as its system sees it; None: it is left alone.
    pub fn fate(&self, path: &Path) -> Option<Fate> {
        let emptied = |rule: &&Rule| "DR".contains(rule.kind) && path.ancestors().any(|above| rule.names(above));
        if let Some(rule) = self.rules.iter().find(emptied) {
            return Some(Fate::Emptied(rule.clone()));
        }
        // Cleaning descends from a directory with an age and leaves out each path of another line: the deepest line decides. It ignores
        // lines for boot.
        for above in path.ancestors() {
            let named: Vec<&Rule> = self.rules.iter().filter(|rule| !rule.is_for_boot && rule.names(above)).collect();
            if let Some(rule) = named.iter().find(|rule| rule.has_age && CLEANS.contains(rule.kind)) {
                return Some(Fate::Cleaned((*rule).clone()));
            }
            // `X` keeps only the directory itself; the lines above decide on its content.
            if named.iter().any(|rule| rule.kind != 'X') {
                return None;
            }
        }
        None
    }
}

impl Rule {
    fn names(&self, path: &Path) -> bool {
        let Some(path) = path.to_str() else { return false };
        if !PATTERNS.contains(self.kind) {
            return self.path == path;
        }
        // A wildcard stands for no leading dot (FNM_PERIOD).
        let shows = |(pattern, name): (&str, &str)| pattern.starts_with('.') || !name.starts_with('.');
        pattern::fits(&self.path, path) && self.path.split('/').zip(path.split('/')).all(shows)
    }
}

/// The rules of one fragment. A malformed line is ignored, as systemd-tmpfiles does.
fn parse(text: &str, fragment: Option<&Path>) -> Vec<Rule> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| rule(&words(line), fragment)).collect()
}

fn rule(words: &[String], fragment: Option<&Path>) -> Option<Rule> {
    let [kind, path, ..] = words else { return None };
    let mut letters = kind.chars();
    let kind = letters.next()?;
    let path = expanded(path)?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let has_age = words.get(5).is_some_and(|age| !["", "-", "infinity"].contains(&age.as_str()));
    Some(Rule {
        kind,
        path: format!("/{}", parts.join("/")),
        has_age,
        is_for_boot: letters.any(|letter| letter == '!'),
        fragment: fragment.map(Path::to_owned),
    })
}

/// The path with its specifiers (tmpfiles.d(5), SPECIFIERS) replaced; None with a specifier that differs from host to host: none of sidle's
/// places has that in its name.
fn expanded(path: &str) -> Option<String> {
    const SPECIFIERS: [(&str, &str); 6] = [
        ("%t", "/run"),
        ("%T", "/tmp"),
        ("%V", "/var/tmp"),
        ("%S", "/var/lib"),
        ("%C", "/var/cache"),
        ("%L", "/var/log"),
    ];
    // No path has a NUL: it keeps the place of `%%`.
    let marked = path.replace("%%", "\0");
    let expanded = SPECIFIERS.iter().fold(marked, |path, (specifier, value)| path.replace(specifier, value));
    (!expanded.contains('%')).then(|| expanded.replace('\0', "%"))
}

/// The words of a line, quotes and backslashes resolved.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', _) => word.get_or_insert_default().extend(letters.next()),
            (_, Some(closing)) if letter == closing => quote = None,
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(text: &str, path: &str) -> Option<String> {
        let fate = Rules::of(parse(text, Some(Path::new("f")))).fate(Path::new(path))?;
        Some(match fate {
            Fate::Cleaned(rule) => format!("cleaned by {}", rule.path),
            Fate::Emptied(rule) => format!("emptied by {}", rule.path),
        })
    }

    #[test]
    fn words_are_split_as_systemd_splits_them() {
        assert_eq!(words(r#"d  "/a b"	'c d' e\ f ""#), ["d", "/a b", "c d", "e f", ""]);
        assert_eq!(expanded("%V/a%%b").unwrap(), "/var/tmp/a%b");
        assert_eq!(expanded("/a-%m"), None);
    }

    #[test]
    fn without_a_rule_the_usual_ones_hold_and_a_rule_replaces_them() {
        assert_eq!(fate("", "/var/tmp/sidle").unwrap(), "cleaned by /var/tmp");
        assert_eq!(fate("", "/opt/sidle"), None);
        assert_eq!(fate("q /var/tmp 1777 root root -", "/var/tmp/sidle"), None);
        assert_eq!(fate("D /tmp 1777 root root -", "/tmp/sidle").unwrap(), "emptied by /tmp");
    }
}
