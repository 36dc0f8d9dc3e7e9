//! Every start of a program in the source: there is one place that makes a command, and no Python takes modules from a caller.

use super::architecture::{code, files, source};
use std::fs;
use std::path::Path;

/// The one place.
const PLACE: &str = "os/processes/program.rs";
/// Other ways to a new process or another program.
const WAYS: [&str; 8] = [
    "Command::new(",
    "libc::exec",
    "libc::fork",
    "libc::posix_spawn",
    "libc::system",
    "libc::popen",
    "execveat",
    "fexecve",
];

/// The lines of the source that `is_meant`, unit tests and comments left out.
fn lines(is_meant: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in files(&source()) {
        let name = path.strip_prefix(source()).unwrap().to_str().unwrap().to_owned();
        let code = code(&fs::read_to_string(&path).unwrap());
        found.extend(code.lines().filter(|line| is_meant(line)).map(|line| (name.clone(), line.trim().to_owned())));
    }
    found
}

#[test]
fn one_place_starts_every_program() {
    let starts = lines(|line| WAYS.iter().any(|way| line.contains(way)));
    // Clap has commands of its own.
    let starts: Vec<_> = starts.into_iter().filter(|(_, line)| !line.contains("Command::new(\"sidle\")")).collect();
    assert_eq!(starts, [(PLACE.to_owned(), "let mut command = Command::new(self.file());".to_owned())]);
    let text = fs::read_to_string(source().join(PLACE)).unwrap();
    for rule in
        ["env_clear()", "Directory::Root => {\n                command.current_dir(\"/\");", "#[default]\n    Root,"]
    {
        assert!(text.contains(rule), "{rule}");
    }
}

#[test]
fn who_works_where_the_caller_is_says_why() {
    let elsewhere = lines(|line| line.contains("Directory::Callers") || line.contains("Directory::At("));
    let mut files: Vec<&str> = elsewhere.iter().map(|(file, _)| file.as_str()).collect();
    files.dedup();
    // A person's own words name files from there: `run`, options of ssh, `exec:COMMAND`, a recipe's command, and this program itself.
    let known =
        ["cli/host/run.rs", "cli/pack/building.rs", PLACE, "push/ssh.rs", "signer/exec.rs", "supervise/renew.rs"];
    assert_eq!(files, known);
}

#[test]
fn python_is_always_isolated() {
    let is_start = |line: &str| line.contains("bin/python3") && !line.contains("Program::python(");
    for (file, line) in lines(is_start) {
        assert!(line.contains("/bin/python3\" -I -B "), "{file}: {line}");
    }
    let isolated = lines(|line| line.contains("Program::python("));
    assert!(isolated.len() >= 2, "{isolated:?}");
    let text = fs::read_to_string(source().join(PLACE)).unwrap();
    assert!(text.contains("Self::new(interpreter).argument(\"-I\").argument(\"-B\")"));
    let scripts = ["salt/sign_in/sign_in.py"];
    assert!(scripts.iter().all(|script| Path::new(&source().join(script)).is_file()));
}

/// What passes to every program can be read on one page, and is what the code has.
#[test]
fn the_page_names_every_variable_that_passes() {
    let code = fs::read_to_string(source().join("os/processes/environment.rs")).unwrap();
    let lists = code.split("/// By these tests stop").next().unwrap();
    let names: Vec<&str> =
        lists.split('"').skip(1).step_by(2).filter(|name| !name.contains(':') && !name.is_empty()).collect();
    assert!(names.len() > 35, "{names:?}");
    let page = fs::read_to_string(source().join("../docs/hosts.md")).unwrap();
    let missing: Vec<&&str> = names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/hosts.md lacks {missing:?}");
}
