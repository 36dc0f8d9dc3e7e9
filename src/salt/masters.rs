//! Whether a minion reaches its masters, by the connections of its main process.
//!
//! Main connects to a master's publisher only after sign-in: `AsyncPubChannel.connect` (`salt/channel/client.py`: 3006.30, 3007.17, 3008.5)
//! takes the port from the answer of `self.auth.authenticate()`. A minion whose key is not accepted has no such connection (`ss -tnp`). With a
//! connection to the request server it proves: signed in, able to hear jobs and to return.
//!
//! A connection is no subscription: the kernel makes it also to a publisher that stands still, or to a proxy without one. The guard reports the
//! handshake of the subscriber's socket; a master whose publisher has not answered it is not reached.
//!
//! A connection does not prove that the master answers now either: connections to a machine that vanished stay until TCP's keepalive gives up
//! (Salt's default: 300 s idle, then the kernel's probes).

use super::names::{ANSWER_AGE_MAXIMUM, FRESH_AGE_MAXIMUM, Names};
use super::options::{Master, Masters, MinionConfig};
use crate::agent::gate::{GuardReport, Subscription};
use crate::agent::{Health, Need, Peer, Subject};
use crate::os::tcp::{self, Remembered, Tables, TcpConnection};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

/// The peer of a minion without a master: its own main process.
const ITSELF: &str = "the minion itself";

/// Whether main reaches its masters. Without a master (`master_type: disable`) there is no connection: the guard, which lives on main's loop, has
/// to have followed the last round trip.
///
/// The address that the guard reports counts, not the present meaning of the name: the process still hears a master whose name has moved.
pub fn health(config: &MinionConfig, main: u32, subject: Subject<'_>, known: &Known) -> Health {
    match &config.masters {
        Masters::Named(masters, need) => {
            let report = subject.report.filter(|report| report.pid == main);
            let located = masters.iter().map(|master| Located::of(master, report, &known.names)).collect::<Vec<_>>();
            let connected = connected(&located, *need, main, &known.connections);
            with_round_trips(with_subscriptions(connected, report), subject)
        }
        Masters::None => alone(main, subject),
        Masters::Unknown(reason) => Health::Unknown(reason.clone()),
    }
}

/// What one health check leaves for the next one.
#[derive(Debug, Default)]
pub struct Known {
    /// The addresses of the masters' names.
    pub names: Names,
    /// The connections to the masters.
    connections: RefCell<Option<Remembered>>,
}

fn alone(main: u32, subject: Subject<'_>) -> Health {
    let without = "the minion works without a master (master_type: disable)";
    let Some(report) = subject.report else {
        return Health::Unknown(format!("{without}, and no guard in it has reported yet"));
    };
    let (proven, detail) = if report.pid != main {
        (false, format!("its guard reports from process {}, not from {main}", report.pid))
    } else if subject.prove.is_some_and(|prove| report.prove < prove) {
        (false, "has not answered yet".to_owned())
    } else {
        (true, "its main process runs, with its guard; there is no master to reach".to_owned())
    };
    Health::Known { peers: vec![Peer { name: ITSELF.to_owned(), proven, detail }], need: Need::All }
}

/// The masters whose names do not resolve now, and why.
pub fn unfindable(config: &MinionConfig, names: &Names) -> Vec<Peer> {
    let Masters::Named(masters, _) = &config.masters else { return Vec::new() };
    let lost = |master: &Master| {
        let detail = names.resolve(&master.host, FRESH_AGE_MAXIMUM).err()?;
        Some(Peer { name: master.name.clone(), proven: false, detail })
    };
    masters.iter().filter_map(lost).collect()
}

fn connected(located: &[Located], need: Need, main: u32, known: &RefCell<Option<Remembered>>) -> Health {
    let by = |connections: &[TcpConnection]| {
        let peers = located.iter().map(|master| peer(master, located, connections)).collect();
        Health::Known { peers, need }
    };
    // Where a master is not reached, a connection that is new may be to that one.
    let standing = known.borrow().as_ref().and_then(|known| Some(by(known.standing(main)?)));
    if let Some(health) = standing.filter(|health| health.lacks(&[]).is_none()) {
        return health;
    }
    let connections = match tcp::connections(main) {
        Ok(Some(connections)) => connections,
        Ok(None) => return Health::Unknown(format!("the minion's main process {main} is gone")),
        Err(error) => return Health::Unknown(error.to_string()),
    };
    let is_to_one = |found: &TcpConnection| located.iter().any(|master| master.is_at(found.remote.ip()));
    let to_masters = connections.iter().filter(|found| found.established && is_to_one(found)).cloned().collect();
    known.replace(Remembered::of(main, to_masters));
    by(&connections)
}

/// This health, where a master is not proven while the guard says that its publisher has not answered the subscriber.
fn with_subscriptions(health: Health, report: Option<&GuardReport>) -> Health {
    let (Some(report), Health::Known { peers, need }) = (report, &health) else { return health };
    let is_missing =
        |name: &str| report.peers.iter().any(|said| said.name == name && said.subscribed == Subscription::Missing);
    let checked = peers.iter().cloned().map(|peer| {
        if !peer.proven || !is_missing(&peer.name) {
            return peer;
        }
        let detail = format!("{}, but its publisher does not answer: not subscribed", peer.detail);
        Peer { proven: false, detail, ..peer }
    });
    Health::Known { peers: checked.collect(), need: *need }
}

/// This health, where a master is proven only once it has answered the guard's round trip: connections outlive a master that hangs.
fn with_round_trips(health: Health, subject: Subject<'_>) -> Health {
    let (Some(prove), Health::Known { peers, need }) = (subject.prove, &health) else { return health };
    let Some(report) = subject.report else {
        return Health::Unknown("the minion's guard has not reported yet".to_owned());
    };
    let checked = peers.iter().map(|peer| {
        let said = report.peers.iter().find(|said| said.name == peer.name);
        let answered = said.and_then(|said| said.proven).is_some_and(|number| number >= prove);
        let detail = match said {
            _ if !peer.proven || answered => peer.detail.clone(),
            Some(said) if said.proven.is_some_and(|number| number > 0) && report.prove < prove => {
                "has not answered the last question yet: the minion is too busy".to_owned()
            }
            Some(said) if !said.detail.is_empty() => said.detail.clone(),
            Some(_) | None => "has not answered yet".to_owned(),
        };
        Peer { proven: peer.proven && answered, detail, ..peer.clone() }
    });
    Health::Known { peers: checked.collect(), need: *need }
}

/// Which of several processes is connected to the masters of a minion: names are looked up and tables of sockets read once for all of them.
pub struct Reach<'config> {
    located: Vec<Located<'config>>,
    tables: Tables,
}

impl<'config> Reach<'config> {
    /// To the masters of `config`, where their names mean now.
    pub fn of(config: &'config MinionConfig, names: &Names) -> Self {
        let masters = if let Masters::Named(masters, _) = &config.masters { masters.as_slice() } else { &[] };
        let located = masters.iter().map(|master| Located::of(master, None, names)).collect();
        Self { located, tables: Tables::default() }
    }

    /// The masters to which this process is connected; none if that cannot be told.
    pub fn reached(&mut self, pid: u32) -> Vec<String> {
        if self.located.is_empty() {
            return Vec::new();
        }
        let connections = self.tables.of(pid).ok().flatten().unwrap_or_default();
        let peers = self.located.iter().map(|master| peer(master, &self.located, &connections));
        peers.filter(|peer| peer.proven).map(|peer| peer.name).collect()
    }

    /// The first of these processes that is connected to a master, with its masters.
    pub fn first(&mut self, pids: impl IntoIterator<Item = u32>) -> Option<(u32, Vec<String>)> {
        pids.into_iter().map(|pid| (pid, self.reached(pid))).find(|(_, masters)| !masters.is_empty())
    }
}

struct Located<'config> {
    master: &'config Master,
    addresses: Result<Vec<IpAddr>, String>,
}

impl<'config> Located<'config> {
    /// Where main itself says that it is connected to it; else where it would look for it.
    fn of(master: &'config Master, report: Option<&GuardReport>, names: &Names) -> Self {
        let said = report.and_then(|report| report.peers.iter().find(|peer| peer.name == master.name));
        let told = said.and_then(|said| address(said.address.as_deref()?));
        let addresses =
            told.map_or_else(|| names.resolve(&master.host, ANSWER_AGE_MAXIMUM), |address| Ok(vec![address]));
        Self { master, addresses }
    }

    fn is_at(&self, address: IpAddr) -> bool {
        self.addresses.as_ref().is_ok_and(|addresses| addresses.contains(&address))
    }

    fn shares_an_address(&self, other: &Self) -> bool {
        self.addresses.as_ref().is_ok_and(|addresses| addresses.iter().any(|address| other.is_at(*address)))
    }
}

/// `tcp://ADDRESS:PORT`, as Salt has a master's.
fn address(uri: &str) -> Option<IpAddr> {
    let place = uri.split_once("://").map_or(uri, |(_, place)| place);
    place.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical())
}

fn peer(master: &Located, all: &[Located], connections: &[TcpConnection]) -> Peer {
    let name = master.master.name.clone();
    let (proven, detail) = match &master.addresses {
        Err(error) => (false, error.clone()),
        Ok(_) => match (requests(master, connections), publishes(master, all, connections)) {
            (true, Ok(port)) => (true, format!("connected to ports {} and {port}", master.master.request_port)),
            (true, Err(cause)) => (false, cause),
            (false, Ok(_)) => (false, format!("not connected to port {}", master.master.request_port)),
            (false, Err(_)) => (false, "not connected".to_owned()),
        },
    };
    Peer { name, proven, detail }
}

fn requests(master: &Located, connections: &[TcpConnection]) -> bool {
    let port = master.master.request_port;
    connections.iter().any(|found| found.established && found.remote.port() == port && master.is_at(found.remote.ip()))
}

/// The port of the master's publisher that main is connected to. If the configuration names none, it is any connection to the master's address
/// that is no request server's. Masters at one address are told apart by neighbouring ports (4505 and 4506), or by a connection for each.
fn publishes(master: &Located, all: &[Located], connections: &[TcpConnection]) -> Result<u16, String> {
    let neighbours: Vec<&Located> = all.iter().filter(|other| other.shares_an_address(master)).collect();
    let mut ports: Vec<u16> = connections
        .iter()
        .filter(|found| found.established && master.is_at(found.remote.ip()))
        .map(|found| found.remote.port())
        .filter(|port| neighbours.iter().all(|other| other.master.request_port != *port))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    if let Some(configured) = master.master.publish_port {
        let missing = format!("no connection to the publish port {configured}");
        return if ports.contains(&configured) { Ok(configured) } else { Err(missing) };
    }
    let custom = master.master.request_port.wrapping_sub(1);
    let customary = |other: &&&Located| ports.contains(&other.master.request_port.wrapping_sub(1));
    match ports.first() {
        Some(_) if ports.contains(&custom) => Ok(custom),
        None => Err("not signed in: no connection to its publisher (is the minion's key accepted?)".to_owned()),
        Some(_) if ports.len() >= neighbours.len() => {
            // Those that follow the custom have taken theirs; one of the others is this one's.
            let taken: Vec<u16> =
                neighbours.iter().filter(customary).map(|other| other.master.request_port.wrapping_sub(1)).collect();
            let left = ports.iter().find(|port| !taken.contains(port));
            left.copied().ok_or_else(|| "not signed in: no connection to its publisher".to_owned())
        }
        Some(_) => {
            Err("cannot be told from the other masters at its address: fewer publishers than masters are connected"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn master(request_port: u16, publish_port: Option<u16>) -> Master {
        Master { name: format!("127.0.0.1:{request_port}"), host: "127.0.0.1".to_owned(), request_port, publish_port }
    }

    fn connected(ports: &[u16]) -> Vec<TcpConnection> {
        let connection = |port: &u16| TcpConnection {
            local: SocketAddr::from(([127, 0, 0, 1], 50_000)),
            remote: SocketAddr::from(([127, 0, 0, 1], *port)),
            established: true,
            unacknowledged_bytes: 0,
            inode: 1,
        };
        ports.iter().map(connection).collect()
    }

    fn proven(masters: &[Master], ports: &[u16]) -> Vec<bool> {
        let names = Names::default();
        let located: Vec<Located> = masters.iter().map(|master| Located::of(master, None, &names)).collect();
        located.iter().map(|one| peer(one, &located, &connected(ports)).proven).collect()
    }

    /// A remembered connection that is lost is noticed, and so is a new one in its place.
    #[test]
    fn a_master_is_reached_while_its_connections_stand_and_again_by_new_ones() {
        let ports = [0; 2].map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let [requests, publishes] = ports.each_ref().map(|one| one.local_addr().unwrap());
        let masters = [master(requests.port(), Some(publishes.port()))];
        let known = Known::default();
        let located: Vec<Located> = masters.iter().map(|one| Located::of(one, None, &known.names)).collect();
        let lacks = || super::connected(&located, Need::All, std::process::id(), &known.connections).lacks(&[]);
        let stream = |place| std::net::TcpStream::connect(place).unwrap();
        assert!(lacks().is_some());
        let first = stream(requests);
        assert!(lacks().is_some_and(|why| why.contains("no connection to the publish port")));
        let second = stream(publishes);
        assert_eq!((lacks(), lacks()), (None, None));
        drop(second);
        assert!(lacks().is_some_and(|why| why.contains("no connection to the publish port")));
        let second = stream(publishes);
        assert_eq!(lacks(), None);
        drop((first, second));
        assert!(lacks().is_some_and(|why| why.contains("not connected")));
    }

    #[test]
    fn without_a_master_the_guard_has_to_have_followed_from_the_process_that_is_main() {
        let leader = crate::os::process::Identity::of(std::process::id()).unwrap().unwrap();
        let report = report(5, "[]");
        let lacks = |main: u32, report: Option<&GuardReport>, prove: Option<u64>| {
            alone(main, Subject { leader: &leader, report, prove }).lacks(&[])
        };
        assert_eq!(lacks(7, Some(&report), Some(5)), None);
        assert_eq!(lacks(7, Some(&report), None), None);
        assert!(lacks(7, Some(&report), Some(6)).is_some_and(|why| why.contains("has not answered yet")));
        assert!(lacks(8, Some(&report), Some(5)).is_some_and(|why| why.contains("reports from process 7, not from 8")));
        assert!(lacks(7, None, None).is_some_and(|why| why.contains("no guard in it has reported yet")));
    }

    fn report(prove: u64, peers: &str) -> GuardReport {
        let text = format!(
            r#"{{"schema": 1, "leader": 1, "pid": 7, "start_time": 1, "wrapped": [], "overlap": null, "serial": 1,
            "role": "active", "singletons": true, "announced": true, "prove": {prove}, "jobs": [], "held": 0, "returning": 0,
            "peers": {peers}, "updated": 1.0}}"#
        );
        GuardReport::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_master_whose_name_has_moved_is_looked_for_where_the_minion_is_connected_and_without_a_question_to_the_resolver()
     {
        let moved = Master { host: "no such name".to_owned(), ..master(4506, None) };
        let report = report(
            3,
            r#"[{"name": "127.0.0.1:4506", "address": "tcp://127.0.0.1:4506", "proven": 3, "first": null, "last": null}]"#,
        );
        let names = Names::default();
        let located = [Located::of(&moved, Some(&report), &names)];
        let seen = peer(&located[0], &located, &connected(&[4505, 4506]));
        assert!(seen.proven && names.asked() == 0, "{} {}", seen.detail, names.asked());
        let seen = peer(&located[0], &located, &connected(&[4506]));
        assert!(!seen.proven, "its publisher is needed still: {}", seen.detail);
        for (uri, wanted) in [
            ("tcp://[::1]:4506", Some("::1")),
            ("tcp://[::ffff:127.0.0.1]:1", Some("127.0.0.1")),
            ("tcp://salt:4506", None),
        ] {
            assert_eq!(address(uri), wanted.map(|text| text.parse().unwrap()), "{uri}");
        }
    }

    #[test]
    fn a_minion_that_answers_too_late_is_called_busy_and_not_cut_off() {
        let leader = crate::os::process::Identity::of(std::process::id()).unwrap().unwrap();
        let answers = r#"[{"name": "m", "address": "tcp://127.0.0.1:4506", "proven": 4, "first": null, "last": null, "detail": "answered within 0.019 s"}]"#;
        let report = report(4, answers);
        let peer = Peer { name: "m".to_owned(), proven: true, detail: "connected".to_owned() };
        let health = Health::Known { peers: vec![peer], need: Need::All };
        let lacks = |prove| {
            with_round_trips(health.clone(), Subject { leader: &leader, report: Some(&report), prove: Some(prove) })
                .lacks(&[])
        };
        assert_eq!(lacks(4), None);
        assert!(lacks(9).is_some_and(|why| why.contains("too busy") && !why.contains("0.019")));
    }

    #[test]
    fn a_connection_to_a_publisher_that_does_not_answer_is_no_subscription() {
        let leader = crate::os::process::Identity::of(std::process::id()).unwrap().unwrap();
        let seen = |subscribed: &str| {
            let report = report(
                4,
                &format!(
                    r#"[{{"name": "m", "address": "tcp://127.0.0.1:4506", "proven": 4, "first": null, "last": null {subscribed}}}]"#
                ),
            );
            let detail = "connected to ports 4506 and 4505".to_owned();
            let peer = Peer { name: "m".to_owned(), proven: true, detail };
            let health = with_subscriptions(Health::Known { peers: vec![peer], need: Need::All }, Some(&report));
            with_round_trips(health, Subject { leader: &leader, report: Some(&report), prove: Some(4) }).lacks(&[])
        };
        assert_eq!(seen(r#", "subscribed": 1"#), None);
        assert_eq!(seen(r#", "subscribed": null"#), None, "a transport without a handshake: the connection counts");
        assert_eq!(seen(""), None, "a guard of an older release: the connection counts");
        let why = seen(r#", "subscribed": 0"#).unwrap();
        assert!(why.ends_with("but its publisher does not answer: not subscribed"), "{why}");
    }

    #[test]
    fn only_what_is_so_is_said_of_a_missing_connection() {
        let one = [master(4506, Some(7))];
        let located: Vec<Located> = one.iter().map(|one| Located::of(one, None, &Names::default())).collect();
        let seen = peer(&located[0], &located, &connected(&[4506]));
        assert_eq!((seen.proven, seen.detail.as_str()), (false, "no connection to the publish port 7"));
    }

    #[test]
    fn one_master_needs_both_connections() {
        let one = [master(4506, None)];
        assert_eq!(proven(&one, &[4506, 4505]), [true]);
        assert_eq!(proven(&one, &[4506, 9999]), [true], "the master names its publisher's port");
        assert_eq!(proven(&one, &[4506]), [false], "a key that is not accepted");
        assert_eq!(proven(&one, &[4505]), [false]);
        assert_eq!(proven(&[master(4506, Some(7))], &[4506, 4505]), [false]);
    }

    #[test]
    fn two_masters_at_one_address_are_told_apart() {
        let two = [master(4506, None), master(4516, None)];
        assert_eq!(proven(&two, &[4506, 4505, 4516, 4515]), [true, true]);
        assert_eq!(proven(&two, &[4506, 4505]), [true, false]);
        assert_eq!(proven(&two, &[4506, 4505, 4516]), [true, false], "signed in to one of them");
        assert_eq!(proven(&two, &[4506, 9001, 4516, 9002]), [true, true]);
        assert_eq!(proven(&two, &[4506, 9001, 4516]), [false, false], "unknown means no");
    }

    #[test]
    fn a_name_that_does_not_resolve_is_not_proven() {
        let unknown = Master { host: "no such name".to_owned(), ..master(4506, None) };
        let located = [Located::of(&unknown, None, &Names::default())];
        let seen = peer(&located[0], &located, &connected(&[4505, 4506]));
        assert!(!seen.proven && seen.detail.starts_with("cannot resolve"), "{}", seen.detail);
    }
}
