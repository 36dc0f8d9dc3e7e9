//! The ground under proven releases: looked at now and then. Where it has changed since one was proven, that one is rehearsed again beside the
//! running agent, once for each such change.

use super::Supervisor;
use super::pace::HEALTH_LOOK;
use crate::failure::{Class, Report};
use crate::os::memory;
use crate::store::ground::{self, Ground};
use crate::switch::drive::{Moment, Policy};
use crate::switch::rehearse::Rehearsing;
use crate::switch::rehearsed::Rehearsed;
use crate::version::Release;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// How often a rehearsal is looked at whose end wakes the supervisor anyway: it may hang.
const REHEARSAL_LOOK: Duration = Duration::from_secs(1);

/// What is known of the ground, and what is being found out.
#[derive(Default)]
pub(super) struct GroundWatch {
    /// Since when there was somebody to look after.
    since: Option<Duration>,
    /// When the ground is looked at again; None: as soon as the agent has come up.
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
    ground: Ground,
    changes: Vec<String>,
}

impl GroundWatch {
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
        if self.driver.journal().live.is_some() && self.ground.under_way.take().is_some() {
            self.ground.due = None;
        }
    }

    /// Looks at the ground when that is due, and goes on with a rehearsal; gives how long it may rest.
    pub(super) fn watch_ground(&mut self, now: Moment) -> Duration {
        if self.driver.journal().live.is_some() || self.settings.rehearsals.policy == Policy::Off {
            return HEALTH_LOOK;
        }
        match self.find_out(now) {
            Ok(pause) => pause,
            Err(report) => {
                warn!(instance = %self.settings.instance, why = %report, "it can't be found out whether the host has changed");
                self.ground.trouble = Some(report.to_string());
                self.ground.due = Some(now.since_boot.saturating_add(self.settings.host_look));
                HEALTH_LOOK
            }
        }
    }

    fn find_out(&mut self, now: Moment) -> Result<Duration, Report> {
        if let Some(mut under_way) = self.ground.under_way.take() {
            let Some(came) = under_way.rehearsing.poll(now.since_boot) else {
                self.ground.under_way = Some(under_way);
                return Ok(REHEARSAL_LOOK);
            };
            let came =
                came.map_err(|message| Report { class: Class::Failed, message, causes: Vec::new(), hint: None })?;
            let UnderWay { shift: Shift { release, ground, changes }, .. } = under_way;
            let lacks = ground::lacks(&self.driver.store().manifest(&release)?);
            let files = self.driver.files();
            let rehearsed = Rehearsed::new(release, now.wall, (ground, changes), lacks, came);
            self.tell_rehearsed_again(&rehearsed);
            let again = files.rehearsed_again()?.with(rehearsed);
            files.write_rehearsed_again(self.driver.lock(), &again)?;
            // The other release may be due, too.
            self.ground.due = Some(now.since_boot);
        }
        if !self.is_time_to_look(now) {
            let left = self.ground.due.map(|due| due.saturating_sub(now.since_boot));
            return Ok(left.map_or(HEALTH_LOOK, |left| left.min(HEALTH_LOOK)));
        }
        self.ground.due = Some(now.since_boot.saturating_add(self.settings.host_look));
        let shift = self.shift()?;
        self.ground.trouble = None;
        let Some(shift) = shift else { return Ok(HEALTH_LOOK.min(self.settings.host_look)) };
        let begun = self.driver.rehearse_again(&shift.release, &self.processes, now)?;
        memory::give_back();
        self.ground.under_way = begun.map(|rehearsing| UnderWay { shift, rehearsing });
        Ok(REHEARSAL_LOOK)
    }

    /// A boot has better to do at first: the agent is to come up.
    fn is_time_to_look(&mut self, now: Moment) -> bool {
        let since = *self.ground.since.get_or_insert(now.since_boot);
        if let Some(due) = self.ground.due {
            return now.since_boot >= due;
        }
        let healthy = self.health.as_ref().is_some_and(|(_, status)| status.lacks.is_none());
        let late = now.since_boot.saturating_sub(since) >= self.settings.limits.start;
        healthy || late || self.restart.is_loop()
    }

    /// The first release, of the current one and the one that a rollback would lead to, whose ground has changed to one on which it was not
    /// rehearsed yet.
    fn shift(&mut self) -> Result<Option<Shift>, Report> {
        let journal = self.driver.journal();
        let releases: Vec<Release> = journal.proven.iter().chain(&journal.previous).cloned().collect();
        let (grounds, again) = (self.driver.files().grounds()?, self.driver.files().rehearsed_again()?);
        self.ground.needs.retain(|release, _| releases.contains(release));
        let libc = ground::libc();
        for release in releases {
            let Some(before) = grounds.of(&release) else { continue };
            if !self.ground.needs.contains_key(&release) {
                let needs = self.driver.store().manifest(&release)?.host_libraries;
                self.ground.needs.insert(release.clone(), needs);
                memory::give_back();
            }
            let ground = Ground::of(libc.clone(), self.ground.needs.get(&release).map_or(&[], Vec::as_slice));
            let changes = ground.changes(before);
            if !changes.is_empty() && again.of(&release, &ground).is_none() {
                return Ok(Some(Shift { release, ground, changes }));
            }
        }
        Ok(None)
    }

    /// The release before, where the current one would not come up on this host as it has become, and that one would. `None` also where that
    /// isn't known.
    pub(super) fn way_off_this_ground(&self) -> Option<(Release, String)> {
        let (journal, files, store) = (self.driver.journal(), self.driver.files(), self.driver.store());
        let (current, previous) = (journal.proven.as_ref()?, journal.previous.as_ref()?);
        let (grounds, again) = (files.grounds().ok()?, files.rehearsed_again().ok()?);
        let look = |release: &Release| store.manifest(release).ok().map(|manifest| Ground::look(&manifest));
        let fails = again.of(current, &look(current)?).filter(|again| !again.loads())?;
        let ground = look(previous)?;
        let stands = grounds.of(previous)?.changes(&ground).is_empty();
        let loads = again.of(previous, &ground).is_some_and(Rehearsed::loads);
        (journal.live.is_none() && (stands || loads)).then(|| {
            let why = fails.blocking.first().map_or("", String::as_str);
            (previous.clone(), format!("{current} would not come up on {}: {why}", fails.ground.libc_words()))
        })
    }
}
