//! Tests as they are written: their names, their bodies, and whether they are run.

use std::fs;
use std::path::{Path, PathBuf};

/// A test.
#[derive(Debug, Clone)]
pub struct Test {
    /// Its name, as the program lists it.
    pub name: String,
    /// The reason not to run it.
    pub ignored: Option<String>,
    pub body: String,
    pub lines: usize,
}

impl Test {
    pub fn function(&self) -> &str {
        self.name.rsplit("::").next().unwrap()
    }
}

/// The files below a directory with this ending, and their text.
pub fn files(directory: &Path, ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|end| end == ending) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found.sort();
    found
}

pub fn tests_below(directory: &Path) -> Vec<Test> {
    let module = |path: &Path| {
        let relative = path.strip_prefix(directory).unwrap().with_extension("");
        let names =
            relative.iter().map(|part| part.to_str().unwrap()).filter(|part| !["mod", "main", "lib"].contains(part));
        names.collect::<Vec<_>>().join("::")
    };
    files(directory, "rs").iter().flat_map(|(path, text)| tests_of(text, &module(path))).collect()
}

/// The tests of a file, which rustfmt has formatted: a block ends where its beginning is indented.
pub fn tests_of(text: &str, module: &str) -> Vec<Test> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut modules, mut found, mut at) = (vec![(None, module.to_owned())], Vec::new(), 0);
    while at < lines.len() {
        let line = lines[at];
        if modules.last().unwrap().0 == Some(indent(line)) && line.trim() == "}" {
            modules.pop();
        } else if let Some(name) = line.trim().strip_suffix(" {").and_then(|line| line.strip_prefix("mod ")) {
            modules.push((Some(indent(line)), name.to_owned()));
        } else if line.trim() == "#[test]" {
            let start = at + lines[at..].iter().position(|line| line.trim().starts_with("fn ")).unwrap();
            let close = format!("{}}}", " ".repeat(indent(line)));
            let end = start + lines[start..].iter().position(|line| *line == close).unwrap();
            let attributes = lines[at..start].iter().filter_map(|line| line.trim().strip_prefix("#[ignore"));
            let ignored =
                attributes.map(|rest| rest.trim_start_matches(" = \"").trim_end_matches("\"]").to_owned()).next();
            let function = lines[start].trim().trim_start_matches("fn ").split('(').next().unwrap();
            let path: Vec<&str> =
                modules.iter().map(|(_, name)| &**name).chain([function]).filter(|name| !name.is_empty()).collect();
            let body = lines[start + 1..end].join("\n");
            found.push(Test { name: path.join("::"), ignored, body, lines: end - start - 1 });
            at = end;
        }
        at += 1;
    }
    found
}
