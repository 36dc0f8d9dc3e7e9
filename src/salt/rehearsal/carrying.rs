//! Packages that `salt-pip` has installed over a minion, between the directory of a packaged minion and the release's own.

use super::packaged::VARIABLES;
use crate::agent::AgentError;
use crate::agent::adoption::{ExtrasBack, Trees};
use crate::os::dir::Dir;
use crate::os::file;
use crate::os::process::Program;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program, which runs in the release's Python. Its head says what it takes and prints.
pub(super) const SCRIPT: &str = include_str!("carrying.py");

/// By this file Salt's own bundle finds them.
const FINDER_NAME: &str = "_salt_onedir_extras.py";
/// Names another directory than the usual one.
const DIRECTORY_VARIABLE: &str = VARIABLES[0];
/// Without the first `salt-pip` would install where the minion does not look.
pub(in crate::salt) const SHARED: &[&str] = &VARIABLES;
/// Of many packages each file is read.
const WAIT: Duration = Duration::from_secs(120);

/// Where a packaged minion looks, and the minor version of its Python.
struct Place {
    directory: PathBuf,
    minor: String,
}

/// The place of Salt's own bundle; None: this tree is none, and has no salt-pip.
fn place(trees: &Trees) -> Option<Place> {
    let tree = &trees.packaged.tree;
    let names = Dir::open_if_exists(&tree.join("lib")).ok()??.names().ok()?;
    let minor = names.iter().find_map(|name| {
        let minor = name.to_str()?.strip_prefix("python")?;
        let finder = tree.join("lib").join(name).join("site-packages").join(FINDER_NAME);
        file::is_input(&finder).then(|| minor.to_owned())
    })?;
    let elsewhere = trees.packaged.environment.iter().find(|(name, _)| name == DIRECTORY_VARIABLE);
    let directory = elsewhere.map_or_else(|| tree.join(format!("extras-{minor}")), |(_, value)| PathBuf::from(value));
    Some(Place { directory, minor })
}

/// Describes the packages in both directories.
pub(in crate::salt) fn record(trees: &Trees) -> Result<Option<String>, AgentError> {
    let Some(place) = place(trees) else { return Ok(None) };
    ask(trees, None, "record", &place.directory, &[]).map(Some)
}

/// Gives back what is new since the record.
pub(in crate::salt) fn back(trees: &Trees, record: &str, is_plan: bool) -> Result<ExtrasBack, AgentError> {
    let Some(place) = place(trees) else { return Ok(ExtrasBack::default()) };
    // The variables of a minion that has ended are gone; where it looked at the adoption is on record.
    let known = trees.leader.is_none().then(|| recorded_place(record)).flatten();
    let act = if is_plan { "plan" } else { "give" };
    let said = ask(trees, known.as_deref(), act, &place.directory, &[&place.minor, record])?;
    serde_json::from_str(&said).map_err(|error| cannot(&error.to_string()))
}

/// The release's directory at the time of a record.
fn recorded_place(record: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_str(record).ok()?;
    Some(record.get("place")?.as_str()?.to_owned())
}

/// Runs the program with the variables of the release. `known`: its directory, if a variable does not name it.
fn ask(trees: &Trees, known: Option<&str>, act: &str, directory: &Path, more: &[&str]) -> Result<String, AgentError> {
    let mut program = Program::python(trees.release.tree.join("bin/python3")).argument("-c").argument(SCRIPT);
    program = program.argument(act).argument(directory);
    for word in more {
        program = program.argument(word);
    }
    program.environment.clone_from(&trees.release.environment);
    let is_named = trees.release.environment.iter().any(|(name, _)| name == DIRECTORY_VARIABLE);
    if let Some(known) = known.filter(|_| !is_named) {
        program = program.variable(DIRECTORY_VARIABLE, known);
    }
    let said = program.answer_within(WAIT)?;
    let said = said.ok_or_else(|| cannot(&format!("it did not end within {} s", WAIT.as_secs())))?;
    if said.success {
        return Ok(said.output);
    }
    let last = said.errors.lines().last().unwrap_or_default();
    Err(cannot(last.strip_prefix("ERROR: ").unwrap_or(last)))
}

fn cannot(why: &str) -> AgentError {
    AgentError::new(format!("cannot look at what salt-pip has installed: {why}"))
}
