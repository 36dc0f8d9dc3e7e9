//! The commands of this program that a supervisor starts. The command line registers them: it alone knows words and exit codes.

use crate::failure::Class;
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName};
use crate::os::OsError;
use crate::os::environment::{Need, Passed};
use crate::os::process::{Program, own_program};
use crate::version::Release;

/// The commands.
#[derive(Debug, Clone, Copy)]
pub struct OwnCommands {
    /// Becomes the agent of an instance once its standard input says so.
    pub run: fn(&PackageName, &InstanceName, &Release) -> Vec<String>,
    /// Follows the words of `run`: the agent gets all variables of the supervisor, which the service manager has set.
    pub all_variables: &'static str,
    /// True for the words of a process that has not become the agent yet.
    pub is_run: fn(&[String]) -> bool,
    /// Repairs a running release.
    pub repair: fn(&PackageName, &Release) -> Vec<String>,
    /// Scrubs a package.
    pub scrub: fn(&PackageName) -> Vec<String>,
    /// Follows the words of a supervisor: a new program checks whether it could take over, and ends.
    pub check: &'static str,
    /// The class of failure that an exit code means; None: success.
    pub class: fn(i32) -> Option<Class>,
}

/// This program with the words of one of its commands, for a host below the layout's root, with the settings file that this command was given.
pub fn program(layout: &Layout, words: Vec<String>) -> Result<Program, OsError> {
    let program = Program::new(own_program()?).passing(Passed::default().with(Need::Network));
    let program = program.argument("--root").argument(layout.root());
    let program = match layout.settings_file() {
        Some(file) => program.argument("--config").argument(file),
        None => program,
    };
    Ok(words.into_iter().fold(program, Program::argument))
}

/// The same with the words of `run`, for an agent that gets `passed` of this process's environment.
pub fn agent(
    layout: &Layout,
    commands: OwnCommands,
    mut words: Vec<String>,
    passed: &Passed,
) -> Result<Program, OsError> {
    if passed.is_everything() {
        words.push(commands.all_variables.to_owned());
    }
    Ok(program(layout, words)?.passing(passed.clone()))
}
