//! What of `plain::repair` needs root or a package: see there.

use crate::plain::rebuild::Pair;
use crate::plain::repair::*;
use crate::support::mounts::Mounted;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use sidle::store::check::{Defect, Depth};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[test]
fn random_damage_is_found_by_both_checks_and_mended_to_the_signed_tree() {
    random_damage(300);
}

#[test]
#[ignore = "`scripts/test --long`: the same with more rounds"]
fn random_damage_of_a_thousand_rounds() {
    random_damage(1000);
}

fn random_damage(rounds: usize) {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let whole = host.release();
    let manifest = &pair.second.2.manifest;
    let paths: Vec<PathBuf> = manifest.entries.iter().map(|entry| entry.path.as_path().to_owned()).collect();
    let one = (0..HARMS.len(), 0..paths.len(), 0..paths.len());
    let strategy = prop::collection::vec(one, 1..5);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for round in 0..rounds {
        let harms = strategy.new_tree(&mut runner).unwrap().current();
        for (what, path, other) in &harms {
            harm(&host.tree(), &paths[*path], &paths[*other], HARMS[*what]);
        }
        let (quick, full) = (host.problems(Depth::Quick), host.problems(Depth::Full));
        assert_eq!(quick, full, "round {round}: {harms:?}");
        if full.is_empty() {
            // Two swaps of the same files are no damage.
            assert!(host.release() == whole && !host.has_other_owners(), "round {round}: {harms:?}");
            continue;
        }
        let repaired = host.repair(Depth::Quick, &mut pair.payload());
        assert!(repaired.left.is_empty(), "round {round}: {harms:?}: {repaired:?}");
        assert_eq!(host.release(), whole, "round {round}: {harms:?}");
        assert!(host.problems(Depth::Full).is_empty(), "round {round}");
        assert!(!host.has_other_owners(), "round {round}: {harms:?}");
        remove(&host.inside.path("opt/sidle/demo/aside"));
    }
}

#[test]
fn mount_a_forged_ctime_hides_a_change_from_the_quick_check_and_not_from_the_full_one() {
    let pair = Pair::new();
    let disk = Mounted::ext4(64, 1024);
    let host = Host::on(&disk, &pair);
    let (path, whole) = (host.tree().join("lib/same1"), host.release());
    let times = |path: &Path| {
        let stat = fs::metadata(path).unwrap();
        [(stat.ctime(), stat.ctime_nsec()), (stat.mtime(), stat.mtime_nsec())]
    };
    let (known, before) = (fs::metadata(&path).unwrap(), times(&path));
    // What changed just before its index was written is hashed anyhow, until a later index knows it.
    let index = host.inside.path("var/lib/sidle/demo/2.0-1/index");
    crate::support::eventually(10, "the index is younger than the file by more than a clock's tick", || {
        assert!(host.problems(Depth::Quick).is_empty());
        let (taken, changed) = (fs::metadata(&index).unwrap(), known.ctime() * 1000 + known.ctime_nsec() / 1_000_000);
        if taken.mtime() * 1000 + taken.mtime_nsec() / 1_000_000 > changed + 20 {
            Ok(())
        } else {
            Err(format!("{taken:?}"))
        }
    });

    harm(&host.tree(), Path::new("lib/same1"), Path::new(""), Harm::Flip);
    let changed = [("lib/same1".to_owned(), Defect::Content)];
    assert_eq!(host.problems(Depth::Quick), changed, "the control: the inode's time tells");
    disk.offline(|image| forge_ctime(image, &Path::new("/").join(path.strip_prefix(disk.path()).unwrap()), &known));
    assert_eq!((times(&path), fs::metadata(&path).unwrap().ino()), (before, known.ino()), "nothing was forged");

    assert!(host.problems(Depth::Quick).is_empty(), "something else than the content tells");
    assert_eq!(host.problems(Depth::Full), changed);
    let repaired = host.repair(Depth::Full, &mut pair.payload());
    assert!(repaired.left.is_empty() && repaired.mended == ["lib/same1"], "{repaired:?}");
    assert_eq!(host.release(), whole);
    assert!(host.problems(Depth::Full).is_empty());
}

#[test]
fn a_spoiled_index_is_made_anew_once_everything_was_found_sound() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let index = host.inside.path("var/lib/sidle/demo/2.0-1/index");
    let before = fs::read(&index).unwrap();
    fs::write(&index, "spoiled").unwrap();
    std::os::unix::fs::lchown(host.tree().join("lib/same1"), Some(12_345), None).unwrap();
    assert_eq!(host.problems(Depth::Quick), [("lib/same1".to_owned(), Defect::Owner(12_345, 0))]);
    assert_eq!(fs::read(&index).unwrap(), b"spoiled", "a damaged tree makes no index");
    std::os::unix::fs::lchown(host.tree().join("lib/same1"), Some(0), None).unwrap();
    crate::support::eventually(10, "the index is made anew", || {
        assert!(host.problems(Depth::Quick).is_empty());
        let length = fs::read(&index).unwrap().len();
        if length == before.len() { Ok(()) } else { Err(length.to_string()) }
    });
}
