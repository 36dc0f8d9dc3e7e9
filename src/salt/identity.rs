//! The files that make a minion this host's minion: a clone with them answers in its name.

use super::options::answer::Answer;
use super::options::{Masters, MinionConfig};
use super::queues;
use crate::agent::IdentityPaths;

/// The minion's own keys. Its masters' keys stay: a clone has the same masters.
const KEYS: [&str; 2] = ["minion.pem", "minion.pub"];
/// Below `cachedir`: running and past jobs, cached grains and pillar, the last results.
const CACHED: [&str; 8] =
    ["proc", "minion_jobs", "queues", "grains.cache.p", "pillar", "pillar_cache", "sls.p", "highstate.cache.p"];

/// The files of a minion; some may be missing.
pub fn files(config: &MinionConfig, answer: &Answer) -> IdentityPaths {
    // Salt makes a key when it first signs in.
    let signs_in = config.masters != Masters::None;
    let keys = KEYS.iter().filter(|_| signs_in).map(|name| config.key_directory.join(name)).collect();
    let cached = CACHED.iter().chain(&queues::NAMES).map(|name| config.cache_directory.join(name));
    // Only where no option names the id does Salt look for its file.
    IdentityPaths { keys, others: cached.chain(answer.id_file.clone()).collect() }
}
