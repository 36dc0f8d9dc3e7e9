//! The host under proven releases: compared now and then with what it was when they were proven. Where it has changed, the release is rehearsed
//! again beside the running agent, once for each such change.

use super::Supervisor;
use super::intent::Intent;
use super::pace::HEALTH_INTERVAL;
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::memory;
use crate::store::host_fingerprint::{self, HostFingerprint};
use crate::switch::driver::Policy;
use crate::switch::journal::repeated::Rehearsed;
use crate::switch::rehearsal::performance::Rehearsing;
use crate::version::Release;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// How often a rehearsal is looked at whose end wakes the supervisor anyway: it may hang.
const REHEARSAL_INTERVAL: Duration = Duration::from_secs(1);

/// When the host is compared with what proven releases stood on. It touches nothing: its intents are acted on, and it is told what came of them.
#[derive(Debug, Clone, Default)]
pub struct HostChangeWatch {
    /// Since when there is a supervisor.
    since: Option<Duration>,
    /// When the host is looked at again; None: as soon as the agent has come up.
    due: Option<Duration>,
    is_rehearsing: bool,
    trouble: Option<String>,
}

/// What the watch needs to know.
#[derive(Debug, Clone, Copy)]
pub struct HostFacts {
    /// A switch is live: it rehearses what it needs, and may change the current release.
    pub is_switching: bool,
    /// The agent is healthy, or will not be.
    pub is_settled: bool,
    /// How long an agent may take to come up.
    pub start_limit: Duration,
}

impl HostChangeWatch {
    /// Why nothing could be found out.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// What is due.
    pub fn poll(&mut self, facts: HostFacts, now: Duration) -> Option<Intent> {
        if facts.is_switching {
            if self.is_rehearsing {
                (self.due, self.is_rehearsing) = (None, false);
                return Some(Intent::StopRehearsal);
            }
            return None;
        }
        if self.is_rehearsing {
            return Some(Intent::PollRehearsal);
        }
        // A boot has better to do at first: the agent is to come up.
        let since = *self.since.get_or_insert(now);
        let came_up = || facts.is_settled || now.saturating_sub(since) >= facts.start_limit;
        self.due.map_or_else(came_up, |due| now >= due).then_some(Intent::CheckHost)
    }

    /// How long until something is due.
    pub fn rest(&self, now: Duration) -> Duration {
        if self.is_rehearsing {
            return REHEARSAL_INTERVAL;
        }
        self.due.map_or(HEALTH_INTERVAL, |due| due.saturating_sub(now).min(HEALTH_INTERVAL))
    }

    /// The host was looked at; the next time is `after` from now. `is_rehearsing`: it has changed under a release, which is rehearsed again.
    pub fn looked(&mut self, is_rehearsing: bool, after: Duration, now: Duration) {
        (self.due, self.is_rehearsing, self.trouble) = (Some(now.saturating_add(after)), is_rehearsing, None);
    }

    /// The rehearsal is over: another release may be due, too.
    pub fn rehearsed(&mut self, now: Duration) {
        (self.due, self.is_rehearsing) = (Some(now), false);
    }

    /// Nothing could be found out, because of this.
    pub fn failed(&mut self, why: String, after: Duration, now: Duration) {
        (self.due, self.is_rehearsing, self.trouble) = (Some(now.saturating_add(after)), false, Some(why));
    }
}

/// The rehearsal of a release again, and what it takes to know whether one is due.
#[derive(Default)]
pub(super) struct HostRehearsal {
    /// The host libraries that releases need: a check reads no manifest that was read before.
    needs: BTreeMap<Release, Vec<String>>,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    shift: Shift,
    rehearsing: Rehearsing,
}

/// A release under which the host has changed since it was proven.
struct Shift {
    release: Release,
    fingerprint: HostFingerprint,
    changes: Vec<String>,
}

impl HostRehearsal {
    /// The program that runs now.
    pub(super) fn child(&self) -> Option<u32> {
        self.under_way.as_ref().and_then(|under_way| under_way.rehearsing.child())
    }

    pub(super) fn stop(&mut self) {
        self.under_way = None;
    }
}

impl Supervisor {
    /// Does what the change of the host makes necessary; gives how long it may rest.
    pub(super) fn watch_host(&mut self, now: Moment) -> Duration {
        if self.settings.rehearsals.policy == Policy::Off {
            return HEALTH_INTERVAL;
        }
        let healthy = self.health.as_ref().is_some_and(|(_, status)| status.lacks.is_none());
        let facts = HostFacts {
            is_switching: self.driver.journal().live.is_some(),
            is_settled: healthy || self.keeper.restart.is_loop(),
            start_limit: self.settings.limits.start,
        };
        let intent = self.host_change.poll(facts, now.since_boot);
        self.carry_out(intent, now);
        self.host_change.rest(now.since_boot)
    }

    /// Acts on one of the watch's intents.
    pub(super) fn run_host_check(&mut self, act: impl FnOnce(&mut Self, Moment) -> Result<(), Report>, now: Moment) {
        if let Err(report) = act(self, now) {
            warn!(instance = %self.settings.instance, why = %report, "it can't be found out whether the host has changed");
            self.host_change.failed(report.to_string(), self.settings.host_look, now.since_boot);
        }
    }

    /// Rehearses a release again where the host has changed under it.
    pub(super) fn check_host(&mut self, now: Moment) -> Result<(), Report> {
        let begun = match self.shift()? {
            None => None,
            Some(shift) => {
                let begun = self.driver.rehearse_again(&shift.release, &self.processes, now)?;
                memory::give_back();
                begun.map(|rehearsing| UnderWay { shift, rehearsing })
            }
        };
        self.host_change.looked(begun.is_some(), self.settings.host_look, now.since_boot);
        self.host_rehearsal.under_way = begun;
        Ok(())
    }

    /// Goes on with a rehearsal, and keeps what came of it.
    pub(super) fn poll_rehearsal(&mut self, now: Moment) -> Result<(), Report> {
        let Some(mut under_way) = self.host_rehearsal.under_way.take() else {
            self.host_change.rehearsed(now.since_boot);
            return Ok(());
        };
        let Some(came) = under_way.rehearsing.poll(now.since_boot) else {
            self.host_rehearsal.under_way = Some(under_way);
            return Ok(());
        };
        let came = came.map_err(|message| Report::of(Class::Failed, message))?;
        let UnderWay { shift: Shift { release, fingerprint, changes }, .. } = under_way;
        let lacks = host_fingerprint::lacks(&self.driver.store().manifest(&release)?);
        let files = self.driver.files();
        let rehearsed = Rehearsed::new(release, now.wall, fingerprint, changes, lacks, came);
        self.log_rehearsed_again(&rehearsed);
        let again = files.rehearsed_again()?.with(rehearsed);
        files.write_rehearsed_again(self.driver.lock(), &again)?;
        self.host_change.rehearsed(now.since_boot);
        Ok(())
    }

    /// The first release, of the current one and the one that a rollback would lead to, whose fingerprint has changed to one on which it was not
    /// rehearsed yet.
    fn shift(&mut self) -> Result<Option<Shift>, Report> {
        let journal = self.driver.journal();
        let releases: Vec<Release> = journal.proven.iter().chain(&journal.previous).cloned().collect();
        let (fingerprints, again) = (self.driver.files().host_fingerprints()?, self.driver.files().rehearsed_again()?);
        self.host_rehearsal.needs.retain(|release, _| releases.contains(release));
        let libc = host_fingerprint::libc();
        for release in releases {
            let Some(before) = fingerprints.of(&release) else { continue };
            if !self.host_rehearsal.needs.contains_key(&release) {
                let needs = self.driver.store().manifest(&release)?.host_libraries;
                self.host_rehearsal.needs.insert(release.clone(), needs);
                memory::give_back();
            }
            let fingerprint =
                HostFingerprint::of(libc.clone(), self.host_rehearsal.needs.get(&release).map_or(&[], Vec::as_slice));
            let changes = fingerprint.changes(before);
            if !changes.is_empty() && again.of(&release, &fingerprint).is_none() {
                return Ok(Some(Shift { release, fingerprint, changes }));
            }
        }
        Ok(None)
    }

    /// The release before, where the current one would not come up on this host as it has become, and that one would. `None` also where that
    /// isn't known.
    pub(super) fn way_off_this_host(&self) -> Option<(Release, String)> {
        let (journal, files, store) = (self.driver.journal(), self.driver.files(), self.driver.store());
        let (current, previous) = (journal.proven.as_ref()?, journal.previous.as_ref()?);
        let (fingerprints, again) = (files.host_fingerprints().ok()?, files.rehearsed_again().ok()?);
        let look = |release: &Release| store.manifest(release).ok().map(|manifest| HostFingerprint::read(&manifest));
        let fails = again.of(current, &look(current)?).filter(|again| !again.loads())?;
        let fingerprint = look(previous)?;
        let stands = fingerprints.of(previous)?.changes(&fingerprint).is_empty();
        let loads = again.of(previous, &fingerprint).is_some_and(Rehearsed::loads);
        (journal.live.is_none() && (stands || loads)).then(|| {
            let why = fails.blocking.first().map_or("", String::as_str);
            (previous.clone(), format!("{current} would not come up on {}: {why}", fails.fingerprint.libc_words()))
        })
    }
}
