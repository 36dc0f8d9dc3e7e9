//! Where the guard of a minion counts what the minion uses.

use crate::salt::options::kept;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The file in the minion's `cachedir`: `FILE_NAME` of the guard's `uses.py`.
pub(in crate::salt) const USES_NAME: &str = "sidle_uses.json";

/// The file, by the options of the minion that runs, else by those that were last loaded.
pub(super) fn file(options: Option<&Value>, state: &Path) -> Option<PathBuf> {
    let running = options.and_then(|options| options["cachedir"].as_str()).map(PathBuf::from);
    let kept = || kept::read(state).into_iter().find_map(|kept| kept.loaded)?.options?.cachedir;
    running.filter(|path| path.is_absolute()).or_else(kept).map(|directory| directory.join(USES_NAME))
}
