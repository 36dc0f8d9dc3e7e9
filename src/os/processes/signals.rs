//! The signals that ask a supervisor for something, held back until it can handle them.

use crate::os::{OsError, Result};
use std::io;
use std::path::Path;

/// The held signals.
const ASKING: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// From now on these signals wait, also across exec. Processes that are started meanwhile would not get them.
pub fn hold() -> Result<()> {
    mask(libc::SIG_BLOCK)
}

/// Delivers waiting signals, and all later ones.
pub fn admit() -> Result<()> {
    mask(libc::SIG_UNBLOCK)
}

/// Whether a held signal waits.
#[expect(unsafe_code, reason = "rustix has no pending signals outside its runtime interface")]
pub fn are_waiting() -> bool {
    // SAFETY: a signal set is plain memory for which all zeroes is a valid value; the kernel fills it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut set) == 0
            && ASKING.iter().any(|signal| libc::sigismember(&raw const set, *signal) == 1)
    }
}

#[expect(unsafe_code, reason = "rustix has no signal masks outside its runtime interface")]
fn mask(how: libc::c_int) -> Result<()> {
    // SAFETY: a signal set is plain memory for which all zeroes is a valid value, and `sigemptyset` sets it anew.
    let failed = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in ASKING {
            libc::sigaddset(&raw mut set, signal);
        }
        // SAFETY: the set is initialised, and nothing is asked for of the one before.
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut())
    };
    if failed == 0 {
        return Ok(());
    }
    Err(OsError::new("hold back", Path::new("signals"), io::Error::from_raw_os_error(failed)))
}
