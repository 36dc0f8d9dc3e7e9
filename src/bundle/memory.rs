//! A limit on the memory of frames between the reading thread and the unpacking threads.

use super::limits::FRAMES_MEMORY_BYTES;
use super::manifest::Frame;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most blocks of each kind that wait for the next frame: two threads work on two, and more would count twice with what is in use.
const BLOCKS_MAXIMUM: usize = 2;

/// Memory for frames.
pub(super) struct Memory {
    free: Mutex<u64>,
    changed: Condvar,
    /// Blocks of frames that are done, for the next ones.
    pub(super) frames: Blocks,
    /// Blocks of their contents.
    pub(super) contents: Blocks,
}

/// Blocks to use again: new ones cost a page fault for each 4 KiB, a tenth of an install's time.
#[derive(Default)]
pub(super) struct Blocks(Mutex<Vec<Vec<u8>>>);

impl Blocks {
    /// A block, maybe with old bytes in it.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Gives a block back.
    pub(super) fn give(&self, block: Vec<u8>) {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() < BLOCKS_MAXIMUM {
            blocks.push(block);
        }
    }
}

impl Memory {
    /// All of it.
    pub(super) fn new() -> Self {
        let (frames, contents) = (Blocks::default(), Blocks::default());
        Self { free: Mutex::new(FRAMES_MEMORY_BYTES), changed: Condvar::new(), frames, contents }
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
