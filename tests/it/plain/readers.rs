//! There is no instant without `current`: readers follow it and open a file through it while it moves ten thousand times.

use sidle::os::dir::Dir;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub const FLIPS: usize = 10_000;
pub const READERS: usize = 2;

pub fn flip_under_readers(root: &Path) {
    for release in ["1.0-1", "1.1-1"] {
        let directory = root.join("versions").join(release);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("release"), release).unwrap();
    }
    let directory = Dir::open(root).unwrap();
    directory.replace_symlink(Path::new("versions/1.0-1"), "current").unwrap();
    let (ended, reads, seen) =
        (AtomicBool::new(false), AtomicUsize::new(0), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    std::thread::scope(|scope| {
        let read = || {
            while !ended.load(Ordering::Relaxed) {
                let text =
                    fs::read_to_string(root.join("current/release")).expect("a reader found no file behind `current`");
                let target = fs::read_link(root.join("current")).expect("a reader found no `current`");
                assert!(target.starts_with("versions"), "{}", target.display());
                seen[usize::from(text == "1.1-1")].fetch_add(1, Ordering::Relaxed);
                assert!(["1.0-1", "1.1-1"].contains(&text.as_str()), "{text:?}");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        for number in 0..FLIPS {
            let target = ["versions/1.1-1", "versions/1.0-1"][number % 2];
            directory.replace_symlink(Path::new(target), "current").unwrap();
            if readers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                break; // one has failed: its panic comes with the scope's end
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    // Flips and reads were really mixed.
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) > 100), "{seen:?}");
    assert!(reads.load(Ordering::Relaxed) > 1_000);
    assert_eq!(fs::read_dir(root).unwrap().count(), 2, "a flip left a temporary link");
}

#[test]
fn readers_always_find_a_release_behind_current_in_memory() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    flip_under_readers(directory.path());
}
