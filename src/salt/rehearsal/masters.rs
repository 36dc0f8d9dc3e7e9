//! Whether a release is newer than the minion's masters, or signs in with too old a version for them: by what each master has said of itself. A master
//! is not asked; what it has said has a date, and is stale after a week.

use super::report::{KnownMasters, Told};
use super::words::plain;
use crate::os::clock;
use crate::os::dir::Dir;
use crate::salt::options::answer::Options;
use crate::salt::options::kept;
use crate::version::Version;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::path::Path;

/// What a master said longer ago is not taken for what it is now.
const STALE_SECONDS: u64 = 7 * 86_400;
/// Masters that one note names.
const NAMES_MAX: usize = 8;

/// Where the extension of Salt keeps what masters have said, below the minion's `cachedir`; files with this end.
const PLACE: &str = "sidle/masters";
const FILE_END: &str = ".told";
/// As many and as long as `sidle_masters.py` reads.
const FILES_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 4 << 10;

/// What to do where the switch is wanted all the same.
const ANYWAY: &str = "`rehearsal = \"report\"` lets the switch go all the same";

/// A release as its masters see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsMinion<'a> {
    /// Its Salt.
    pub version: &'a str,
    /// The version of its sign-in; None: not known.
    pub sign_in: Option<u32>,
    /// The Salt that runs now; None: nothing runs, or it is not known.
    pub before: Option<&'a str>,
}

/// What the masters' words come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weighed {
    /// Reasons not to switch.
    pub reasons: Vec<String>,
    /// What is good to know: stale words, and masters that have said nothing.
    pub notes: Vec<String>,
}

/// Why masters would not take a release of this version, by the options of the minion that runs, else by those that were last loaded. What cannot be read
/// is not known here: the rehearsal, which comes later, says so.
pub(super) fn refuse(options: Option<&Value>, state: &Path, version: &Version) -> Vec<String> {
    let running = options.and_then(Options::reported);
    let loaded = || kept::read(state).into_iter().find_map(|kept| kept.loaded)?.options;
    let Some(options) = running.or_else(loaded) else { return Vec::new() };
    let now = u64::try_from(clock::now().as_second()).unwrap_or_default();
    let known = KnownMasters { named: Vec::new(), told: read(&options), now };
    let weighed = weigh(&known, AsMinion { version: version.as_str(), sign_in: None, before: None });
    weighed.reasons.iter().map(|text| plain(text)).collect()
}

/// The newest word of each configured master.
fn read(options: &Options) -> Vec<Told> {
    let place = options.cachedir.as_ref().map(|directory| directory.join(PLACE));
    let Some(directory) = place.and_then(|place| Dir::open_if_exists(&place).ok().flatten()) else { return Vec::new() };
    let names =
        directory.names().unwrap_or_default().into_iter().filter(|name| name.to_string_lossy().ends_with(FILE_END));
    let files = names.take(FILES_MAX).filter_map(|name| directory.read_if_exists(&name, FILE_BYTES_MAX).ok().flatten());
    let all: Vec<Told> = files.filter_map(|bytes| serde_json::from_slice(&bytes).ok()).collect();
    let newest = |master: &crate::salt::options::Master| {
        let of = all.iter().filter(|told| told.name == master.name || told.name == master.host);
        of.max_by_key(|told| told.at).map(|told| Told { name: master.name.clone(), ..told.clone() })
    };
    options.masters.iter().filter_map(newest).collect()
}

/// Weighs a release by what its masters have said.
pub fn weigh(known: &KnownMasters, release: AsMinion<'_>) -> Weighed {
    let mut weighed = Weighed::default();
    let AsMinion { version, sign_in, before } = release;
    for told in &known.told {
        let mut add = |fresh: String, stale: String| {
            if known.now.saturating_sub(told.at) <= STALE_SECONDS {
                weighed.reasons.push(fresh);
            } else {
                weighed.notes.push(stale);
            }
        };
        let (name, source, since) = (&told.name, &told.source, day(told.at));
        if is_older(&told.version, version) == Some(true) {
            let runs = &told.version;
            add(
                format!(
                    "its master {name} runs Salt {runs} (by {source} of {since}), and the release is Salt {version}: Salt does not support minions that are newer \
                     than their master; upgrade the master first, and plan or `salt-run sidle.masters` there; {ANYWAY}"
                ),
                format!(
                    "its master {name} ran Salt {runs} by {source} of {since}, which is stale now; Salt does not support minions (here {version}) that are newer than \
                     their master: look at the master first"
                ),
            );
        }
        let needed = told.minimum_auth_version.zip(sign_in).filter(|(needed, sign_in)| sign_in < needed);
        if let Some((needed, sign_in)) = needed {
            add(
                format!(
                    "its master {name} would lock the release out, which signs in with version {sign_in}: minimum_auth_version is {needed} there (by {source} of \
                     {since}); set minimum_auth_version: {sign_in} there first; {ANYWAY}"
                ),
                format!(
                    "its master {name} had minimum_auth_version {needed} by {source} of {since}, which is stale now; the release signs in with version {sign_in}: \
                     look at the master first"
                ),
            );
        }
    }
    weighed.notes.extend(unknown(known, version, before));
    weighed
}

/// A note about masters whose version is not known, where it matters: the release is newer than what works here.
fn unknown(known: &KnownMasters, version: &str, before: Option<&str>) -> Option<String> {
    if before.is_some_and(|before| is_older(before, version) == Some(false)) {
        return None;
    }
    let is_known =
        |name: &String| known.told.iter().any(|told| told.name == *name && is_older(&told.version, version).is_some());
    let names: Vec<&str> = known.named.iter().filter(|name| !is_known(name)).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| {
        format!(
            "not known: the Salt version of its master {}{more}, which must not be older than {version}; a plan there (`salt-run sidle.plan`) tells this host",
            names.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ")
        )
    })
}

/// Whether a version of Salt is older than another one; None: one of them is no version that can be compared. What follows a `+` names a build.
fn is_older(one: &str, other: &str) -> Option<bool> {
    let read = |text: &str| text.split('+').next().unwrap_or_default().parse::<Version>().ok();
    Some(read(one)? < read(other)?)
}

/// A second since 1970 as a day, in UTC.
fn day(at: u64) -> String {
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_second(at).ok()).unwrap_or(Timestamp::MAX);
    at.to_zoned(TimeZone::UTC).date().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_700_000;

    fn told(name: &str, version: &str, minimum_auth_version: Option<u32>, age_days: u64) -> Told {
        let at = NOW - age_days * 86_400;
        Told { name: name.into(), version: version.into(), minimum_auth_version, at, source: "a plan".into() }
    }

    fn known(named: &[&str], told: Vec<Told>) -> KnownMasters {
        KnownMasters { named: named.iter().map(ToString::to_string).collect(), told, now: NOW }
    }

    fn release(version: &str, sign_in: u32, before: &'static str) -> Weighed {
        let known =
            known(&["m1", "m2", "m3"], vec![told("m1", "3007.17", Some(3), 1), told("m2", "3008.5", Some(2), 1)]);
        weigh(&known, AsMinion { version, sign_in: Some(sign_in), before: Some(before) })
    }

    #[test]
    fn a_release_that_is_newer_than_a_master_is_refused_with_cause_date_remedy_and_the_way_on() {
        let weighed = release("3008.5", 3, "3006.30");
        let [reason] = &weighed.reasons[..] else { panic!("{weighed:?}") };
        for part in [
            "its master m1 runs Salt 3007.17 (by a plan of 2026-11-",
            "3008.5",
            "upgrade the master first",
            "\"report\"",
        ] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert!(weighed.notes[0].contains("not known: the Salt version of its master m3"), "{weighed:?}");
        assert_eq!(weighed.notes.len(), 1, "{weighed:?}");
    }

    #[test]
    fn a_release_that_is_not_newer_is_fine_and_nobody_asks_on_the_way_back() {
        assert_eq!(release("3007.17", 3, "3008.5"), Weighed::default());
        let weighed = release("3007.17", 3, "3006.30");
        assert!(weighed.reasons.is_empty() && weighed.notes.len() == 1, "{weighed:?}");
        assert_eq!(is_older("3006.9", "3006.30"), Some(true));
        assert_eq!(is_older("3006.9+12.g0abc", "3006.9"), Some(false));
        assert_eq!(is_older("Unknown", "3006.9"), None);
    }

    #[test]
    fn a_sign_in_that_is_too_old_for_a_master_is_refused() {
        let weighed = release("3006.9", 2, "3006.30");
        let [reason] = &weighed.reasons[..] else { panic!("{weighed:?}") };
        assert!(
            reason.contains("m1 would lock the release out") && reason.contains("minimum_auth_version: 2"),
            "{reason}"
        );
    }

    #[test]
    fn a_stale_word_is_called_stale_and_refuses_nothing() {
        let old = known(&["m1"], vec![told("m1", "3006.9", Some(3), 8)]);
        let weighed = weigh(&old, AsMinion { version: "3008.5", sign_in: Some(2), before: None });
        assert!(weighed.reasons.is_empty(), "{weighed:?}");
        assert_eq!(weighed.notes.len(), 2, "{weighed:?}");
        assert!(weighed.notes.iter().all(|note| note.contains("stale")), "{weighed:?}");
    }

    #[test]
    fn a_master_whose_version_cannot_be_read_is_not_known() {
        let odd = known(&["m1"], vec![told("m1", "Sodium", None, 0)]);
        let weighed = weigh(&odd, AsMinion { version: "3008.5", sign_in: Some(3), before: None });
        assert!(weighed.reasons.is_empty() && weighed.notes[0].contains("not known"), "{weighed:?}");
    }
}
