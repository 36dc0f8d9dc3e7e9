//! Processes that a test's own process doesn't reach any more: what outlives a supervisor, or a minion's jobs after it was killed.

use super::stage::{command_of, text};
use sidle::os::proc_fs;
use sidle::os::process::{Identity, SignalNumber};
use std::path::Path;
use std::time::{Duration, Instant};

/// Killed processes are gone within this, unless the kernel holds them.
const PATIENCE: Duration = Duration::from_secs(5);

/// What runs with this root in its environment, its program or its arguments.
fn of(root: &Path) -> Vec<Identity> {
    let is_of = |pid: u32| {
        let named = proc_fs::environment_variable(pid, "SIDLE_ROOT").ok().flatten();
        // Salt's titles are written over the environment.
        named.is_some_and(|named| named == root) || command_of(pid).contains(text(root))
    };
    let all = proc_fs::all().unwrap_or_default();
    let alive = all.iter().filter(|process| process.is_alive() && is_of(process.pid));
    alive.filter_map(|process| Identity::of(process.pid).ok().flatten()).collect()
}

/// Kills it all, and waits until it is gone: its files are removed next, and who looks at other processes' files finds none of them then.
pub fn kill(root: &Path) {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = of(root);
        if left.is_empty() {
            return;
        }
        if Instant::now() > end {
            return eprintln!("killed, and still there after {PATIENCE:?}: {left:?}");
        }
        for identity in left {
            let _ = identity.signal(SignalNumber::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
