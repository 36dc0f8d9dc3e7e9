//! Changes of the host: compares the host with the fingerprints of proven releases. After a change it repeats the rehearsal of a release, once for
//! each change, while the agent runs.

use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::memory;
use crate::store::host_fingerprint::{self, HostFingerprint};
use crate::store::preflight::Host;
use crate::supervise::Supervisor;
use crate::supervise::intent::Intent;
use crate::supervise::pace::HEALTH_INTERVAL;
use crate::switch::driver::Policy;
use crate::switch::journal::repeated::Rehearsed;
use crate::switch::rehearsal::performance::Rehearsing;
use crate::version::Release;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// How often a rehearsal is checked, in case it hangs: its end wakes the supervisor anyway.
const REHEARSAL_INTERVAL: Duration = Duration::from_secs(1);

/// Decides when the host is checked. It touches nothing: the supervisor acts on its intents and reports the results to it.
#[derive(Debug, Clone, Default)]
pub struct HostChangeWatch {
    /// The start of the supervisor.
    since: Option<Duration>,
    /// The time of the next check; None: as soon as the agent has come up.
    due: Option<Duration>,
    is_rehearsing: bool,
    trouble: Option<String>,
}

/// The facts that the decision needs.
#[derive(Debug, Clone, Copy)]
pub struct HostFacts {
    /// A switch is live: it has its own rehearsal, and may change the current release.
    pub is_switching: bool,
    /// The agent is healthy, or in a crash loop.
    pub is_settled: bool,
    /// How long an agent may take to come up.
    pub start_limit: Duration,
}

impl HostChangeWatch {
    /// Why the last check failed.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns the intent that is due.
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
        // After a boot the agent comes up first.
        let since = *self.since.get_or_insert(now);
        let came_up = || facts.is_settled || now.saturating_sub(since) >= facts.start_limit;
        self.due.map_or_else(came_up, |due| now >= due).then_some(Intent::CheckHost)
    }

    /// The time until an intent is due.
    pub fn rest(&self, facts: HostFacts, now: Duration) -> Duration {
        if facts.is_switching {
            return HEALTH_INTERVAL;
        }
        if self.is_rehearsing {
            return REHEARSAL_INTERVAL;
        }
        self.due.map_or(HEALTH_INTERVAL, |due| due.saturating_sub(now).min(HEALTH_INTERVAL))
    }

    /// Reports a check; the next is due `after` from now. `is_rehearsing`: the host has changed, and a rehearsal has begun.
    pub fn checked(&mut self, is_rehearsing: bool, after: Duration, now: Duration) {
        (self.due, self.is_rehearsing, self.trouble) = (Some(now.saturating_add(after)), is_rehearsing, None);
    }

    /// Reports the end of a rehearsal: another release may be due.
    pub fn rehearsed(&mut self, now: Duration) {
        (self.due, self.is_rehearsing) = (Some(now), false);
    }

    /// Reports a failed check or rehearsal.
    pub fn failed(&mut self, why: String, after: Duration, now: Duration) {
        (self.due, self.is_rehearsing, self.trouble) = (Some(now.saturating_add(after)), false, Some(why));
    }
}

/// A repeated rehearsal, and a cache for the check whether a rehearsal is due.
#[derive(Default)]
pub(in crate::supervise) struct HostRehearsal {
    /// The host libraries that releases need, so that each manifest is read only once.
    needs: BTreeMap<Release, Vec<String>>,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    shift: Shift,
    rehearsing: Rehearsing,
}

/// A release, and the changes of the host since it was proven.
struct Shift {
    release: Release,
    fingerprint: HostFingerprint,
    changes: Vec<String>,
}

impl HostRehearsal {
    /// The program that runs now, if any.
    pub(in crate::supervise) fn child(&self) -> Option<u32> {
        self.under_way.as_ref().and_then(|under_way| under_way.rehearsing.child())
    }

    pub(in crate::supervise) fn stop(&mut self) {
        self.under_way = None;
    }
}

impl Supervisor {
    /// Checks the host, if a check is due; returns the time until the next.
    pub(in crate::supervise) fn watch_host(&mut self, now: Moment) -> Duration {
        if self.settings.host.rehearsal == Policy::Off {
            return HEALTH_INTERVAL;
        }
        let healthy = self.health.as_ref().is_some_and(|(_, status)| status.lacks.is_none());
        let facts = HostFacts {
            is_switching: self.driver.journal().live.is_some(),
            is_settled: healthy || self.keeper.restart.is_loop(),
            start_limit: self.settings.host.limits().start,
        };
        let intent = self.host_change.poll(facts, now.since_boot);
        self.carry_out(intent, now);
        self.host_change.rest(facts, now.since_boot)
    }

    /// Runs one of the watch's intents, and reports its failure.
    pub(in crate::supervise) fn run_host_check(
        &mut self,
        act: impl FnOnce(&mut Self, Moment) -> Result<(), Report>,
        now: Moment,
    ) {
        if let Err(report) = act(self, now) {
            warn!(instance = %self.settings.instance, why = %report, "cannot check whether the host has changed");
            self.host_change.failed(report.to_string(), *self.settings.host.host_check_every, now.since_boot);
        }
    }

    /// Begins a rehearsal if the host has changed since a release was proven.
    pub(in crate::supervise) fn check_host(&mut self, now: Moment) -> Result<(), Report> {
        let begun = match self.shift()? {
            None => None,
            Some(shift) => {
                let begun = self.driver.rehearse_again(&shift.release, &self.processes, now)?;
                memory::give_back();
                begun.map(|rehearsing| UnderWay { shift, rehearsing })
            }
        };
        self.host_change.checked(begun.is_some(), *self.settings.host.host_check_every, now.since_boot);
        self.host_rehearsal.under_way = begun;
        Ok(())
    }

    /// Polls the rehearsal, and keeps its result.
    pub(in crate::supervise) fn poll_rehearsal(&mut self, now: Moment) -> Result<(), Report> {
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
        let lacks = host_fingerprint::lacks(&self.driver.store().head(&release)?, &Host::read());
        let files = self.driver.files();
        let rehearsed = Rehearsed::new(release, now.wall, fingerprint, changes, lacks, came);
        self.log_rehearsed_again(&rehearsed);
        let again = files.rehearsed_again()?.with(rehearsed);
        files.write(self.driver.lock(), &again)?;
        self.host_change.rehearsed(now.since_boot);
        Ok(())
    }

    /// Returns the current or the previous release, if its fingerprint has changed and there is no rehearsal with the new fingerprint yet.
    fn shift(&mut self) -> Result<Option<Shift>, Report> {
        let journal = self.driver.journal();
        let releases: Vec<Release> = journal.proven.iter().chain(&journal.previous).cloned().collect();
        let (fingerprints, again) = (self.driver.files().host_fingerprints()?, self.driver.files().rehearsed_again()?);
        self.host_rehearsal.needs.retain(|release, _| releases.contains(release));
        let libc = host_fingerprint::libc();
        for release in releases {
            let Some(before) = fingerprints.of(&release) else { continue };
            if !self.host_rehearsal.needs.contains_key(&release) {
                let needs = self.driver.store().head(&release)?.host_libraries;
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

    /// Returns the previous release, if the current release would not come up on the changed host and the previous release would. None also if
    /// that is unknown.
    pub(in crate::supervise) fn way_off_this_host(&self) -> Option<(Release, String)> {
        let (journal, files, store) = (self.driver.journal(), self.driver.files(), self.driver.store());
        let (current, previous) = (journal.proven.as_ref()?, journal.previous.as_ref()?);
        let (fingerprints, again) = (files.host_fingerprints().ok()?, files.rehearsed_again().ok()?);
        let look = |release: &Release| store.head(release).ok().map(|manifest| HostFingerprint::read(&manifest));
        let fails = again.of(current, &look(current)?).filter(|again| again.fails())?;
        let fingerprint = look(previous)?;
        let stands = fingerprints.of(previous)?.changes(&fingerprint).is_empty();
        let loads = again.of(previous, &fingerprint).is_some_and(Rehearsed::loads);
        (journal.live.is_none() && (stands || loads)).then(|| {
            let why = fails.blocking.first().map_or("", String::as_str);
            (previous.clone(), format!("{current} would not come up on {}: {why}", fails.fingerprint.libc_words()))
        })
    }
}
