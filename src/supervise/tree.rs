//! The trees of the releases that run: watched, looked at and mended as soon as something changes in them, and scrubbed now and then. The work is
//! done by other processes of this program: the supervisor itself hashes nothing. A repair is in a hurry, since jobs wait for it; a scrub gives
//! way to everybody.

use super::Supervisor;
use super::pace::HEALTH_INTERVAL;
use crate::failure::Report;
use crate::os::process::{Program, own_program};
use crate::os::watch::Watch;
use crate::os::{OsError, clock, memory, random};
use crate::switch::driver::Moment;
use crate::version::Release;
use jiff::SignedDuration;
use std::io;
use std::mem;
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use tracing::debug;

/// How long changes may go on before the first look at them: whoever deletes a file mostly deletes more.
const GATHER: Duration = Duration::from_millis(200);
/// How long jobs wait for a tree if the word is not renewed.
const HOLD: Duration = Duration::from_secs(8);
/// How often a tree is looked at that can't be watched.
const POLL: Duration = Duration::from_secs(60);
/// So many looks in a row that leave something broken mean that it can't be mended: whoever deletes goes on while the first one mends.
const TRIES: u32 = 4;
/// How soon what could not be mended is tried again; then ever later.
const RETRY_MINIMUM: Duration = Duration::from_secs(60);
const RETRY_MAXIMUM: Duration = Duration::from_secs(60 * 60);
/// How often it is looked whether a scrub is due.
const SCRUB_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// A fleet that was installed in one hour is not scrubbed in one hour: each host adds up to this part of the period.
const SCRUB_SPREAD: u32 = 5;

/// Exit codes of `sidle repair` that say that the tree is whole now: it was mended, and there was nothing to do.
pub(super) const WHOLE: [i32; 2] = [0, NOTHING_TO_DO];
pub(super) const NOTHING_TO_DO: i32 = 3;

/// What is known of the running trees.
#[derive(Debug, Default)]
pub(super) struct TreeWatch {
    /// The releases that are looked after; None: this supervisor has not looked for any yet.
    releases: Option<Vec<Release>>,
    fresh: Fresh,
    /// Why there is no watch, and the trees are polled.
    unwatched: Option<String>,
    /// When to look next; None: when something changes.
    due: Option<Duration>,
    /// What is to be looked at in this round.
    round: Vec<Release>,
    work: Option<Work>,
    /// A scrub under way. It takes its time; a repair does not wait for it.
    scrub: Option<Child>,
    /// Looks in a row that left something broken.
    failures: u32,
    /// Until when jobs wait for the tree.
    held: Option<Duration>,
    /// The releases that stay broken.
    broken: Vec<Release>,
    scrub_look: Option<Duration>,
    /// This host's share of the spread.
    spread: Option<Duration>,
}

/// A watch that the loop has not taken yet.
#[derive(Debug, Default)]
pub(super) enum Fresh {
    /// The one before is as good.
    #[default]
    AsBefore,
    /// None any more.
    Nothing,
    /// This one.
    Watch(Watch),
}

/// A process of this program that repairs a release.
#[derive(Debug)]
struct Work {
    child: Child,
    release: Release,
}

impl TreeWatch {
    /// The processes at work.
    pub(super) fn children(&self) -> impl Iterator<Item = u32> {
        self.work.iter().map(|work| &work.child).chain(&self.scrub).map(Child::id)
    }

    /// What the loop is to watch the trees by from now on.
    pub(super) fn take_watch(&mut self) -> Fresh {
        mem::take(&mut self.fresh)
    }

    /// What stands against the trees.
    pub(super) fn trouble(&self) -> Option<String> {
        let names: Vec<String> = self.broken.iter().map(Release::to_string).collect();
        (!names.is_empty())
            .then(|| format!("{} is damaged and could not be mended: `sidle verify` tells more", names.join(", ")))
    }

    /// How the trees are looked after, where that is not by a watch.
    pub(super) fn unwatched(&self) -> Option<&str> {
        self.unwatched.as_deref()
    }
}

impl Supervisor {
    /// Something has changed in a running tree: jobs that begin now wait until it is known to be whole.
    pub(super) fn tree_changed(&mut self, now: Moment) {
        // A retry that is due later stands: what can't be mended is not tried with every further change.
        if self.tree.broken.is_empty() {
            let soon = now.since_boot.saturating_add(GATHER);
            self.tree.due = Some(self.tree.due.map_or(soon, |due| due.min(soon)));
            self.hold_jobs(now);
        }
    }

    /// Renewed while there is somebody at work, so that nobody waits for a supervisor that is gone. Without room for the word jobs take what
    /// comes.
    fn hold_jobs(&mut self, now: Moment) {
        let is_fresh = |until: Duration| until.saturating_sub(now.since_boot) > HOLD / 2;
        if !self.tree.held.is_some_and(is_fresh) {
            let until = now.since_boot.saturating_add(HOLD);
            self.tree.held = self.processes.hold_jobs(Some(until)).ok().map(|()| until);
        }
    }

    /// Looks after the trees of what runs; gives how long it may rest.
    pub(super) fn watch_trees(&mut self, now: Moment) -> Duration {
        self.tend(now).unwrap_or_else(|report| {
            self.troubled(report.to_string());
            self.tree.due = Some(now.since_boot.saturating_add(POLL));
            HEALTH_INTERVAL
        })
    }

    fn tend(&mut self, now: Moment) -> Result<Duration, Report> {
        let running: Vec<Release> = {
            let mut running: Vec<Release> =
                self.processes.records().filter_map(|record| record.release.clone()).collect();
            running.sort();
            running.dedup();
            running
        };
        if self.tree.releases.as_ref() != Some(&running) {
            // What runs already was left by a supervisor that is gone: nobody saw what has become of its tree since.
            let unseen = self.tree.releases.is_none() && !running.is_empty();
            self.tree.releases = Some(running);
            self.tree.broken.clear();
            self.renew_watch(now);
            if unseen {
                self.tree.due = Some(now.since_boot.saturating_add(GATHER));
            }
        }
        self.take_result(now)?;
        if self.tree.work.is_none() {
            self.begin_work(now)?;
        }
        self.scrub_when_due(now)?;
        let is_mending = self.tree.work.is_some() || self.tree.due.is_some();
        if self.tree.held.is_some() && is_mending && self.tree.broken.is_empty() {
            self.hold_jobs(now);
        } else if self.tree.held.take().is_some() {
            self.processes.hold_jobs(None)?;
        }
        let until_due = self.tree.due.map(|due| due.saturating_sub(now.since_boot));
        let rest = if self.tree.held.is_some() { HOLD / 4 } else { HEALTH_INTERVAL };
        Ok(until_due.filter(|_| self.tree.work.is_none()).map_or(rest, |left| left.min(rest)))
    }

    /// Watches every directory of the running trees. Directories that were made anew have no watch yet: this is done after each repair.
    fn renew_watch(&mut self, now: Moment) {
        let none = self.tree.releases.as_ref().is_none_or(Vec::is_empty);
        let watch = if none { Ok(None) } else { self.watch_directories().map(Some) };
        self.tree.unwatched = watch
            .as_ref()
            .err()
            .map(|report| format!("looked at every {} s, since they can't be watched: {report}", POLL.as_secs()));
        let polls = watch.is_err();
        self.tree.fresh = watch.ok().flatten().map_or(Fresh::Nothing, Fresh::Watch);
        self.tree.due = polls.then(|| now.since_boot.saturating_add(POLL));
        memory::give_back();
    }

    fn watch_directories(&self) -> Result<Watch, Report> {
        let store = self.driver.store();
        let mut directories = Vec::new();
        for release in self.tree.releases.iter().flatten() {
            let tree = store.tree(release)?.path().to_owned();
            directories.extend(store.directories(release)?.into_iter().map(|path| tree.join(path)));
        }
        let watch = Watch::of_trees(directories.iter().map(AsRef::as_ref));
        Ok(watch.map_err(|source| OsError::new("watch", Path::new("the trees of running releases"), source))?)
    }

    fn take_result(&mut self, now: Moment) -> Result<(), Report> {
        let Some(mut work) = self.tree.work.take() else { return Ok(()) };
        let Some(status) = work.child.try_wait().map_err(not_waited_for)? else {
            self.tree.work = Some(work);
            return Ok(());
        };
        let release = work.release;
        let is_whole = status.code().is_some_and(|code| WHOLE.contains(&code));
        self.tree.broken.retain(|broken| *broken != release);
        self.tree.failures = if is_whole { 0 } else { self.tree.failures.saturating_add(1) };
        let is_lasting = self.tree.failures >= TRIES;
        self.tell_repair(&release, status, is_lasting);
        if is_lasting {
            self.tree.broken.push(release);
        }
        if self.tree.round.is_empty() {
            let due = self.tree.due;
            self.renew_watch(now);
            if let Some(further) = self.tree.failures.checked_sub(TRIES) {
                let doubled = 1_u32.checked_shl(further).unwrap_or(u32::MAX);
                let pause = RETRY_MINIMUM.saturating_mul(doubled).min(RETRY_MAXIMUM);
                self.tree.due = Some(now.since_boot.saturating_add(pause));
            } else if status.code() != Some(NOTHING_TO_DO) {
                // Directories were without a watch for a moment; and what is left may have been broken while it was mended.
                self.tree.due = Some(now.since_boot.saturating_add(GATHER));
            } else if let Some(due) = due {
                // What changed while it was at work.
                self.tree.due = Some(self.tree.due.map_or(due, |other| other.min(due)));
            }
        }
        Ok(())
    }

    fn begin_work(&mut self, now: Moment) -> Result<(), Report> {
        if self.tree.due.is_some_and(|due| due <= now.since_boot) && self.tree.round.is_empty() {
            self.tree.due = None;
            self.tree.round = self.tree.releases.clone().unwrap_or_default();
        }
        let package = self.settings.package.to_string();
        if let Some(release) = self.tree.round.pop() {
            debug!(instance = %self.settings.instance, "the files of {release} are looked at");
            let arguments = ["repair", &package, &release.to_string(), "--watch"];
            self.tree.work = Some(Work { child: self.start_own(&arguments)?, release });
        }
        Ok(())
    }

    fn scrub_when_due(&mut self, now: Moment) -> Result<(), Report> {
        if let Some(mut scrub) = self.tree.scrub.take() {
            match scrub.try_wait().map_err(not_waited_for)? {
                None => self.tree.scrub = Some(scrub),
                Some(status) => self.tell_scrub(status),
            }
        } else if self.is_scrub_due(now)? {
            debug!(instance = %self.settings.instance, "a scrub begins");
            self.tree.scrub = Some(self.start_own(&["scrub", self.settings.package.as_str()])?);
        }
        Ok(())
    }

    fn start_own(&self, arguments: &[&str]) -> Result<Child, Report> {
        let mut program = Program::new(own_program()?).argument("--quiet").argument("--root");
        program = program.argument(self.driver.store().layout().root());
        for argument in arguments {
            program = program.argument(argument);
        }
        Ok(program.start_detached()?)
    }

    /// Whether the current release was scrubbed too long ago, by whomever: a timer of the host's serves as well.
    fn is_scrub_due(&mut self, now: Moment) -> Result<bool, Report> {
        let every = self.settings.scrub_every;
        let is_time = self.tree.scrub_look.is_none_or(|look| now.since_boot >= look);
        let journal = self.driver.journal();
        let (Some(release), None, true, false) = (&journal.proven, &journal.live, is_time, every.is_zero()) else {
            return Ok(false);
        };
        self.tree.scrub_look = Some(now.since_boot.saturating_add(SCRUB_INTERVAL.min(every)));
        let spread = if let Some(spread) = self.tree.spread {
            spread
        } else {
            let most = u64::try_from((every / SCRUB_SPREAD).as_millis()).unwrap_or(u64::MAX);
            *self.tree.spread.insert(Duration::from_millis(random::up_to(most)?))
        };
        let store = self.driver.store();
        let last = store.scrubbed(release)?;
        // One that was interrupted goes on.
        let Some(last) = last.map_or_else(|| store.installed_at(release), |last| Ok(last.ended_at))? else {
            return Ok(true);
        };
        let age = clock::now().duration_since(last);
        Ok(age >= SignedDuration::try_from(every.saturating_add(spread)).unwrap_or(SignedDuration::MAX))
    }
}

fn not_waited_for(source: io::Error) -> OsError {
    OsError::new("wait for", Path::new("a program of its own"), source)
}
