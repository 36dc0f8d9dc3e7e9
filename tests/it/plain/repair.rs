//! A damaged tree is found out and mended: from a sibling, from the payload, by renames alone, and it ends exactly as signed.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests make and look at real files")]

use crate::plain::rebuild::{EMPTY, Pair};
use crate::support::inside::Inside;
use crate::support::mounts::Mounted;
use crate::support::trees;
use sidle::bundle::file::BundledPayload;
use sidle::bundle::manifest::{EntryKind, Frame};
use sidle::bundle::rebuild::frames_of;
use sidle::bundle::unpack::PayloadSource;
use sidle::digest::Digest;
use sidle::os::dir::Dir;
use sidle::store::Store;
use sidle::store::check::{Defect, Depth, compare, index_of, suspects};
use sidle::store::incident::Occasion;
use sidle::store::repair::{NoPayload, Repaired};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A host that has both releases of a pair.
pub struct Host {
    pub inside: Inside,
    pub store: Store,
}

impl Host {
    pub fn new(pair: &Pair) -> Self {
        Self::with_second(pair, pair.host())
    }

    /// A host on a disk that has the second release alone.
    pub fn on(disk: &Mounted, pair: &Pair) -> Self {
        Self::with_second(pair, Inside::below(&disk.path(), &pair.repo.root()))
    }

    pub fn with_second(pair: &Pair, inside: Inside) -> Self {
        inside.install(&fs::read(&pair.second.1).unwrap()).unwrap();
        let store = inside.store_of("demo");
        Self { inside, store }
    }

    pub fn tree(&self) -> PathBuf {
        self.inside.path("opt/sidle/demo/versions/2.0-1")
    }

    pub fn problems(&self, depth: Depth) -> Vec<(String, Defect)> {
        let problems = self.store.check(&"2.0-1".parse().unwrap(), depth).unwrap();
        let text = |path: PathBuf| path.into_os_string().into_string().unwrap();
        problems.into_iter().map(|problem| (text(problem.path), problem.defect)).collect()
    }

    pub fn repair(&self, depth: Depth, payload: &mut dyn PayloadSource) -> Repaired {
        let lock = self.store.lock().unwrap();
        self.store.repair(&lock, &"2.0-1".parse().unwrap(), (depth, Occasion::Request), payload).unwrap()
    }

    pub fn has_other_owners(&self) -> bool {
        let mut directories = vec![self.tree()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let metadata = fs::symlink_metadata(entry.as_ref().unwrap().path()).unwrap();
                if metadata.uid() != 0 || metadata.gid() != 0 {
                    return true;
                }
                if metadata.is_dir() {
                    directories.push(entry.unwrap().path());
                }
            }
        }
        false
    }

    /// The second release's tree.
    pub fn release(&self) -> crate::support::inside::Contents {
        trees::contents(&self.tree())
    }
}

/// A thing that happens to an entry.
#[derive(Debug, Clone, Copy)]
pub enum Harm {
    Delete,
    Truncate,
    Flip,
    Mode,
    Owner,
    Link,
    Directory,
    Pipe,
    Device,
    Foreign,
    Swap,
}

pub const HARMS: [Harm; 11] = [
    Harm::Delete,
    Harm::Truncate,
    Harm::Flip,
    Harm::Mode,
    Harm::Owner,
    Harm::Link,
    Harm::Directory,
    Harm::Pipe,
    Harm::Device,
    Harm::Foreign,
    Harm::Swap,
];

pub fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

pub fn harm(tree: &Path, path: &Path, other: &Path, harm: Harm) {
    let path = tree.join(path);
    let Ok(metadata) = fs::symlink_metadata(&path) else { return };
    let parent = path.parent().unwrap();
    match harm {
        Harm::Truncate if metadata.is_file() => {
            fs::File::options().write(true).open(&path).unwrap().set_len(metadata.len() / 2).unwrap();
        }
        Harm::Flip if metadata.is_file() && metadata.len() > 0 => {
            let file = fs::File::options().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, metadata.len() / 2).unwrap();
            file.write_all_at(&[byte[0] ^ 1], metadata.len() / 2).unwrap();
            file.set_modified(metadata.modified().unwrap()).unwrap();
        }
        Harm::Mode if !metadata.is_symlink() => {
            fs::set_permissions(&path, fs::Permissions::from_mode(metadata.mode() & 0o7777 ^ 0o022)).unwrap();
        }
        Harm::Owner => std::os::unix::fs::lchown(&path, Some(12_345), Some(54_321)).unwrap(),
        Harm::Link => {
            remove(&path);
            std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        }
        Harm::Directory => {
            remove(&path);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("inside"), "x").unwrap();
        }
        Harm::Pipe => {
            remove(&path);
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
        Harm::Device => {
            remove(&path);
            assert!(std::process::Command::new("mknod").arg(&path).args(["c", "1", "3"]).status().unwrap().success());
        }
        Harm::Foreign if parent.is_dir() => fs::write(parent.join("sitecustomize.py"), "raise SystemExit").unwrap(),
        Harm::Swap => {
            let other = tree.join(other);
            let two = fs::symlink_metadata(&other).is_ok_and(|other| other.is_file()) && metadata.is_file();
            if two && other != path {
                let spare = tree.join("spare");
                fs::rename(&path, &spare).unwrap();
                fs::rename(&other, &path).unwrap();
                fs::rename(&spare, &other).unwrap();
            }
        }
        Harm::Delete | Harm::Truncate | Harm::Flip | Harm::Mode | Harm::Foreign => remove(&path),
    }
}

/// Gives a file of an unmounted ext4 this time of its inode's last change, which no system call sets.
pub fn forge_ctime(image: &Path, path: &Path, known: &fs::Metadata) {
    // Its two lowest bits are those of the seconds that 32 bits don't hold, from 2038 on.
    let (seconds, extra) = (known.ctime(), known.ctime_nsec() << 2);
    let path = path.display();
    let script = format!("set_inode_field {path} ctime @{seconds}\nset_inode_field {path} ctime_extra {extra}\n");
    let commands = image.with_file_name("commands");
    fs::write(&commands, script).unwrap();
    let mut debugfs = std::process::Command::new("debugfs");
    debugfs.arg("-w").arg("-f").arg(commands).arg(image).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    assert!(debugfs.output().expect("cannot start debugfs: apt-get install e2fsprogs").status.success());
}

#[test]
fn a_repair_takes_from_the_sibling_first_and_asks_for_the_frames_of_the_rest_only() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    for path in ["lib/same3", "lib/same4", "lib/big"] {
        fs::remove_file(host.tree().join(path)).unwrap();
    }
    let mut payload = pair.payload();
    let repaired = host.repair(Depth::Quick, &mut payload);
    assert_eq!((repaired.mended.len(), payload.asked.len()), (3, 0), "{repaired:?}");
    fs::remove_file(host.tree().join("lib/more/added")).unwrap();
    fs::remove_file(host.tree().join("lib/same5")).unwrap();
    let offline = host.repair(Depth::Quick, &mut NoPayload);
    assert_eq!(offline.mended, ["lib/same5"]);
    assert_eq!(offline.left.len(), 1, "{offline:?}");
    assert!(offline.left[0].path == Path::new("lib/more/added") && offline.unreachable.is_some(), "{offline:?}");
    let repaired = host.repair(Depth::Quick, &mut payload);
    assert!(repaired.left.is_empty() && repaired.mended == ["lib/more/added"], "{repaired:?}");
    let manifest = &pair.second.2.manifest;
    let EntryKind::File { frame, .. } =
        manifest.entries.iter().find(|entry| entry.path.as_str() == "lib/more/added").unwrap().kind
    else {
        panic!("it is a file")
    };
    assert_eq!(payload.asked, [manifest.frames[frame as usize]]);
}

#[test]
fn what_a_release_has_many_times_and_has_lost_comes_from_the_sibling() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    for number in 0..EMPTY {
        fs::remove_file(host.tree().join(format!("lib/empty{number}"))).unwrap();
    }
    let repaired = host.repair(Depth::Quick, &mut NoPayload);
    assert!(repaired.left.is_empty() && repaired.mended.len() as u64 == EMPTY, "{repaired:?}");
}

#[test]
fn single_frames_come_from_their_places_in_a_bundle_of_several_releases() {
    let pair = Pair::new();
    let packed = &pair.second.2;
    let bundle = pair.both();
    let mut payload = BundledPayload::new(fs::File::open(&bundle).unwrap(), &packed.manifest);
    let all = &packed.manifest.frames;
    assert!(all.len() >= 3, "too few to leave some out");
    let (odd, even): (Vec<(usize, Frame)>, Vec<_>) = all.iter().copied().enumerate().partition(|(at, _)| at % 2 == 1);
    // Leaving frames out; the second time from the beginning again.
    for some in [odd, even] {
        let mut frames = payload.frames(all).unwrap();
        for (_, frame) in some {
            assert_eq!(Digest::of(&frames.next(&frame).unwrap()), frame.sha256);
        }
        frames.end().unwrap();
    }
    let past = Frame { offset: packed.manifest.payload.length + 1, ..all[0] };
    assert!(payload.frames(all).unwrap().next(&past).is_err());
    let first = fs::File::open(&pair.first.1).unwrap();
    assert!(BundledPayload::new(first, &packed.manifest).frames(all).is_err(), "the file has another release");
}

#[test]
fn a_file_with_only_what_changed_gives_the_frames_that_it_has() {
    let pair = Pair::new();
    let manifest = &pair.second.2.manifest;
    let since = [pair.first.0.release.clone()];
    let bundle = pair.repo.export_since(std::slice::from_ref(&pair.second.0), &since, "part.sidle");
    let mut payload = BundledPayload::new(fs::File::open(&bundle).unwrap(), manifest);
    let own = manifest.generations.iter().position(|release| *release == manifest.release());
    let has = |frame: &Frame, payload: &mut BundledPayload<'_>| match payload.frames(&[]).unwrap().next(frame) {
        Ok(bytes) => Digest::of(&bytes) == frame.sha256,
        Err(_) => false,
    };
    // Its own frames are in it, but for those of directories, links and the end, which the manifest describes.
    let with_files = frames_of(manifest, &(0..manifest.entries.len()).collect::<Vec<_>>());
    for frame in &with_files {
        assert_eq!(has(frame, &mut payload), Some(frame.generation as usize) == own, "{frame:?}");
    }
}

#[test]
fn a_file_that_changed_in_the_moment_of_its_index_is_looked_into_again() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let (tree, manifest) = (Dir::open(&host.tree()).unwrap(), &pair.second.2.manifest);
    let path = host.tree().join("lib/same1");
    fs::write(&path, vec![b'?'; 3000]).unwrap();
    // The stat of the index is that of the bad file: only the time at which it was taken tells that it can't be relied on.
    let index = index_of(&tree, manifest, Digest::of(b"manifest")).unwrap();
    let changed = fs::metadata(&path).unwrap();
    let (seconds, nanoseconds) = (changed.ctime(), u32::try_from(changed.ctime_nsec()).unwrap());
    let found = |taken| compare(&tree, manifest, Some(&index), &suspects(&tree, &index, taken), 2).problems;
    for taken in [(seconds, nanoseconds), (seconds - 1, nanoseconds)] {
        let problems = found(taken);
        assert!(problems.len() == 1 && problems[0].path == Path::new("lib/same1"), "{problems:?}");
    }
    assert!(found((seconds + 1, nanoseconds)).is_empty(), "the full check is for what hides itself");
}

#[test]
fn what_changed_just_now_is_not_remembered_as_sound() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let index = host.inside.path("var/lib/sidle/demo/2.0-1/index");
    let path = host.tree().join("lib/same1");
    let metadata = fs::metadata(&path).unwrap();
    let change = || std::os::unix::fs::lchown(&path, Some(metadata.uid()), Some(metadata.gid())).unwrap();
    // A slow machine may take longer for the check than a change stays young: then it proves nothing, and is done again.
    let proven = (0..20).any(|_| {
        let before = fs::read(&index).unwrap();
        let begun = Instant::now();
        change();
        assert!(host.problems(Depth::Quick).is_empty());
        let is_as_it_was = fs::read(&index).unwrap() == before;
        let in_time = begun.elapsed() < Duration::from_millis(1500);
        assert!(!in_time || is_as_it_was, "a later change in the same moment would not be seen");
        in_time
    });
    assert!(proven, "too slow a machine");
}

#[test]
fn a_process_that_has_a_broken_file_open_keeps_it() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let path = host.tree().join("lib/same9");
    let mut open = fs::File::open(&path).unwrap();
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"?", 0).unwrap();
    host.repair(Depth::Quick, &mut NoPayload);
    let mut kept = Vec::new();
    open.read_to_end(&mut kept).unwrap();
    let mended = fs::read(&path).unwrap();
    assert!(kept[0] == b'?' && kept[1..] == mended[1..] && mended[0] != b'?');
    assert_ne!(open.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
}

#[test]
fn what_does_not_belong_is_set_aside_and_not_thrown_away() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    fs::create_dir(host.tree().join("lib/evil")).unwrap();
    fs::write(host.tree().join("lib/evil/hook.pth"), "import os").unwrap();
    let repaired = host.repair(Depth::Quick, &mut NoPayload);
    assert!(repaired.left.is_empty() && repaired.mended.is_empty(), "{repaired:?}");
    let (path, place) = &repaired.aside[0];
    assert_eq!(path, "lib/evil");
    assert_eq!(fs::read_to_string(place.join("hook.pth")).unwrap(), "import os");
    assert!(!host.tree().join("lib/evil").exists());
}

/// The text of such a name is the name of no entry: the whole repair failed with it.
#[test]
fn a_foreign_name_that_is_no_text_is_set_aside_too() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let name = std::ffi::OsStr::from_bytes(b"evil\xff.pth");
    fs::write(host.tree().join("lib").join(name), "import os").unwrap();
    fs::write(host.tree().join("lib/same1"), "other").unwrap();
    let repaired = host.repair(Depth::Quick, &mut NoPayload);
    assert!(repaired.left.is_empty() && repaired.mended == ["lib/same1"], "{repaired:?}");
    let (path, place) = &repaired.aside[0];
    assert_eq!(path, "lib/evil\u{fffd}.pth");
    assert_eq!(fs::read_to_string(place).unwrap(), "import os");
}

#[test]
fn what_cannot_be_set_aside_is_named_and_the_rest_is_mended() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    fs::write(host.inside.path("opt/sidle/demo/aside"), "no directory").unwrap();
    fs::create_dir(host.tree().join("lib/evil")).unwrap();
    fs::write(host.tree().join("lib/same1"), "other").unwrap();
    fs::remove_file(host.tree().join("lib/same2")).unwrap();
    fs::create_dir(host.tree().join("lib/same2")).unwrap();
    let repaired = host.repair(Depth::Quick, &mut NoPayload);
    assert_eq!(repaired.mended, ["lib/same1"], "{repaired:?}");
    let left: Vec<&Path> = repaired.left.iter().map(|problem| problem.path.as_path()).collect();
    assert_eq!(left, [Path::new("lib/same2"), Path::new("lib/evil")]);
    let words: Vec<String> = repaired.stuck_words().collect();
    assert!(
        words.len() == 2 && words[1].starts_with("lib/evil cannot be set aside: cannot open directory "),
        "{words:?}"
    );
}

#[test]
fn a_touch_of_every_file_is_looked_into_once_and_is_no_damage() {
    let pair = Pair::new();
    let host = Host::new(&pair);
    let index = host.inside.path("var/lib/sidle/demo/2.0-1/index");
    let before = fs::read(&index).unwrap();
    // As restorecon does: the same bits again change the ctime alone.
    for entry in &pair.second.2.manifest.entries {
        let path = host.tree().join(entry.path.as_path());
        let metadata = fs::symlink_metadata(&path).unwrap();
        std::os::unix::fs::lchown(&path, Some(metadata.uid()), Some(metadata.gid())).unwrap();
    }
    assert!(host.problems(Depth::Quick).is_empty());
    crate::support::eventually(10, "the index is renewed once the changes are old enough", || {
        assert!(host.problems(Depth::Quick).is_empty());
        if fs::read(&index).unwrap() == before { Err("it is as it was".to_owned()) } else { Ok(()) }
    });
    // From then on nothing is hashed: the index stays as it is.
    crate::support::eventually(10, "nothing is left to learn", || {
        let known = fs::read(&index).unwrap();
        assert!(host.problems(Depth::Quick).is_empty());
        if fs::read(&index).unwrap() == known { Ok(()) } else { Err("it has changed".to_owned()) }
    });
    fs::write(host.tree().join("lib/same1"), "other").unwrap();
    assert_eq!(host.problems(Depth::Quick), [("lib/same1".to_owned(), Defect::Content)]);
}
