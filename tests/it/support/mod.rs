//! What several tests stand on.

pub mod answers;
pub mod boot;
pub mod clock;
pub mod evidence;
pub mod extension;
pub mod fleet;
pub mod inside;
pub mod kernels;
pub mod keys;
pub mod labels;
pub mod leftovers;
pub mod loopback;
pub mod minions;
pub mod mirrors;
pub mod mounts;
pub mod oldest;
pub mod packages;
pub mod ports;
pub mod pretended;
pub mod programs;
pub mod pty;
pub mod relay;
pub mod release;
pub mod releases;
pub mod replay;
pub mod repositories;
pub mod roots;
pub mod salt;
pub mod scene;
pub mod schema;
pub mod shims;
pub mod shown;
pub mod ssh;
pub mod stage;
pub mod strangers;
pub mod stream;
pub mod suite_python;
pub mod team;
pub mod trees;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The longest time between two looks.
const PAUSE_MAXIMUM: Duration = Duration::from_millis(200);

/// On a crowded machine everything takes longer, and no test is about how long: times this often, but not up to the runner's limit of ten minutes.
const CROWDED: u64 = 3;
const SECONDS_MAXIMUM: u64 = 400;

/// How long to wait for what takes so many seconds where nothing else runs.
pub fn crowded(seconds: u64) -> u64 {
    seconds.max(SECONDS_MAXIMUM.min(CROWDED * seconds))
}

/// Looks until there is an answer; panics with the last thing seen if it takes far longer than `seconds`.
pub fn eventually<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let seconds = crowded(seconds);
    let end = Instant::now() + Duration::from_secs(seconds);
    // A look may start a program: it must not keep from happening what is waited for, nor take the machine from the tests beside this one.
    let mut pause = Duration::from_millis(10);
    loop {
        let begun = Instant::now();
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > end => panic!("not within {seconds} s: {what}; last seen: {seen}"),
            Err(_) => std::thread::sleep(pause.max(2 * begun.elapsed())),
        }
        pause = (pause * 5 / 4).min(PAUSE_MAXIMUM);
    }
}

/// A place that the tests of a run share, on the file system of their temporary directories: `scripts/test --all` makes one where it has mounted that.
pub fn shared() -> Option<PathBuf> {
    std::env::var_os("SIDLE_TEST_SHARED").map(PathBuf::from)
}

/// `BusyBox` and all its programs in the bin directory of a root: Debian's static one, since there is no C library.
pub fn install_busybox(root: &Path) {
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("apt-get install busybox-static");
    let mut install = Command::new("chroot");
    install.arg(root).args(["/bin/busybox", "--install", "-s", "/bin"]);
    ssh::done(&mut install, "busybox-static");
}

/// How much comes before other tests what has to have the machine for itself, and how much after them what needs all of it. Three times a
/// neighbour's share, not thirty times: eight minions that start kept a master beside them from answering for half a minute.
const PREFERRED: i32 = -5;
const ASIDE: i32 = 10;

/// For a test that finds out what the machine carries: what it starts from now on comes before what other tests have.
pub fn come_first() {
    if let Err(error) = rustix::process::setpriority_process(None, PREFERRED) {
        eprintln!("other tests may disturb this one: no priority above theirs: {error}");
    }
}

/// For a test that keeps the machine busy: what it starts from now on comes after what other tests have.
pub fn come_last() {
    let _ = rustix::process::setpriority_process(None, ASIDE);
}
