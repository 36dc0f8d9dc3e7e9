//! The files that make a minion this host's minion: a clone with them answers in its name.

use super::options::answer::Answer;
use super::options::{Masters, MinionConfig};
use super::queues;
use super::rehearsal::USES_NAME;
use crate::agent::IdentityPaths;

/// The minion's own keys. Its masters' keys stay: a clone has the same masters.
const KEYS: [&str; 2] = ["minion.pem", "minion.pub"];
/// Below `cachedir`: running and past jobs, cached grains and pillar, the last results, the count of what this host uses.
const CACHED: [&str; 9] = [
    "proc",
    "minion_jobs",
    "queues",
    "grains.cache.p",
    "pillar",
    "pillar_cache",
    "sls.p",
    "highstate.cache.p",
    USES_NAME,
];

/// The files of a minion; some may be missing.
pub fn files(config: &MinionConfig, answer: &Answer) -> IdentityPaths {
    let all = KEYS.map(|name| config.key_directory.join(name)).to_vec();
    // Salt makes a key when it first signs in. A minion without a master needs none, and may have one of an earlier time.
    let (keys, earlier) = if config.masters == Masters::None { (Vec::new(), all) } else { (all, Vec::new()) };
    let cached = CACHED.iter().chain(&queues::NAMES).map(|name| config.cache_directory.join(name));
    // Only where no option names the id does Salt look for its file.
    IdentityPaths { keys, others: cached.chain(answer.id_file.clone()).chain(earlier).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::options::answer::{self, NeedOption, Options};
    use super::*;
    use std::path::PathBuf;

    /// Of a minion that had a master before `master_type: disable`, the key stayed in the image.
    #[test]
    fn a_key_is_named_also_where_the_minion_has_no_master_and_is_missed_only_where_it_has_one() {
        let of = |need| {
            let options = Options { need, ..answer::recorded() };
            let line = serde_json::json!({"schema": 1, "failure": null, "options": options, "files": []}).to_string();
            files(&options.config().unwrap(), &Answer::parse(&line).unwrap())
        };
        let key = PathBuf::from("/etc/salt/pki/minion/minion.pem");
        assert!(of(NeedOption::All).keys.contains(&key) && !of(NeedOption::All).others.contains(&key));
        assert!(of(NeedOption::All).others.iter().any(|path| path.ends_with(USES_NAME)), "a clone uses something else");
        assert!(of(NeedOption::None).keys.is_empty() && of(NeedOption::None).others.contains(&key));
    }
}
