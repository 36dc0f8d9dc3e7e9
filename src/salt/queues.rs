//! Jobs that wait in the minion's queues on disk: `queued_<microseconds>_<jid>.p`, `running_…` while main hands one to a process.
//!
//! Salt before 3006.21 and 3007.13 has no queues. 3006.21 to 25, 3007.13 and 14, and 3008.0 have `<cachedir>/{job,state}_queue`, later ones
//! `<cachedir>/queues/<master>/{job,state}_queue`. No release reads the queues of another layout, so a switch waits for queued jobs.

use super::options::{Masters, MinionConfig};
use crate::agent::Job;
use crate::os::dir::{Dir, FileKind};
use crate::os::{OsError, clock};
use std::path::{Path, PathBuf};

/// More than this are not named one by one.
const NAMED_MAX: usize = 20;

/// How long a half-written file counts as a job: a crash may have left it.
const WRITE_SECONDS: i64 = 10;

/// How long a popped job counts without a process: it takes milliseconds. Salt itself ignores the file after this time.
const POP_SECONDS: i64 = 300;

/// How long a lock counts as main's, which holds it for milliseconds. If main was killed with it, every queued state would wait for a day.
const LOCK_SECONDS: i64 = 60;

pub(super) const NAMES: [&str; 2] = ["job_queue", "state_queue"];

/// Where a Salt has its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Nowhere.
    None,
    /// Two for all masters.
    One,
    /// Two for each master.
    ByMaster,
}

impl Layout {
    /// As the guard reports it; None: unknown.
    pub fn reported(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "one for all masters" => Some(Self::One),
            "one for each master" => Some(Self::ByMaster),
            _ => None,
        }
    }
}

/// The queued jobs that only this minion would run. With an unknown layout all queues count, but never those of former masters.
pub fn jobs(config: &MinionConfig, layout: Option<Layout>) -> Result<Vec<Job>, OsError> {
    let mut jobs = Vec::new();
    for place in places(config, layout)? {
        let Some(place) = Dir::open_if_exists(&place)? else { continue };
        for name in NAMES {
            let Some(queue) = place.child_if_exists(name)? else { continue };
            for file in queue.names()? {
                let file = file.to_string_lossy().into_owned();
                if let Some(jid) = jid(&queue, &file)?.filter(|_| jobs.len() < NAMED_MAX) {
                    jobs.push(Job { id: jid, what: format!("a job in {}", queue.path().display()), pid: None });
                }
            }
        }
        for file in place.names()? {
            let file = file.to_string_lossy().into_owned();
            if file.ends_with("queue.lock") && is_younger(&place, &file, LOCK_SECONDS)? {
                jobs.push(Job { id: file, what: "a look at its queues".to_owned(), pid: None });
            }
        }
    }
    Ok(jobs)
}

/// The file of a job that waits in any queue below a cache directory, also in those of former masters.
pub fn file_of(cache: &Path, job: &str) -> Result<Option<PathBuf>, OsError> {
    let mut places = vec![cache.to_owned()];
    if let Some(all) = Dir::open_if_exists(&cache.join("queues"))? {
        places.extend(all.names()?.into_iter().map(|name| all.path().join(name)));
    }
    for path in places.iter().flat_map(|place| NAMES.map(|name| place.join(name))) {
        let Some(queue) = Dir::open_if_exists(&path)? else { continue };
        for file in queue.names()? {
            let name = file.to_string_lossy();
            let named = name.strip_prefix("queued_").and_then(|rest| rest.strip_suffix(".p")?.split_once('_'));
            if named.is_some_and(|(_, jid)| jid == job) {
                return Ok(Some(path.join(&file)));
            }
        }
    }
    Ok(None)
}

/// The queues with jobs that this minion will not run, and how many: of former masters, or set aside by the guard.
pub fn left(config: &MinionConfig) -> Result<Vec<(PathBuf, usize)>, OsError> {
    let mut left = Vec::new();
    let all = masters(config)?
        .into_iter()
        .map(|name| (config.cache_directory.join("queues").join(&name), is_configured(config, &name)));
    for (place, is_its_own) in all.chain([(config.cache_directory.clone(), true)]) {
        for name in NAMES {
            let path = place.join(name);
            let Some(queue) = Dir::open_if_exists(&path)? else { continue };
            let files = queue.names()?.into_iter().map(|file| file.to_string_lossy().into_owned());
            let is_left = |file: &String| file.starts_with("left_") || (!is_its_own && file.starts_with("queued_"));
            let count = files.filter(|file| file.strip_suffix(".p").is_some() && is_left(file)).count();
            if count > 0 {
                left.push((path, count));
            }
        }
    }
    Ok(left)
}

/// All directories of queues that it may have.
pub fn directories(config: &MinionConfig) -> Vec<PathBuf> {
    // What can't be read is not watched; `jobs` says why.
    places(config, None).unwrap_or_default().iter().flat_map(|place| NAMES.map(|name| place.join(name))).collect()
}

/// The directories that hold its queues.
fn places(config: &MinionConfig, layout: Option<Layout>) -> Result<Vec<PathBuf>, OsError> {
    let mut places = Vec::new();
    if matches!(layout, None | Some(Layout::One)) {
        places.push(config.cache_directory.clone());
    }
    if matches!(layout, None | Some(Layout::ByMaster)) {
        let masters = masters(config)?.into_iter().filter(|name| is_configured(config, name));
        places.extend(masters.map(|name| config.cache_directory.join("queues").join(name)));
    }
    Ok(places)
}

/// The names of all directories of masters, former ones too.
fn masters(config: &MinionConfig) -> Result<Vec<String>, OsError> {
    let all = Dir::open_if_exists(&config.cache_directory.join("queues"))?;
    let entries = all.map_or_else(|| Ok(Vec::new()), |all| all.entries())?;
    let directories = entries.into_iter().filter(|(_, kind)| *kind == FileKind::Directory);
    Ok(directories.map(|(name, _)| name.to_string_lossy().into_owned()).collect())
}

/// Whether a directory is that of a master that the minion has: `_sanitize_master_id` of `salt/utils/state.py`.
fn is_configured(config: &MinionConfig, directory: &str) -> bool {
    let Masters::Named(masters, _) = &config.masters else { return true };
    let safe = |name: &str| -> String {
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
    };
    masters.iter().any(|master| [&master.name, &master.host].into_iter().any(|name| safe(name) == directory))
}

fn jid(queue: &Dir, file: &str) -> Result<Option<String>, OsError> {
    let popped = file.strip_prefix("running_");
    let Some(rest) = file.strip_prefix("queued_").or(popped) else { return Ok(None) };
    let (rest, longest) = match (rest.strip_suffix(".p"), rest.strip_suffix(".p.tmp")) {
        (Some(rest), _) => (rest, popped.map(|_| POP_SECONDS)),
        (None, Some(rest)) => (rest, Some(WRITE_SECONDS)),
        (None, None) => return Ok(None),
    };
    let counts = longest.map_or(Ok(true), |longest| is_younger(queue, file, longest))?;
    Ok(counts.then(|| rest.split_once('_').map_or(rest, |(_, jid)| jid).to_owned()))
}

/// Whether a file was written or renamed at most so many seconds ago. A time in the future is older than a clock change.
fn is_younger(directory: &Dir, file: &str, seconds: i64) -> Result<bool, OsError> {
    let changed = directory.stat(file)?.map(|stat| stat.ctime.0);
    Ok(changed.is_some_and(|changed| (clock::now().as_second() - changed).abs() <= seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Need;
    use crate::salt::options::Master;

    fn config(cache: &Path, masters: &[&str]) -> MinionConfig {
        let master = |name: &&str| Master {
            name: (*name).to_owned(),
            host: name.split(':').next().unwrap().to_owned(),
            request_port: 4506,
            publish_port: None,
        };
        MinionConfig {
            cache_directory: cache.to_owned(),
            masters: Masters::Named(masters.iter().map(master).collect(), Need::All),
            ..crate::salt::options::answer::recorded().config().unwrap()
        }
    }

    fn put(directory: &Path, name: &str) {
        Dir::open_or_create(directory, 0o700).unwrap().write_atomic(name, b"", 0o600).unwrap();
    }

    fn ids(config: &MinionConfig, layout: Option<Layout>) -> Vec<String> {
        jobs(config, layout).unwrap().into_iter().map(|job| job.id).collect()
    }

    #[test]
    fn what_waits_in_any_queue_counts_and_in_known_ones_only_what_that_salt_reads() {
        let root = tempfile::tempdir().unwrap();
        let config = config(root.path(), &["m:4506"]);
        assert!(ids(&config, None).is_empty());
        put(&root.path().join("state_queue"), "queued_1_11.p");
        put(&root.path().join("queues/m_4506/job_queue"), "queued_1_22.p");
        put(&root.path().join("queues/m/state_queue"), "running_1_33.p");
        put(&root.path().join("queues/m/state_queue"), "queued_2_44.p.tmp");
        put(&root.path().join("queues/m/state_queue"), "left_queued_2_55.p");
        let mut all = ids(&config, None);
        all.sort();
        assert_eq!(all, ["11", "22", "33", "44"]);
        assert_eq!(ids(&config, Some(Layout::One)), ["11"]);
        assert_eq!(ids(&config, Some(Layout::ByMaster)).len(), 3);
        assert!(ids(&config, Some(Layout::None)).is_empty());
        let named = &jobs(&config, Some(Layout::One)).unwrap()[0].what;
        assert!(named.ends_with("/state_queue"), "a person finds it: {named}");
        assert_eq!(directories(&config).len(), 6);
    }

    #[test]
    fn queues_of_masters_that_are_no_longer_configured_block_nothing() {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join("queues/old-master/state_queue"), "queued_1_11.p");
        let [new, old] = ["new-master", "old-master"].map(|name| config(root.path(), &[name]));
        assert!(ids(&new, None).is_empty());
        assert_eq!(ids(&old, None), ["11"]);
        // But they are named.
        assert!(left(&old).unwrap().is_empty());
        put(&root.path().join("job_queue"), "left_queued_1_12.p");
        let queues = ["queues/old-master/state_queue", "job_queue"].map(|name| (root.path().join(name), 1));
        assert_eq!(left(&new).unwrap(), queues);
    }

    #[test]
    fn what_a_crash_has_left_does_not_block_for_ever() {
        let root = tempfile::tempdir().unwrap();
        let queue = root.path().join("state_queue");
        for name in ["running_1_11.p", "queued_2_22.p.tmp", "queued_3_33.p"] {
            put(&queue, name);
        }
        let queue = Dir::open(&queue).unwrap();
        assert!(is_younger(&queue, "running_1_11.p", POP_SECONDS).unwrap());
        assert!(!is_younger(&queue, "running_1_11.p", -1).unwrap(), "an age that is over");
        assert_eq!(
            jid(&queue, "queued_3_33.p").unwrap().as_deref(),
            Some("33"),
            "what waits, waits for as long as it takes"
        );
    }

    #[test]
    fn main_is_not_ended_with_the_lock_of_its_queues() {
        let root = tempfile::tempdir().unwrap();
        let config = config(root.path(), &["m"]);
        put(&root.path().join("queues/m"), "queue.lock");
        assert_eq!(ids(&config, None), ["queue.lock"]);
        put(root.path(), "minion_queue.lock");
        assert_eq!(ids(&config, Some(Layout::One)), ["minion_queue.lock"]);
    }

    #[test]
    fn layouts_are_called_as_the_guard_calls_them() {
        assert_eq!(Layout::reported("none"), Some(Layout::None));
        assert_eq!(Layout::reported("one for all masters"), Some(Layout::One));
        assert_eq!(Layout::reported("one for each master"), Some(Layout::ByMaster));
        assert_eq!(Layout::reported("another"), None);
    }
}
