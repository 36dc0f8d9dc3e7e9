//! Brings sidle and a release to hosts that have nothing, over OpenSSH's own client, many hosts at a time.
//!
//! ```text
//! destination ssh quote   whom, and the command lines; names are checked, words are quoted
//! host_keys               whether ssh checks the host's key, whatever its options and configuration say
//! probe program files     what a host lacks; the static program and what comes with it
//! source                  answers of a repository to `sidle setup --repository stdio:` on the host: only missing frames go over the wire
//! visit                   the steps on one host, each of which may be repeated; the key of a first agent
//! complaint               what ssh says, with its remedy
//! ```
//!
//! A host keeps what has arrived: the same push again goes on there. Nothing is written below /tmp or /var/tmp of a host, and no host key is accepted.

pub mod complaint;
pub mod destination;
mod files;
mod host_keys;
pub mod probe;
pub mod program;
pub mod quote;
pub mod source;
pub mod ssh;
mod visit;

pub use destination::Destination;
pub use program::Programs;
pub use source::{Bundle, Source, check_fingerprint};
pub use ssh::Ssh;

use crate::agent::findings::Findings;
use crate::agent::introduction::Acceptor;
use crate::bundle::member::ReleaseId;
use crate::digest::Digest;
use crate::failure::{Class, Report};
use crate::name::PackageName;
use crate::os::place::Effect;
use crate::os::process;
use crate::os::thread::helper;
use crate::version::{Release, Version};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What is done on each host.
#[derive(Debug)]
pub struct Push {
    /// The client, and its options.
    pub ssh: Ssh,
    /// The private directory of the sockets by which sessions share a connection.
    pub sockets: PathBuf,
    /// The programs to bring.
    pub programs: Programs,
    /// The version that a host has to have.
    pub own: Version,
    /// The repository.
    pub source: Source,
    /// The releases that are there, as far as hosts may take them.
    pub releases: Vec<ReleaseId>,
    /// The fingerprint of the repository's first root.
    pub fingerprint: Digest,
    /// The package.
    pub package: PackageName,
    /// The release; None: the newest that fits the host.
    pub release: Option<Release>,
    /// What is done once the program is there.
    pub action: Action,
    /// Who accepts the keys of first agents; None: people.
    pub acceptor: Option<Box<dyn Acceptor>>,
    /// The repository that the host's own settings name afterwards.
    pub configure: Option<String>,
    /// The longest silence of a host.
    pub patience: Duration,
    /// The time for a host in all.
    pub total: Duration,
    /// Whether hosts are changed.
    pub effect: Effect,
    /// What an exit code of sidle on the host means.
    pub class: fn(i32) -> Option<Class>,
}

/// What is done on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Trust the repository, and install the release.
    Install,
    /// The same, then take the running agent over: in this mode, or the usual one.
    Adopt(Option<String>),
    /// The same as `Install`, then start the release as the host's first agent.
    Start(Start),
    /// The same as `Install`, then run a command of the release.
    Call(Call),
}

/// What a host's first agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its peers (masters): names or addresses.
    pub peers: Vec<String>,
    /// The fingerprint of its peers' key; None: it believes the first key that it is shown.
    pub pin: Option<String>,
    /// How long its key may wait until the peers accept it.
    pub wait: Duration,
}

/// A command of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// A script that makes what it needs.
    pub prepare: String,
    /// Variables, `NAME=value`.
    pub variables: Vec<String>,
    /// The command.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A step on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not begun.
    Wait,
    /// Connect, and look.
    Connect,
    /// Bring the program.
    Program,
    /// Trust, install, adopt or start.
    Setup,
    /// Name a repository in the host's settings.
    Settings,
    /// Run a command.
    Call,
}

impl Step {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Connect => "connect",
            Self::Program => "program",
            Self::Setup => "setup",
            Self::Settings => "settings",
            Self::Call => "call",
        }
    }
}

/// What happens on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub host: usize,
    /// The step.
    pub step: Step,
    /// Bytes sent so far.
    pub bytes_sent: u64,
}

/// What a host came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The last step.
    pub step: Step,
    /// Bytes sent: of the program, and of the repository.
    pub bytes_sent: u64,
    /// What was done, or would be.
    pub did: Vec<String>,
    /// The installed release.
    pub release: Option<String>,
    /// The findings of the takeover; None: nothing was taken over.
    pub adoption: Option<Findings>,
    /// What the command printed.
    pub output: Option<String>,
    /// Why it failed.
    pub failure: Option<Report>,
}

/// Open files that this process needs beside its visits.
const DESCRIPTORS: u64 = 64;
/// Those of a visit: three of the connection that stays, three of a command, and what starting a program takes.
const DESCRIPTORS_OF_A_VISIT: u64 = 16;

/// How many of so many hosts this process can visit at a time: without a descriptor a host fails at once, and the next one after it, up to the last.
pub fn affordable(wanted: u16) -> usize {
    let allowed = process::allow_descriptors(DESCRIPTORS + u64::from(wanted) * DESCRIPTORS_OF_A_VISIT);
    let all = allowed.saturating_sub(DESCRIPTORS) / DESCRIPTORS_OF_A_VISIT;
    usize::try_from(all).unwrap_or(usize::MAX).clamp(1, usize::from(wanted).max(1))
}

/// Visits all hosts, at most `parallel` at a time. A failed host stops no other.
pub fn all(
    push: &Push,
    hosts: &[Destination],
    parallel: usize,
    tell: &(dyn Fn(Event) + Sync),
    ended: &(dyn Fn(usize, &Outcome) + Sync),
) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<(usize, Outcome)>> = Mutex::default();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(host) = hosts.get(number) else { return };
            let outcome = visit::visit(push, number, host, tell);
            ended(number, &outcome);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
        }
    };
    std::thread::scope(|scope| {
        let _helpers: Vec<_> = (1..parallel.min(hosts.len())).map(|_| helper(scope, work)).collect();
        work();
    });
    let mut all = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// How a push ended: the class that comes first among the failures of the hosts; None: every host is done.
pub fn worst(outcomes: &[Outcome]) -> Option<Class> {
    let classes = || outcomes.iter().filter_map(|outcome| outcome.failure.as_ref()).map(|report| report.class);
    // A host that waits is no failure, and must not hide one.
    let failed = classes().filter(|class| *class != Class::Pending).min().or_else(|| classes().min());
    let unchanged = outcomes.iter().all(|outcome| outcome.did.is_empty() && outcome.output.is_none());
    failed.or_else(|| unchanged.then_some(Class::NothingToDo))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_host_decides() {
        let of = |class: Option<Class>, did: &[&str]| Outcome {
            step: Step::Setup,
            bytes_sent: 0,
            did: did.iter().map(|text| (*text).to_owned()).collect(),
            release: None,
            adoption: None,
            output: None,
            failure: class.map(|class| Report::of(class, "cannot")),
        };
        let (good, same) = (of(None, &["installed"]), of(None, &[]));
        assert_eq!(worst(&[good.clone(), same.clone()]), None);
        assert_eq!(worst(&[same.clone(), same.clone()]), Some(Class::NothingToDo));
        let bad = [of(Some(Class::Failed), &[]), good, of(Some(Class::NotTrusted), &[]), of(Some(Class::NoSpace), &[])];
        assert_eq!(worst(&bad), Some(Class::NotTrusted));
        let waits = of(Some(Class::Pending), &[]);
        assert_eq!(worst(&[same, waits.clone()]), Some(Class::Pending));
        assert_eq!(worst(&[waits, of(Some(Class::Failed), &[])]), Some(Class::Failed));
    }
}
