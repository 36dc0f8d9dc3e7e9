//! Begins to write a tree to its disk while more of it is unpacked, so that the one sync at the end finds little left to do. It promises nothing:
//! what is durable, that sync says.

use crate::os::dir::Dir;
use crate::os::thread::helper;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Bytes of content between two beginnings. Each of them ends a transaction of the file system's journal, for which writers wait a moment.
const STEP_BYTES: u64 = 32 << 20;

/// Counts the bytes that are written; the thread that starts to bring them to the disk waits for the count.
#[derive(Default)]
pub(super) struct Writeback {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    written: u64,
    ended: bool,
}

impl Writeback {
    /// Does `work`, which tells what it writes below `into`, beside a thread that begins to write it to the disk.
    pub(super) fn beside<T>(into: &Dir, work: impl FnOnce(&Self) -> T) -> T {
        let writeback = Self::default();
        thread::scope(|scope| {
            // Without a free thread all is left to the sync at the end.
            let _ = helper(scope, || writeback.run(into));
            let _ends = AtEnd(&writeback);
            work(&writeback)
        })
    }

    /// So many bytes more were written.
    pub(super) fn add(&self, bytes: u64) {
        let mut state = self.lock();
        let before = state.written / STEP_BYTES;
        state.written += bytes;
        if state.written / STEP_BYTES > before {
            self.changed.notify_all();
        }
    }

    fn run(&self, into: &Dir) {
        let mut next = STEP_BYTES;
        loop {
            let waits = |state: &mut State| !state.ended && state.written < next;
            let state = self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            next = (state.written / STEP_BYTES + 1) * STEP_BYTES;
            drop(state);
            into.begin_to_sync_filesystem();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The numbers are never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the thread, also when the work panics.
struct AtEnd<'a>(&'a Writeback);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}
