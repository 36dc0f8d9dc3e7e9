//! A bare parallel walk: lists every directory and looks at every entry, and nothing else. What `scripts/bench verify` measures the quick check
//! against: no check of a tree of unknown names can do less.
//!
//! ```text
//! lstat_walk DIRECTORY
//! ```

#![expect(clippy::disallowed_methods, reason = "it is the bare walk, without the floors of the program")]

use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::{env, fs, io, thread};

/// Directories to list, and how many threads are at one.
#[derive(Default)]
struct Queue {
    directories: Vec<PathBuf>,
    busy: usize,
}

fn main() -> io::Result<()> {
    let root =
        env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| io::Error::other("usage: lstat_walk DIRECTORY"))?;
    let queue = Mutex::new(Queue { directories: vec![root], busy: 0 });
    let changed = Condvar::new();
    let threads = thread::available_parallelism()?.get();
    let count: u64 = thread::scope(|scope| {
        let walkers: Vec<_> = (0..threads).map(|_| scope.spawn(|| walk(&queue, &changed))).collect();
        walkers.into_iter().map(|walker| walker.join().expect("a walker does not panic")).sum::<io::Result<u64>>()
    })?;
    println!("{count} entries");
    Ok(())
}

fn walk(queue: &Mutex<Queue>, changed: &Condvar) -> io::Result<u64> {
    let mut count = 0;
    loop {
        let directory = {
            let mut queue = queue.lock().expect("nobody panics with the lock");
            loop {
                if let Some(directory) = queue.directories.pop() {
                    queue.busy += 1;
                    break directory;
                }
                if queue.busy == 0 {
                    return Ok(count);
                }
                queue = changed.wait(queue).expect("nobody panics with the lock");
            }
        };
        let mut below = Vec::new();
        let listed = fs::read_dir(directory).and_then(|entries| {
            for entry in entries {
                let entry = entry?;
                count += 1;
                if entry.metadata()?.is_dir() {
                    below.push(entry.path());
                }
            }
            Ok(())
        });
        let mut queue = queue.lock().expect("nobody panics with the lock");
        queue.directories.append(&mut below);
        queue.busy -= 1;
        changed.notify_all();
        drop(queue);
        listed?;
    }
}
