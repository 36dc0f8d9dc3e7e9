//! A limit on the memory of frames between the reading thread and the unpacking threads.

use super::limits::FRAMES_MEMORY_BYTES;
use super::manifest::Frame;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Memory for frames.
pub(super) struct Memory {
    free: Mutex<u64>,
    changed: Condvar,
}

impl Memory {
    /// All of it.
    pub(super) fn new() -> Self {
        Self { free: Mutex::new(FRAMES_MEMORY_BYTES), changed: Condvar::new() }
    }

    /// Waits for room for `frame` and its content. The limits leave room for any single frame.
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

/// Room for one frame, given back also by a thread that panics.
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
