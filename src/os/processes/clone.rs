//! The static program brings its own C library. That one starts processes and threads by clone3(2), and takes only ENOSYS for "not there": container
//! runtimes that are older than the call answer EPERM, and no agent could start. clone(2) does the same, and is on every kernel.

/// Takes the place of the C library's function at linking.
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64", target_feature = "crt-static"))]
#[expect(unsafe_code, reason = "the symbol's name is the C library's, and so is errno")]
#[unsafe(no_mangle)]
extern "C" fn __clone3() -> libc::c_int {
    // SAFETY: the C library gives the address of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
