//! What several tests stand on.

pub mod boot;
pub mod inside;
pub mod mirrors;
pub mod mounts;
pub mod packages;
pub mod releases;
pub mod repositories;
pub mod salt;
pub mod scene;
pub mod shims;
pub mod ssh;
pub mod stage;
pub mod stream;
pub mod team;
pub mod trees;

use std::time::{Duration, Instant};

/// Looks until there is an answer; panics with the last thing seen after `seconds`.
pub fn eventually<T>(seconds: u64, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > end => panic!("not within {seconds} s: {what}; last seen: {seen}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
