//! A bundle file with only what changed since a release: on a host with that release it is as good as the whole file, and on any other it is refused
//! before anything is written.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use super::rebuild::Pair;
use crate::support::inside::Inside;
use sidle::failure::Class;
use sidle::repository::RepositoryError;
use std::fs;
use std::os::unix::fs::FileExt as _;

/// The second release, for hosts with the first.
fn part(pair: &Pair) -> Vec<u8> {
    let since = [pair.first.0.release.clone()];
    fs::read(pair.repo.export_since(std::slice::from_ref(&pair.second.0), &since, "part.sidle")).unwrap()
}

#[test]
fn a_host_with_the_release_before_it_gets_the_same_tree_from_a_small_file() {
    let pair = Pair::new();
    let (part, whole) = (part(&pair), fs::read(&pair.second.1).unwrap());
    assert!(part.len() * 20 < whole.len(), "{} of {}", part.len(), whole.len());
    let (host, other) = (pair.host(), pair.host());
    assert!(host.install(&part).unwrap().fresh);
    other.install(&whole).unwrap();
    assert_eq!(host.store(), other.store());
    assert!(!host.install(&part).unwrap().fresh, "again: there is nothing to do");
}

#[test]
fn a_host_that_lacks_more_refuses_it_and_nothing_is_written() {
    let pair = Pair::new();
    let part = part(&pair);
    let host = Inside::new(&pair.repo.root());
    let refused = host.install(&part).unwrap_err();
    assert_eq!(refused.class, Class::Failed, "{refused:?}");
    assert!(refused.message.contains("only what changed since 1.0-1"), "{refused:?}");
    assert!(refused.hint.as_deref().unwrap().contains("install demo 1.0-1 first"), "{refused:?}");
    assert!(host.store().is_empty());
    // A file of the first release that is not what it should be is found out as it is copied.
    let host = pair.host();
    let same = host.path("opt/sidle/demo/versions/1.0-1/lib/same7");
    fs::File::options().write(true).open(&same).unwrap().write_all_at(b"?", 1500).unwrap();
    let before = host.store();
    let refused = host.install(&part).unwrap_err();
    assert!(refused.hint.as_deref().unwrap().contains("sidle repair demo"), "{refused:?}");
    assert_eq!(host.store(), before);
}

#[test]
fn a_damaged_part_is_refused_wherever_it_is_damaged_or_cut() {
    let pair = Pair::new();
    let part = part(&pair);
    let mut host = pair.host();
    let before = host.store();
    host.install(&part).unwrap();
    let whole = host.store();
    host = pair.host();
    // The metadata comes first, in which no signature has all bytes: what is accepted is then as it was signed.
    let metadata = part.windows(8).position(|bytes| bytes == b"targets/").unwrap();
    let places = (0..part.len()).step_by(211).chain([part.len() - 1, part.len() - 1024, part.len() - 1025]);
    for place in places {
        let mut damaged = part.clone();
        damaged[place] ^= 1;
        if host.install(&damaged).is_err() {
            assert_eq!(host.store(), before, "byte {place}");
        } else {
            assert!(place < metadata && host.store() == whole, "byte {place} of {}", part.len());
            host = pair.host();
        }
    }
    for length in (0..part.len()).step_by(1009).chain([part.len() - 1]) {
        assert!(host.install(&part[..length]).is_err(), "cut after {length} of {}", part.len());
    }
    assert_eq!(host.store(), before);
    assert!(host.install(&part).unwrap().fresh);
}

#[test]
fn only_a_release_that_the_repository_has_can_be_the_one_before() {
    let pair = Pair::new();
    let output = pair.repo.directory.path().join("none.sidle");
    for since in ["0.9-1", "2.0-1"] {
        let ids = std::slice::from_ref(&pair.second.0);
        let refused = pair.repo.open().export(ids, &[since.parse().unwrap()], &output, pair.repo.now).unwrap_err();
        assert!(
            matches!(&refused, RepositoryError::NoSince { since: named, .. } if named.contains(since)),
            "{refused}"
        );
        assert!(!output.exists());
    }
}
