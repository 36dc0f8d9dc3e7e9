//! File systems that a test makes, mounts and unmounts. A machine that can't mount fails the test: it is skipped nowhere in silence.

use super::stage::text;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How often and after what pause unmounting is tried.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);
/// The block of a file system that may break.
const BRITTLE_BLOCK_BYTES: u64 = 4096;
/// xfs takes no less. The image is sparse.
const JOURNALED_BYTES: u64 = 320 << 20;

/// A mounted file system; unmounted when dropped.
pub struct Mounted {
    point: PathBuf,
    _directory: Option<TempDir>,
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "this test needs root and mounts: {program} {arguments:?}: {said}");
}

impl Mounted {
    fn new(arguments: &dyn Fn(&Path) -> Vec<String>) -> Self {
        let directory = tempfile::Builder::new().prefix("mount").tempdir().unwrap();
        std::fs::create_dir(directory.path().join("here")).unwrap();
        let arguments = arguments(directory.path());
        let point = directory.path().join("here");
        let words: Vec<&str> = arguments.iter().map(String::as_str).chain([text(&point)]).collect();
        run("mount", &words);
        Self { point, _directory: Some(directory) }
    }

    /// A file system in memory at a directory that is there already.
    pub fn tmpfs_at(point: &Path, options: &str) -> Self {
        run("mount", &["-t", "tmpfs", "-o", options, "sidle-test", text(point)]);
        Self { point: point.to_owned(), _directory: None }
    }

    /// A file system in memory with these options: `size=1m`.
    pub fn tmpfs(options: &str) -> Self {
        Self::new(&|_| ["-t", "tmpfs", "-o", options, "sidle-test"].map(str::to_owned).to_vec())
    }

    /// An ext4 of `mebibytes` in a file, with `inodes`.
    pub fn ext4(mebibytes: u64, inodes: u64) -> Self {
        Self::new(&|directory| {
            let image = directory.join("image");
            std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
            run("mkfs.ext4", &["-q", "-N", &inodes.to_string(), "-O", "^has_journal", text(&image)]);
            ["-o", "loop", text(&image)].map(str::to_owned).to_vec()
        })
    }

    /// An ext4 of 64 MiB with blocks of `BRITTLE_BLOCK_BYTES`, of which some can be made unreadable.
    pub fn brittle() -> Self {
        Self::new(&|directory| {
            let image = directory.join("image");
            std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
            let block = BRITTLE_BLOCK_BYTES.to_string();
            run("mkfs.ext4", &["-q", "-b", &block, "-N", "8192", "-O", "^has_journal", text(&image)]);
            ["-o", "loop", text(&image)].map(str::to_owned).to_vec()
        })
    }

    /// What lies from this block on, and is not in memory, can't be read any more (EIO): the loop device ends there. What is written there anew can.
    pub fn break_from(&self, block: u64) {
        let image = std::fs::File::options().write(true).open(self.point.with_file_name("image")).unwrap();
        image.set_len(block * BRITTLE_BLOCK_BYTES).unwrap();
    }

    /// A file system with a journal on a loop device: `ext4` or `xfs`, as small as both may be.
    pub fn journaled(kind: &str) -> Self {
        Self::new(&|directory| {
            let image = directory.join("image");
            std::fs::File::create(&image).unwrap().set_len(JOURNALED_BYTES).unwrap();
            run(&format!("mkfs.{kind}"), &["-q", text(&image)]);
            ["-t", kind, "-o", "loop", text(&image)].map(str::to_owned).to_vec()
        })
    }

    /// A power cut: whatever is not on the disk yet is lost, and nothing can be written any more. `offline` brings the file system back.
    #[expect(unsafe_code, reason = "no library has a safe call for it")]
    pub fn cut_power(&self) {
        use rustix::ioctl::{Setter, ioctl, opcode};
        // FS_IOC_SHUTDOWN of linux/fs.h (XFS_IOC_GOINGDOWN, EXT4_IOC_SHUTDOWN), and its flag NOLOGFLUSH: the journal's memory is lost, too.
        const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
        const NOLOGFLUSH: u32 = 2;
        let point = std::fs::File::open(&self.point).unwrap();
        // SAFETY: the call reads one u32, which outlives it.
        unsafe { ioctl(&point, Setter::<SHUTDOWN, u32>::new(NOLOGFLUSH)) }
            .expect("this test needs file systems that can be shut down");
    }

    /// Unmounts what `ext4` and `journaled` made, lets somebody work on the image, and mounts it again. Nothing on it may be open.
    pub fn offline(&self, work: impl FnOnce(&Path)) {
        let image = self.point.with_file_name("image");
        // What was killed just now closes its files after it has left /proc's lists of what is alive.
        super::eventually(20, "the file system is not busy", || self.unmount());
        // A mount namespace that was made meanwhile (other tests make some) has a copy: the file system is off when its loop device is free.
        super::eventually(120, "the image is mounted nowhere", || {
            let users = Command::new("losetup").args(["--associated", text(&image)]).output().unwrap().stdout;
            if users.is_empty() { Ok(()) } else { Err(String::from_utf8_lossy(&users).into_owned()) }
        });
        work(&image);
        run("mount", &["-o", "loop", text(&image), text(&self.point)]);
    }

    fn unmount(&self) -> Result<(), String> {
        let output = Command::new("umount").arg(&self.point).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }

    /// At a directory that is there already: what lies in `lower`, which nothing changes; changes go into a directory below `place`.
    pub fn overlay_at(point: &Path, lower: &Path, place: &Path) -> Self {
        let (upper, work) = (place.join("upper"), place.join("work"));
        for each in [&upper, &work] {
            std::fs::create_dir(each).unwrap();
        }
        let options = format!("lowerdir={},upperdir={},workdir={}", text(lower), text(&upper), text(&work));
        run("mount", &["-t", "overlay", "-o", &options, "sidle-test", text(point)]);
        Self { point: point.to_owned(), _directory: None }
    }

    /// `from` once more, at this mount.
    pub fn bind(from: &Path) -> Self {
        Self::new(&|_| ["--bind", text(from)].map(str::to_owned).to_vec())
    }

    pub fn path(&self) -> PathBuf {
        self.point.clone()
    }

    /// Nobody may write any more.
    pub fn make_read_only(&self) {
        run("mount", &["-o", "remount,ro", text(&self.path())]);
    }

    /// They may again.
    pub fn make_writable(&self) {
        run("mount", &["-o", "remount,rw", text(&self.path())]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was killed just now may have a file open for a moment more.
        for _ in 0..TRIES {
            if self.unmount().is_ok() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        // A second panic while one unwinds would abort the other tests: what stays mounted is told instead.
        eprintln!("still mounted: {}", self.point.display());
    }
}
