//! What a Salt release says of itself: `sidle_release.py` in its tree, run by its own Python.

use super::{RELEASE_SCRIPT_NAME, script_of};
use crate::os::process::Program;
use std::path::Path;

/// The program that describes the release in `tree`; None: the tree has none.
pub fn describer(tree: &Path) -> Option<Program> {
    let script = script_of(tree, RELEASE_SCRIPT_NAME)?;
    Some(Program::python(tree.join("bin/python3")).argument("-Wignore").argument(script))
}
