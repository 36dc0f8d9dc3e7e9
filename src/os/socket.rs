//! Local sockets in a directory, however long its path: they are reached through the directory's descriptor.

use super::dir::Dir;
use super::process::Identity;
use super::{OsError, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// A path of fewer than 40 bytes, whatever the directory's: `sun_path` holds 108 (unix(7)).
fn short_path(dir: &Dir, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_fd().as_raw_fd()))
}

/// Listens on the socket `name`, replacing one that a former process left; only the owner may connect. The caller makes sure that
/// there is no other listener.
pub fn listen(dir: &Dir, name: &str) -> Result<UnixListener> {
    let failed = |source| OsError::new("listen on", &dir.path().join(name), source);
    dir.remove_file(name)?;
    let listener = UnixListener::bind(short_path(dir, name)).map_err(failed)?;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::chmodat(dir, name, mode, rustix::fs::AtFlags::empty()).map_err(|errno| failed(errno.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Connects to the socket `name`; None where nobody listens. Reads and writes give up after `patience`.
pub fn connect(dir: &Dir, name: &str, patience: Duration) -> Result<Option<UnixStream>> {
    let failed = |source| OsError::new("connect to", &dir.path().join(name), source);
    match UnixStream::connect(short_path(dir, name)) {
        Ok(stream) => {
            stream.set_read_timeout(Some(patience)).map_err(failed)?;
            stream.set_write_timeout(Some(patience)).map_err(failed)?;
            Ok(Some(stream))
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(failed(error)),
    }
}

/// The process at the other end of a connection; None: it is gone, or in another namespace.
pub fn peer_process(stream: &impl AsFd) -> Option<Identity> {
    let credentials = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Identity::of(credentials.pid.as_raw_pid().unsigned_abs()).ok()?
}

/// The user at the other end of a connection.
pub fn peer_user(stream: &impl AsFd) -> Result<u32> {
    let credentials = rustix::net::sockopt::socket_peercred(stream);
    let failed = |errno| OsError::new("ask who is at the other end of", "the control socket".as_ref(), errno);
    Ok(credentials.map_err(failed)?.uid.as_raw())
}
