//! The minion's configuration file with all that it includes, merged in Salt's order (`salt.config.minion_config`, `include_config`).

use super::yaml::{Value, YamlError};
use crate::agent::AgentError;
use crate::os::dir::Dir;
use crate::os::{self, OsError};
use std::path::{Component, Path, PathBuf};

/// A configuration file is text that people write; more than this is not one, and would only fill memory.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Salt follows includes without end, and a file that includes itself ends it with a traceback.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Files that one configuration may have in all: many files that include each other would otherwise be read for ever.
const FILES_MAX: usize = 4096;

/// Why the configuration can't be understood.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error(transparent)]
    Read(#[from] OsError),
    /// A file is not what Salt's loader takes.
    #[error("cannot understand {path}: {1}", path = .0.display())]
    Syntax(PathBuf, YamlError),
    /// A file, or one of its options, makes no sense here.
    #[error("cannot use {path}: {1}", path = .0.display())]
    Option(PathBuf, String),
}

impl From<ConfigError> for AgentError {
    fn from(error: ConfigError) -> Self {
        Self::new(error)
    }
}

/// Reads `minion` in `directory` with its includes: the file itself; over it, key by key, what `default_include` finds; over that what
/// `include` finds. Files of one include are merged deeply, lists joined, in the order of their names. Files named `left_out` are skipped.
pub fn read(directory: &Path, left_out: Option<&'static str>) -> Result<Value, ConfigError> {
    let path = directory.join("minion");
    let mut reader = Reader { files: 0, left_out };
    let mut options = reader.file(&path)?;
    let default = options.get("default_include").cloned();
    let include = options.get("include").cloned();
    let default = default.unwrap_or_else(|| Value::Text("minion.d/*.conf".to_owned()));
    for wanted in [Some(default), include].into_iter().flatten() {
        let included = reader.included(&wanted, &path, 1)?;
        replace(&mut options, included);
    }
    Ok(options)
}

struct Reader {
    files: usize,
    left_out: Option<&'static str>,
}

impl Reader {
    fn file(&mut self, path: &Path) -> Result<Value, ConfigError> {
        self.files += 1;
        if self.files > FILES_MAX {
            let cause = format!("the configuration has more than {FILES_MAX} files");
            return Err(ConfigError::Option(path.to_owned(), cause));
        }
        let bytes = os::file::read(path, FILE_BYTES_MAX)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.split(|byte| *byte == b'\n').count();
            let cause = "it is not UTF-8".to_owned();
            ConfigError::Syntax(path.to_owned(), YamlError { line, cause })
        })?;
        match Value::parse(&text).map_err(|error| ConfigError::Syntax(path.to_owned(), error))? {
            Value::Null => Ok(Value::Map(Vec::new())),
            map @ Value::Map(_) => Ok(map),
            other => Err(ConfigError::Option(path.to_owned(), format!("it holds {}, not options", other.kind()))),
        }
    }

    /// What `include` of the file `from` brings.
    fn included(&mut self, include: &Value, from: &Path, depth: usize) -> Result<Value, ConfigError> {
        let mut all = Value::Map(Vec::new());
        if depth > INCLUDE_DEPTH_MAX {
            let cause = format!(
                "files include each other deeper than {INCLUDE_DEPTH_MAX} levels: look for a file that includes itself"
            );
            return Err(ConfigError::Option(from.to_owned(), cause));
        }
        for pattern in patterns(include, from)? {
            for path in matches(&pattern)? {
                if self.left_out.is_some_and(|name| path.file_name().is_some_and(|found| found == name)) {
                    continue;
                }
                let mut options = self.file(&path)?;
                if let Some(inner) = options.get("include").cloned() {
                    let included = self.included(&inner, &path, depth + 1)?;
                    replace(&mut options, included);
                }
                merge(&mut all, options);
            }
        }
        Ok(all)
    }
}

/// The patterns of an `include`, relative ones beside the file that names them.
fn patterns(include: &Value, from: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let wrong =
        |value: &Value| ConfigError::Option(from.to_owned(), format!("include names {}, not a path", value.kind()));
    let names: Vec<&Value> = match include {
        Value::Null => Vec::new(),
        Value::List(items) => items.iter().collect(),
        single => vec![single],
    };
    let directory = from.parent().unwrap_or(Path::new("/"));
    let mut found = Vec::new();
    for name in names {
        let Value::Text(text) = name else { return Err(wrong(name)) };
        if text.starts_with('~') {
            let cause =
                format!("include: {text} depends on the home directory of the minion's user: name an absolute path");
            return Err(ConfigError::Option(from.to_owned(), cause));
        }
        found.push(directory.join(text));
    }
    Ok(found)
}

/// The files that a glob pattern names, sorted. None is no error: Salt only warns.
fn matches(pattern: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str().to_string_lossy();
        if !matches!(component, Component::Normal(_)) || !name.contains(['*', '?', '[']) {
            for path in &mut found {
                path.push(component);
            }
            continue;
        }
        let mut next = Vec::new();
        for directory in &found {
            let entries = match Dir::open(directory) {
                Ok(directory) => directory.names()?,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            let named = entries.into_iter().filter(|entry| glob(&name, &entry.to_string_lossy()));
            next.extend(named.map(|entry| directory.join(entry)));
        }
        found = next;
    }
    let mut files = Vec::new();
    for path in found {
        match os::file::canonical(&path) {
            Ok(_) => files.push(path),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    files.sort();
    Ok(files)
}

fn is_absent(error: &OsError) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Python's `fnmatch` for one name; a name that begins with a dot needs a pattern that does.
fn glob(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    (name.first() != Some(&'.') || pattern.first() == Some(&'.')) && glob_here(&pattern, &name)
}

fn glob_here(pattern: &[char], name: &[char]) -> bool {
    // The last `*` seen, and how much it has swallowed so far: one place to go back to is enough, so time stays bounded.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(_) if let_one(&pattern[at..], name[read]).is_some() => {
                at += let_one(&pattern[at..], name[read]).unwrap_or(1);
                read += 1;
            }
            _ => {
                let Some((star_at, swallowed)) = star else { return false };
                star = Some((star_at, swallowed + 1));
                (at, read) = (star_at + 1, swallowed + 1);
            }
        }
    }
    pattern[at..].iter().all(|char| *char == '*')
}

/// How many characters of the pattern are used up when its first item matches `name`; None when it does not match.
fn let_one(pattern: &[char], name: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => {
            let negated = rest.first() == Some(&'!');
            let body = &rest[usize::from(negated)..];
            // A bracket right after the opening one stands for itself.
            let Some(end) = body.iter().skip(1).position(|char| *char == ']').map(|at| at + 1) else {
                return (name == '[').then_some(1);
            };
            let (mut at, mut found) = (0, false);
            while at < end {
                if at + 2 < end && body[at + 1] == '-' {
                    found |= (body[at]..=body[at + 2]).contains(&name);
                    at += 3;
                } else {
                    found |= body[at] == name;
                    at += 1;
                }
            }
            (found != negated).then_some(1 + usize::from(negated) + end + 1)
        }
        [char, ..] => (*char == name).then_some(1),
        [] => None,
    }
}

/// `dict.update`: the later value replaces the earlier one whole.
fn replace(options: &mut Value, later: Value) {
    if let Value::Map(pairs) = later {
        for (key, value) in pairs {
            options.set(&key, value);
        }
    }
}

/// `salt.utils.dictupdate.update` with recursion and joined lists: how Salt merges the files of one include.
fn merge(options: &mut Value, later: Value) {
    let Value::Map(pairs) = later else { return };
    for (key, value) in pairs {
        let merged = match (options.get(&key).cloned(), value) {
            (Some(mut map @ Value::Map(_)), inner @ Value::Map(_)) => {
                merge(&mut map, inner);
                map
            }
            (Some(Value::List(mut items)), Value::List(more)) => {
                for item in more {
                    if !items.contains(&item) {
                        items.push(item);
                    }
                }
                Value::List(items)
            }
            (_, value) => value,
        };
        options.set(&key, merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn directory(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            let parent = Dir::open_or_create(path.parent().unwrap(), 0o755).unwrap();
            parent.write_atomic(path.file_name().unwrap(), text.as_bytes(), 0o644).unwrap();
        }
        root
    }

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    #[test]
    fn fragments_come_over_the_file_and_includes_over_fragments() {
        let root = directory(&[
            ("minion", "id: a\nmaster: m0\ninclude: [extra/*.yml]\n"),
            ("minion.d/10-a.conf", "master: m1\nlog: {a: 1}\nlist: [x]\n"),
            ("minion.d/20-b.conf", "master: m2\nlog: {b: 2}\nlist: [x, y]\n"),
            ("minion.d/.hidden.conf", "master: never\n"),
            ("minion.d/readme.txt", "{"),
            ("extra/z.yml", "master: m3\ninclude: ../more.conf\n"),
            ("more.conf", "port: 1\n"),
        ]);
        let options = read(root.path(), None).unwrap();
        assert_eq!(options.get("id"), Some(&text("a")));
        assert_eq!(options.get("master"), Some(&text("m3")));
        assert_eq!(options.get("port"), Some(&text("1")));
        assert_eq!(options.get("log").unwrap().get("a"), Some(&text("1")));
        assert_eq!(options.get("list"), Some(&Value::List(vec![text("x"), text("y")])));
    }

    #[test]
    fn what_cannot_be_understood_is_an_error_with_file_and_line() {
        let broken = directory(&[("minion", "id: a\n"), ("minion.d/a.conf", "x: 1\ny: [\n")]);
        let message = read(broken.path(), None).unwrap_err().to_string();
        assert!(message.contains("minion.d/a.conf: line "), "{message}");
        let looped = directory(&[("minion", "include: minion\n")]);
        assert!(read(looped.path(), None).unwrap_err().to_string().contains("includes itself"));
        let missing = directory(&[]);
        assert!(read(missing.path(), None).unwrap_err().to_string().starts_with("cannot open "));
        let list = directory(&[("minion", "- a\n")]);
        assert!(read(list.path(), None).unwrap_err().to_string().contains("a list, not options"));
    }

    #[test]
    fn names_are_matched_as_python_matches_them() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".a.conf", false),
            ("a?c*", "abcdef", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[!a-c]x", "dx", true),
            ("*a*b", "xaxaxb", true),
            ("*a*b", "xaxax", false),
        ] {
            assert_eq!(glob(pattern, name), expected, "{pattern} {name}");
        }
    }
}
