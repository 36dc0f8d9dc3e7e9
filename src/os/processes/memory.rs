//! Large memory for a moment: a frame of a payload, or a large manifest, takes as much as the supervisor does all day.

/// Least size, bytes, of blocks outside the heap.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: libc::c_int = 1 << 20;

/// From now on large blocks go back to the system when they are freed. By default glibc puts later blocks of such a size into the heap, where
/// free space between used blocks stays.
pub fn keep_large_blocks_apart() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the C library's own call, for which there is no safe one")]
    // SAFETY: it sets a number of the allocator, and takes no pointer.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

/// Gives free memory back to the system, if the C library can.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the C library's own call, for which there is no safe one")]
    // SAFETY: it changes nothing that is in use, and takes no pointer.
    unsafe {
        libc::malloc_trim(0);
    }
}
