//! `sidle upgrade sidle`, `sidle rollback sidle`: this program as a package of its own repository, for hosts without a distribution's package of it.
//!
//! The new release is tried, `current` names it, and the running supervisors execute it one after another; if one of them does not come up, all go
//! back. Agents keep running. The journal names the release that has worked last, so that also an interrupted upgrade can go back. The path by which
//! the program is called becomes a link through `current` at the first upgrade.

mod called_by;

use crate::failure::{Class, Report};
use crate::layout::Layout;
use crate::name::{InstanceName, PackageName, SIDLE};
use crate::os::dir::Dir;
use crate::os::place::Effect;
use crate::os::process::{Program, Said, SignalNumber};
use crate::os::{clock, file, proc_fs};
use crate::store::{PackageLock, Store};
use crate::supervise::status::SupervisorStatus;
use crate::switch::journal::files::{DriverLock, InstanceFiles};
use crate::switch::journal::verdicts::Verdict;
use crate::switch::{Journal, Purpose};
use crate::version::Release;
use called_by::CalledBy;
use std::path::PathBuf;
use std::time::Duration;

/// How long the new program may take for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long a supervisor may take to execute the new program: it first lets it read the files of its instance.
const RENEWAL_WAIT: Duration = Duration::from_secs(20);
/// How long a renewed supervisor has to stay alive before the next follows.
const STAY: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_millis(50);

/// Refuses what only an agent has.
pub fn refuse(package: &PackageName, act: &str) -> Result<(), Report> {
    if !package.is_sidle() {
        return Ok(());
    }
    Err(Report::of(Class::Conflict, format!("cannot {act} sidle: it is this program itself, and no agent"))
        .hint("use `sidle upgrade sidle` or `sidle rollback sidle`"))
}

/// The release to go back to: the one before, or, after an interrupted upgrade, the one that has worked last.
pub fn previous(journal: &Journal, current: Option<&Release>) -> Option<Release> {
    if journal.proven.as_ref() == current { journal.previous.clone() } else { journal.proven.clone() }
}

/// What became of an upgrade.
#[derive(Debug)]
pub enum TakenUp {
    /// Everything runs the release already.
    Already,
    /// The dry run of an upgrade that would begin.
    Would,
    /// The release is current.
    Done {
        /// The release before; None: a program outside the store.
        before: Option<Release>,
        /// The instances whose supervisors have executed the release.
        renewed: Vec<InstanceName>,
    },
}

/// Takes a release of this program up. `renewed` is told each instance whose supervisor executes it.
pub fn take_up(
    layout: &Layout,
    package: &PackageName,
    release: &Release,
    purpose: Purpose,
    effect: Effect,
    renewed: &dyn Fn(&InstanceName),
) -> Result<TakenUp, Report> {
    let files = InstanceFiles::new(layout, &InstanceName::default_of(package), package);
    if let Some(hold) = files.hold()?.filter(|hold| hold.forbids(purpose, clock::now())) {
        return Err(hold.refusal(purpose, files.instance(), package));
    }
    let store = Store::new(layout, package);
    let manifest = store.head(release)?;
    if manifest.agent.as_str() != SIDLE {
        let message =
            format!("cannot take {package} {release} up: it is an agent ({}), not this program", manifest.agent);
        return Err(
            Report::of(Class::Conflict, message).hint("its author has to pack sidle with bundles/sidle/sidle.toml")
        );
    }
    // Held to the end: two upgrades at a time would undo each other.
    let lock = store.lock_for(effect)?;
    let journal = files.journal()?;
    let file = manifest.commands.values().next().map(ToString::to_string).unwrap_or_default();
    let program = layout.versions(package).join(release.to_string()).join(&file);
    let before = journal.proven.clone();
    let mut own = OwnRelease { files, release, store, lock, file, program, before, called_by: None };
    own.called_by = CalledBy::find(layout, package, &own.supervised()?)?;
    if own.is_everywhere()? {
        return Ok(TakenUp::Already);
    }
    if effect == Effect::DryRun {
        own.try_out()?;
        return Ok(TakenUp::Would);
    }
    let Some(driving) = own.files.try_drive()? else {
        return Err(Report::of(Class::Locked, "cannot upgrade sidle: another command does so").hint("try again later"));
    };
    own.store.verify(release)?;
    own.try_out()?;
    // From now on the file names what to go back to, whatever `current` names.
    own.files.write_journal(&driving, &journal)?;
    match own.replace(renewed) {
        Ok(renewed) => {
            own.record(&driving, journal, purpose)?;
            Ok(TakenUp::Done { before: own.before, renewed })
        }
        Err(report) => Err(own.failed(&driving, report)),
    }
}

/// A release of this program, to be taken up on this host.
struct OwnRelease<'a> {
    files: InstanceFiles,
    release: &'a Release,
    store: Store,
    lock: PackageLock,
    /// Its file in the tree.
    file: String,
    program: PathBuf,
    /// The release that has worked last; None: a program outside the store.
    before: Option<Release>,
    /// The path to replace by a link; None: it is one already.
    called_by: Option<CalledBy>,
}

impl OwnRelease<'_> {
    fn is_everywhere(&self) -> Result<bool, Report> {
        let is_current = self.store.current(self.files.instance())?.as_ref() == Some(self.release);
        let is_proven = self.before.as_ref() == Some(self.release);
        Ok(is_current && is_proven && self.called_by.is_none() && self.outdated()?.is_empty())
    }

    /// Records that the release has worked.
    fn record(&self, driving: &DriverLock, mut journal: Journal, purpose: Purpose) -> Result<(), Report> {
        let mut verdicts = self.files.verdicts()?;
        verdicts.bad.remove(self.release);
        verdicts.declined.remove(self.release);
        if let Some(before) = self.before.clone().filter(|before| before != self.release) {
            if purpose == Purpose::Rollback {
                let reason = "left by a rollback".to_owned();
                verdicts.declined.insert(before.clone(), Verdict { at: clock::now(), reason });
            }
            journal.previous = Some(before);
        }
        journal.proven = Some(self.release.clone());
        self.files.write_journal(driving, &journal)?;
        self.files.write(driving, &verdicts)?;
        self.called_by.as_ref().map_or(Ok(()), CalledBy::forget)
    }

    /// Goes back, and records that the release has failed. Returns the report of both.
    fn failed(&self, driving: &DriverLock, mut report: Report) -> Report {
        let reason = report.message.clone();
        // First: nothing that cannot be read or written keeps a host on a program that has failed.
        report.causes.extend(self.go_back());
        let recorded = self.files.verdicts().and_then(|mut verdicts| {
            verdicts.bad.insert(self.release.clone(), Verdict { at: clock::now(), reason });
            self.files.write(driving, &verdicts)
        });
        if let Err(error) = recorded {
            report.causes.push(format!("not done: record that {} has failed: {error}", self.release));
        }
        Report { class: Class::RolledBack, ..report }
    }

    /// Makes the release current, and lets the supervisors execute it.
    fn replace(&self, renewed: &dyn Fn(&InstanceName)) -> Result<Vec<InstanceName>, Report> {
        self.store.flip(&self.lock, self.files.instance(), self.release)?;
        if let Some(called_by) = &self.called_by {
            called_by.link(&self.files.layout().package(self.files.package()), &self.file)?;
        }
        let outdated = self.outdated()?;
        for instance in &outdated {
            self.renew(instance).map_err(|why| {
                let message = format!("cannot upgrade sidle to {}: the supervisor of {instance} {why}", self.release);
                Report::of(Class::RolledBack, message)
                    .hint(format!("`journalctl -u sidle@{instance}` has its messages; `sidle status` shows what runs"))
            })?;
            renewed(instance);
        }
        Ok(outdated)
    }

    /// Undoes `replace`, as far as it came; returns what was done, and what could not be done.
    fn go_back(&self) -> Vec<String> {
        let mut told = Vec::new();
        let mut note = |step: &str, result: Result<(), Report>| match result {
            Ok(()) => told.push(step.to_owned()),
            Err(report) => told.push(format!("not done: {step}: {report}")),
        };
        match (&self.before, &self.called_by) {
            (Some(before), _) => {
                let flipped = self.store.flip(&self.lock, self.files.instance(), before).map_err(Report::from);
                note(&format!("sidle {before} is current again"), flipped);
            }
            // Only the program outside the store is left.
            (None, Some(_)) => {}
            (None, None) => note("no release has worked before: this one stays", Ok(())),
        }
        if let Some(called_by) = &self.called_by {
            note("the program before is at its place again", called_by.restore());
        }
        let renewed = self.supervised().map(|all| all.into_iter().filter(|(_, status)| self.runs_it(status)));
        for (instance, status) in renewed.into_iter().flatten() {
            let sent = status.supervisor.signal(SignalNumber::HUP).map(|_| ()).map_err(Report::from);
            note(&format!("the supervisor of {instance} executes the program before"), sent);
        }
        told
    }

    /// Lets the new program say its version, list the releases of this host, and read the files of each supervised instance. Nothing has changed yet.
    fn try_out(&self) -> Result<(), Report> {
        let version = self.release.version.to_string();
        self.ask(&["--version"], |said| said.output.trim_end().ends_with(&format!(" {version}")))?;
        self.ask(&["list"], |said| said.success)?;
        for (instance, _) in self.supervised()? {
            self.ask(&["supervise", instance.as_str(), "--check"], |said| said.success)?;
        }
        Ok(())
    }

    fn ask(&self, words: &[&str], is_good: impl Fn(&Said) -> bool) -> Result<(), Report> {
        let program = Program::new(&self.program).argument("--root").argument(self.files.layout().root());
        let said = words.iter().fold(program, Program::argument).answer_within(ANSWER_WAIT);
        let cause = match said {
            Ok(Some(said)) if is_good(&said) => return Ok(()),
            Ok(Some(said)) => said.errors.lines().next().unwrap_or("it gave an unexpected answer").to_owned(),
            Ok(None) => format!("it did not answer within {} s", ANSWER_WAIT.as_secs()),
            Err(error) => error.to_string(),
        };
        let words = words.join(" ");
        let message =
            format!("cannot upgrade sidle to {}: `sidle {words}` fails with it; nothing has changed", self.release);
        let hint = format!("try it: `{} {words}`", self.program.display());
        Err(Report::of(Class::Failed, message).because(cause).hint(hint))
    }

    /// All instances with a living supervisor.
    fn supervised(&self) -> Result<Vec<(InstanceName, SupervisorStatus)>, Report> {
        let layout = self.files.layout();
        let Some(runs) = Dir::open_if_exists(&layout.runs())? else { return Ok(Vec::new()) };
        let names = runs.names()?.into_iter().filter_map(|name| name.to_str()?.parse::<InstanceName>().ok());
        let mut found = Vec::new();
        for instance in names {
            if let Some(status) = SupervisorStatus::read(layout, &instance)? {
                found.push((instance, status));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }

    /// The instances whose supervisor runs another program.
    fn outdated(&self) -> Result<Vec<InstanceName>, Report> {
        let supervised = self.supervised()?.into_iter();
        Ok(supervised.filter(|(_, status)| !self.runs_it(status)).map(|(instance, _)| instance).collect())
    }

    /// True if a supervisor executes this release's program, and has written its status with it.
    fn runs_it(&self, status: &SupervisorStatus) -> bool {
        let program = file::canonical(&self.program).ok();
        program.is_some()
            && proc_fs::program(status.supervisor.pid) == program
            && status.version == self.release.version.to_string()
    }

    /// Renews one supervisor; the error says what it did instead.
    fn renew(&self, instance: &InstanceName) -> Result<(), String> {
        let read = || SupervisorStatus::read(self.files.layout(), instance).map_err(|error| error.to_string());
        let first = read()?.ok_or("has ended")?;
        first.supervisor.signal(SignalNumber::HUP).map_err(|error| error.to_string())?;
        let begun = clock::since_boot();
        let mut since = None;
        loop {
            clock::sleep(INTERVAL);
            let now = clock::since_boot();
            match read()? {
                Some(status) if status.supervisor != first.supervisor => return Err("has ended".to_owned()),
                Some(status) if self.runs_it(&status) => {
                    if now.saturating_sub(*since.get_or_insert(now)) >= STAY {
                        return Ok(());
                    }
                }
                Some(_) => since = None,
                None => return Err("has ended".to_owned()),
            }
            if now.saturating_sub(begun) >= RENEWAL_WAIT {
                return Err(format!("has not executed it within {} s", RENEWAL_WAIT.as_secs()));
            }
        }
    }
}
