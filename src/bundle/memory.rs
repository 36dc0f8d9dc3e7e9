//! Room in memory for the frames of a payload that are under way between the thread that reads and those that unpack.

use super::limits::FRAMES_MEMORY_BYTES;
use super::manifest::Frame;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Memory for frames under way.
pub(super) struct Memory {
    free: Mutex<u64>,
    changed: Condvar,
}

impl Memory {
    /// As much as frames may take.
    pub(super) fn new() -> Self {
        Self { free: Mutex::new(FRAMES_MEMORY_BYTES), changed: Condvar::new() }
    }

    /// Waits for room for `frame` and its content. The limits see to it that there is room for any one frame.
    pub(super) fn take(&self, frame: &Frame) -> Taken<'_> {
        let bytes = (frame.length + frame.content_length).min(FRAMES_MEMORY_BYTES);
        let full = |free: &mut u64| *free < bytes;
        let mut free = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        *free -= bytes;
        Taken { memory: self, bytes }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        // A number is never half changed.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room that is given back with its frame, also by a thread that panics.
pub(super) struct Taken<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.memory.lock() += self.bytes;
        self.memory.changed.notify_all();
    }
}
