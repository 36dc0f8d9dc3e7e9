//! Targets of which every mirror had wrong bytes: `broken/<digest>-<mirror>`. Without this memory every run of a cron job would fetch them
//! again, on every host.

use super::error::FetchError;
use crate::digest::Digest;
use crate::os::place::Place;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The first pause; it doubles with each further failure.
const PAUSE_MINIMUM: SignedDuration = SignedDuration::from_hours(1);
/// The longest pause: a repaired repository is noticed within this time.
const PAUSE_MAXIMUM: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Age, in seconds, after which a record is forgotten.
const AGE_MAXIMUM_SECONDS: i64 = 60 * 24 * 60 * 60;
/// Largest record read; it has three short fields.
const RECORD_BYTES_MAXIMUM: u64 = 4096;

const DIRECTORY: &str = "broken";
const DIRECTORY_MODE: u32 = 0o700;
const SCHEMA: u32 = 1;

/// The known broken targets.
#[derive(Debug)]
pub(super) struct Broken {
    directory: Place,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    failures: u32,
    not_before: Timestamp,
}

impl Broken {
    /// The memory below the cache directory. Removes old records.
    pub(super) fn open(cache: &Place, now: Timestamp) -> Result<Self, FetchError> {
        let place = Place::open_or_create(&cache.path().join(DIRECTORY), DIRECTORY_MODE, cache.effect())?;
        if let Some(directory) = place.make(Path::new(""), DIRECTORY_MODE)? {
            for name in directory.names()? {
                let old =
                    |stat: crate::os::dir::FileStat| now.as_second().saturating_sub(stat.mtime.0) > AGE_MAXIMUM_SECONDS;
                if directory.stat(&name)?.is_some_and(old) {
                    directory.remove_tree(&name)?;
                }
            }
        }
        Ok(Self { directory: place })
    }

    /// Until when the target `key` is not fetched from `mirror`; None: it may be fetched.
    pub(super) fn until(&self, key: &str, mirror: &str, now: Timestamp) -> Result<Option<Timestamp>, FetchError> {
        let record = self.read(&name(key, mirror))?;
        // A wrong clock wrote a time that is further away than any pause.
        let latest = now.saturating_add(PAUSE_MAXIMUM).unwrap_or(Timestamp::MAX);
        Ok(record.map(|record| record.not_before).filter(|until| (now..latest).contains(until) && *until > now))
    }

    /// Remembers another failure of `mirror`; returns the time of the next attempt.
    pub(super) fn add(&self, key: &str, mirror: &str, now: Timestamp) -> Result<Timestamp, FetchError> {
        let name = name(key, mirror);
        let failures = self.read(&name)?.map_or(0, |record| record.failures).saturating_add(1);
        let doubled = 1_i32.checked_shl(failures - 1).filter(|factor| *factor > 0).unwrap_or(i32::MAX);
        let pause = PAUSE_MINIMUM.saturating_mul(doubled).min(PAUSE_MAXIMUM);
        let not_before = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        let record = Record { schema: SCHEMA, failures, not_before };
        let text = serde_json::to_vec(&record).expect("a record has only string keys");
        self.directory.write(&name, &text, (0o644, DIRECTORY_MODE))?;
        Ok(not_before)
    }

    /// Forgets a target.
    pub(super) fn forget(&self, key: &str) -> Result<(), FetchError> {
        let own = |name: &&String| name.starts_with(&format!("{key}-"));
        for name in self.directory.names("")?.unwrap_or_default().iter().filter(own) {
            self.directory.remove(name)?;
        }
        Ok(())
    }

    fn read(&self, key: &str) -> Result<Option<Record>, FetchError> {
        let Some(bytes) = self.directory.read(key, RECORD_BYTES_MAXIMUM)? else { return Ok(None) };
        let record = serde_json::from_slice::<Record>(&bytes).ok().filter(|record| record.schema == SCHEMA);
        record.map(Some).ok_or_else(|| FetchError::Settings {
            subject: self.directory.path().join(key).display().to_string(),
            reason: "it is no record of a broken target".to_owned(),
            hint: Some("remove the file".to_owned()),
        })
    }
}

/// A mirror's name may hold anything, so its digest stands for it.
fn name(key: &str, mirror: &str) -> String {
    format!("{key}-{}", Digest::of(mirror.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::dir::Dir;
    use crate::os::place::Effect;

    #[test]
    fn pauses_grow_end_and_survive_a_wrong_clock() {
        let work = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let open = || Broken::open(&Place::open(work.path(), Effect::Apply).unwrap().unwrap(), now).unwrap();
        let hours = |until: Timestamp| until.duration_since(now).as_hours();
        assert_eq!(open().until("a", "m", now).unwrap(), None);
        let pauses: Vec<i64> = (0..40).map(|_| hours(open().add("a", "m", now).unwrap())).collect();
        assert_eq!(pauses[..9], [1, 2, 4, 8, 16, 32, 64, 128, 168]);
        assert_eq!(pauses[39], 168);
        let later = |hours| now.checked_add(SignedDuration::from_hours(hours)).unwrap();
        assert!(open().until("a", "m", later(167)).unwrap().is_some());
        assert_eq!(open().until("a", "other", later(167)).unwrap(), None, "another mirror may have it");
        assert_eq!(open().until("a", "m", later(168)).unwrap(), None);
        assert_eq!(open().until("a", "m", later(-24 * 365)).unwrap(), None);
        open().forget("a").unwrap();
        assert_eq!(open().until("a", "m", now).unwrap(), None);
        Dir::open(work.path()).unwrap().child("broken").unwrap().write_atomic(name("b", "m"), b"{}", 0o600).unwrap();
        assert!(open().until("b", "m", now).is_err());
    }
}
