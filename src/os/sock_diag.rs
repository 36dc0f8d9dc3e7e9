//! The TCP sockets of this process's network namespace, as the kernel tells `ss` (`sock_diag(7)`, `linux/inet_diag.h`). The tables in /proc
//! have the same sockets, and take milliseconds to read where there is much memory.

use super::tcp::TcpConnection;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kernel answers within the call that asks.
const PATIENCE: Duration = Duration::from_secs(1);
/// The kernel fills no more than this.
const DATAGRAM_BYTES: usize = 32 << 10;
/// Of some hundred sockets each: more than a host has.
const DATAGRAMS_MAX: usize = 1 << 16;

/// Numbers of `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// All states.
const STATES: u32 = 0xfff;
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_sockid`, and the cookie at its end.
const ID_BYTES: usize = 48;
const COOKIE_BYTES: usize = 8;

/// All sockets that a process has open, of both families. An error where the kernel has no such answer: it was built without, or does not let us ask.
pub(super) fn connections() -> io::Result<Vec<TcpConnection>> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        ask(family, &mut found)?;
    }
    Ok(found)
}

/// Whether each of these connections still exists as the same established socket. The kernel looks each up by its addresses, without a walk through all sockets.
pub(super) fn stand(connections: &[TcpConnection]) -> io::Result<bool> {
    let socket = socket()?;
    let mut datagram = vec![0; DATAGRAM_BYTES];
    for connection in connections {
        net::send(&socket, &request(&Asked::One(connection)), SendFlags::empty())?;
        let (length, _) = net::recv(&socket, datagram.as_mut_slice(), RecvFlags::empty())?;
        let mut found = Vec::new();
        match take(&datagram[..length], &mut found) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        let is_it = |one: &TcpConnection| {
            one.established
                && (one.inode, one.local, one.remote) == (connection.inode, connection.local, connection.remote)
        };
        // A listener at the same port is found where the connection is gone.
        if !found.iter().any(is_it) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn socket() -> io::Result<OwnedFd> {
    let socket =
        net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(socket)
}

fn ask(family: u8, found: &mut Vec<TcpConnection>) -> io::Result<()> {
    let socket = socket()?;
    net::send(&socket, &request(&Asked::All(family)), SendFlags::empty())?;
    let mut datagram = vec![0; DATAGRAM_BYTES];
    for _ in 0..DATAGRAMS_MAX {
        let (length, _) = net::recv(&socket, datagram.as_mut_slice(), RecvFlags::empty())?;
        if take(&datagram[..length], found)? {
            return Ok(());
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// A question to the kernel.
enum Asked<'a> {
    /// All sockets of a family.
    All(u8),
    /// This one.
    One(&'a TcpConnection),
}

/// A `struct nlmsghdr` and a `struct inet_diag_req_v2`.
fn request(asked: &Asked<'_>) -> Vec<u8> {
    let (family, flags, id) = match asked {
        Asked::All(family) => (*family, NLM_F_REQUEST | NLM_F_DUMP, [0; ID_BYTES]),
        // A socket of IPv6 that is connected to an address of IPv4 is found by that.
        Asked::One(one) => (if one.remote.is_ipv4() { AF_INET } else { AF_INET6 }, NLM_F_REQUEST, id(one)),
    };
    let mut rest = vec![family, IPPROTO_TCP, 0, 0];
    rest.extend(STATES.to_ne_bytes());
    rest.extend(id);
    let length = u32::try_from(HEADER_BYTES + rest.len()).expect("it has 72 bytes");
    let mut request = Vec::from(length.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    // Sequence number and sender: one question to a socket.
    request.extend([0; 8]);
    request.extend(rest);
    request
}

/// A `struct inet_diag_sockid`: two ports, two addresses, the interface, and a cookie, here "any".
fn id(one: &TcpConnection) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    id[..2].copy_from_slice(&one.local.port().to_be_bytes());
    id[2..4].copy_from_slice(&one.remote.port().to_be_bytes());
    for (at, address) in [(4, one.local.ip()), (20, one.remote.ip())] {
        match address {
            IpAddr::V4(address) => id[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => id[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    id[ID_BYTES - COOKIE_BYTES..].fill(0xff);
    id
}

/// Takes the sockets of one datagram; true at the end of the answer.
fn take(mut datagram: &[u8], found: &mut Vec<TcpConnection>) -> io::Result<bool> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    while !datagram.is_empty() {
        let length = usize::try_from(word(datagram, 0).ok_or_else(broken)?).map_err(|_| broken())?;
        let message = datagram.get(..length).filter(|message| message.len() >= HEADER_BYTES).ok_or_else(broken)?;
        let (kind, rest) = (u16::from_ne_bytes([message[4], message[5]]), &message[HEADER_BYTES..]);
        // The end of an answer may say what went wrong, too.
        let error = word(rest, 0).map_or(0, |error| i32::from_ne_bytes(error.to_ne_bytes()));
        match kind {
            NLMSG_ERROR | NLMSG_DONE if error < 0 => return Err(io::Error::from_raw_os_error(-error)),
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => return Err(broken()),
            _ => found.extend(connection(rest)),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// A socket, of a `struct inet_diag_msg`: four bytes, the id (two ports, two addresses), expires, rqueue, wqueue, uid, inode. None: no process has it open.
fn connection(message: &[u8]) -> Option<TcpConnection> {
    let (family, state) = (*message.first()?, *message.get(1)?);
    let port = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    let after_id = 4 + ID_BYTES;
    let inode = u64::from(word(message, after_id + 16)?);
    (inode != 0).then_some(())?;
    Some(TcpConnection {
        local: SocketAddr::new(address(family, message.get(8..24)?)?, port(4)?),
        remote: SocketAddr::new(address(family, message.get(24..40)?)?, port(6)?),
        established: state == ESTABLISHED,
        // Of a listener: how many connections may wait.
        unacknowledged_bytes: if state == LISTEN { 0 } else { u64::from(word(message, after_id + 8)?) },
        inode,
    })
}

fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?).into()),
        // A v4 peer of a v6 socket is the same peer.
        AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_is_an_error_and_no_table_without_sockets() {
        let message = |kind: u16, rest: &[u8]| {
            let length = u32::try_from(HEADER_BYTES + rest.len()).unwrap();
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], rest].concat()
        };
        let all = |datagram: &[u8]| take(datagram, &mut Vec::new());
        assert!(all(&message(NLMSG_DONE, &[0; 4])).unwrap());
        assert!(!all(&message(SOCK_DIAG_BY_FAMILY, &[0; 72])).unwrap(), "no process has it open");
        for kind in [NLMSG_ERROR, NLMSG_DONE] {
            let refused = all(&message(kind, &(-13_i32).to_ne_bytes())).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
        for broken in [&[1, 2][..], &[0; 16], &200_u32.to_ne_bytes(), &message(NLMSG_ERROR, &[])] {
            assert!(all(broken).is_err(), "{broken:?}");
        }
    }
}
