//! The system's random numbers.

use super::{OsError, Result};
use std::io;
use std::path::Path;

/// A random number up to and including `maximum`. One of 64 bits is folded: for a spread over minutes its bias is nothing.
pub fn up_to(maximum: u64) -> Result<u64> {
    let drawn = getrandom::u64().map_err(|error| {
        OsError::new("draw from", Path::new("the system's random numbers"), io::Error::other(error))
    })?;
    Ok(maximum.checked_add(1).map_or(drawn, |count| drawn % count))
}
