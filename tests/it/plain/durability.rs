//! What a power cut leaves: install, repair, collect, switch and adopt are recorded with their syncs, and every state that a file system may be in
//! after a cut is made anew. In each `current` is a whole release that worked, nothing half-written counts as installed, and the next command
//! goes on. Without the syncs the same looks must fail: what is never seen to fail shows nothing.

use crate::support::inside::Contents;
use crate::support::replay::{Cut, Record, Syncs};
use crate::support::stage::{Author, DEMO, Host, text};
use crate::support::{eventually, trees};
use sidle::adoption::AdoptingInstance;
use sidle::adoption::record::{Adoption, Stage};
use sidle::adoption::replacement_unit::MARK;
use sidle::layout::Layout;
use sidle::saved::Saved as _;
use sidle::switch::journal::verdicts::Verdicts;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What the states of one act are looked at for.
pub struct Act<'a> {
    pub record: Record,
    /// Looks at a host that was left so, with the program as its administrator would; `is_end`: the act had ended well. What is wrong.
    pub look: &'a (dyn Fn(&Host, bool) -> Result<(), String> + Sync),
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// So many of the steps that it takes some seconds.
    Some(usize),
    /// Every step, and more ways to shuffle.
    Every,
}

const FEW: [Cut; 5] = [Cut::Dropped, Cut::Emptied, Cut::Halved, Cut::Shuffled(1), Cut::Shuffled(2)];

impl Act<'_> {
    /// What is wrong with the states that are left where only these syncs count, the first of each kind of thread; and how many were looked at.
    fn wrong(&self, extent: Extent, syncs: Syncs) -> (Vec<String>, usize) {
        let more: Vec<Cut> = (3..12).map(Cut::Shuffled).collect();
        let (cuts, stride) = match extent {
            Extent::Some(count) => (FEW.to_vec(), self.record.length().div_ceil(count).max(1)),
            Extent::Every => ([&FEW[..], &more].concat(), 1),
        };
        let states = self.record.all_left(&cuts, syncs, stride);
        let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(state) = states.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let host = Host::bare();
                        state.make(&host.root());
                        if let Err(what) = (self.look)(&host, state.is_end) {
                            wrong.lock().unwrap().push(format!("{}: {what}", state.told));
                            // One is enough to fail.
                            next.store(states.len(), Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        (wrong.into_inner().unwrap(), next.into_inner().min(states.len()))
    }

    /// All is well with the syncs, and not without these.
    pub fn survives(&self, extent: Extent, needs: &[Syncs]) {
        let (wrong, count) = self.wrong(extent, Syncs::All);
        assert!(wrong.is_empty(), "{wrong:#?}");
        println!("{} steps, {count} states", self.record.length());
        for syncs in needs {
            let (wrong, _) = self.wrong(extent, *syncs);
            assert!(!wrong.is_empty(), "not one state shows that a sync is missing: {syncs:?}");
            println!("seen with {syncs:?}: {}", wrong[0]);
        }
    }
}

/// Records what the program does on this host.
fn recorded(host: &Host, act: impl FnOnce(&[(&str, &str)])) -> Record {
    let mut record = Record::of(&host.root());
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("effects");
    act(&[("SIDLE_EFFECTS", text(&log))]);
    record.read(&host.root(), &log);
    assert!(record.length() > 5, "only {} steps: are the effects compiled in?", record.length());
    record
}

fn said(host: &Host, arguments: &[&str], codes: &[i32]) -> Result<String, String> {
    let ran = host.sidle(arguments);
    if ran.code.is_some_and(|code| codes.contains(&code)) {
        Ok(ran.stdout)
    } else {
        Err(format!("{arguments:?}: {ran:?}"))
    }
}

/// The releases that count as installed, each of which is whole.
fn installed(host: &Host) -> Result<Vec<String>, String> {
    let listed = said(host, &["--json", "list"], &[0])?;
    let listed: serde_json::Value = serde_json::from_str(&listed).map_err(|error| error.to_string())?;
    let releases = listed["releases"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> =
        releases.iter().map(|release| release["release"].as_str().unwrap().to_owned()).collect();
    names.sort();
    for name in &names {
        said(host, &["verify", DEMO, name, "--full"], &[0])?;
    }
    Ok(names)
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
}

/// Nothing lies about any more, once a command that changes something has run.
fn tidy(host: &Host, releases: &[&str]) -> Result<(), String> {
    same("installed", &installed(host)?, &releases.iter().map(|name| (*name).to_owned()).collect())?;
    let staging: Vec<_> =
        fs::read_dir(host.path("opt/sidle/demo-agent/staging")).into_iter().flatten().flatten().collect();
    if staging.is_empty() { Ok(()) } else { Err(format!("left in staging: {staging:?}")) }
}

/// What is wrong after an install of 1.0 that was cut off, or was said to be done.
pub fn after_install(host: &Host, bundle: &Path, is_end: bool) -> Result<(), String> {
    let found = installed(host)?;
    if is_end {
        same("after it was said to be installed", &found, &vec!["1.0-1".to_owned()])?;
    }
    said(host, &["trust", "show"], &[0])?;
    said(host, &["install", text(bundle)], &[0, 3])?;
    tidy(host, &["1.0-1"])
}

pub fn install(extent: Extent) {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    let record = recorded(&host, |variables| {
        host.sidle_with(&["install", text(&bundle)], variables).ok();
    });
    let look = |host: &Host, is_end: bool| after_install(host, &bundle, is_end);
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfContent, Syncs::OfNames]);
}

/// The same frame by frame from a repository, beside what is there.
pub fn install_from_a_repository(extent: Extent) {
    let author = Author::new();
    let host = Host::new(&author);
    host.install(&author.release("1.0", "good")).ok();
    author.release("1.1", "good");
    let url = format!("file://{}", author.repository().display());
    let install: &[&str] = &["install", DEMO, "--repository", &url];
    let record = recorded(&host, |variables| {
        host.sidle_with(install, variables).ok();
    });
    let look = |host: &Host, is_end: bool| {
        let found = installed(host)?;
        let both = ["1.0-1".to_owned(), "1.1-1".to_owned()];
        same("installed", &found[..], if is_end || found.len() > 1 { &both[..] } else { &both[..1] })?;
        said(host, &["trust", "show"], &[0])?;
        said(host, install, &[0, 3])?;
        tidy(host, &["1.0-1", "1.1-1"])
    };
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfContent, Syncs::OfNames]);
}

pub const TREE: &str = "opt/sidle/demo-agent/versions/1.0-1";

/// Damages a release in three ways.
pub fn damage(host: &Host) {
    fs::remove_dir_all(host.path(TREE).join("share")).unwrap();
    fs::write(host.path(TREE).join("bin/demo-agent"), "broken").unwrap();
    fs::write(host.path(TREE).join("sitecustomize.py"), "foreign").unwrap();
}

/// What is wrong after a repair of such a release, which has to end as it was signed.
pub fn after_repair(host: &Host, bundle: &Path, signed: &Contents, is_end: bool) -> Result<(), String> {
    if is_end {
        said(host, &["verify", DEMO, "1.0-1", "--full"], &[0])?;
    }
    // What is in the tree under its name is what was there, or what was signed: nothing half-written.
    let agent = fs::read(host.path(TREE).join("bin/demo-agent")).unwrap_or_default();
    if agent != b"broken" && agent != signed["bin/demo-agent"].2 {
        return Err(format!("half of a file was moved in: {} bytes", agent.len()));
    }
    said(host, &["repair", DEMO, "--from", text(bundle)], &[0, 3])?;
    if trees::contents(&host.path(TREE)) != *signed {
        return Err("it is not what was signed".to_owned());
    }
    tidy(host, &["1.0-1"])
}

pub fn repair(extent: Extent) {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let signed = trees::contents(&host.path(TREE));
    damage(&host);
    let record = recorded(&host, |variables| {
        host.sidle_with(&["repair", DEMO, "--from", text(&bundle)], variables).ok();
    });
    let look = |host: &Host, is_end: bool| after_repair(host, &bundle, &signed, is_end);
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfNames]);
}

/// Of three releases the newest stays.
pub const COLLECT: &[&str] = &["collect", DEMO, "--keep", "1"];

/// What is wrong after a collection.
pub fn after_collect(host: &Host, is_end: bool) -> Result<(), String> {
    let found = installed(host)?;
    if is_end {
        same("after it was said to be collected", &found, &vec!["1.2-1".to_owned()])?;
    }
    said(host, COLLECT, &[0, 3])?;
    tidy(host, &["1.2-1"])
}

pub fn collect(extent: Extent) {
    let author = Author::new();
    let host = Host::new(&author);
    for version in ["1.0", "1.1", "1.2"] {
        host.install(&author.release(version, "good")).ok();
    }
    let record = recorded(&host, |variables| {
        host.sidle_with(COLLECT, variables).ok();
    });
    Act { record, look: &after_collect }.survives(extent, &[Syncs::None, Syncs::OfContent]);
}

/// A host on which 1.0 has worked, and 1.1 lies beside it.
pub fn settled(author: &Author) -> Host {
    let host = Host::new(author);
    for version in ["1.0", "1.1"] {
        host.install(&author.release(version, "good")).ok();
    }
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    assert_eq!(supervisor.end(), Some(0));
    host
}

/// What is wrong after a switch from 1.0 to 1.1, as files tell.
pub fn after_switch(host: &Host, is_end: bool) -> Result<(), String> {
    let current =
        fs::read_link(host.path("opt/sidle/demo-agent/current")).map_err(|error| format!("no current: {error}"))?;
    let current = current.strip_prefix("versions").unwrap().to_str().unwrap().to_owned();
    if is_end {
        same("after the switch was said to be done, `current`", &current.as_str(), &"1.1-1")?;
    }
    same("installed", &installed(host)?, &vec!["1.0-1".to_owned(), "1.1-1".to_owned()])?;
    let status = said(host, &["--json", "status", DEMO], &[0, 4])?;
    let status: serde_json::Value = serde_json::from_str(&status).map_err(|error| error.to_string())?;
    same("status", &status["instances"][0]["current"].as_str().unwrap_or_default(), &current.as_str())?;
    said(host, &["--json", "history", DEMO], &[0]).map(drop)
}

/// The same as a boot tells.
pub fn after_boot(host: &Host) -> Result<(), String> {
    let supervisor = host.supervise();
    eventually(20, "an agent runs, and no switch is left", || match host.status() {
        status if status["switch"].is_null() && host.agents().len() == 1 => Ok(()),
        status => Err(status.to_string()),
    });
    let now = host.current().unwrap();
    same("what answers", &format!("{}-1", host.answering("job")), &now)?;
    same("the supervisor's end", &supervisor.end(), &Some(0))
}

pub fn switch(extent: Extent) {
    let author = Author::new();
    let host = settled(&author);
    let record = recorded(&host, |variables| {
        let supervisor = host.supervise_with(variables);
        eventually(20, "the agent runs", || if host.agents().len() == 1 { Ok(()) } else { Err(supervisor.log()) });
        host.sidle(&["switch", DEMO, "1.1-1"]).ok();
        assert_eq!(supervisor.end(), Some(0));
    });
    let (looked, often) = (AtomicUsize::new(0), if extent == Extent::Every { 10 } else { 30 });
    let look = |host: &Host, is_end: bool| {
        after_switch(host, is_end)?;
        if looked.fetch_add(1, Ordering::SeqCst) % often == 0 { after_boot(host) } else { Ok(()) }
    };
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfContent, Syncs::OfNames]);
}

/// A switch that fails: what is remembered of the release was on the disk before it was said.
pub fn failed_switch(extent: Extent) {
    let author = Author::new();
    let host = settled(&author);
    host.install(&author.release("1.2", "crash")).ok();
    let record = recorded(&host, |variables| {
        let supervisor = host.supervise_with(variables);
        eventually(20, "the agent runs", || if host.agents().len() == 1 { Ok(()) } else { Err(supervisor.log()) });
        assert_eq!(host.sidle(&["switch", DEMO, "1.2-1"]).code, Some(5));
        assert_eq!(supervisor.end(), Some(0));
    });
    let look = |host: &Host, is_end: bool| {
        let current = fs::read_link(host.path("opt/sidle/demo-agent/current")).map_err(|error| error.to_string())?;
        same("current", &current.to_str(), &Some("versions/1.0-1"))?;
        said(host, &["verify", DEMO, "1.0-1", "--full"], &[0])?;
        said(host, &["--json", "status", DEMO], &[0, 4])?;
        let verdicts = fs::read(host.path("var/lib/sidle/instances/demo-agent/verdicts"));
        let verdicts = verdicts.map_or(Ok(Verdicts::default()), |bytes| Verdicts::parse(&bytes));
        let is_bad = verdicts.map_err(|error| error.to_string())?.bad.contains_key(&"1.2-1".parse().unwrap());
        if is_end { same("1.2-1 is remembered as bad", &is_bad, &true) } else { Ok(()) }
    };
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfContent, Syncs::OfNames]);
}

/// An administrator's own unit file: the one thing of a host that an adoption moves away.
const UNIT: &str = "[Unit]\nDescription=an administrator's own\n";

fn adopting(layout: &Layout) -> AdoptingInstance {
    sidle::cli::adopting(layout, &"a".parse().unwrap(), &"a".parse().unwrap())
}

fn retire(layout: &Layout) {
    let instance = "a".parse().unwrap();
    let programs = BTreeMap::from([("a-call".to_owned(), "bin/a-call".parse().unwrap())]);
    let mut adoption = Adoption::new("salt".parse().unwrap(), "a.service".to_owned(), false, Vec::new());
    adoption.write(layout, &instance).unwrap();
    adoption.retire(&adopting(layout), &programs).unwrap();
}

/// Takes back what is on record on a host, whose commands are on record with the root on which they were made.
fn take_back(host: &Host) -> Result<(), String> {
    let (layout, instance) = (Layout::new(&host.root()), "a".parse().unwrap());
    if let Some(mut adoption) = Adoption::read(&layout, &instance).map_err(|error| error.to_string())? {
        for path in &mut adoption.commands {
            *path = host.path("usr/local/sbin").join(path.file_name().unwrap());
        }
        adoption.undo(&adopting(&layout)).map_err(|error| error.to_string())?;
    }
    let unit = fs::read_to_string(host.path("etc/systemd/system/a.service")).unwrap_or_default();
    same("the administrator's unit", &unit.as_str(), &UNIT)?;
    let commands = fs::read_dir(host.path("usr/local/sbin")).unwrap().flatten();
    // A temporary file that was never renamed is in nobody's way.
    let commands: Vec<_> = commands.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).collect();
    same("commands", &commands.len(), &0)
}

/// A recorder belongs to a process: `recorded_by` starts one for this. Does nothing where nobody tells it to.
#[test]
fn does_as_it_is_told() {
    let told = |name| std::env::var_os(name).map(|root| Layout::new(Path::new(&root)));
    told("SIDLE_RETIRES").iter().for_each(retire);
    if let Some(layout) = told("SIDLE_TAKES_BACK") {
        let instance = "a".parse().unwrap();
        Adoption::read(&layout, &instance).unwrap().unwrap().undo(&adopting(&layout)).unwrap();
    }
}

fn recorded_by(host: &Host, what: &str) -> Record {
    recorded(host, |variables| {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "plain::durability::does_as_it_is_told"]).env(what, host.root());
        assert!(again.envs(variables.iter().copied()).output().unwrap().status.success());
    })
}

fn administrated() -> Host {
    let host = Host::bare();
    fs::create_dir_all(host.path("etc/systemd/system")).unwrap();
    fs::create_dir_all(host.path("usr/local/sbin")).unwrap();
    fs::write(host.path("etc/systemd/system/a.service"), UNIT).unwrap();
    host
}

pub fn adopt(extent: Extent) {
    let host = administrated();
    let record = recorded_by(&host, "SIDLE_RETIRES");
    let look = |host: &Host, is_end: bool| {
        if is_end {
            let adoption =
                Adoption::read(&Layout::new(&host.root()), &"a".parse().unwrap()).map_err(|error| error.to_string())?;
            same("the stage", &adoption.map(|adoption| adoption.stage), &Some(Stage::Held))?;
            let unit = fs::read_to_string(host.path("etc/systemd/system/a.service")).unwrap_or_default();
            same("the replacement unit", &unit.lines().next().unwrap_or("").contains(MARK), &true)?;
            let command = fs::read_to_string(host.path("usr/local/sbin/a-call")).unwrap_or_default();
            same("a command leads to it", &command.starts_with("#!/bin/sh"), &true)?;
        }
        take_back(host)
    };
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfContent, Syncs::OfNames]);
}

pub fn give_back(extent: Extent) {
    let host = administrated();
    retire(&Layout::new(&host.root()));
    let record = recorded_by(&host, "SIDLE_TAKES_BACK");
    let look = |host: &Host, is_end: bool| {
        let adoption =
            Adoption::read(&Layout::new(&host.root()), &"a".parse().unwrap()).map_err(|error| error.to_string())?;
        if is_end {
            same("on record", &adoption.is_some(), &false)?;
        }
        take_back(host)
    };
    Act { record, look: &look }.survives(extent, &[Syncs::None, Syncs::OfContent]);
}

#[test]
fn an_adoption_cut_off_at_any_instant_can_be_taken_back() {
    adopt(Extent::Some(100));
}

/// The record went before the removal of the stand-in was safe: a cut left a unit in place of the package's, and nobody who knew of it.
#[test]
fn an_adoption_given_back_and_cut_off_at_any_instant_leaves_no_unit_without_a_record() {
    give_back(Extent::Some(100));
}

#[test]
fn an_install_cut_off_at_any_instant_leaves_a_whole_release_or_none() {
    install(Extent::Some(25));
}

/// A release has its name before its content is on the disk if one sync is left out: the replay without syncs finds that.
#[test]
fn an_install_from_a_repository_cut_off_at_any_instant_leaves_a_whole_release_or_none() {
    install_from_a_repository(Extent::Some(15));
}

#[test]
fn a_repair_cut_off_at_any_instant_moves_nothing_in_that_is_half_written() {
    repair(Extent::Some(15));
}

#[test]
fn a_collection_cut_off_at_any_instant_leaves_whole_releases_only() {
    collect(Extent::Some(10));
}

#[test]
fn a_switch_cut_off_at_any_instant_leaves_a_release_that_worked() {
    switch(Extent::Some(20));
}

/// Without its verdict a bad release would be tried again after the cut.
#[test]
fn a_failed_switch_cut_off_at_any_instant_leaves_the_release_that_worked_and_its_verdict() {
    failed_switch(Extent::Some(15));
}
