//! Ports of loopback that are one test's alone, as long as it wants them.
//!
//! They lie below those that Linux gives to outgoing connections. One of these could take a port before its server does; and whoever looks
//! again and again whether a server listens there is connected to itself at last (seen: 27 of 6,000 times within 60 looks), which keeps the port from
//! the server for a minute.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

const PAIRS: u16 = 8192;
/// The end of them all: outgoing connections begin at 32,768, unless somebody has set that.
const END: u16 = 32_768;

/// Two neighbouring ports.
pub struct Ports {
    first: u16,
    /// A name that one process of a network namespace can have, and that goes with it.
    _taken: UnixListener,
}

impl Ports {
    /// Takes two that nobody has.
    pub fn take() -> Self {
        // Where the last test's connections may still be known is looked last.
        let begin = u16::try_from(std::process::id() % u32::from(PAIRS)).unwrap();
        let mut candidates = (begin..PAIRS).chain(0..begin).map(|pair| END - 2 * (pair + 1));
        candidates.find_map(Self::taken).expect("two neighbouring ports are free")
    }

    fn taken(first: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("sidle-test-ports-{first}")).unwrap();
        let taken = UnixListener::bind_addr(&name).ok()?;
        let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (is_free(first) && is_free(first + 1)).then_some(Self { first, _taken: taken })
    }

    /// The lower one.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// The one after it.
    pub fn second(&self) -> u16 {
        self.first + 1
    }
}
