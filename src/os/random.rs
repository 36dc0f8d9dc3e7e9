//! The system's random numbers.

use super::{OsError, Result};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Where a kernel without the call, or a container that forbids it, has them.
const DEVICE: &str = "/dev/urandom";

/// Fills a buffer with random bytes that are fit for keys.
pub fn fill(bytes: &mut [u8]) -> Result<()> {
    let Err(error) = getrandom::fill(bytes) else { return Ok(()) };
    // The crate asks for no bytes to find out whether there is the call, and a C library that draws by itself (glibc 2.41) then says yes.
    let has_no_call =
        [Errno::NOSYS, Errno::PERM].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error());
    let drawn = if has_no_call {
        File::open(DEVICE).and_then(|mut device| device.read_exact(bytes))
    } else {
        Err(io::Error::other(error))
    };
    drawn.map_err(|error| OsError::new("draw from", Path::new("the system's random numbers"), error))
}

/// A random number up to and including `maximum`. One of 64 bits is folded: for a spread over minutes its bias is nothing.
pub fn up_to(maximum: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    let drawn = u64::from_ne_bytes(bytes);
    Ok(maximum.checked_add(1).map_or(drawn, |count| drawn % count))
}
