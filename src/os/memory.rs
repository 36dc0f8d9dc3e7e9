//! Memory that was needed for a moment: reading the manifest of a large release takes as much as the supervisor does all day.

/// Gives back to the system what is free. Where the C library does that by itself, or can't, nothing happens.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "the C library's own call, for which there is no safe one")]
    // SAFETY: it changes nothing that is in use, and takes no pointer.
    unsafe {
        libc::malloc_trim(0);
    }
}
