//! `sd_notify(3)`: tells the service manager how the supervisor is. Without `NOTIFY_SOCKET` it does nothing.

use super::environment;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// The variable that names the service manager's socket. Taken out of the agent's environment: it must not speak for the supervisor.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Sends assignments such as `READY=1`, one per line.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(name) = environment::variable(NOTIFY_SOCKET) else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(Path::new(&name))?,
    };
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}
