//! Memory that was needed for a moment: a frame of a payload, or the manifest of a large release, takes as much as the supervisor does all day.

/// What is as large as this, bytes, is no part of the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: libc::c_int = 1 << 20;

/// From now on large blocks go back to the system as soon as they are free. glibc otherwise takes each one's size as a reason to put the next
/// ones of that size into the heap, where what is free between two others stays: one frame more or less in memory, as chance has it.
pub fn keep_large_blocks_apart() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the C library's own call, for which there is no safe one")]
    // SAFETY: it sets a number of the allocator, and takes no pointer.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

/// Gives back to the system what is free. Where the C library does that by itself, or can't, nothing happens.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the C library's own call, for which there is no safe one")]
    // SAFETY: it changes nothing that is in use, and takes no pointer.
    unsafe {
        libc::malloc_trim(0);
    }
}
