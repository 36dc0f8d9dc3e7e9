//! The supervisor and its agent, a live switch, holds, the package's lock, leases.

use super::CheckedInstance;
use crate::agent::examination::{Group, Severity};
use crate::digest::Digest;
use crate::layout;
use crate::loaded::{self, Loaded};
use crate::os::dir::Dir;
use crate::os::lock::{self, LOCK, LockFile};
use crate::os::{OsError, proc_fs};
use crate::store::Store;
use crate::supervise::status::{AgentStatus, SupervisorStatus};
use crate::switch::journal::files::InstanceFiles;
use crate::switch::process::on_record;
use crate::switch::{Journal, Phase};
use crate::version::Release;

/// Checks them. `present`: the digest of the configuration that the agent would load now, where it is known.
pub fn check(checked: &CheckedInstance<'_>, store: &Store, files: &InstanceFiles, present: Option<Digest>) -> Group {
    let mut group = Group::new("processes");
    // A journal that cannot be read is a finding of the store.
    let journal = files.journal().ok();
    if let Err(error) = &checked.supervised {
        group.unknown("the supervisor's status", error, "run `sidle doctor` as root");
    }
    supervised(&mut group, checked, journal.as_ref());
    if let Some(running) = checked.agent() {
        agent_of(&mut group, checked, running, journal.as_ref(), present);
    }
    if let Some(journal) = &journal {
        live(&mut group, checked, journal);
    }
    held(&mut group, checked, files);
    if let Err(error) = locks(&mut group, checked, store, journal.as_ref()) {
        group.unknown("locks and leases", error, "run `sidle doctor` as root, where /proc is mounted");
    }
    group
}

fn supervised(group: &mut Group, checked: &CheckedInstance<'_>, journal: Option<&Journal>) {
    let instance = checked.instance;
    let start = format!("`systemctl enable --now sidle@{instance}`, or `sidle supervise {instance}` by hand");
    let Some(SupervisorStatus { supervisor, version, trouble, agent, .. }) = checked.status() else {
        if checked.package.is_sidle() {
            group.good("this program itself, and no agent");
        } else if journal.is_some_and(|journal| journal.proven.is_some()) {
            let agent = match on_record(checked.layout, instance) {
                Ok(left) if left.is_empty() => "its agent does not run".to_owned(),
                Ok(left) => {
                    let left: Vec<String> = left.iter().map(|leader| leader.pid.to_string()).collect();
                    format!("its agent runs on (process {}), and is not started again when it ends", left.join(", "))
                }
                Err(error) => {
                    group.unknown("whether the agent runs", error, "run `sidle doctor` as root");
                    "its agent is not supervised".to_owned()
                }
            };
            group.find(Severity::Warning, "not-supervised", format!("{instance} is not supervised: {agent}"), start);
        } else {
            group.good("nothing to supervise yet");
        }
        return;
    };
    let (pid, own) = (supervisor.pid, env!("CARGO_PKG_VERSION"));
    if !version.is_empty() && version != own {
        let what = format!("the supervisor (process {pid}) is sidle {version}, this is {own}");
        let remedy = format!(
            "`systemctl kill -s HUP --kill-who=main sidle@{instance}`: it becomes the newer one, the agent keeps running"
        );
        group.find(Severity::Note, "supervisor-older", what, remedy);
    }
    match (trouble, agent) {
        (Some(trouble), _) => {
            let remedy = format!("fix the named cause; `sidle status {}` follows it", checked.package);
            let what = format!("the supervisor cannot run the agent: {trouble}");
            group.find(Severity::Error, "agent-not-running", what, remedy);
        }
        (None, None) if journal.is_some_and(|journal| journal.proven.is_some() && journal.live.is_none()) => {
            let remedy = format!("`sidle status {}` shows how it ended last; see the agent's own log", checked.package);
            group.find(Severity::Error, "agent-not-running", "the supervisor runs, but no agent", remedy);
        }
        (None, _) => group.good(format!("supervised by process {pid}")),
    }
}

fn agent_of(
    group: &mut Group,
    checked: &CheckedInstance<'_>,
    running: &AgentStatus,
    journal: Option<&Journal>,
    present: Option<Digest>,
) {
    let (package, pid) = (checked.package, running.leader.pid);
    match &running.lacks {
        Some(lacks) => {
            let what = format!("the agent (process {pid}) is not healthy: {lacks}");
            group.find(Severity::Warning, "agent-unhealthy", what, "see the findings about its peers, and its own log");
        }
        None => group.good(format!("agent {pid} reaches {}", running.reaches.join(", "))),
    }
    let Some(journal) = journal.filter(|journal| journal.live.is_none()) else { return };
    if let (Some(runs), Some(proven)) = (&running.release, &journal.proven) {
        if runs != proven {
            let what = format!("process {pid} runs {runs}, and current is {proven}");
            let remedy = format!("`sidle restart {package}` starts the current release");
            group.find(Severity::Warning, "other-release-runs", what, remedy);
        }
    }
    let loaded = loaded::of(checked.layout, checked.instance, &running.leader);
    match (loaded, present) {
        (Loaded::Known(loaded), Some(now)) if loaded == now => group.good("it has loaded the current configuration"),
        (Loaded::Known(_), Some(_)) => {
            let what = format!("the configuration has changed since process {pid} was started");
            let remedy = format!("`sidle restart {package}` loads it, without losing a job");
            group.find(Severity::Note, "configuration-changed", what, remedy);
        }
        (Loaded::Known(_) | Loaded::Unknown | Loaded::Unnoted, _) => {}
    }
}

fn live(group: &mut Group, checked: &CheckedInstance<'_>, journal: &Journal) {
    let package = checked.package;
    let Some(live) = &journal.live else { return group.good("no switch under way") };
    let what = format!("switch {} to {} is {} since {}", live.id, live.request.to, live.phase, live.phase_since);
    let because = live.failure.as_ref().map_or_else(String::new, |failure| format!(", because {}", failure.text));
    if live.phase == Phase::Stranded {
        let remedy = format!(
            "end the cause, and the switch goes on by itself; or `sidle cancel {package}`; `sidle status {package}` shows more"
        );
        group.find(Severity::Error, "switch-stranded", format!("{what}: it waits for a person{because}"), remedy);
    } else if checked.status().is_none() {
        let remedy = format!(
            "start its supervisor (`systemctl start sidle@{}`), which continues or rolls back the switch",
            checked.instance
        );
        group.find(Severity::Error, "switch-stuck", format!("{what}{because}, without a supervisor"), remedy);
    } else {
        let remedy = format!("`sidle status {package}` follows it");
        group.find(Severity::Note, "switch-live", format!("{what}{because}"), remedy);
    }
}

fn held(group: &mut Group, checked: &CheckedInstance<'_>, files: &InstanceFiles) {
    match files.hold() {
        Ok(Some(hold)) if hold.is_on(checked.now) => {
            let what = format!("{} is held {hold}", checked.instance);
            group.find(Severity::Note, "held", what, format!("`sidle unhold {}` lifts it", checked.package));
        }
        Ok(_) => {}
        Err(error) => {
            group.find(Severity::Error, "hold-unreadable", error.to_string(), error.hint().unwrap_or_default());
        }
    }
}

/// The package's lock, and leases on releases that are neither current nor previous. It takes no lock.
fn locks(
    group: &mut Group,
    checked: &CheckedInstance<'_>,
    store: &Store,
    journal: Option<&Journal>,
) -> Result<(), OsError> {
    let package = checked.package;
    let Some(receipts) = Dir::open_if_exists(&checked.layout.receipts(package))? else { return Ok(()) };
    for lock in locks_on(&LockFile::new(&receipts, LOCK))?.iter().filter(|lock| lock.exclusive) {
        let what = format!("{} holds the lock of {package}", named(lock.pid));
        let remedy = "wait until that process ends; if it hangs, end it: the next command cleans up";
        group.find(Severity::Note, "package-locked", what, remedy);
    }
    let wanted = |release: &Release| {
        checked.agent().is_some_and(|runs| runs.release.as_ref() == Some(release))
            || journal.is_some_and(|journal| journal.in_use().any(|used| used == release))
    };
    let mut leases = 0;
    // Releases that cannot be read are a finding of the store.
    for release in store.releases().unwrap_or_default() {
        let Some(directory) = receipts.child_if_exists(layout::LEASES)? else { break };
        let lease = LockFile::new(&directory, release.to_string());
        let held = locks_on(&lease)?;
        leases += held.len();
        for lock in held.iter().filter(|_| !wanted(&release)) {
            let what = format!("{release} is neither current nor previous, and leased by {}", holder(&lease, lock.pid));
            let remedy = "it cannot be collected until that process ends; end a process that a job left behind";
            group.find(Severity::Note, "release-in-use", what, remedy);
        }
    }
    group.good(if leases == 1 { "1 lease".to_owned() } else { format!("{leases} leases") });
    Ok(())
}

fn locks_on(file: &LockFile<'_>) -> Result<Vec<lock::FlockHolder>, OsError> {
    file.identity()?.map_or_else(|| Ok(Vec::new()), lock::held)
}

/// The process that took a lock, and its age: it cannot hold the lock for longer.
fn named(pid: Option<u32>) -> String {
    let process = pid.and_then(|pid| proc_fs::process(pid).ok().flatten());
    process.map_or_else(
        || "a process that cannot be seen from here".to_owned(),
        |process| {
            let seconds = proc_fs::age(&process).as_secs();
            format!("process {} ({}), which began {seconds} s ago,", process.pid, proc_fs::title(process.pid))
        },
    )
}

/// The holder of a lease: the process that took it, or a process that inherited it.
fn holder(lease: &LockFile<'_>, pid: Option<u32>) -> String {
    let lives = pid.is_some_and(|pid| proc_fs::process(pid).ok().flatten().is_some_and(|process| process.is_alive()));
    let heirs = if lives { Vec::new() } else { lease.holders().unwrap_or_default() };
    named(heirs.first().map(|heir| heir.pid).or(pid))
}
