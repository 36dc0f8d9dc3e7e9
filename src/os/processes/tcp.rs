//! The TCP connections of processes.

use super::proc_fs::{self, gone_is_none, path_of, read_at_one_go};
use crate::os::{Result, sock_diag};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Room for some 400 connections; a longer table takes more reads, and the kernel walks through all sockets of the host for each.
const TABLE_BYTES: usize = 64 << 10;

/// A TCP connection as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpConnection {
    /// This side.
    pub local: SocketAddr,
    /// The other side.
    pub remote: SocketAddr,
    /// True in state ESTABLISHED.
    pub established: bool,
    /// Bytes written that the other side has not acknowledged yet.
    pub unacknowledged_bytes: u64,
    /// The socket's inode.
    pub inode: u64,
}

/// The kernel's tables of sockets, read once for each network namespace: a read walks through the sockets of the whole host, and who looks at each process
/// of all minions asks for the same table hundreds of times.
#[derive(Debug, Default)]
pub struct Tables {
    by_namespace: HashMap<PathBuf, Vec<TcpConnection>>,
}

impl Tables {
    /// The connections of `pid`, in its own network namespace, as they were when a process of that namespace was first asked about; None without such a
    /// process.
    pub fn of(&mut self, pid: u32) -> Result<Option<Vec<TcpConnection>>> {
        let Some(sockets) = proc_fs::socket_inodes(pid)? else { return Ok(None) };
        if sockets.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let path = path_of(pid, "ns/net");
        let Some(namespace) = gone_is_none(std::fs::read_link(&path), &path)? else { return Ok(None) };
        if !self.by_namespace.contains_key(&namespace) {
            let table = table_of(pid, &namespace)?;
            self.by_namespace.insert(namespace.clone(), table);
        }
        let table = self.by_namespace[&namespace].iter();
        Ok(Some(table.filter(|connection| sockets.contains(&connection.inode)).cloned().collect()))
    }
}

/// The TCP connections of `pid`, in its own network namespace; None without such a process.
pub fn connections(pid: u32) -> Result<Option<Vec<TcpConnection>>> {
    Tables::default().of(pid)
}

/// Connections of a process that are remembered: whose socket one is has to be found among all descriptors of the process, and that it is there still
/// is one question to the kernel.
#[derive(Debug)]
pub struct Remembered {
    pid: u32,
    start_time: u64,
    connections: Vec<TcpConnection>,
}

impl Remembered {
    /// Remembers these connections of `pid`. None: whether they stand could not be asked, since the process is gone or in another network namespace.
    pub fn of(pid: u32, connections: Vec<TcpConnection>) -> Option<Self> {
        let namespace = std::fs::read_link(path_of(pid, "ns/net")).ok()?;
        let start_time = proc_fs::process(pid).ok()??.start_time;
        is_own(&namespace).then_some(Self { pid, start_time, connections })
    }

    /// The connections, if all of them stand, and `pid` is the same process.
    pub fn standing(&self, pid: u32) -> Option<&[TcpConnection]> {
        let process = proc_fs::process(pid).ok()??;
        let is_it = process.is_alive() && (pid, process.start_time) == (self.pid, self.start_time);
        let stand = is_it && sock_diag::stand(&self.connections).unwrap_or(false);
        stand.then_some(&self.connections)
    }
}

fn is_own(namespace: &Path) -> bool {
    std::fs::read_link("/proc/self/ns/net").is_ok_and(|own| own == namespace)
}

/// The sockets of a namespace in which the process `pid` is. Of our own the kernel tells them much faster, unless it cannot, or may not.
fn table_of(pid: u32, namespace: &Path) -> Result<Vec<TcpConnection>> {
    match is_own(namespace).then(sock_diag::connections) {
        Some(Ok(found)) => Ok(found),
        Some(Err(_)) | None => of_proc(pid),
    }
}

/// Both tables of the namespace of `pid` in /proc, one after the other.
fn of_proc(pid: u32) -> Result<Vec<TcpConnection>> {
    let mut found = Vec::new();
    for name in ["net/tcp", "net/tcp6"] {
        let path = path_of(pid, name);
        // A kernel without IPv6 has no second table.
        let table = gone_is_none(read_at_one_go::<TABLE_BYTES>(&path), &path)?.unwrap_or_default();
        let table = String::from_utf8_lossy(&table);
        found.extend(table.lines().filter_map(parse_tcp).filter(|connection| connection.inode != 0));
    }
    Ok(found)
}

fn parse_tcp(line: &str) -> Option<TcpConnection> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    Some(TcpConnection {
        local: parse_address(fields.get(1)?)?,
        remote: parse_address(fields.get(2)?)?,
        established: *fields.get(3)? == "01",
        unacknowledged_bytes: u64::from_str_radix(fields.get(4)?.split(':').next()?, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// `0100007F:1F90`: 32-bit words in the machine's byte order, then the port.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = (0..address.len() / 8)
        .map(|at| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes))
        .collect();
    let address = match words?.as_slice() {
        [word] => IpAddr::V4(Ipv4Addr::from(*word)),
        [a, b, c, d] => {
            let mut bytes = [0; 16];
            for (slot, byte) in bytes.iter_mut().zip([a, b, c, d].into_iter().flatten()) {
                *slot = *byte;
            }
            // A v4 peer of a v6 socket is the same peer.
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_its_own_connection_and_no_other_has_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let is_ours = |found: &TcpConnection| found.established && found.remote == stream.peer_addr().unwrap();
        let mut tables = Tables::default();
        assert!(tables.of(std::process::id()).unwrap().unwrap().iter().any(is_ours));
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let others = tables.of(other.id());
        other.kill().and_then(|()| other.wait()).unwrap();
        assert_eq!(others.unwrap(), Some(Vec::new()));
        assert_eq!(connections(u32::MAX - 1).unwrap(), None);
    }

    /// A connection that is gone leaves its ports to another socket, and to whoever listens there.
    #[test]
    fn what_is_remembered_stands_while_each_connection_does_and_the_process_is_the_same() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let streams: Vec<_> = (0..2).map(|_| std::net::TcpStream::connect(place).unwrap()).collect();
        let (own, ports) = (std::process::id(), streams.iter().map(|one| one.local_addr().unwrap().port()));
        let ports: Vec<u16> = ports.collect();
        let mut all = connections(own).unwrap().unwrap();
        all.retain(|one| one.remote == place && ports.contains(&one.local.port()));
        assert_eq!(all.len(), 2);
        let known = Remembered::of(own, all.clone()).unwrap();
        assert_eq!(known.standing(own), Some(&all[..]));
        assert_eq!(known.standing(1), None, "another process");
        let earlier = Remembered { start_time: known.start_time - 1, ..Remembered::of(own, all.clone()).unwrap() };
        assert_eq!(earlier.standing(own), None, "an earlier process of that number");
        let mut stolen = all.clone();
        stolen[1].inode += 1;
        assert_eq!(Remembered::of(own, stolen).unwrap().standing(own), None, "another socket");
        let mut listening = all;
        listening[1].remote.set_port(1);
        listening[1].local = place;
        assert_eq!(Remembered::of(own, listening).unwrap().standing(own), None, "only who listens is there");
        drop(streams);
        assert_eq!(known.standing(own), None);
    }

    /// Both ways name the same sockets, with the same bytes under way.
    #[test]
    fn the_kernel_and_its_table_in_proc_agree() {
        // A host may be without IPv6.
        let listeners: Vec<_> =
            ["127.0.0.1:0", "[::1]:0"].iter().filter_map(|one| std::net::TcpListener::bind(one).ok()).collect();
        let connect = |one: &std::net::TcpListener| std::net::TcpStream::connect(one.local_addr().unwrap()).unwrap();
        let streams: Vec<_> = listeners.iter().map(connect).collect();
        let own = proc_fs::socket_inodes(std::process::id()).unwrap().unwrap();
        // Other tests of this process open and close theirs.
        let ports: Vec<u16> = listeners.iter().map(|one| one.local_addr().unwrap().port()).collect();
        let of_test = |found: Vec<TcpConnection>| {
            let is_one = |one: &TcpConnection| ports.contains(&one.local.port()) || ports.contains(&one.remote.port());
            let mut found: Vec<_> = found.into_iter().filter(|one| own.contains(&one.inode) && is_one(one)).collect();
            found.sort_by_key(|one| one.inode);
            found
        };
        let told = of_test(sock_diag::connections().unwrap());
        assert_eq!(told, of_test(of_proc(std::process::id()).unwrap()));
        assert_eq!(told.iter().filter(|one| one.established).count(), streams.len(), "{told:?}");
        assert_eq!(told.len(), streams.len() + listeners.len(), "{told:?}");
    }

    #[test]
    fn of_one_namespace_the_table_is_read_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut tables = Tables::default();
        tables.of(std::process::id()).unwrap().unwrap();
        let late = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let has_it = |tables: &mut Tables| {
            let found = tables.of(std::process::id()).unwrap().unwrap();
            found.iter().any(|found| found.remote == late.peer_addr().unwrap())
        };
        assert_eq!((has_it(&mut tables), has_it(&mut Tables::default())), (false, true));
    }
}
