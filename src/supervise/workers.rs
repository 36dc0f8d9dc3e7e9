//! The supervisor's worker processes, for repairs and scrubs of running releases, and the watch over their directories.

use super::Supervisor;
use super::tree::Repaired;
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::watch::Watch;
use crate::os::{OsError, clock, memory, random};
use crate::switch::process::own_commands;
use crate::version::Release;
use jiff::SignedDuration;
use std::mem;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::Duration;
use tracing::debug;

/// Each host adds a random time up to this part of the period, so that a fleet installed in one hour is not scrubbed in one hour.
const SCRUB_SPREAD: u32 = 5;

/// The worker processes.
#[derive(Debug, Default)]
pub(super) struct Workers {
    repair: Option<Child>,
    scrub: Option<Child>,
    fresh: Fresh,
    /// The random time of this host.
    spread: Option<Duration>,
}

/// A watch that the loop has not taken yet.
#[derive(Debug, Default)]
pub(super) enum Fresh {
    /// The present watch stays.
    #[default]
    AsBefore,
    /// Nothing is watched any more.
    Nothing,
    /// This watch.
    Watch(Watch),
}

impl Workers {
    /// The processes.
    pub(super) fn children(&self) -> impl Iterator<Item = u32> {
        self.repair.iter().chain(&self.scrub).map(Child::id)
    }

    /// Returns the new watch, once.
    pub(super) fn take_watch(&mut self) -> Fresh {
        mem::take(&mut self.fresh)
    }
}

impl Supervisor {
    /// Watches, repairs and scrubs the running trees; returns the time until the next turn.
    pub(super) fn watch_trees(&mut self, now: Moment) -> Duration {
        self.collect_workers(now);
        let mut running: Vec<Release> = self.processes.records().filter_map(|record| record.release.clone()).collect();
        running.sort();
        running.dedup();
        let journal = self.driver.journal();
        let scrub = journal.proven.as_ref().filter(|_| journal.live.is_none());
        let intents =
            self.tree.poll(&running, scrub.map(|release| (release, *self.settings.host.scrub_every)), now.since_boot);
        self.carry_out(intents, now);
        self.tree.rest(now.since_boot)
    }

    fn collect_workers(&mut self, now: Moment) {
        match ended(&mut self.workers.repair) {
            Ok(None) => {}
            Ok(Some(status)) => {
                let result = match status.code().map(self.settings.commands.class) {
                    Some(Some(Class::NothingToDo)) => Repaired::NothingToDo,
                    Some(None) => Repaired::Mended,
                    Some(Some(_)) | None => Repaired::Broken,
                };
                if let Some((release, is_lasting, intent)) = self.tree.repaired(result, now.since_boot) {
                    self.log_repair(&release, result, is_lasting);
                    self.carry_out(intent, now);
                }
            }
            Err(error) => {
                self.tree.repair_failed(now.since_boot);
                self.troubled(error.to_string());
            }
        }
        match ended(&mut self.workers.scrub) {
            Ok(None) => {}
            Ok(Some(status)) => {
                self.tree.scrub_is_over();
                self.log_scrub(status);
            }
            Err(error) => {
                self.tree.scrub_is_over();
                self.troubled(error.to_string());
            }
        }
    }

    pub(super) fn watch(&mut self, releases: &[Release], now: Moment) {
        let watch = if releases.is_empty() { Ok(None) } else { self.watch_directories(releases).map(Some) };
        self.tree.watched(watch.as_ref().map(|_| ()).map_err(Report::to_string), now.since_boot);
        self.workers.fresh = watch.ok().flatten().map_or(Fresh::Nothing, Fresh::Watch);
        memory::give_back();
    }

    fn watch_directories(&self, releases: &[Release]) -> Result<Watch, Report> {
        let store = self.driver.store();
        let mut directories = Vec::new();
        for release in releases {
            let tree = store.tree(release)?.path().to_owned();
            directories.extend(store.directories(release)?.into_iter().map(|path| tree.join(path)));
        }
        let watch = Watch::of_trees(directories.iter().map(AsRef::as_ref));
        Ok(watch.map_err(|source| OsError::new("watch", Path::new("the trees of running releases"), source))?)
    }

    pub(super) fn repair(&mut self, release: &Release, now: Moment) {
        debug!(instance = %self.settings.instance, "the files of {release} are verified");
        match self.start_own((self.settings.commands.repair)(&self.settings.package, release)) {
            Ok(child) => self.workers.repair = Some(child),
            Err(report) => {
                self.tree.repair_failed(now.since_boot);
                self.troubled(report.to_string());
            }
        }
    }

    pub(super) fn scrub_if_due(&mut self, release: &Release) {
        let started = self.is_scrub_due(release).and_then(|is_due| {
            is_due.then(|| self.start_own((self.settings.commands.scrub)(&self.settings.package))).transpose()
        });
        match started {
            Ok(Some(child)) => {
                debug!(instance = %self.settings.instance, "a scrub begins");
                self.workers.scrub = Some(child);
            }
            Ok(None) => self.tree.scrub_is_over(),
            Err(report) => {
                self.tree.scrub_is_over();
                self.troubled(report.to_string());
            }
        }
    }

    fn start_own(&self, words: Vec<String>) -> Result<Child, Report> {
        Ok(own_commands::program(self.driver.store().layout(), words)?.start_detached()?)
    }

    /// True if the last scrub of a release, also by a timer of the host, was too long ago.
    fn is_scrub_due(&mut self, release: &Release) -> Result<bool, Report> {
        let every = *self.settings.host.scrub_every;
        let spread = if let Some(spread) = self.workers.spread {
            spread
        } else {
            let most = u64::try_from((every / SCRUB_SPREAD).as_millis()).unwrap_or(u64::MAX);
            *self.workers.spread.insert(Duration::from_millis(random::up_to(most)?))
        };
        let store = self.driver.store();
        let last = store.scrubbed(release)?;
        // Without a time, a scrub was interrupted: it continues.
        let Some(last) = last.map_or_else(|| store.installed_at(release), |last| Ok(last.ended_at))? else {
            return Ok(true);
        };
        // A clock that was ahead then says nothing about the time since.
        let age = clock::now().duration_since(last).abs();
        Ok(age >= SignedDuration::try_from(every.saturating_add(spread)).unwrap_or(SignedDuration::MAX))
    }
}

/// The exit status of a worker that has ended. A worker that can't be waited for is given up: it would fail again every turn.
fn ended(worker: &mut Option<Child>) -> Result<Option<ExitStatus>, OsError> {
    let Some(mut child) = worker.take() else { return Ok(None) };
    let status =
        child.try_wait().map_err(|source| OsError::new("wait for", Path::new("a program of its own"), source))?;
    if status.is_none() {
        *worker = Some(child);
    }
    Ok(status)
}
