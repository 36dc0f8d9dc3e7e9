//! What is made of reports that releases of Salt once gave of one host: `scripts/bench reports` (`salt::rehearsal::record_reports`) recorded them, and
//! `salt::rehearsal` shows that releases still report so.

use sidle::rehearsal::Rehearsal;
use sidle::salt::rehearsal::compare::compare;
use sidle::salt::rehearsal::report::RehearsalReport;

const OLD: &[u8] = include_bytes!("rehearsal/3006.30.json.zst");
const NEW: &[u8] = include_bytes!("rehearsal/3008.5.json.zst");

fn report(recorded: &[u8]) -> RehearsalReport {
    RehearsalReport::parse(&zstd::decode_all(recorded).unwrap()).unwrap()
}

/// The text of the finding that holds `part`; there must be exactly one.
fn one<'a>(found: &'a [String], part: &str) -> &'a str {
    let hits: Vec<&String> = found.iter().filter(|text| text.contains(part)).collect();
    assert_eq!(hits.len(), 1, "{part}: {found:?}");
    hits[0]
}

#[test]
fn what_the_older_release_never_had_is_found() {
    let found: Rehearsal = compare(&report(OLD), Some(Ok(&report(NEW))));
    one(&found.blocking, "site_trace");
    let fragile = one(&found.blocking, "site_fragile");
    assert!(fragile.contains("fails when its grains are read: KeyError: 'gone'"), "{fragile}");
    assert_eq!(found.blocking.len(), 2, "{:?}", found.blocking);
    one(&found.notes, "don't count: site_broken");
}

#[test]
fn what_the_newer_release_has_lost_is_found() {
    let found = compare(&report(NEW), Some(Ok(&report(OLD))));
    for part in ["site_vault", "custom sdb module site_sdb", "schedule zone", "beacon wtmp needs the beacon wtmp"] {
        one(&found.blocking, part);
    }
    assert_eq!(found.blocking.len(), 4, "{:?}", found.blocking);
    assert!(one(&found.notes, "would vanish: site_old").contains("zfs_support"));
}

#[test]
fn without_a_former_release_only_what_is_this_hosts_own_counts() {
    let found = compare(&report(NEW), None);
    for part in ["site_vault", "site_sdb", "site_broken", "timezone.get_zone", "beacon wtmp"] {
        one(&found.blocking, part);
    }
    assert_eq!((found.blocking.len(), found.notes.len()), (5, 0), "{found:?}");
}

#[test]
fn the_same_release_on_the_same_host_loses_nothing() {
    for recorded in [OLD, NEW] {
        let found = compare(&report(recorded), Some(Ok(&report(recorded))));
        assert!(!found.refuses(), "{found:?}");
    }
}
