//! The fingerprint under proven releases: looked at now and then. Where it has changed since one was proven, that one is rehearsed again beside the
//! running agent, once for each such change.

use super::Supervisor;
use super::pace::HEALTH_INTERVAL;
use crate::failure::{Class, Report};
use crate::os::memory;
use crate::store::host_fingerprint::{self, HostFingerprint};
use crate::switch::drive::{Moment, Policy};
use crate::switch::rehearse::Rehearsing;
use crate::switch::rehearsed::Rehearsed;
use crate::version::Release;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// How often a rehearsal is looked at whose end wakes the supervisor anyway: it may hang.
const REHEARSAL_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of the fingerprint, and what is being found out.
#[derive(Default)]
pub(super) struct HostChangeWatch {
    /// Since when there was somebody to look after.
    since: Option<Duration>,
    /// When the fingerprint is looked at again; None: as soon as the agent has come up.
    due: Option<Duration>,
    /// The host libraries that releases need: a look reads no manifest that was read before.
    needs: BTreeMap<Release, Vec<String>>,
    under_way: Option<UnderWay>,
    trouble: Option<String>,
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

impl HostChangeWatch {
    /// The program that runs now.
    pub(super) fn child(&self) -> Option<u32> {
        self.under_way.as_ref().and_then(|under_way| under_way.rehearsing.child())
    }

    /// Why nothing could be found out.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

impl Supervisor {
    /// A switch rehearses what it needs, and may change who is current: what is under way here ends.
    pub(super) fn leave_ground_to_a_switch(&mut self) {
        if self.driver.journal().live.is_some() && self.host_change.under_way.take().is_some() {
            self.host_change.due = None;
        }
    }

    /// Looks at the fingerprint when that is due, and goes on with a rehearsal; gives how long it may rest.
    pub(super) fn watch_host(&mut self, now: Moment) -> Duration {
        if self.driver.journal().live.is_some() || self.settings.rehearsals.policy == Policy::Off {
            return HEALTH_INTERVAL;
        }
        match self.find_out(now) {
            Ok(pause) => pause,
            Err(report) => {
                warn!(instance = %self.settings.instance, why = %report, "it can't be found out whether the host has changed");
                self.host_change.trouble = Some(report.to_string());
                self.host_change.due = Some(now.since_boot.saturating_add(self.settings.host_look));
                HEALTH_INTERVAL
            }
        }
    }

    fn find_out(&mut self, now: Moment) -> Result<Duration, Report> {
        if let Some(mut under_way) = self.host_change.under_way.take() {
            let Some(came) = under_way.rehearsing.poll(now.since_boot) else {
                self.host_change.under_way = Some(under_way);
                return Ok(REHEARSAL_INTERVAL);
            };
            let came =
                came.map_err(|message| Report { class: Class::Failed, message, causes: Vec::new(), hint: None })?;
            let UnderWay { shift: Shift { release, fingerprint, changes }, .. } = under_way;
            let lacks = host_fingerprint::lacks(&self.driver.store().manifest(&release)?);
            let files = self.driver.files();
            let rehearsed = Rehearsed::new(release, now.wall, (fingerprint, changes), lacks, came);
            self.tell_rehearsed_again(&rehearsed);
            let again = files.rehearsed_again()?.with(rehearsed);
            files.write_rehearsed_again(self.driver.lock(), &again)?;
            // The other release may be due, too.
            self.host_change.due = Some(now.since_boot);
        }
        if !self.is_time_to_look(now) {
            let left = self.host_change.due.map(|due| due.saturating_sub(now.since_boot));
            return Ok(left.map_or(HEALTH_INTERVAL, |left| left.min(HEALTH_INTERVAL)));
        }
        self.host_change.due = Some(now.since_boot.saturating_add(self.settings.host_look));
        let shift = self.shift()?;
        self.host_change.trouble = None;
        let Some(shift) = shift else { return Ok(HEALTH_INTERVAL.min(self.settings.host_look)) };
        let begun = self.driver.rehearse_again(&shift.release, &self.processes, now)?;
        memory::give_back();
        self.host_change.under_way = begun.map(|rehearsing| UnderWay { shift, rehearsing });
        Ok(REHEARSAL_INTERVAL)
    }

    /// A boot has better to do at first: the agent is to come up.
    fn is_time_to_look(&mut self, now: Moment) -> bool {
        let since = *self.host_change.since.get_or_insert(now.since_boot);
        if let Some(due) = self.host_change.due {
            return now.since_boot >= due;
        }
        let healthy = self.health.as_ref().is_some_and(|(_, status)| status.lacks.is_none());
        let late = now.since_boot.saturating_sub(since) >= self.settings.limits.start;
        healthy || late || self.restart.is_loop()
    }

    /// The first release, of the current one and the one that a rollback would lead to, whose fingerprint has changed to one on which it was not
    /// rehearsed yet.
    fn shift(&mut self) -> Result<Option<Shift>, Report> {
        let journal = self.driver.journal();
        let releases: Vec<Release> = journal.proven.iter().chain(&journal.previous).cloned().collect();
        let (fingerprints, again) = (self.driver.files().host_fingerprints()?, self.driver.files().rehearsed_again()?);
        self.host_change.needs.retain(|release, _| releases.contains(release));
        let libc = host_fingerprint::libc();
        for release in releases {
            let Some(before) = fingerprints.of(&release) else { continue };
            if !self.host_change.needs.contains_key(&release) {
                let needs = self.driver.store().manifest(&release)?.head.host_libraries;
                self.host_change.needs.insert(release.clone(), needs);
                memory::give_back();
            }
            let fingerprint =
                HostFingerprint::of(libc.clone(), self.host_change.needs.get(&release).map_or(&[], Vec::as_slice));
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
