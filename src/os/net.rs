//! The network as names: what a host name means to this host.

use super::{OsError, Result};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::Path;

/// The addresses of a host name or of a literal address, as the host's resolver has them. Waits as long as the resolver does.
pub fn resolve(host: &str) -> Result<Vec<IpAddr>> {
    let failed = |source| OsError::new("resolve", Path::new(host), source);
    let mut addresses: Vec<IpAddr> =
        (host, 0).to_socket_addrs().map_err(failed)?.map(|address| address.ip().to_canonical()).collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_address_is_itself_and_a_bad_name_an_error() {
        assert_eq!(resolve("127.0.0.1").unwrap(), vec![IpAddr::from([127, 0, 0, 1])]);
        assert_eq!(resolve("::1").unwrap().len(), 1);
        assert!(resolve("no such name").is_err());
    }
}
