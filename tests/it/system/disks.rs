//! File systems that refuse: read-only, without a free inode, with blocks that can't be read any more. Each command says what refuses, and leaves
//! everything as it was; what only reads goes on, and the agent runs. And a file system that lets files share their blocks.

use crate::plain::rebuild::{BIG_BYTES, Pair};
use crate::support::eventually;
use crate::support::inside::Inside;
use crate::support::mounts::Mounted;
use crate::support::stage::{Author, DEMO, Host, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A host on a file system of its own: 1.0 ran last, 1.1 is installed, 1.2 is published.
struct OnDisk {
    host: Host,
    author: Author,
    newest: PathBuf,
    /// Unmounted after what lies on it is gone.
    disk: Mounted,
}

impl OnDisk {
    fn new(disk: Mounted) -> Self {
        Self::with(disk, |_| ())
    }

    /// `last`: what is done on the host before it comes to the disk, with a supervisor.
    fn with(disk: Mounted, last: impl FnOnce(&Host)) -> Self {
        let author = Author::new();
        let bundles = ["1.0", "1.1"].map(|version| author.release(version, "good"));
        let newest = author.release("1.2", "good");
        let host = Host::new(&author);
        for bundle in &bundles {
            host.install(bundle).ok();
        }
        let supervisor = host.supervise();
        host.sidle(&["switch", DEMO, "1.0-1"]).ok();
        last(&host);
        assert_eq!(supervisor.end(), Some(0));
        // What the system keeps in memory is no part of the disk.
        fs::remove_dir_all(host.path("run")).unwrap();
        let host = host.copy_to(&disk.path());
        fs::create_dir_all(host.path("run")).unwrap();
        Self { host, author, newest, disk }
    }

    /// Every command that puts something on a host, as it would be given now.
    fn changes(&self) -> Vec<Vec<String>> {
        let url = format!("file://{}", self.author.repository().display());
        let copy = self.host.path("copy");
        let from = ["--repository", url.as_str()];
        let commands: [&[&str]; 9] = [
            &["install", text(&self.newest)],
            &[&["install", DEMO][..], &from].concat(),
            &[&["upgrade", DEMO][..], &from].concat(),
            &["switch", DEMO, "1.1-1"],
            &["restart", DEMO],
            &["hold", DEMO],
            &["repair", DEMO, "1.1-1", "--from", text(&self.newest)],
            &["trust", "reset-clock"],
            &[&["mirror", text(&copy)][..], &from].concat(),
        ];
        commands.iter().map(|command| command.iter().map(|word| (*word).to_owned()).collect()).collect()
    }

    /// What lies on the disk: paths with their sizes and contents' digests.
    fn content(&self) -> BTreeMap<PathBuf, String> {
        let mut content = BTreeMap::new();
        let mut open = vec![self.host.root()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                let told = if kind.is_file() {
                    sidle::digest::Digest::of(&fs::read(&path).unwrap()).to_string()
                } else if kind.is_dir() {
                    open.push(path.clone());
                    "a directory".to_owned()
                } else {
                    format!("{kind:?}")
                };
                content.insert(path, told);
            }
        }
        content
    }

    /// Each change is refused with these words, or has nothing to change.
    fn refuses(&self, words: &[&str]) {
        let before = self.content();
        let mut refused = 0;
        for command in self.changes() {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let ran = self.host.sidle(&arguments);
            println!("{command:?}: {ran:?}");
            match ran.code {
                Some(1..=12) if ran.code != Some(3) && words.iter().any(|word| ran.stderr.contains(word)) => {
                    refused += 1;
                }
                Some(0 | 3) => {}
                _ => panic!("{command:?}: {ran:?}"),
            }
            assert_eq!(self.content(), before, "{command:?}: {ran:?}");
        }
        assert!(refused > 5, "only {refused}");
    }

    /// Puts a file behind everything else on the disk: what breaks from its block on is this file alone, also where the kernel's memory is short and it
    /// reads the rest again.
    fn move_to_the_end(&self, file: &Path) {
        let filler = self.disk.path().join("filler");
        let space = fs::File::create(&filler).unwrap();
        rustix::fs::fallocate(&space, rustix::fs::FallocateFlags::empty(), 0, 40 << 20).unwrap();
        let copy = self.disk.path().join("copy");
        assert!(Command::new("cp").arg("-p").args([file, &copy]).status().unwrap().success());
        rustix::fs::sync();
        fs::rename(&copy, file).unwrap();
        fs::remove_file(&filler).unwrap();
    }

    /// Runs a supervisor as the kernel leaves a host after an error of the disk: what lies in memory can be written. Its log at the end.
    fn runs_in_memory(&self, check: impl FnOnce(&Host)) -> String {
        let (run, state) = (self.host.path("run"), self.host.path("etc/demo-agent/state"));
        let _memory = [Mounted::tmpfs_at(&run, "size=8m"), Mounted::tmpfs_at(&state, "size=8m")];
        let log = self.host.path("run/log");
        let mut supervisor = Command::new(crate::support::stage::SIDLE)
            .args(["--root", text(&self.host.root()), "supervise", DEMO])
            .stdout(fs::File::create(&log).unwrap())
            .stderr(fs::File::options().append(true).open(&log).unwrap())
            .spawn()
            .unwrap();
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&self.host)));
        let told = fs::read_to_string(&log).unwrap();
        println!("{told}");
        let identity = sidle::os::process::Identity::of(supervisor.id()).unwrap().unwrap();
        assert!(identity.signal(sidle::os::process::SignalNumber::TERM).unwrap());
        supervisor.wait().unwrap();
        checked.unwrap();
        told
    }

    /// With the obstacle gone, everything works.
    fn works(&self) {
        self.host.install(&self.newest).ok();
        let _supervisor = self.host.supervise();
        self.host.sidle(&["switch", DEMO, "1.2-1"]).ok();
        assert_eq!(self.host.answering("after"), "1.2");
        self.host.sidle(&["verify", DEMO, "--full"]).ok();
    }
}

#[test]
fn on_a_read_only_disk_changes_are_refused_and_the_agent_runs() {
    let on_disk = OnDisk::new(Mounted::ext4(64, 8192));
    let host = &on_disk.host;
    fs::create_dir_all(host.path("etc/demo-agent/state")).unwrap();
    on_disk.disk.make_read_only();
    on_disk.refuses(&["Read-only file system"]);
    for removes in [&["remove", DEMO, "1.1-1"][..], &["collect", DEMO, "--keep", "0"]] {
        let ran = host.sidle(removes);
        assert!(ran.code == Some(1) && ran.stderr.contains("Read-only file system"), "{removes:?}: {ran:?}");
    }
    for reads in [&["list"][..], &["status"], &["history", DEMO], &["verify", DEMO, "1.0-1", "--full"]] {
        let ran = host.sidle(reads);
        assert!(matches!(ran.code, Some(0 | 3)), "{reads:?}: {ran:?}");
    }
    on_disk.runs_in_memory(|host| assert_eq!(host.answering("read-only"), "1.0"));
    on_disk.disk.make_writable();
    on_disk.works();
}

/// The supervisor ended at its start, again and again: it could not write into its journal that the host was booted.
#[test]
fn after_a_boot_on_a_read_only_disk_a_switch_that_waits_keeps_no_agent_from_running() {
    let on_disk = OnDisk::with(Mounted::ext4(64, 8192), |host| {
        host.sidle(&["switch", DEMO, "1.1-1", "--splay", "9h", "--no-wait"]);
        assert_eq!(host.status()["switch"]["phase"], "scheduled", "{}", host.status());
    });
    let host = &on_disk.host;
    fs::create_dir_all(host.path("etc/demo-agent/state")).unwrap();
    let journal = host.path("var/lib/sidle/instances/demo-agent/journal");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let before = fs::read_to_string(&journal).unwrap();
    let earlier = before.replace(boot.trim(), "11111111-1111-1111-1111-111111111111");
    assert_ne!(earlier, before);
    fs::write(&journal, earlier).unwrap();
    on_disk.disk.make_read_only();
    on_disk.runs_in_memory(|host| {
        assert_eq!(host.answering("read-only"), "1.0");
        let refused = host.sidle(&["cancel", DEMO]);
        assert!(refused.code == Some(1) && refused.stderr.contains("Read-only file system"), "{refused:?}");
        assert!(host.status().to_string().contains("Read-only file system"), "{}", host.status());
        on_disk.disk.make_writable();
        eventually(20, "the journal is taken up", || {
            let ran = host.sidle(&["cancel", DEMO]);
            if ran.code == Some(0) { Ok(()) } else { Err(format!("{ran:?}")) }
        });
        assert_eq!(host.answering("writable"), "1.0");
    });
    on_disk.works();
}

#[test]
fn without_a_free_inode_changes_are_refused_and_the_agent_runs() {
    let on_disk = OnDisk::new(Mounted::ext4(64, 512));
    let filler = on_disk.disk.path().join("filler");
    fs::create_dir(&filler).unwrap();
    let files = (0..1000).take_while(|number| fs::File::create(filler.join(number.to_string())).is_ok()).count();
    assert!(files > 10, "{files}");
    on_disk.refuses(&["No space left on device"]);
    // As the hint of each says.
    on_disk.host.sidle(&["collect", DEMO, "--keep", "0"]).ok();
    assert!(!on_disk.host.path("opt/sidle/demo-agent/versions/1.1-1").exists());
    fs::remove_dir_all(&filler).unwrap();
    on_disk.works();
}

/// The last block of the disk that a file has, counted in blocks of the file system.
fn last_block(path: &Path) -> Option<u64> {
    let told = Command::new("filefrag").args(["-v", text(path)]).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    // ` 0:  0..  0:  9729..  9729:  1:  last,eof`
    let blocks = told.lines().filter_map(|line| line.split(':').nth(2)?.split("..").nth(1)?.trim().parse().ok());
    blocks.max()
}

#[test]
fn a_file_that_the_disk_no_longer_reads_is_found_and_mended() {
    let on_disk = OnDisk::new(Mounted::brittle());
    let (host, tree) = (&on_disk.host, on_disk.host.path("opt/sidle/demo-agent/versions/1.1-1"));
    let files = on_disk.content().into_keys().filter(|path| path.starts_with(&tree) && path.is_file());
    let (_, victim) = files.filter_map(|path| Some((last_block(&path)?, path))).max().unwrap();
    let content = fs::read(&victim).unwrap();
    on_disk.move_to_the_end(&victim);
    rustix::fs::sync();
    let block = last_block(&victim).unwrap();
    on_disk.disk.break_from(block);
    let forgotten = fs::File::open(&victim).unwrap();
    rustix::fs::fadvise(&forgotten, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let error = fs::read(&victim).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");

    let broken = host.sidle(&["verify", DEMO, "1.1-1", "--full"]);
    let name = victim.strip_prefix(&tree).unwrap();
    assert!(broken.code == Some(6) && broken.stdout.contains(text(name)), "{broken:?}");
    assert!(broken.stdout.contains("Input/output error"), "{broken:?}");
    let whole = on_disk.author.directory().join("demo-agent-1.1.sidle");
    host.sidle(&["repair", DEMO, "1.1-1", "--from", text(&whole)]).ok();
    assert_eq!(fs::read(&victim).unwrap(), content);
    on_disk.works();
}

#[test]
fn where_files_can_share_blocks_the_next_release_takes_the_room_of_what_changed() {
    let (disk, pair) = (Mounted::journaled("xfs"), Pair::new());
    let used = || {
        rustix::fs::sync();
        let stat = rustix::fs::statvfs(disk.path()).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    };
    let host = || {
        let host = Inside::below(&disk.path(), &pair.repo.root());
        host.install(&fs::read(&pair.first.1).unwrap()).unwrap();
        host
    };
    let sound = host();
    let before = used();
    pair.rebuild(&sound, &mut pair.payload()).unwrap();
    let taken = used().saturating_sub(before);
    assert!(taken < BIG_BYTES as u64 / 4, "{taken} bytes");
    assert_eq!(sound.store(), pair.expected());
    // What is not as signed is not taken over by its blocks either.
    let (spoiled, mut payload) = (host(), pair.payload());
    let big = fs::File::options().write(true).open(spoiled.path("opt/sidle/demo/versions/1.0-1/lib/big")).unwrap();
    big.write_all_at(b"?", BIG_BYTES as u64 - 1).unwrap();
    pair.rebuild(&spoiled, &mut payload).unwrap();
    assert!(payload.asked.iter().map(|frame| frame.length).sum::<u64>() > BIG_BYTES as u64 / 2);
    let release = "opt/sidle/demo/versions/2.0-1/lib/big";
    assert_eq!(fs::read(spoiled.path(release)).unwrap(), fs::read(sound.path(release)).unwrap());
}
