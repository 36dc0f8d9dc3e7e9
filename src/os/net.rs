//! The network: the addresses of a host name, and whether a port accepts connections.

use super::{OsError, Result, clock};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// The addresses of a host name or of a literal address, by the host's resolver.
pub fn resolve(host: &str) -> Result<Vec<IpAddr>> {
    let failed = |source| OsError::new("resolve", Path::new(host), source);
    let mut addresses: Vec<IpAddr> =
        (host, 0).to_socket_addrs().map_err(failed)?.map(|address| address.ip().to_canonical()).collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

/// The first address of `host` that accepts a connection to `port` within `patience`; a resolver that hangs is left behind. The connection is
/// closed again.
pub fn listening(host: &str, port: u16, patience: Duration) -> Result<SocketAddr> {
    let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let give_up_at = clock::since_boot().saturating_add(patience);
    let (found, addresses) = mpsc::channel();
    let host = host.to_owned();
    let resolver = std::thread::Builder::new().spawn(move || found.send(resolve(&host)));
    resolver.map_err(|source| OsError::new("resolve", Path::new(&name), source))?;
    let timed_out = |_| OsError::new("resolve", Path::new(&name), io::ErrorKind::TimedOut);
    let mut last = OsError::new("connect to", Path::new(&name), io::ErrorKind::NotFound);
    for address in addresses.recv_timeout(patience).map_err(timed_out)?? {
        let left = give_up_at.saturating_sub(clock::since_boot()).max(Duration::from_millis(1));
        let address = SocketAddr::new(address, port);
        match TcpStream::connect_timeout(&address, left) {
            Ok(_) => return Ok(address),
            Err(source) => last = OsError::new("connect to", Path::new(&name), source),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_found_and_who_does_not_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let patience = Duration::from_secs(5);
        assert_eq!(listening("127.0.0.1", address.port(), patience).unwrap(), address);
        drop(listener);
        let error = listening("127.0.0.1", address.port(), patience).unwrap_err().to_string();
        assert_eq!(error, format!("cannot connect to 127.0.0.1:{}: Connection refused", address.port()));
    }

    #[test]
    fn a_literal_address_is_itself_and_a_bad_name_an_error() {
        assert_eq!(resolve("127.0.0.1").unwrap(), vec![IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(resolve("::1").unwrap().len(), 1);
        assert!(resolve("no such name").is_err());
    }
}
