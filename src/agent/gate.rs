//! The gate gives every job to exactly one of two processes of an agent. The supervisor writes roles; the guard inside each process obeys and
//! reports. docs/formats.md lists all files of the gate; this module knows their form, and no agent.
//!
//! A *slot* is the pid of the process that `sidle run` became. `roles`, an item a line:
//!
//! ```text
//! sidle-gate 1
//! serial 42                     grows with every new content
//! slot 1234 draining boot       role and origin of a process
//! slot 1300 active switch
//! announce 1300                 this process may say that it is up
//! prove 17                      each process makes one round trip to each peer for each new number
//! prover 1300                   this process alone does; without such a line all do
//! ```

use super::Job;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of this protocol, as manifests name it.
pub const PROTOCOL: u32 = 1;
/// The environment variable that names the gate's directory to a guard.
pub const GATE_VARIABLE: &str = "SIDLE_GATE";
/// The environment variable with the role to begin with where `roles` can't be read.
pub const ROLE_VARIABLE: &str = "SIDLE_ROLE";
/// The environment variable by which a guard counts no uses: `off`.
pub const USES_VARIABLE: &str = "SIDLE_USES";
/// The file of roles.
pub const ROLES_NAME: &str = "roles";
/// Longest file of roles read: two or three slots.
pub const ROLES_LENGTH_MAXIMUM: u64 = 16 * 1024;
/// The directory of claims.
pub const CLAIMS_NAME: &str = "claims";
/// The file that a guard locks while it owes claims. A guard of another user could not make it.
pub const OWED_NAME: &str = "claims.owed";
/// The directory of reports.
pub const SLOTS_NAME: &str = "slots";
/// Until when jobs wait for a repair: seconds since boot. Later, or without the file, they do not wait.
pub const MENDING_NAME: &str = "mending";
/// The directory of handovers between guards.
pub const HANDOVER_NAME: &str = "handover";
/// Longest report read: some hundred jobs.
pub const REPORT_LENGTH_MAXIMUM: u64 = 4 * 1024 * 1024;
/// While two processes run, a guard reports every second; after this time without a report its process hangs or is stopped.
pub const REPORT_AGE_MAXIMUM_SECONDS: f64 = 10.0;

/// What a process may do with jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GateRole {
    /// Takes every job at once; has the singletons (schedules, beacons, queues).
    Active,
    /// Holds what arrives, for when it becomes active; takes what nobody else takes, after a delay.
    Standby,
    /// Takes at once what the other provably never got, and after a delay what nobody took.
    Draining,
    /// Takes nothing that arrives from now on.
    Closed,
}

impl fmt::Display for GateRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// Why a process was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// At boot, or after the agent ended.
    #[default]
    Boot,
    /// By a switch: startup states do not run, and the start event comes later.
    Switch,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// A process at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its leader's pid.
    pub leader: u32,
    /// What it may do.
    pub role: GateRole,
    /// Why it was started.
    pub origin: Origin,
}

/// The content of `roles` without its serial number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// The processes.
    pub slots: Vec<Slot>,
    /// The process that may fire its start event.
    pub announce: Option<u32>,
    /// The number of the round trip to make.
    pub prove: u64,
    /// The only process that makes it; None: all.
    pub prover: Option<u32>,
}

impl Roles {
    /// These roles, and closed processes that finish their jobs.
    #[must_use]
    pub fn with_closed(mut self, finishing: impl Iterator<Item = (u32, Origin)>) -> Self {
        self.slots.extend(finishing.map(|(leader, origin)| Slot { leader, role: GateRole::Closed, origin }));
        self
    }

    /// The file's content.
    pub fn to_text(&self, serial: u64) -> String {
        let mut lines = vec![format!("sidle-gate {PROTOCOL}"), format!("serial {serial}")];
        lines.extend(self.slots.iter().map(|Slot { leader, role, origin }| format!("slot {leader} {role} {origin}")));
        lines.extend(self.announce.map(|leader| format!("announce {leader}")));
        lines.push(format!("prove {}", self.prove));
        lines.extend(self.prover.map(|leader| format!("prover {leader}")));
        lines.join("\n") + "\n"
    }

    /// The serial number of a file's content; 0 where it has none that can be read.
    pub fn serial_of(text: &str) -> u64 {
        text.lines().find_map(|line| line.strip_prefix("serial ")?.trim().parse().ok()).unwrap_or(0)
    }
}

/// A guard's report of its process.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "docs/formats.md says what the fields of slots/PID.json mean")]
pub struct GuardReport {
    pub leader: u32,
    pub pid: u32,
    pub start_time: u64,
    pub wrapped: Vec<String>,
    pub overlap: Option<String>,
    pub serial: u64,
    pub role: GateRole,
    pub singletons: bool,
    pub announced: bool,
    pub prove: u64,
    pub jobs: Vec<Job>,
    pub held: u64,
    pub returning: u64,
    #[serde(default)]
    pub queued: u64,
    #[serde(default)]
    pub queue_layout: Option<String>,
    pub peers: Vec<ReportedPeer>,
    /// The options that its process runs with, in the agent's own form.
    #[serde(default)]
    pub options: Option<serde_json::Value>,
    /// None: a guard of an older release.
    #[serde(default)]
    pub uses: Option<ReportedUses>,
    pub updated: f64,
}

/// A guard's report of its count of uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReportedUses {
    /// Why it does not count; None: it does.
    pub off: Option<String>,
}

/// A guard's report of a peer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(missing_docs, reason = "docs/formats.md says what the fields of slots/PID.json mean")]
pub struct ReportedPeer {
    pub name: String,
    #[serde(default)]
    pub address: Option<String>,
    pub proven: Option<u64>,
    #[serde(default)]
    pub detail: String,
    pub first: Option<String>,
    pub last: Option<String>,
    #[serde(default)]
    pub subscribed: Subscription,
    #[serde(default)]
    pub caught_up: bool,
    #[serde(default)]
    pub unheard: u64,
    #[serde(default)]
    pub unheard_since: Option<f64>,
    #[serde(default)]
    pub doubtful: u64,
}

/// What a guard says of its process's subscription to a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<u64>")]
pub enum Subscription {
    /// The peer has answered the handshake of the present connection: what it publishes comes here.
    Stands,
    /// It has not. The kernel makes a connection also to a peer that stands still.
    Missing,
    /// Nobody can tell: a transport without a handshake, a connection from before the guard, or a guard of an older release. The connection counts.
    #[default]
    NotReported,
}

impl From<Option<u64>> for Subscription {
    /// From the number of the handshake; 0: none stands.
    fn from(number: Option<u64>) -> Self {
        match number {
            Some(0) => Self::Missing,
            Some(_) => Self::Stands,
            None => Self::NotReported,
        }
    }
}

/// Since when a process misses jobs that the other process has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unheard {
    /// The oldest of them: seconds since boot.
    Since(f64),
    /// A guard of an older release, which says only how many.
    NotReported,
}

impl GuardReport {
    /// Reads a report; None: another version, or a file that was cut off. Unknown means no.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Why its process can't run beside another process; None: it can.
    pub fn forbids_overlap(&self) -> Option<String> {
        match &self.overlap {
            Some(reason) => Some(reason.clone()),
            None if self.wrapped.is_empty() => Some("the guard in the running process is not active".to_owned()),
            None => None,
        }
    }

    /// How old it is at `now`, seconds since boot.
    pub fn is_fresh(&self, now: f64) -> bool {
        now - self.updated <= REPORT_AGE_MAXIMUM_SECONDS
    }

    /// The unfinished work of its process, in the operator's words; None: none.
    pub fn unfinished(&self) -> Option<String> {
        const JOBS_TOLD_MAXIMUM: usize = 3;
        if !self.jobs.is_empty() {
            let told: Vec<String> = self.jobs.iter().take(JOBS_TOLD_MAXIMUM).map(ToString::to_string).collect();
            let more = self.jobs.len().saturating_sub(JOBS_TOLD_MAXIMUM);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return Some(format!("{}{more}", told.join(", ")));
        }
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        match (self.held, self.returning, self.queued) {
            (0, 0, 0) => None,
            (0, 0, queued) => Some(format!("{queued} queued job{} that only it can run", plural(queued))),
            (0, _, _) => Some(format!("{} on the way", self.returning())),
            (held, _, _) => Some(format!("{held} job{} not yet assigned", plural(held))),
        }
    }

    /// How many returns are on their way out, in words.
    pub fn returning(&self) -> String {
        format!("{} return{}", self.returning, if self.returning == 1 { "" } else { "s" })
    }

    /// Whether only returns are left, and no peer answered the last round trip: no peer can take them.
    pub fn returns_nowhere(&self) -> bool {
        let answered = |peer: &ReportedPeer| peer.proven.is_some_and(|proven| proven >= self.prove);
        let alone = self.jobs.is_empty() && self.held == 0 && self.returning > 0;
        alone && self.prove > 0 && !self.peers.is_empty() && !self.peers.iter().any(answered)
    }

    /// The peers that may still send this process jobs that `other` never gets: jobs from before `other` listened are not all read here, or `other`
    /// does not listen to the peer. A peer that did not answer round trip `asked` sends nothing.
    pub fn behind(&self, other: &Self, asked: u64) -> Vec<&str> {
        let behind = self.peers.iter().filter(|mine| {
            let listens = other.peers.iter().any(|theirs| theirs.name == mine.name && theirs.address.is_some());
            let answers = self.prove < asked || mine.proven.is_some_and(|number| number >= asked);
            mine.address.is_some() && !mine.caught_up && (listens || answers)
        });
        behind.map(|peer| peer.name.as_str()).collect()
    }

    /// The peers whose jobs only another process has, although this process should have received them.
    pub fn deaf_to(&self) -> Vec<(&str, Unheard)> {
        let since = |peer: &ReportedPeer| peer.unheard_since.map_or(Unheard::NotReported, Unheard::Since);
        let peers = self.peers.iter().filter(|peer| peer.unheard > 0);
        peers.map(|peer| (peer.name.as_str(), since(peer))).collect()
    }

    /// The peers of which only another process has jobs that may be from before this process's subscription.
    pub fn in_doubt_of(&self) -> Vec<&str> {
        self.peers.iter().filter(|peer| peer.doubtful > 0).map(|peer| peer.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with one peer, whose fields are changed by `peer`.
    fn report(peer: &serde_json::Value) -> GuardReport {
        let mut one = serde_json::json!({"name": "m", "address": "tcp://m", "proven": 3, "first": null, "last": null});
        one.as_object_mut().unwrap().extend(peer.as_object().unwrap().clone());
        let report = serde_json::json!({"schema": 1, "leader": 1, "pid": 2, "start_time": 3, "wrapped": ["w"], "overlap": null,
            "serial": 4, "role": "active", "singletons": true, "announced": true, "prove": 3, "jobs": [], "held": 0, "returning": 0,
            "peers": [one], "updated": 100.5});
        GuardReport::parse(report.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn roles_are_written_as_documented() {
        let slot = |leader, role, origin| Slot { leader, role, origin };
        let roles = Roles {
            slots: vec![slot(1234, GateRole::Draining, Origin::Boot), slot(1300, GateRole::Active, Origin::Switch)],
            announce: Some(1300),
            prove: 17,
            prover: None,
        };
        let alone = Roles { prover: Some(1300), ..roles.clone() }.to_text(42);
        assert!(alone.ends_with("prove 17\nprover 1300\n"), "{alone}");
        let text = roles.to_text(42);
        assert_eq!(
            text,
            "sidle-gate 1\nserial 42\nslot 1234 draining boot\nslot 1300 active switch\nannounce 1300\nprove 17\n"
        );
        assert_eq!(Roles::serial_of(&text), 42);
        assert_eq!(Roles::serial_of("sidle-gate 1\nser"), 0);
    }

    #[test]
    fn a_process_is_behind_until_it_says_that_it_has_caught_up() {
        let (there, not_there) = (report(&serde_json::json!({})), report(&serde_json::json!({"address": null})));
        let behind = |peer: serde_json::Value, other: &GuardReport, asked| report(&peer).behind(other, asked).len();
        let nothing = || serde_json::json!({});
        assert_eq!(behind(nothing(), &there, 3), 1, "a guard that says nothing of it proves nothing");
        assert_eq!(behind(serde_json::json!({"caught_up": true}), &there, 3), 0);
        assert_eq!(
            behind(serde_json::json!({"address": null}), &there, 3),
            0,
            "what is not connected receives nothing"
        );
        assert_eq!(behind(nothing(), &not_there, 3), 1, "a peer that only this process reaches");
        assert_eq!(behind(serde_json::json!({"proven": 2}), &not_there, 3), 0, "a peer that is down");
        assert_eq!(behind(serde_json::json!({"proven": 2}), &not_there, 4), 1, "it has not had the time to answer");
        assert_eq!(report(&serde_json::json!({"unheard": 2})).deaf_to(), [("m", Unheard::NotReported)]);
        let since = report(&serde_json::json!({"unheard": 2, "unheard_since": 7.5, "doubtful": 1}));
        assert_eq!((since.deaf_to(), since.in_doubt_of()), (vec![("m", Unheard::Since(7.5))], vec!["m"]));
        assert!(there.deaf_to().is_empty() && there.in_doubt_of().is_empty());
    }

    #[test]
    fn a_guard_that_tells_nothing_of_a_subscription_says_neither_that_it_stands_nor_that_it_is_missing() {
        let seen = |peer: serde_json::Value| report(&peer).peers[0].subscribed;
        assert_eq!(seen(serde_json::json!({})), Subscription::NotReported, "an older release");
        assert_eq!(
            seen(serde_json::json!({"subscribed": null})),
            Subscription::NotReported,
            "a transport without a handshake"
        );
        assert_eq!(seen(serde_json::json!({"subscribed": 0})), Subscription::Missing);
        assert_eq!(seen(serde_json::json!({"subscribed": 3})), Subscription::Stands);
    }

    #[test]
    fn returns_that_have_nobody_to_go_to_are_told_from_others() {
        let mut seen = report(&serde_json::json!({}));
        seen.returning = 2;
        assert!(!seen.returns_nowhere(), "its peer has answered");
        seen.prove = 4;
        assert!(seen.returns_nowhere() && seen.returning() == "2 returns");
        seen.held = 1;
        assert!(!seen.returns_nowhere(), "a job is more than a return");
    }

    #[test]
    fn what_is_unfinished_is_named() {
        let mut seen = report(&serde_json::json!({}));
        assert_eq!(seen.unfinished(), None);
        seen.queued = 2;
        assert_eq!(seen.unfinished().unwrap(), "2 queued jobs that only it can run");
        seen.returning = 1;
        assert_eq!(seen.unfinished().unwrap(), "1 return on the way");
        seen.held = 2;
        assert_eq!(seen.unfinished().unwrap(), "2 jobs not yet assigned");
        seen.jobs = vec![Job { id: "7".to_owned(), what: "test.sleep".to_owned(), pid: Some(9) }];
        assert_eq!(seen.unfinished().unwrap(), "test.sleep 7 (process 9)");
    }

    #[test]
    fn a_report_that_was_cut_off_says_nothing_and_an_unarmed_guard_forbids() {
        assert_eq!(GuardReport::parse(b"{\"leader\": 1"), None);
        let mut seen = report(&serde_json::json!({}));
        assert_eq!(seen.forbids_overlap(), None);
        assert!(seen.is_fresh(101.0) && !seen.is_fresh(120.0));
        seen.wrapped.clear();
        assert!(seen.forbids_overlap().is_some());
        seen.overlap = Some("it is a syndic".to_owned());
        assert_eq!(seen.forbids_overlap().unwrap(), "it is a syndic");
    }
}
