//! The files that make a minion this host's minion: a clone with them answers in its name.

use super::config::MinionConfig;
use super::includes::ConfigError;
use super::queues;
use std::path::{Path, PathBuf};

/// The minion's own keys. Its masters' keys stay: a clone has the same masters.
const KEYS: [&str; 2] = ["minion.pem", "minion.pub"];
/// Below `cachedir`: running and past jobs, cached grains and pillar, the last results.
const CACHED: [&str; 8] =
    ["proc", "minion_jobs", "queues", "grains.cache.p", "pillar", "pillar_cache", "sls.p", "highstate.cache.p"];

impl MinionConfig {
    /// The files of the minion configured in `directory`; some may be missing.
    pub fn identity_files(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
        let config = Self::read(directory)?;
        let mut files: Vec<PathBuf> = KEYS.iter().map(|name| config.key_directory.join(name)).collect();
        files.extend(CACHED.iter().chain(&queues::NAMES).map(|name| config.cache_directory.join(name)));
        if !Self::names_id(directory)? {
            files.push(directory.join("minion_id"));
        }
        Ok(files)
    }
}
