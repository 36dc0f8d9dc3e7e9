//! Whether somebody listens at the two ports of each master: all of them at once, each for a few seconds at most.

use super::super::options::Master;
use crate::agent::Need;
use crate::agent::examination::{Case, Group, Severity};
use crate::os::net;
use crate::os::thread::helper;
use std::net::SocketAddr;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// How long a connection may take. A packet that is dropped is sent again after one second, and after two more.
const CONNECT_WAIT: Duration = Duration::from_secs(4);
/// Masters looked at. A list of hundreds is an error of whoever wrote it, and each costs two threads.
const MASTERS_MAX: usize = 32;

/// A master whose request server takes connections.
pub struct Listening<'a> {
    /// The master.
    pub master: &'a Master,
    /// Where it was found.
    pub address: SocketAddr,
}

/// Looks at all of them; gives those at whose request port somebody listens.
pub fn check<'a>(group: &mut Group, masters: &'a [Master], need: Need, case: Case<'_>) -> Vec<Listening<'a>> {
    let looked: Vec<_> = std::thread::scope(|scope| {
        let look = |master: &'a Master| {
            let publish = master.publish_port.unwrap_or(master.request_port.wrapping_sub(1));
            let at = |port| helper(scope, move || net::listening(&master.host, port, CONNECT_WAIT));
            (master, publish, at(master.request_port), at(publish))
        };
        let joined = |looking: Option<ScopedJoinHandle<'_, _>>| looking.and_then(|looking| looking.join().ok());
        let begun: Vec<_> = masters.iter().take(MASTERS_MAX).map(look).collect();
        let ended = begun
            .into_iter()
            .map(|(master, publish, requests, publishes)| (master, publish, joined(requests), joined(publishes)));
        ended.collect()
    });
    let mut listening = Vec::new();
    let is_one_enough = need == Need::Any && looked.iter().any(|(_, _, requests, _)| matches!(requests, Some(Ok(_))));
    let severity = if is_one_enough { Severity::Warning } else { Severity::Error };
    for (master, publish, requests, publishes) in looked {
        let name = &master.name;
        match requests {
            Some(Ok(address)) => {
                group.good(format!("{name} takes connections at port {}", master.request_port));
                listening.push(Listening { master, address });
            }
            failed => group.find(severity, "master-unreachable", told(name, failed), remedy(name, master.request_port)),
        }
        match publishes {
            Some(Ok(_)) => group.good(format!("and at {publish}")),
            // Which port the publisher has the master tells at sign-in; without that 4505 is only the custom.
            _ if master.publish_port.is_none() && case.reaches.contains(name) => {}
            failed => group.find(severity, "master-unreachable", told(name, failed), remedy(name, publish)),
        }
    }
    if masters.len() > MASTERS_MAX {
        let what = format!("{} of {} masters", masters.len() - MASTERS_MAX, masters.len());
        group.unknown(&what, "too many are configured", "name fewer in `master`");
    }
    listening
}

fn told(name: &str, looked: Option<Result<SocketAddr, crate::os::OsError>>) -> String {
    let reason =
        looked.and_then(Result::err).map_or_else(|| "the check broke off".to_owned(), |error| error.to_string());
    format!("master {name}: {reason}")
}

fn remedy(name: &str, port: u16) -> String {
    format!(
        "on {name}: `systemctl status salt-master` and `ss -ltn`; here: `getent hosts {name}`; in between: open TCP {port} from here to there"
    )
}
